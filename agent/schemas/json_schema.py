"""JSON Schemas: read, checked against the draft that they name, and their references followed.

Rule: every reference leads somewhere among what was given; nothing is fetched. Without `$schema` it is draft 7, as in
Confluent's registry. Specification: JSON Schema drafts 4 to 2020-12. Whose records can be read:
`agent.schemas.json_schema_reading`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from agent.schemas.json_text import Json, read_json, write_json, write_sorted_json
from agent.schemas.parsed import InvalidSchema, NamedText, Parsed
from coordinator.registry_commands import SchemaType

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
"""What may stand beside a reference and asks nothing."""
ALONE_IN = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Drafts in which nothing counts that stands beside a reference."""
VALUES = frozenset({"enum", "const", "default", "examples"})
"""Under these stand values, not schemas."""
SHOWN_CHARS_MAX = 200
_NewRegistry: Any = Registry
"""Type checkers do not see the parameters of its class."""
Resolver = Any
"""`referencing` types its resolvers by what they hold; here it is JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A schema, or a part of one, and how its references are followed from there."""

    schema: Json
    resolver: Resolver
    is_reference_alone: bool = True
    """Whether nothing counts that stands beside a reference: so it is until draft 7."""

    def inside(self, part: Json) -> "Place":
        """A part that stands in this one."""
        if isinstance(part, dict) and ("$id" in part or "id" in part):
            resolver = self.resolver.in_subresource(_resource(part))
            return replace(self, schema=part, resolver=resolver)
        return replace(self, schema=part)

    def followed(self) -> "Place":
        """What the part stands for: itself, or what it refers to and nothing else."""
        place, seen = self, set[int]()
        while place.is_reference and (place.is_reference_alone or place.has_nothing_beside):
            if id(place.schema) in seen:
                raise InvalidSchema("a reference leads back to itself")
            seen.add(id(place.schema))
            place = place.referred()
        return place

    @property
    def is_reference(self) -> bool:
        return isinstance(self.schema, dict) and isinstance(self.schema.get("$ref"), str)

    @property
    def has_nothing_beside(self) -> bool:
        return isinstance(self.schema, dict) and self.schema.keys() <= ANNOTATIONS

    def referred(self) -> "Place":
        """What the reference leads to. That it leads somewhere was checked when the schema was read."""
        assert isinstance(self.schema, dict)
        found = self.resolver.lookup(self.schema["$ref"])
        return replace(self, schema=found.contents, resolver=found.resolver)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Implements `Parsed`."""

    text: str
    normalized: str
    root: Place
    schema_type: SchemaType = SchemaType.JSON

    def faults_reading(self, writer: Parsed) -> list[str]:
        from agent.schemas.json_schema_reading import faults_reading

        assert isinstance(writer, JsonSchema)
        return faults_reading(reader=self.root, writer=writer.root)

    def is_same(self, other: Parsed) -> bool:
        return self.text == other.text

    def formatted(self, wanted: str) -> str:
        del wanted
        return self.text


def parse_json_schema(text: str, references: Sequence[NamedText] = ()) -> JsonSchema:
    """Read a schema whose `$ref`s may name `references`. Raises `InvalidSchema`."""
    value = read_json(text)
    named = {reference.name: _resource(_checked(read_json(reference.text), reference.name)) for reference in references}

    def by_last_part(uri: str) -> Resource[Any]:
        """A relative reference counts from the `$id`; who registered it named it as it stands in the text."""
        for name, resource in named.items():
            if uri.endswith(f"/{name}"):
                return resource
        raise NoSuchResource(uri)

    registry = _NewRegistry(retrieve=by_last_part).with_resources(named.items())
    resource = _resource(_checked(value, "the schema"))
    dialect = value.get("$schema", "draft-07") if isinstance(value, dict) else ""
    is_alone = any(draft in dialect for draft in ALONE_IN) if isinstance(dialect, str) else True
    root = Place(schema=value, resolver=registry.resolver_with_root(resource), is_reference_alone=is_alone)
    _check_references(root)
    return JsonSchema(text=write_json(value), normalized=write_sorted_json(value), root=root)


def _checked(value: Json, what: str) -> Json:
    """The same, if it is a schema of its draft."""
    if not isinstance(value, dict | bool):
        raise InvalidSchema(f"{what} is neither an object nor true or false")
    try:
        check: Any = validator_for(value, default=Draft7Validator).check_schema
        check(value)
    except SchemaError as error:
        where = "/".join(str(part) for part in error.absolute_path)
        raise InvalidSchema(f"{what} breaks its draft at #/{where}: {error.message[:SHOWN_CHARS_MAX]}") from error
    except RecursionError as error:
        raise InvalidSchema(f"{what} is nested too deep for the checks of its draft") from error
    return value


def _resource(value: Json) -> Resource[Any]:
    dialect = value.get("$schema") if isinstance(value, dict) else None
    specification = specification_with(dialect, default=DRAFT7) if isinstance(dialect, str) else DRAFT7
    contents: Any = value
    return specification.create_resource(contents)


def _check_references(root: Place) -> None:
    for place in _parts(root):
        if place.is_reference:
            assert isinstance(place.schema, dict)
            reference = str(place.schema["$ref"])
            try:
                place.followed()
            except Unresolvable as error:
                told = f"the reference {reference[:SHOWN_CHARS_MAX]!r} leads nowhere: name it in references"
                raise InvalidSchema(told) from error
            except (ValueError, TypeError, KeyError) as error:
                raise InvalidSchema(f"the reference {reference[:SHOWN_CHARS_MAX]!r} cannot be read") from error


def _parts(place: Place) -> Iterator[Place]:
    """The schema and all that stands in it, values apart."""
    waiting = [place]
    while waiting:
        here = waiting.pop()
        yield here
        if isinstance(here.schema, dict):
            waiting += [here.inside(part) for key, part in here.schema.items() if key not in VALUES]
        elif isinstance(here.schema, list):
            waiting += [here.inside(part) for part in here.schema]
