"""Converts what kernels read of a field to an Arrow array: `arrays` for numbers, and for positions of bytes."""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from iceberg_export.rows.gather import gather
from iceberg_export.typed.arrays import Arrow, arrow_type
from iceberg_export.typed.columns import ColumnType, ScalarType
from iceberg_export.typed.shapes import Form, PrimitiveKind, Scalar

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
INT64_MAX = 2**63 - 1
_MICROSECONDS_PER_MILLISECOND = 1000
_UUID_BYTES, _UUID_CHARACTERS = 16, 36
_UUID_DASHES = (8, 13, 18, 23)
_NO_DIGIT = 0xFF
_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
"""The value of each hexadecimal digit, by its ASCII code."""
for _texts in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _DIGITS[list(_texts)] = range(16)


def greatest_number(shape: Scalar, kind: ColumnType) -> int:
    """The greatest absolute number of the field that fits the column."""
    if isinstance(kind, ScalarType) and shape.kind is PrimitiveKind.DECIMAL:
        return int(min(INT64_MAX, 10**kind.precision - 1))
    if shape.form is Form.MILLISECONDS:
        return INT64_MAX // _MICROSECONDS_PER_MILLISECOND
    return INT64_MAX


def validity_of(nulls: NDArray[np.bool_]) -> Arrow:
    """Arrow's bitmap of the values that are not null; None where all are."""
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if bool(nulls.any()) else None


def scalar_array(
    shape: Scalar,
    symbols: Sequence[str] | None,
    kind: ColumnType,
    data: Bytes,
    numbers: Int64s,
    lengths: NDArray[np.int32],
    nulls: NDArray[np.bool_],
) -> Arrow:
    """The array of a field without nested values. `symbols`: those of an enum. A number of bytes is their position."""
    count = len(numbers)
    target = arrow_type(kind)
    validity = validity_of(nulls)

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
        case PrimitiveKind.STRING if symbols is not None:
            return pa.array(symbols, type=pa.string()).take(fixed_width(pa.int64(), numbers))
        case PrimitiveKind.UUID:
            width = _UUID_CHARACTERS if shape.form is Form.TEXT else _UUID_BYTES
            if bool(np.any(lengths[~nulls] != width)):
                raise ValueError("a UUID has another length")
            out = np.empty(int(lengths.sum(dtype=np.int64)), dtype=np.uint8)
            gather(data, numbers, lengths, out, 0)
            storage = np.zeros((count, _UUID_BYTES), dtype=np.uint8)
            rows = out.reshape(-1, width)
            storage[~nulls] = _uuids(rows) if shape.form is Form.TEXT else rows
            return pa.ExtensionArray.from_storage(target, fixed_width(pa.binary(_UUID_BYTES), storage))
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


def _uuids(texts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The bytes of UUIDs from their texts, a row for each. Raises `ValueError` where one has another form."""
    if bool(np.any(texts[:, _UUID_DASHES] != ord("-"))):
        raise ValueError("a UUID has no dashes at their places")
    digits = _DIGITS[np.delete(texts, _UUID_DASHES, axis=1)]
    if bool(np.any(digits == _NO_DIGIT)):
        raise ValueError("a UUID has other characters than hexadecimal digits")
    return ((digits[:, ::2] << 4) | digits[:, 1::2]).astype(np.uint8)
