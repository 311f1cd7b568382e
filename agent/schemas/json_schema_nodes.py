"""The parts of a JSON Schema, each with the resolver of its references.

Rule: the resolver has the part's base URI, which a `$id` inside the schema changes.
Specification: JSON Schema drafts 4 to 2020-12, "Schema References".
"""

from dataclasses import dataclass, replace
from typing import Any

from referencing import Resource
from referencing.jsonschema import DRAFT7, specification_with

from agent.schemas.json_text import Json
from agent.schemas.parsed import InvalidSchema

ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$ref",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords beside a reference that do not constrain values."""
ALONE_IN = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Drafts in which the keywords beside a reference are ignored."""
Resolver = Any
"""A resolver of the library `referencing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaNode:
    """A schema, or a part of one, with the resolver of its references."""

    schema: Json
    resolver: Resolver
    is_reference_alone: bool = True
    """Whether the keywords beside a reference are ignored, as they are up to draft 7."""

    def inside(self, part: Json) -> "SchemaNode":
        """The node of a direct part of this one; its own id changes the base URI of its references."""
        if isinstance(part, dict) and ("$id" in part or "id" in part):
            resolver = self.resolver.in_subresource(resource_of(part))
            return replace(self, schema=part, resolver=resolver)
        return replace(self, schema=part)

    def followed(self) -> "SchemaNode":
        """The node at the end of the references that stand alone; this node itself where it is no such reference.

        Raises `InvalidSchema` where the references form a circle.
        """
        node, seen = self, set[int]()
        while node.is_reference and (node.is_reference_alone or node.has_nothing_beside):
            if id(node.schema) in seen:
                raise InvalidSchema("a reference refers to itself")
            seen.add(id(node.schema))
            node = node.referred()
        return node

    @property
    def is_reference(self) -> bool:
        return isinstance(self.schema, dict) and isinstance(self.schema.get("$ref"), str)

    @property
    def has_nothing_beside(self) -> bool:
        return isinstance(self.schema, dict) and self.schema.keys() <= ANNOTATIONS

    def referred(self) -> "SchemaNode":
        """The target of the reference. It exists, because parsing checks all references."""
        assert isinstance(self.schema, dict)
        resolved = self.resolver.lookup(self.schema["$ref"])
        return replace(self, schema=resolved.contents, resolver=resolved.resolver)


def resource_of(value: Json) -> Resource[Any]:
    """The schema as a resource of the library `referencing`, by its draft; draft 7 without one."""
    dialect = value.get("$schema") if isinstance(value, dict) else None
    specification = specification_with(dialect, default=DRAFT7) if isinstance(dialect, str) else DRAFT7
    contents: Any = value
    return specification.create_resource(contents)
