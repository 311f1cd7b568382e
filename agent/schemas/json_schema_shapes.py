"""Splits a JSON Schema into shapes: constraints on one type of value each, or combined by allOf, anyOf or oneOf.

Rule: no constraint is lost. Keywords without a compatibility rule form a shape of their own, "rest".
Specification: JSON Schema validation drafts 4 to 2020-12, "Validation Keywords for ...".
"""

from dataclasses import dataclass

from agent.schemas.json_schema_nodes import SchemaNode
from agent.schemas.json_text import Json

STRING, NUMBER, OBJECT, ARRAY, BOOLEAN, NULL = "string", "number", "object", "array", "boolean", "null"
ENUM, NOT, REST, ANYTHING, NOTHING = "enum", "not", "rest", "anything", "nothing"
ALL, ANY, ONE = "allOf", "anyOf", "oneOf"
JOINED = frozenset({ALL, ANY, ONE})
CHOICES = frozenset({ANY, ONE})

KINDS = {"integer": NUMBER}
"""Types whose kind has another name."""
KEYWORDS = {
    STRING: frozenset({"maxLength", "minLength", "pattern"}),
    NUMBER: frozenset({"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"}),
    OBJECT: frozenset(
        {
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
            "maxProperties",
            "minProperties",
        }
    ),
    ARRAY: frozenset(
        {
            "items",
            "prefixItems",
            "additionalItems",
            "contains",
            "minContains",
            "maxContains",
            "maxItems",
            "minItems",
            "uniqueItems",
        }
    ),
}
"""The keywords for each type of value."""
WITHOUT_A_RULE = frozenset(
    {
        "if",
        "then",
        "else",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
        "disallow",
        "extends",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A constraint of a schema."""

    kind: str
    node: SchemaNode
    is_typed: bool = True
    """Whether values of other types are invalid."""
    is_integer: bool = False
    are_types: bool = False
    """Whether the members are types: no value has two of them."""
    members: "tuple[Shape | SchemaNode, ...]" = ()
    values: tuple[Json, ...] = ()


def shape_of(given: SchemaNode) -> Shape:
    """The shape of a schema whose reference is resolved."""
    schema = given.schema
    if not isinstance(schema, dict):
        return Shape(kind=NOTHING if schema is False else ANYTHING, node=given)
    parts = [*_types(given, schema), *_values(given, schema), *_joins(given, schema)]
    if given.is_reference:
        parts.append(Shape(kind=ALL, node=given, members=(given.referred(),)))
    if any(word in schema for word in WITHOUT_A_RULE):
        parts.append(Shape(kind=REST, node=given))
    if not parts:
        return Shape(kind=ANYTHING, node=given)
    return parts[0] if len(parts) == 1 else Shape(kind=ALL, node=given, members=tuple(parts))


def _types(node: SchemaNode, schema: dict[str, Json]) -> list[Shape]:
    named = schema.get("type")
    if named is None:
        return [
            Shape(kind=kind, node=node, is_typed=False)
            for kind, words in KEYWORDS.items()
            if any(word in schema for word in words)
        ]
    names = named if isinstance(named, list) else [named]
    shapes = [
        Shape(kind=KINDS.get(name, name), node=node, is_integer=name == "integer")
        for name in names
        if isinstance(name, str)
    ]
    return shapes if len(shapes) == 1 else [Shape(kind=ANY, node=node, are_types=True, members=tuple(shapes))]


def _values(node: SchemaNode, schema: dict[str, Json]) -> list[Shape]:
    shapes = []
    listed = schema.get("enum")
    if isinstance(listed, list):
        shapes.append(Shape(kind=ENUM, node=node, values=tuple(listed)))
    if "const" in schema:
        shapes.append(Shape(kind=ENUM, node=node, values=(schema["const"],)))
    return shapes


def _joins(node: SchemaNode, schema: dict[str, Json]) -> list[Shape]:
    shapes = []
    for kind in (ALL, ANY, ONE):
        members = schema.get(kind)
        if isinstance(members, list):
            shapes.append(Shape(kind=kind, node=node, members=tuple(map(node.inside, members))))
    if "not" in schema:
        shapes.append(Shape(kind=NOT, node=node, members=(node.inside(schema["not"]),)))
    return shapes
