"""The compatibility rules of `agent.schemas.json_schema_reading` for objects and arrays.

Rule: a content model is open if unnamed members may have any value, partially open if they have a schema, and closed if
there may be none. A name may be added if the writer's model was not open, and removed if the reader's is not closed.
Source: as for `agent.schemas.json_schema_reading`.
"""
# Without stubs, pyright does not see functions that are made at import.
# pyright: reportAttributeAccessIssue=false

from typing import Protocol

from agent.schemas.json_schema_limits import fault, limit_faults, schema_dict
from agent.schemas.json_schema_nodes import SchemaNode
from agent.schemas.json_schema_shapes import ANYTHING, NOTHING, Shape, shape_of
from agent.schemas.json_text import Json
from agent.schemas.parsed import Incomparable


class SchemaComparison(Protocol):
    """The comparison that calls these rules."""

    def faults(self, before: SchemaNode, after: SchemaNode, path: str) -> list[str]: ...


def object_faults(comparison: SchemaComparison, before: Shape, after: Shape, path: str) -> list[str]:
    was, now = schema_dict(before), schema_dict(after)
    faults = _required_faults(was, now, path)
    faults += _property_faults(comparison, before.node, after.node, path)
    faults += _additional_faults(comparison, before.node, after.node, "additionalProperties", path)
    faults += _pattern_faults(comparison, before.node, after.node, path)
    faults += _part_faults(comparison, before.node, after.node, "propertyNames", path)
    faults += _dependency_faults(comparison, before.node, after.node, path)
    faults += limit_faults(was, now, "maxProperties", path, is_most=True)
    faults += limit_faults(was, now, "minProperties", path, is_most=False)
    return faults


def array_faults(comparison: SchemaComparison, before: Shape, after: Shape, path: str) -> list[str]:
    was, now = schema_dict(before), schema_dict(after)
    faults = _item_faults(comparison, before.node, after.node, path)
    faults += _part_faults(comparison, before.node, after.node, "contains", path)
    for word, is_most in (("maxItems", True), ("minItems", False), ("maxContains", True), ("minContains", False)):
        faults += limit_faults(was, now, word, path, is_most=is_most)
    if now.get("uniqueItems") is True and was.get("uniqueItems") is not True:
        faults.append(fault("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems"))
    return faults


def _dict(schema: Json, word: str) -> dict[str, Json]:
    value = schema.get(word) if isinstance(schema, dict) else None
    return value if isinstance(value, dict) else {}


def _names(schema: dict[str, Json], word: str) -> list[str]:
    value = schema.get(word)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _required_faults(was: dict[str, Json], now: dict[str, Json], path: str) -> list[str]:
    """Names that became required without a default."""
    known, properties = set(_names(was, "required")), _dict(now, "properties")
    added = [name for name in _names(now, "required") if name not in known]
    without = [name for name in added if "default" not in _dict(properties, name)]
    return [fault("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}") for name in without]


def _property_faults(comparison: SchemaComparison, before: SchemaNode, after: SchemaNode, path: str) -> list[str]:
    was, now = _dict(before.schema, "properties"), _dict(after.schema, "properties")
    faults: list[str] = []
    for name in dict.fromkeys((*was, *now)):
        where = f"{path}/properties/{name}"
        if name not in now:
            faults += _removed_faults(comparison, before.inside(was[name]), _model(after, name), "PROPERTY", where)
        elif name not in was:
            faults += _added_faults(comparison, _model(before, name), after.inside(now[name]), "PROPERTY", where)
        else:
            faults += comparison.faults(before.inside(was[name]), after.inside(now[name]), where)
    return faults


def _model(node: SchemaNode, name: str) -> SchemaNode:
    """The schema for the values of a name that is not among the properties."""
    for pattern, part in _dict(node.schema, "patternProperties").items():
        if _matches(pattern, name):
            return node.inside(part)
    assert isinstance(node.schema, dict)
    return node.inside(node.schema.get("additionalProperties", True))


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a name, by RE2: it matches in linear time, whatever the pattern."""
    import pyarrow
    import pyarrow.compute as compute

    try:
        return bool(compute.match_substring_regex(pyarrow.array([name]), pattern)[0].as_py())
    except pyarrow.ArrowInvalid as error:
        raise Incomparable(f"RE2 does not support the pattern {pattern[:40]!r}") from error


def _removed_faults(
    comparison: SchemaComparison, was: SchemaNode, model: SchemaNode, what: str, path: str
) -> list[str]:
    kind = shape_of(model.followed()).kind
    if kind == ANYTHING or shape_of(was.followed()).kind == NOTHING:
        return []
    if kind == NOTHING:
        return [fault(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]
    faults = comparison.faults(was, model, path)
    return [fault(f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path), *faults] if faults else []


def _added_faults(comparison: SchemaComparison, model: SchemaNode, now: SchemaNode, what: str, path: str) -> list[str]:
    kind = shape_of(model.followed()).kind
    if kind == NOTHING or shape_of(now.followed()).kind == ANYTHING:
        return []
    if kind == ANYTHING:
        return [fault(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", path)]
    faults = comparison.faults(model, now, path)
    return [fault(f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path), *faults] if faults else []


def _additional_faults(
    comparison: SchemaComparison, before: SchemaNode, after: SchemaNode, word: str, path: str
) -> list[str]:
    assert isinstance(before.schema, dict)
    assert isinstance(after.schema, dict)
    was, now = before.inside(before.schema.get(word, True)), after.inside(after.schema.get(word, True))
    faults = comparison.faults(was, now, f"{path}/{word}")
    name = "ADDITIONAL_PROPERTIES" if word == "additionalProperties" else "ADDITIONAL_ITEMS"
    if not faults:
        return []
    if shape_of(now.followed()).kind == NOTHING:
        return [fault(f"{name}_REMOVED", f"{path}/{word}")]
    if shape_of(was.followed()).kind == ANYTHING:
        return [fault(f"{name}_NARROWED", f"{path}/{word}")]
    return faults


def _pattern_faults(comparison: SchemaComparison, before: SchemaNode, after: SchemaNode, path: str) -> list[str]:
    """The faults of patternProperties: like properties, for each pattern."""
    assert isinstance(before.schema, dict)
    assert isinstance(after.schema, dict)
    was, now = _dict(before.schema, "patternProperties"), _dict(after.schema, "patternProperties")
    faults: list[str] = []
    for pattern in dict.fromkeys((*was, *now)):
        where = f"{path}/patternProperties/{pattern}"
        if pattern not in now:
            model = after.inside(after.schema.get("additionalProperties", True))
            faults += _removed_faults(comparison, before.inside(was[pattern]), model, "PATTERN_PROPERTY", where)
        elif pattern not in was:
            model = before.inside(before.schema.get("additionalProperties", True))
            faults += _added_faults(comparison, model, after.inside(now[pattern]), "PATTERN_PROPERTY", where)
        else:
            faults += comparison.faults(before.inside(was[pattern]), after.inside(now[pattern]), where)
    return faults


def _part_faults(
    comparison: SchemaComparison, before: SchemaNode, after: SchemaNode, word: str, path: str
) -> list[str]:
    """The faults of a keyword with one schema; a missing keyword allows everything."""
    assert isinstance(before.schema, dict)
    assert isinstance(after.schema, dict)
    if word not in after.schema:
        return []
    was = before.inside(before.schema.get(word, True))
    return comparison.faults(was, after.inside(after.schema[word]), f"{path}/{word}")


def _dependency_faults(comparison: SchemaComparison, before: SchemaNode, after: SchemaNode, path: str) -> list[str]:
    faults: list[str] = []
    names_was, parts_was = _dependencies(before.schema)
    names_now, parts_now = _dependencies(after.schema)
    for name, required in names_now.items():
        if name not in names_was:
            faults.append(fault("DEPENDENCY_ARRAY_ADDED", f"{path}/dependencies/{name}"))
        elif not names_was[name] >= required:
            faults.append(fault("DEPENDENCY_ARRAY_EXTENDED", f"{path}/dependencies/{name}"))
    for name, part in parts_now.items():
        if name not in parts_was:
            faults.append(fault("DEPENDENCY_SCHEMA_ADDED", f"{path}/dependencies/{name}"))
        else:
            where = f"{path}/dependencies/{name}"
            faults += comparison.faults(before.inside(parts_was[name]), after.inside(part), where)
    return faults


def _dependencies(schema: Json) -> tuple[dict[str, set[str]], dict[str, Json]]:
    """The names and the schemas that each name requires; since draft 2019-09 in two keywords of their own."""
    both = {**_dict(schema, "dependencies"), **_dict(schema, "dependentRequired")}
    names = {
        key: {each for each in value if isinstance(each, str)} for key, value in both.items() if isinstance(value, list)
    }
    parts = {key: value for key, value in both.items() if not isinstance(value, list)}
    return names, {**parts, **_dict(schema, "dependentSchemas")}


def _item_faults(comparison: SchemaComparison, before: SchemaNode, after: SchemaNode, path: str) -> list[str]:
    (was, rest_was), (now, rest_now) = _items(before), _items(after)
    faults: list[str] = []
    for number in range(max(len(was), len(now))):
        where = f"{path}/items/{number}"
        if number >= len(now):
            faults += _removed_faults(comparison, was[number], rest_now, "ITEM", where)
        elif number >= len(was):
            faults += _added_faults(comparison, rest_was, now[number], "ITEM", where)
        else:
            faults += comparison.faults(was[number], now[number], where)
    return faults + comparison.faults(rest_was, rest_now, f"{path}/items")


def _items(node: SchemaNode) -> tuple[list[SchemaNode], SchemaNode]:
    """The schemas of the first items, and that of all others.

    The keywords are `items` and `additionalItems` until draft 2019-09, then `prefixItems` and `items`.
    """
    schema = node.schema
    assert isinstance(schema, dict)
    items, prefix = schema.get("items", True), schema.get("prefixItems")
    if isinstance(prefix, list):
        return list(map(node.inside, prefix)), node.inside(items)
    if isinstance(items, list):
        return list(map(node.inside, items)), node.inside(schema.get("additionalItems", True))
    return [], node.inside(items)
