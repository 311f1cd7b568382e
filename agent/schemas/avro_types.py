"""The types of an Avro schema.

Rule: values only. `agent.schemas.avro` builds them from a text, `agent.schemas.avro_reading` compares them.
Source: Apache Avro 1.12 specification, "Schema Declaration".
"""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True, eq=False)
class AvroType:
    """A type of an Avro schema. Records refer to each other, so types are compared by identity, not by value."""

    kind: str
    """The name of a primitive type, or record, enum, fixed, array, map, union."""
    name: str = ""
    """The full name of a named type."""
    aliases: frozenset[str] = frozenset()
    """Full names of writers' types that a reader also accepts."""
    fields: "list[AvroField]" = field(default_factory=list["AvroField"])
    symbols: tuple[str, ...] = ()
    symbol_default: str | None = None
    size: int = 0
    inner: "list[AvroType]" = field(default_factory=list["AvroType"])
    """The type of an array's items or a map's values, or the branches of a union."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroField:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    has_default: bool
