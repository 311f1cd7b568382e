"""Decodes Avro records without nested records, lists or maps: the same as `avro_shapes` and `arrays`, but faster.

A kernel reads numbers and positions. It leaves every row that it is not sure of to the slow reader, so that only one
reader reports errors.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from iceberg_export.typed.arrays import COLUMN_MOVED, Arrow, arrow_type
from iceberg_export.typed.avro_kernels import read_rows
from iceberg_export.typed.columns import Column
from iceberg_export.typed.kernel_arrays import Bytes, Int64s, greatest_number, scalar_array
from iceberg_export.typed.shapes import PrimitiveKind, Scalar, Struct
from iceberg_export.typed.union import match_fields
from iceberg_export.typed.value_plans import ReadOp

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
NO_NULL = -1
_OF_KIND = {
    PrimitiveKind.BOOLEAN: ReadOp.BOOLEAN,
    PrimitiveKind.FLOAT: ReadOp.FLOAT,
    PrimitiveKind.DOUBLE: ReadOp.DOUBLE,
    PrimitiveKind.LONG: ReadOp.LONG,
    PrimitiveKind.TIMESTAMP: ReadOp.LONG,
    PrimitiveKind.TIMESTAMP_UTC: ReadOp.LONG,
    PrimitiveKind.INT: ReadOp.INT,
    PrimitiveKind.DATE: ReadOp.INT,
    PrimitiveKind.STRING: ReadOp.BYTES,
    PrimitiveKind.BINARY: ReadOp.BYTES,
    PrimitiveKind.DECIMAL: ReadOp.DECIMAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatAvro:
    """A schema that the kernel can read. Implements `decode.FastReader`.

    `program`: a row for each field: its `ReadOp`, the union's branch that is null or -1, and the bytes of a fixed or
    the count of symbols of an enum.
    """

    shape: Struct
    program: NDArray[np.int64]
    symbols: dict[int, tuple[str, ...]]
    """The symbols of enums, by the index of the field."""

    def read(self, data: Bytes, first: Int64s, end: Int64s, columns: Sequence[Column]) -> tuple[list[Arrow], Int64s]:
        """See `decode.FastReader.read`."""
        fields = len(self.program)
        numbers = np.zeros((fields, len(first)), dtype=np.int64)
        lengths = np.zeros((fields, len(first)), dtype=np.int32)
        nulls = np.zeros((fields, len(first)), dtype=np.bool_)
        bad = np.zeros(len(first), dtype=np.bool_)
        read_rows(data, first, end, self.program, numbers, lengths, nulls, bad)
        by_column: dict[int, int] = {}
        for place, index in enumerate(match_fields(columns, self.shape.fields)):
            if index is None:
                raise ValueError(COLUMN_MOVED)
            by_column[index] = place
            greatest = greatest_number(self._scalar(place), columns[index].type)
            bad |= (numbers[place] > greatest) | (numbers[place] < -greatest)
        good = np.flatnonzero(~bad)
        if len(good) < len(first):
            numbers, lengths = numbers.take(good, axis=1), lengths.take(good, axis=1)
            nulls = nulls.take(good, axis=1)
        arrays: list[Arrow] = []
        for index, column in enumerate(columns):
            if index not in by_column:
                arrays.append(pa.nulls(len(good), arrow_type(column.type)))
                continue
            place = by_column[index]
            read = (numbers[place], lengths[place], nulls[place])
            arrays.append(scalar_array(self._scalar(place), self.symbols.get(place), column.type, data, *read))
        return arrays, good

    def _scalar(self, place: int) -> Scalar:
        shape = self.shape.fields[place].shape
        assert isinstance(shape, Scalar)
        return shape


def flat_program(schema: Any, shape: object) -> FlatAvro | None:  # noqa: ANN401 - JSON of any shape
    """The kernel's program for a parsed schema without logical types; None where the kernel cannot read it."""
    if not isinstance(shape, Struct) or not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        return None
    if not has_distinct_names(schema):
        return None
    program: list[tuple[int, int, int]] = []
    symbols: dict[int, tuple[str, ...]] = {}
    for place, (field, each) in enumerate(zip(shape.fields, schema["fields"], strict=True)):
        kind, null = each["type"], NO_NULL
        if isinstance(kind, list):
            if len(kind) != 2 or "null" not in kind:
                return None
            null = kind.index("null")
            kind = kind[1 - null]
        while isinstance(kind, dict) and isinstance(kind["type"], dict):
            kind = kind["type"]
        field_op = op_of(field.shape, kind)
        if field_op is None:
            return None
        op, size, names = field_op
        if op is ReadOp.ENUM:
            symbols[place] = names
        program.append((op, null, size))
    return FlatAvro(shape=shape, program=np.array(program, dtype=np.int64), symbols=symbols)


def has_distinct_names(record: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    """Whether no two fields of a record share a name: fastavro, which allows it, has one value for both."""
    return len({field["name"] for field in record["fields"]}) == len(record["fields"])


def op_of(shape: object, kind: Any) -> tuple[ReadOp, int, tuple[str, ...]] | None:  # noqa: ANN401 - JSON of any shape
    """The operation of a field, the bytes of a fixed or the count of symbols of an enum, and these symbols.

    `kind`: its type in a parsed schema without logical types. None where the kernels cannot read it.
    """
    if not isinstance(shape, Scalar) or shape.kind not in _OF_KIND:
        return None
    if isinstance(kind, dict) and kind["type"] == "enum":
        return ReadOp.ENUM, len(kind["symbols"]), tuple(kind["symbols"])
    if isinstance(kind, dict) and kind["type"] == "fixed":
        return (ReadOp.FIXED, kind["size"], ()) if shape.kind is PrimitiveKind.BINARY else None
    primitive = kind["type"] if isinstance(kind, dict) else kind
    if primitive not in PRIMITIVES:
        return None  # the name of a type that is defined elsewhere in the schema
    return _OF_KIND[shape.kind], 0, ()
