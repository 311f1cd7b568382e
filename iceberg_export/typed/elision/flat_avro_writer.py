"""Encodes values as Kafka has them from typed columns, by plans of flat Avro records: the inverse of `flat_avro`.

The input are columns as a file stores them. The writer of a file, which leaves bytes out, and its reader use the same
code. Rows that cannot be encoded are marked; a column that does not fit the plan raises. CPU work.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from iceberg_export.typed.elision.flat_avro_writer_kernel import measure_rows, write_rows
from iceberg_export.typed.value_plans import FieldPlan, ReadOp, SchemaPlan
from protocol.limits import TYPED_CELLS_WRITTEN_AT_ONCE, TYPED_ROWS_AT_ONCE

Arrow: TypeAlias = Any
"""A pyarrow object."""
Bytes: TypeAlias = NDArray[np.uint8]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
_MICROSECONDS_PER_MILLISECOND = 1000
_NOTHING = np.zeros(0, dtype=np.uint8)


class PlanUnusable(ValueError):
    """The columns are not those that the plan was made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedValues:
    """Contiguous values: row i is `data[ends[i]:ends[i + 1]]`, empty for a bad row. `ends` begins with 0."""

    data: Bytes
    ends: Int64s
    bad: Bools


def parts_of(plan: SchemaPlan, rows: Int64s) -> Iterator[Int64s]:
    """The rows in parts that `write_values` encodes at once."""
    count = max(1, min(TYPED_ROWS_AT_ONCE, TYPED_CELLS_WRITTEN_AT_ONCE // max(len(plan.fields), 1)))
    for first in range(0, len(rows), count):
        yield rows[first : first + count]


def write_values(plan: SchemaPlan, arrays: Mapping[str, Arrow], rows: Int64s) -> EncodedValues:
    """The values of at least one row. `arrays`: by column name. `rows`: ascending. Raises `PlanUnusable`."""
    fields, count = len(plan.fields), len(rows)
    numbers = np.zeros((fields, count), dtype=np.int64)
    lengths = np.zeros((fields, count), dtype=np.int32)
    nulls = np.zeros((fields, count), dtype=np.bool_)
    bad = np.zeros(count, dtype=np.bool_)
    texts = _Texts()
    for place, field in enumerate(plan.fields):
        if field.column not in arrays:
            raise PlanUnusable(
                f"the column {field.column}, from which values of schema {plan.schema_id} are decoded, is missing"
            )
        array = _rows_of(arrays[field.column], rows)
        if array.null_count:
            nulls[place] = array.is_null().to_numpy(zero_copy_only=False)
            if array.null_count == count:
                continue
        if field.op in (ReadOp.BYTES, ReadOp.FIXED):
            numbers[place], lengths[place] = texts.add(field, array)
        else:
            numbers[place], wrong = _numbers(field, array)
            if wrong is not None:
                bad |= wrong & ~nulls[place]
    program = np.array([_program(field) for field in plan.fields], dtype=np.int64).reshape(fields, 3)
    sizes = np.zeros(count, dtype=np.int64)
    measure_rows(program, numbers, lengths, nulls, bad, sizes)
    ends = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(sizes, out=ends[1:])
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    write_rows(plan.schema_id, program, numbers, lengths, nulls, bad, texts.joined(), ends, data)
    return EncodedValues(data=data, ends=ends, bad=bad)


def _program(field: FieldPlan) -> tuple[int, int, int]:
    return int(field.op), field.null, len(field.symbols) if field.op is ReadOp.ENUM else field.size


def _rows_of(array: Arrow, rows: Int64s) -> Arrow:
    first, count = int(rows[0]), len(rows)
    if int(rows[-1]) - first + 1 == count:
        return array.slice(first, count)
    return array.take(pa.array(rows))


class _Texts:
    """The bytes of several columns, one after the other."""

    def __init__(self) -> None:
        self._pieces: list[Bytes] = []
        self._end = 0

    def add(self, field: FieldPlan, array: Arrow) -> tuple[Int64s, Int64s]:
        """Add a column; returns the first byte of each of its values among all bytes, and its length."""
        if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
            raise _unfit(field, array)
        _, ends_buffer, data = array.buffers()
        ends = np.frombuffer(ends_buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        if data is not None:
            self._pieces.append(np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]])
        first = ends[:-1] - ends[0] + self._end
        self._end += int(ends[-1] - ends[0])
        return first, np.diff(ends)

    def joined(self) -> Bytes:
        """The bytes of all columns."""
        if not self._pieces:
            return _NOTHING
        return self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces)


def _numbers(field: FieldPlan, array: Arrow) -> tuple[Int64s, Bools | None]:
    """The values as the kernel's numbers, and the rows that cannot be encoded; None where all can.

    The numbers of nulls are arbitrary.
    """
    kind = array.type
    match field.op:
        case ReadOp.BOOLEAN if pa.types.is_boolean(kind):
            return pc.cast(array, pa.uint8()).fill_null(0).to_numpy().astype(np.int64), None
        case ReadOp.INT if kind in (pa.int32(), pa.date32(), pa.int64()):
            return _fixed_width(array, np.int32 if kind != pa.int64() else np.int64), None
        case ReadOp.LONG if kind == pa.int64() or pa.types.is_timestamp(kind):
            micros = _fixed_width(array, np.int64)
            if not field.is_milliseconds:
                return micros, None
            milliseconds = micros // _MICROSECONDS_PER_MILLISECOND
            return milliseconds, milliseconds * _MICROSECONDS_PER_MILLISECOND != micros
        case ReadOp.FLOAT if pa.types.is_float32(kind):
            return _fixed_width(array, np.uint32), None
        case ReadOp.FLOAT if pa.types.is_float64(kind):
            return _narrowed(_buffer(array, np.float64))
        case ReadOp.DOUBLE if pa.types.is_float64(kind):
            return _fixed_width(array, np.int64), None
        case ReadOp.ENUM if pa.types.is_string(kind):
            indexes = pc.index_in(array, value_set=pa.array(field.symbols, type=pa.string()))
            return indexes.fill_null(-1).to_numpy().astype(np.int64), None
        case ReadOp.DECIMAL if pa.types.is_decimal128(kind):
            halves = np.frombuffer(array.buffers()[1], dtype=np.int64)
            halves = halves[2 * array.offset : 2 * (array.offset + len(array))]
            return halves[::2], halves[1::2] != halves[::2] >> 63
        case _:
            raise _unfit(field, array)


def _narrowed(values: NDArray[np.float64]) -> tuple[Int64s, Bools]:
    """The bits of floats whose column has doubles, and the NaNs: the processor may change a NaN's bits, so these are
    not encoded."""
    with np.errstate(all="ignore"):
        bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    return bits, np.isnan(values)


def _fixed_width(array: Arrow, kind: Any) -> Int64s:  # noqa: ANN401
    return _buffer(array, kind).astype(np.int64)


def _buffer(array: Arrow, kind: Any) -> NDArray[Any]:  # noqa: ANN401
    return np.frombuffer(array.buffers()[1], dtype=kind)[array.offset : array.offset + len(array)]


def _unfit(field: FieldPlan, array: Arrow) -> PlanUnusable:
    return PlanUnusable(f"the column {field.column} has the type {array.type}, which cannot be a {field.op.name}")
