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

from iceberg_export.rows.gather import gather
from iceberg_export.typed.arrays import COLUMN_MOVED, Arrow, arrow_type
from iceberg_export.typed.columns import Column, ColumnType, ScalarType
from iceberg_export.typed.flat_avro_kernel import ReadOp, read_rows
from iceberg_export.typed.shapes import Form, PrimitiveKind, Scalar, Struct
from iceberg_export.typed.union import match_fields

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
_NO_NULL = -1
_MICROSECONDS_PER_MILLISECOND = 1000


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
    """A schema that the kernel can read.

    `program`: a row for each field: its `ReadOp`, the union's branch that is null or -1, and the bytes of a fixed or
    the count of symbols of an enum.
    """

    shape: Struct
    program: NDArray[np.int64]
    symbols: dict[int, tuple[str, ...]]
    """The symbols of enums, by the index of the field."""

    def read(self, data: Bytes, first: Int64s, end: Int64s, columns: Sequence[Column]) -> tuple[list[Arrow], Int64s]:
        """Arrays of the columns for the rows that the kernel read, and the indexes of these rows, ascending.

        Row i is `data[first[i]:end[i]]`. CPU work. Raises any exception where a value does not fit its column.
        """
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
            bad |= self._is_beyond(place, columns[index].type, numbers[place])
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
            arrays.append(self._array(place, column.type, data, numbers[place], lengths[place], nulls[place]))
        return arrays, good

    def _scalar(self, place: int) -> Scalar:
        shape = self.shape.fields[place].shape
        assert isinstance(shape, Scalar)
        return shape

    def _is_beyond(self, place: int, kind: ColumnType, numbers: Int64s) -> NDArray[np.bool_]:
        """True for each row whose number does not fit the column."""
        shape = self._scalar(place)
        greatest = 2**63 - 1
        if isinstance(kind, ScalarType) and shape.kind is PrimitiveKind.DECIMAL:
            greatest = min(greatest, 10**kind.precision - 1)
        elif shape.form is Form.MILLISECONDS:
            greatest = greatest // _MICROSECONDS_PER_MILLISECOND
        return (numbers > greatest) | (numbers < -greatest)

    def _array(
        self,
        place: int,
        kind: ColumnType,
        data: Bytes,
        numbers: Int64s,
        lengths: NDArray[np.int32],
        nulls: NDArray[np.bool_],
    ) -> Arrow:
        shape = self._scalar(place)
        count = len(numbers)
        target = arrow_type(kind)
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if bool(nulls.any()) else None

        def fixed_width(read_as: Arrow, values: NDArray[Any]) -> Arrow:
            return pa.Array.from_buffers(read_as, count, [validity, pa.py_buffer(np.ascontiguousarray(values))])

        match shape.kind:
            case PrimitiveKind.BOOLEAN:
                return fixed_width(target, np.packbits(numbers.astype(np.bool_), bitorder="little"))
            case PrimitiveKind.INT | PrimitiveKind.DATE:
                read_as = pa.int32() if shape.kind is PrimitiveKind.INT else target
                return fixed_width(read_as, numbers.astype(np.int32)).cast(target)
            case PrimitiveKind.FLOAT:
                return fixed_width(pa.float32(), numbers.astype(np.uint32).view(np.float32)).cast(target)
            case PrimitiveKind.TIMESTAMP | PrimitiveKind.TIMESTAMP_UTC if shape.form is Form.MILLISECONDS:
                return fixed_width(target, numbers * _MICROSECONDS_PER_MILLISECOND)
            case PrimitiveKind.DECIMAL:
                return fixed_width(target, np.stack([numbers, numbers >> 63], axis=1))
            case PrimitiveKind.STRING if place in self.symbols:
                symbols = pa.array(self.symbols[place], type=pa.string())
                return symbols.take(fixed_width(pa.int64(), numbers))
            case PrimitiveKind.STRING | PrimitiveKind.BINARY:
                ends = np.zeros(count + 1, dtype=np.int32)
                np.cumsum(lengths, out=ends[1:])
                out = np.empty(int(ends[-1]), dtype=np.uint8)
                gather(data, numbers, lengths, out, 0)
                array = pa.Array.from_buffers(target, count, [validity, pa.py_buffer(ends), pa.py_buffer(out)])
                if shape.kind is PrimitiveKind.STRING:
                    array.validate(full=True)  # a Parquet string must be UTF-8
                return array
            case _:
                return fixed_width(target, numbers)


def flat_program(schema: Any, shape: object) -> FlatAvro | None:  # noqa: ANN401 - JSON of any shape
    """The kernel's program for a parsed schema without logical types; None where the kernel cannot read it."""
    if not isinstance(shape, Struct) or not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        return None
    program: list[tuple[int, int, int]] = []
    symbols: dict[int, tuple[str, ...]] = {}
    for place, (field, each) in enumerate(zip(shape.fields, schema["fields"], strict=True)):
        kind, null = each["type"], _NO_NULL
        if isinstance(kind, list):
            if len(kind) != 2 or "null" not in kind:
                return None
            null = kind.index("null")
            kind = kind[1 - null]
        while isinstance(kind, dict) and isinstance(kind["type"], dict):
            kind = kind["type"]
        field_op = _op_of(field.shape, kind)
        if field_op is None:
            return None
        op, size, names = field_op
        if op is ReadOp.ENUM:
            symbols[place] = names
        program.append((op, null, size))
    return FlatAvro(shape=shape, program=np.array(program, dtype=np.int64), symbols=symbols)


def _op_of(shape: object, kind: Any) -> tuple[ReadOp, int, tuple[str, ...]] | None:  # noqa: ANN401 - JSON of any shape
    if not isinstance(shape, Scalar) or shape.kind not in _OF_KIND:
        return None
    if isinstance(kind, dict) and kind["type"] == "enum":
        return ReadOp.ENUM, len(kind["symbols"]), tuple(kind["symbols"])
    if isinstance(kind, dict) and kind["type"] == "fixed":
        return (ReadOp.FIXED, kind["size"], ()) if shape.kind is PrimitiveKind.BINARY else None
    primitive = kind["type"] if isinstance(kind, dict) else kind
    if primitive not in ("boolean", "int", "long", "float", "double", "bytes", "string"):
        return None  # the name of a type that is defined elsewhere in the schema
    return _OF_KIND[shape.kind], 0, ()
