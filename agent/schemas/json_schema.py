"""Parses JSON Schemas: checks them against their draft, and resolves their references.

Rule: every reference has to resolve in the given schemas; nothing is fetched. Without `$schema` the draft is 7, as in
Confluent's registry. Specification: JSON Schema drafts 4 to 2020-12. `agent.schemas.json_schema_reading` compares them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable

from agent.schemas.json_schema_nodes import ALONE_IN, SchemaNode, resource_of
from agent.schemas.json_schema_reading import faults_reading
from agent.schemas.json_text import Json, read_json, write_json, write_sorted_json
from agent.schemas.parsed import InvalidSchema, NamedText, Parsed
from coordinator.commands.registry import SchemaType

VALUES = frozenset({"enum", "const", "default", "examples"})
"""Keywords that hold values, not schemas."""
SHOWN_CHARS_MAX = 200
_NewRegistry: Any = Registry
"""Typed as Any: type checkers do not see the parameters of its class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Implements `Parsed`."""

    text: str
    normalized: str
    root: SchemaNode
    schema_type: SchemaType = SchemaType.JSON

    def faults_reading(self, writer: Parsed) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return faults_reading(reader=self.root, writer=writer.root)

    def is_same(self, other: Parsed) -> bool:
        return self.text == other.text

    def formatted(self, text_format: str) -> str:
        del text_format
        return self.text


def parse_json_schema(text: str, references: Sequence[NamedText] = ()) -> JsonSchema:
    """Read a schema whose `$ref`s may name `references`. Raises `InvalidSchema`."""
    value = read_json(text)
    named = {
        reference.name: resource_of(_checked(read_json(reference.text), reference.name)) for reference in references
    }

    def by_last_part(uri: str) -> Resource[Any]:
        """The schema for a relative reference: it is resolved against `$id`, but registered with its relative name."""
        for name, resource in named.items():
            if uri.endswith(f"/{name}"):
                return resource
        raise NoSuchResource(uri)

    registry = _NewRegistry(retrieve=by_last_part).with_resources(named.items())
    resource = resource_of(_checked(value, "the schema"))
    dialect = value.get("$schema", "draft-07") if isinstance(value, dict) else ""
    is_alone = any(draft in dialect for draft in ALONE_IN) if isinstance(dialect, str) else True
    root = SchemaNode(schema=value, resolver=registry.resolver_with_root(resource), is_reference_alone=is_alone)
    _check_references(root)
    return JsonSchema(text=write_json(value), normalized=write_sorted_json(value), root=root)


def _checked(value: Json, what: str) -> Json:
    """The value, if it is a valid schema of its draft. Raises `InvalidSchema`."""
    if not isinstance(value, dict | bool):
        raise InvalidSchema(f"{what} must be an object, true or false")
    try:
        check: Any = validator_for(value, default=Draft7Validator).check_schema
        check(value)
    except SchemaError as error:
        where = "/".join(str(part) for part in error.absolute_path)
        raise InvalidSchema(f"{what} violates its draft at #/{where}: {error.message[:SHOWN_CHARS_MAX]}") from error
    except RecursionError as error:
        raise InvalidSchema(f"{what} is nested too deeply to be checked against its draft") from error
    return value


def _check_references(root: SchemaNode) -> None:
    for node in _parts(root):
        if node.is_reference:
            assert isinstance(node.schema, dict)
            reference = str(node.schema["$ref"])
            try:
                node.followed()
            except Unresolvable as error:
                message = (
                    f"the reference {reference[:SHOWN_CHARS_MAX]!r} cannot be resolved: add its schema to references"
                )
                raise InvalidSchema(message) from error
            except (ValueError, TypeError, KeyError) as error:
                raise InvalidSchema(f"the reference {reference[:SHOWN_CHARS_MAX]!r} cannot be read") from error


def _parts(node: SchemaNode) -> Iterator[SchemaNode]:
    """The schema and all schemas inside it."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        yield here
        if isinstance(here.schema, dict):
            waiting += [here.inside(part) for key, part in here.schema.items() if key not in VALUES]
        elif isinstance(here.schema, list):
            waiting += [here.inside(part) for part in here.schema]
