"""Checks whether records written with one Avro schema can be read with another.

Rule: the results, and the names of faults (`READER_FIELD_MISSING_...`), are those of Avro's own library. Names match if
their last parts are equal, or if an alias of the reader is the writer's full name.
Source: Apache Avro 1.12 specification, "Schema Resolution"; org.apache.avro.SchemaCompatibility.
"""

from agent.schemas.avro_types import AvroField, AvroType
from agent.schemas.parsed import NOTED_ELSEWHERE, Budget, Pair, faults_of_recursive

PROMOTED = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""The writer's types that a reader's type can also read."""


def faults_reading(*, reader: AvroType, writer: AvroType) -> list[str]:
    """The faults, each with the place in the reader's schema; empty where every record can be read."""

    def compare(unreadable: set[Pair], budget: Budget) -> tuple[list[str], set[Pair]]:
        comparison = _AvroComparison(unreadable, budget)
        return comparison.faults(reader, writer, ""), comparison.unreadable

    return faults_of_recursive(compare, "types")


class _AvroComparison:
    """Compares each pair of types once.

    A pair that is reached again inside its own comparison counts as compatible, unless it is in `unreadable`.
    """

    def __init__(self, unreadable: set[Pair], budget: Budget) -> None:
        self.unreadable = set(unreadable)
        self._faults: dict[Pair, list[str]] = {}
        self._budget = budget

    def faults(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        pair = id(reader), id(writer)
        if pair not in self._faults:
            self._budget.take()
            self._faults[pair] = [NOTED_ELSEWHERE] if pair in self.unreadable else []
            self._faults[pair] = faults = self._compared(reader, writer, path)
            if faults:
                self.unreadable.add(pair)
        return self._faults[pair]

    def _compared(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            return self._of_writers_branches(reader, writer, path)
        if reader.kind == "union":
            return self._of_readers_branches(reader, writer, path)
        if reader.kind != writer.kind:
            if writer.kind in PROMOTED.get(reader.kind, ()):
                return []
            return [_fault("TYPE_MISMATCH", path, f"{writer.kind} cannot be read as {reader.kind}")]
        match reader.kind:
            case "array":
                return self.faults(reader.inner[0], writer.inner[0], f"{path}/items")
            case "map":
                return self.faults(reader.inner[0], writer.inner[0], f"{path}/values")
            case "record":
                return _name_faults(reader, writer, path) or self._field_faults(reader, writer, path)
            case "enum":
                return _name_faults(reader, writer, path) + _symbol_faults(reader, writer, path)
            case "fixed":
                return _name_faults(reader, writer, path) + _size_faults(reader, writer, path)
            case _:
                return []

    def _of_writers_branches(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        """The reader has to read every branch of the writer's union."""
        return [fault for branch in writer.inner for fault in self.faults(reader, branch, path)]

    def _of_readers_branches(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        """One branch of the reader's union has to read the writer's type."""
        for branch in reader.inner:
            if not self.faults(branch, writer, path):
                return []
        what = writer.name or writer.kind
        return [_fault("MISSING_UNION_BRANCH", path, f"no branch of the union can read {what}")]

    def _field_faults(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        faults: list[str] = []
        for number, field in enumerate(reader.fields):
            where = f"{path}/fields/{number}"
            written = _written_field(field, writer)
            if written is not None:
                faults += self.faults(field.type, written.type, f"{where}/type")
            elif not field.has_default:
                why = f"the writer lacks the field {field.name!r}, which has no default"
                faults.append(_fault("READER_FIELD_MISSING_DEFAULT_VALUE", where, why))
        return faults


def _written_field(field: AvroField, writer: AvroType) -> AvroField | None:
    """The writer's field with the name of the reader's, or with the first of its aliases that the writer has."""
    by_name = {each.name: each for each in writer.fields}
    return next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)


def _name_faults(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    return [_fault("NAME_MISMATCH", f"{path}/name", f"expected {writer.name}, the writer's name")]


def _symbol_faults(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    missing = [symbol for symbol in writer.symbols if symbol not in set(reader.symbols)]
    if not missing or reader.symbol_default is not None:
        return []
    return [_fault("MISSING_ENUM_SYMBOLS", f"{path}/symbols", ", ".join(missing))]


def _size_faults(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    if reader.size == writer.size:
        return []
    return [_fault("FIXED_SIZE_MISMATCH", f"{path}/size", f"{writer.size} bytes cannot be read as {reader.size}")]


def _fault(kind: str, path: str, why: str) -> str:
    return f"{kind} at {path or '/'}: {why}"
