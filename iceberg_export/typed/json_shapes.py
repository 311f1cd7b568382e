"""Converts JSON Schemas to shapes, and decodes JSON records to Python values.

Only types, properties and items of a schema matter here: the producer has validated the records. Where the type is
open, the column is JSON. Formats are annotations and do not change a type.
Specification: JSON Schema 2020-12 and draft 7, "type", "properties", "items", "$ref".
"""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urljoin

from iceberg_export.typed.shapes import (
    JSON_TEXT,
    UNREADABLE,
    Field,
    Form,
    Items,
    Pairs,
    PrimitiveKind,
    Scalar,
    SchemaUnusable,
    Shape,
    ShapeBudget,
    Struct,
    Untyped,
    flattened,
    key_picker,
)
from protocol.decoding import JsonDecoder, decode_json

_SCALARS: Mapping[str, Scalar] = {
    "boolean": Scalar(kind=PrimitiveKind.BOOLEAN),
    "integer": Scalar(kind=PrimitiveKind.LONG, form=Form.JSON_NUMBER),
    "number": Scalar(kind=PrimitiveKind.DOUBLE, form=Form.JSON_NUMBER),
    "string": Scalar(kind=PrimitiveKind.STRING),
}

_decoder = JsonDecoder(object)


class JsonReader:
    """Reads records of one JSON Schema. Implements `decode.ValueReader`."""

    fast = flat = None

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """`references`: the referenced schemas by the names in the schema. Raises `SchemaUnusable`."""
        try:
            documents = {name: decode_json(each) for name, each in (references or {}).items()}
            document = decode_json(text)
            self.shape = flattened(_JsonShapes(documents).of(document, _Base(document, ""), ()))
        except UNREADABLE as error:
            raise SchemaUnusable(f"the JSON schema cannot be used: {type(error).__name__}: {error}") from error

    def read(self, data: bytes) -> object:
        """The value of a record. Raises `Undecodable`, a `ValueError`, for invalid or too deeply nested JSON."""
        return _decoder.decode(data)


class _Base:
    """A document, and the base URI of its references."""

    def __init__(self, document: Untyped, address: str) -> None:
        self.document = document
        own = document.get("$id", document.get("id")) if isinstance(document, dict) else None
        self.address = own if isinstance(own, str) else address


class _JsonShapes:
    """Converts schemas to shapes. `outer`: the `id()`s of the enclosing schemas."""

    def __init__(self, documents: Mapping[str, Untyped]) -> None:
        self._bases = {name: _Base(document, name) for name, document in documents.items()}
        self._bases |= {base.address: base for base in self._bases.values()}
        self._budget = ShapeBudget()

    def of(self, schema: Untyped, base: _Base, outer: tuple[int, ...]) -> Shape:
        self._budget.take()
        if not isinstance(schema, dict) or id(schema) in outer:
            return JSON_TEXT
        inside = (*outer, id(schema))
        if isinstance(schema.get("$ref"), str):
            target, target_base = self._referred(schema["$ref"], base)
            return self.of(target, target_base, inside)
        for word in ("oneOf", "anyOf", "allOf"):
            if isinstance(schema.get(word), list) and "properties" not in schema:
                return self._combined(schema[word], word, base, inside)
        return self._plain(schema, base, inside)

    def _combined(self, branches: list[Untyped], word: str, base: _Base, outer: tuple[int, ...]) -> Shape:
        shapes = [self.of(each, base, outer) for each in branches if each != {"type": "null"}]
        if len(shapes) == 1:
            return shapes[0]
        if word != "allOf":
            return JSON_TEXT
        fields: dict[str, Field] = {}
        for shape in shapes:
            if not isinstance(shape, Struct):
                return JSON_TEXT
            fields |= {each.name: each for each in shape.fields}
        return Struct(fields=tuple(fields.values())) if fields else JSON_TEXT

    def _plain(self, schema: dict[str, Untyped], base: _Base, outer: tuple[int, ...]) -> Shape:
        match _type_of(schema):
            case "object":
                return self._object(schema, base, outer)
            case "array":
                items = schema.get("items")
                if not isinstance(items, dict) or "prefixItems" in schema:
                    return JSON_TEXT
                return Items(element=self.of(items, base, outer))
            case str(name):
                return _SCALARS.get(name, JSON_TEXT)
            case _:
                return JSON_TEXT

    def _object(self, schema: dict[str, Untyped], base: _Base, outer: tuple[int, ...]) -> Shape:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return Struct(
                fields=tuple(
                    Field(name=name, shape=self.of(each, base, outer), pick=key_picker(name))
                    for name, each in properties.items()
                )
            )
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and values and "patternProperties" not in schema:
            return Pairs(key=Scalar(kind=PrimitiveKind.STRING), value=self.of(values, base, outer))
        return JSON_TEXT

    def _referred(self, reference: str, base: _Base) -> tuple[Untyped, _Base]:
        """The schema that a reference names, and its document. Raises `SchemaUnusable`, `LookupError`."""
        address, _, fragment = reference.partition("#")
        target = base
        if address and urljoin(base.address, address) != base.address:
            known = self._bases.get(address) or self._bases.get(urljoin(base.address, address))
            if known is None:
                raise SchemaUnusable(f"the JSON schema refers to {reference!r}, which is not among its references")
            target = known
        schema = target.document
        steps: Sequence[str] = fragment.split("/")[1:] if fragment.startswith("/") else ()
        if fragment and not steps:
            return _anchored(target.document, fragment), target
        for step in steps:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            schema = schema[int(key)] if isinstance(schema, list) else schema[key]
        return schema, target


def _type_of(schema: Mapping[str, Untyped]) -> str | None:
    """The single type of values besides null; None where there are several, or the type is open."""
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
        return kind if isinstance(kind, str) else None
    if isinstance(kind, str):
        return kind
    if isinstance(schema.get("properties"), dict):
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values and all(isinstance(each, str) or each is None for each in values):
        return "string"
    return None


def _anchored(schema: Untyped, anchor: str) -> Untyped:
    """The schema with that anchor in the document. Raises `KeyError`."""
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if each.get("$anchor") == anchor or each.get("$id") == f"#{anchor}":
                return each
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    raise KeyError(anchor)
