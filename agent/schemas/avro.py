"""Parses Avro schemas. `agent.schemas.avro_reading` compares them.

Rule: a text that Avro's Java library rejects is rejected. Defaults are not validated, as in Confluent's registry
without `avro.validate.defaults`. Source: Apache Avro 1.12 specification, "Schema Declaration" and "Names".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.schemas.avro_reading import faults_reading
from agent.schemas.avro_types import AvroField, AvroType
from agent.schemas.json_text import Json, read_json, write_json, write_sorted_json
from agent.schemas.parsed import InvalidSchema, NamedText, Parsed
from coordinator.commands.registry import SchemaType

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ORDERS = frozenset({"ascending", "descending", "ignore"})
SHOWN_CHARS_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """Implements `Parsed`."""

    text: str
    normalized: str
    type: AvroType
    schema_type: SchemaType = SchemaType.AVRO

    def faults_reading(self, writer: Parsed) -> list[str]:
        assert isinstance(writer, AvroSchema)
        return faults_reading(reader=self.type, writer=writer.type)

    def is_same(self, other: Parsed) -> bool:
        return self.text == other.text

    def formatted(self, text_format: str) -> str:
        del text_format
        return self.text


def parse_avro(text: str, references: Sequence[NamedText] = ()) -> AvroSchema:
    """Read a schema whose names may be defined in `references`. Raises `InvalidSchema`."""
    builder = _Builder()
    for reference in references:
        builder.build(read_json(reference.text), "")
    value = read_json(text)
    return AvroSchema(text=write_json(value), normalized=write_sorted_json(value), type=builder.build(value, ""))


class _Builder:
    """Builds types from JSON, with the names that were defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def build(self, schema: Json, namespace: str) -> AvroType:
        """The type of a schema. `namespace`: that of the enclosing type."""
        match schema:
            case str():
                return self._by_name(schema, namespace)
            case list():
                return self._union(schema, namespace)
            case dict():
                return self._complex(schema, namespace)
            case _:
                raise InvalidSchema(f"a type must be a name, a list or an object, not {_shown(schema)}")

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(kind=name)
        named_type = self._named.get(f"{namespace}.{name}") if namespace and "." not in name else None
        named_type = named_type or self._named.get(name)
        if named_type is None:
            raise InvalidSchema(f"{_shown(name)} is not a defined name")
        return named_type

    def _union(self, branches: list[Json], namespace: str) -> AvroType:
        types = [self.build(branch, namespace) for branch in branches]
        seen: set[str] = set()
        for each in types:
            if each.kind == "union":
                raise InvalidSchema("a union is directly in another union")
            what = each.name or each.kind
            if what in seen:
                raise InvalidSchema(f"a union has {_shown(what)} twice")
            seen.add(what)
        return AvroType(kind="union", inner=types)

    def _complex(self, schema: dict[str, Json], namespace: str) -> AvroType:
        kind = schema.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"the type of an object is not a name: {_shown(schema)}")
        if kind in NAMED:
            return self._define(kind, schema, namespace)
        if kind == "array":
            return AvroType(kind=kind, inner=[self.build(_required(schema, "items", kind), namespace)])
        if kind == "map":
            return AvroType(kind=kind, inner=[self.build(_required(schema, "values", kind), namespace)])
        return self._by_name(kind, namespace)

    def _define(self, kind: str, schema: dict[str, Json], namespace: str) -> AvroType:
        full_name = _full_name(schema, kind, namespace)
        if full_name in self._named:
            raise InvalidSchema(f"{_shown(full_name)} is defined twice")
        if full_name in PRIMITIVES:
            raise InvalidSchema(f"{_shown(full_name)} is the name of a primitive type of Avro")
        own_namespace = full_name.rpartition(".")[0]
        made = AvroType(
            kind="record" if kind == "error" else kind,
            name=full_name,
            aliases=frozenset(_qualified(alias, own_namespace) for alias in _texts(schema, "aliases", full_name)),
        )
        self._named[full_name] = made
        if kind == "enum":
            _define_enum(made, schema)
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"the fixed {_shown(full_name)} has the size {_shown(size)}")
            made.size = size
        else:
            self._define_fields(made, schema, own_namespace)
        return made

    def _define_fields(self, made: AvroType, schema: dict[str, Json], namespace: str) -> None:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"the record {_shown(made.name)} has no list of fields")
        seen: set[str] = set()
        for each in fields:
            if not isinstance(each, dict):
                raise InvalidSchema(f"the record {_shown(made.name)} has a field that is not an object: {_shown(each)}")
            name = each.get("name")
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise InvalidSchema(f"the record {_shown(made.name)} has a field with the name {_shown(name)}")
            if name in seen:
                raise InvalidSchema(f"the record {_shown(made.name)} has the field {_shown(name)} twice")
            seen.add(name)
            if each.get("order", "ascending") not in ORDERS:
                raise InvalidSchema(f"the field {_shown(name)} has the order {_shown(each['order'])}")
            field_type = self.build(_required(each, "type", f"field {name}"), namespace)
            aliases = tuple(_texts(each, "aliases", name))
            made.fields.append(AvroField(name=name, aliases=aliases, type=field_type, has_default="default" in each))


def _define_enum(made: AvroType, schema: dict[str, Json]) -> None:
    symbols = _texts(schema, "symbols", made.name, is_required=True)
    for symbol in symbols:
        if not NAME.fullmatch(symbol):
            raise InvalidSchema(f"the enum {_shown(made.name)} has the symbol {_shown(symbol)}")
    if len(set(symbols)) < len(symbols):
        raise InvalidSchema(f"the enum {_shown(made.name)} has a symbol twice")
    default = schema.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(
            f"the enum {_shown(made.name)} has the default {_shown(default)}, which is not one of its symbols"
        )
    made.symbols = tuple(symbols)
    made.symbol_default = default if isinstance(default, str) else None


def _full_name(schema: dict[str, Json], kind: str, namespace: str) -> str:
    """The full name: a name with a dot is full, others get their own namespace or the enclosing one."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"a type of the kind {kind} has no name")
    given = schema.get("namespace", namespace)
    if not isinstance(given, str):
        raise InvalidSchema(f"the namespace of {_shown(name)} is {_shown(given)}")
    full_name = _qualified(name, given)
    if not all(NAME.fullmatch(part) for part in full_name.split(".")):
        raise InvalidSchema(f"{_shown(full_name)} is not a valid name")
    return full_name


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _required(schema: dict[str, Json], key: str, what: str) -> Json:
    if key not in schema:
        raise InvalidSchema(f"{what} has no {key}")
    return schema[key]


def _texts(schema: dict[str, Json], key: str, what: str, *, is_required: bool = False) -> list[str]:
    value = schema.get(key, None if is_required else [])
    if isinstance(value, list):
        texts = [each for each in value if isinstance(each, str)]
        if len(texts) == len(value):
            return texts
    raise InvalidSchema(f"the {key} of {_shown(what)} must be a list of texts")


def _shown(value: Json) -> str:
    text = value if isinstance(value, str) else write_json(value)
    return repr(text) if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]!r}..."
