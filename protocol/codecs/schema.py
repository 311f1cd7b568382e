"""The fields of a message in one version, as kio's dataclasses declare them.

Nothing here reads or writes a byte. Specification: https://kafka.apache.org/protocol#protocol_types and KIP-482.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Final, cast, get_args, get_origin

from kio.static.protocol import Entity

REQUIRED: Final = object()
"""The default of a field that has none."""

FIXED_FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "datetime_i64": "q",
    "error_code": "h",
    "float64": "d",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "int8": "b",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "uint16": "H",
    "uuid": "16s",
}
"""The types with a fixed width, and their format for `struct`, big-endian. The others: string, bytes and records."""
_WITH_NULL: Final = frozenset({"datetime_i64", "uuid"})
"""Types with a value that kio shows as None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    """One field of a structure."""

    name: str
    kafka_type: str
    """kio's name of the type; empty where `structure` is the type."""
    structure: "StructureSchema | None"
    is_array: bool
    is_nullable: bool
    """Whether the value, the array as a whole where it is one, may be null."""
    tag: int | None
    """None: the field is no tagged field."""
    default: object
    """The value of a field that is left out, structures as mappings; `REQUIRED` where there is none."""

    @property
    def element(self) -> "FieldSchema":
        """An element of the array, which is never null."""
        return replace(self, is_array=False, is_nullable=False)

    @property
    def fixed_format(self) -> str | None:
        """The format of a value for `struct`; None where its width is not fixed."""
        has_fixed_width = self.structure is None and not self.is_array
        return FIXED_FORMATS.get(self.kafka_type) if has_fixed_width else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureSchema:
    """A message, or a structure within it."""

    name: str
    is_flexible: bool
    """Whether lengths are compact and tagged fields follow (KIP-482)."""
    fields: tuple[FieldSchema, ...]
    """In the order in which they are written; tagged fields anywhere between them."""

    @property
    def plain_fields(self) -> list[FieldSchema]:
        """The fields that every message has, in order."""
        return [field for field in self.fields if field.tag is None]

    @property
    def tagged_fields(self) -> list[tuple[int, FieldSchema]]:
        """The tagged fields, in ascending order of their tags."""
        fields_by_tag = [(field.tag, field) for field in self.fields if field.tag is not None]
        return sorted(fields_by_tag, key=lambda item: item[0])

    @property
    def is_fixed(self) -> bool:
        """Whether every structure of this kind, without tagged fields, takes the same number of bytes."""
        return all(field.tag is None and field.fixed_format is not None for field in self.fields)


def structure_schema(entity_type: type[Entity]) -> StructureSchema:
    """The fields of an entity, and those of the structures in it."""
    return StructureSchema(
        name=entity_type.__name__,
        is_flexible=entity_type.__flexible__,
        fields=tuple(_field_schema(field) for field in fields(entity_type)),
    )


def _field_schema(field: Field[object]) -> FieldSchema:
    annotation: object = field.type
    is_nullable = False
    if get_origin(annotation) is UnionType:
        (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
        is_nullable = True
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation = get_args(annotation)[0]
    is_structure = is_dataclass(annotation)
    kafka_type = "" if is_structure else field.metadata["kafka_type"]
    has_fixed_width = kafka_type in FIXED_FORMATS and not is_array
    assert not (is_nullable and has_fixed_width) or kafka_type in _WITH_NULL, f"{field.name} cannot be null"
    tag = field.metadata.get("tag")
    assert tag is None or field.default is not MISSING, f"{field.name} has a tag and no default"
    return FieldSchema(
        name=field.name,
        kafka_type=kafka_type,
        structure=structure_schema(cast("type[Entity]", annotation)) if is_structure else None,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=tag,
        default=_default(field),
    )


def _default(field: Field[object]) -> object:
    if field.default is MISSING:
        return REQUIRED
    if is_dataclass(field.default) and not isinstance(field.default, type):
        return asdict(field.default)
    return field.default
