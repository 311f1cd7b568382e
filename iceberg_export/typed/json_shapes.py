"""JSON Schemas as shapes, and JSON records as Python values.

Rule: a schema is asked for types, properties and items alone, whatever else it demands: records were checked by who
wrote them. Where it leaves the type open the column is JSON. Formats are annotations and change no type.
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
    """Reads records of one schema. Implements `decode.Reader`."""

    flat = None

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """`references`: texts by the names under which the schema refers to them. Raises `SchemaUnusable`."""
        try:
            documents = {name: decode_json(each) for name, each in (references or {}).items()}
            document = decode_json(text)
            self.shape = flattened(_JsonShapes(documents).of(document, _Base(document, ""), ()))
        except UNREADABLE as error:
            raise SchemaUnusable(f"the JSON schema cannot be used: {type(error).__name__}: {error}") from error

    def read(self, data: bytes) -> object:
        """A record's value. Raises `Undecodable`, a `ValueError`, where the bytes are no JSON or it is too deep."""
        return _decoder.decode(data)


class _Base:
    """A document, and the address under which its references are understood."""

    def __init__(self, document: Untyped, address: str) -> None:
        self.document = document
        own = document.get("$id", document.get("id")) if isinstance(document, dict) else None
        self.address = own if isinstance(own, str) else address


class _JsonShapes:
    """Turns schemas into shapes. `outer`: the schemas that are being turned, as objects."""

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
            found, found_base = self._referred(schema["$ref"], base)
            return self.of(found, found_base, inside)
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
        """What a reference means, and where it stands. Raises `SchemaUnusable`."""
        address, _, fragment = reference.partition("#")
        found = base
        if address and urljoin(base.address, address) != base.address:
            known = self._bases.get(address) or self._bases.get(urljoin(base.address, address))
            if known is None:
                raise SchemaUnusable(f"the JSON schema refers to {reference!r}, which is none of its references")
            found = known
        place = found.document
        steps: Sequence[str] = fragment.split("/")[1:] if fragment.startswith("/") else ()
        if fragment and not steps:
            return _anchored(found.document, fragment), found
        for step in steps:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            place = place[int(key)] if isinstance(place, list) else place[key]
        return place, found


def _type_of(schema: Mapping[str, Untyped]) -> str | None:
    """The one type beside null that values have; None where there are several, or none is said."""
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
    """The schema that has a name of its own in the document. Raises `KeyError`."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get("$anchor") == anchor or each.get("$id") == f"#{anchor}":
                return each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    raise KeyError(anchor)
