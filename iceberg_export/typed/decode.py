"""Decodes values of records into typed columns, with an error text for each value that cannot be decoded.

No value raises, whatever a format's library does: records of a producer must not stop an archive pass. A value without
a frame, of an unknown schema, or with invalid bytes is null in every column and has an error text. A null value is null
and has no error. Values of one schema are decoded together.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.typed.arrays import Arrow, arrow_type, field_arrays
from iceberg_export.typed.columns import Column
from iceberg_export.typed.framing import (
    FRAME_BYTES,
    NO_FRAME,
    NULL,
    WriterSchema,
    column_schema_ids,
    message_indexes,
)
from iceberg_export.typed.shapes import Shape
from iceberg_export.typed.union import top_fields
from protocol.limits import TYPED_BYTES_AT_ONCE, TYPED_ERROR_CHARS_MAX, TYPED_ROWS_AT_ONCE

if TYPE_CHECKING:
    from iceberg_export.typed.flat_avro import FlatAvro  # imports its kernel, which other formats do not need


class FastReader(Protocol):
    """Reads most records of a schema, many at a time, and the others not at all."""

    def read(
        self, data: NDArray[np.uint8], first: NDArray[np.int64], end: NDArray[np.int64], columns: Sequence[Column]
    ) -> tuple[list[Arrow], NDArray[np.int64]]:
        """Arrays of the columns for the rows that were read, and the indexes of these rows, ascending.

        Row i is `data[first[i]:end[i]]`. CPU work. Raises any exception where a value does not fit its column.
        """
        ...


class ValueReader(Protocol):
    """Decodes the bytes of a record to a Python value, from which the fields of its shape take theirs."""

    shape: Shape

    @property
    def fast(self) -> FastReader | None:
        """A faster reader for most records; None where there is none."""
        ...

    @property
    def flat(self) -> "FlatAvro | None":
        """The same of flat records, whose bytes a file may leave out: None where they are not."""
        ...

    def read(self, data: bytes) -> object:
        """The value of a record. Raises any exception of its library where the bytes are not of the schema."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueReaders:
    """The readers of one side, keys or values.

    `by_writer`: a reader, or the reason why there is none. `with_indexes`: the ids of Protobuf schemas.
    """

    by_writer: Mapping[WriterSchema, ValueReader | str]
    with_indexes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedColumns:
    """An array for each column, all of the same length, and for each row its error; None where it has none."""

    arrays: list[Arrow]
    errors: list[str | None]


def decode_column(column: BinaryColumn, columns: Sequence[Column], readers: ValueReaders) -> DecodedColumns:
    """The values decoded into these columns. CPU work."""
    bounds = _bounds(column)
    parts = [_decode_part(column.part(first, end), columns, readers) for first, end in pairwise(bounds)]
    return DecodedColumns(
        arrays=[_joined(each) for each in zip(*(part.arrays for part in parts), strict=True)],
        errors=[error for part in parts for error in part.errors],
    )


def _bounds(column: BinaryColumn) -> list[int]:
    """The limits of the parts that are decoded together: at least one row each, unless there are no rows."""
    bounds = [0]
    while bounds[-1] < len(column):
        first = bounds[-1]
        in_bytes = int(np.searchsorted(column.ends, int(column.ends[first]) + TYPED_BYTES_AT_ONCE, side="right")) - 1
        bounds.append(min(max(in_bytes, first + 1), first + TYPED_ROWS_AT_ONCE, len(column)))
    return bounds if len(bounds) > 1 else [0, 0]


def _decode_part(column: BinaryColumn, columns: Sequence[Column], readers: ValueReaders) -> DecodedColumns:
    ids = column_schema_ids(column)
    # The column may be a part of a larger one: only the bytes of its own rows are copied.
    byte_first, byte_end = int(column.ends[0]), int(column.ends[-1])
    ends, data = column.ends.astype(np.int64) - byte_first, column.data[byte_first:byte_end]
    errors: list[str | None] = [None] * len(column)
    parts: list[DecodedColumns] = []
    order: list[NDArray[np.int64]] = []
    for schema_id in np.unique(ids).tolist():
        rows = np.flatnonzero(ids == schema_id)
        for part, decoded in _of_schema(schema_id, rows, ends, data, columns, readers):
            parts.append(decoded)
            order.append(part)
            for row, error in zip(part.tolist(), decoded.errors, strict=True):
                if error is not None:
                    errors[row] = error
    return DecodedColumns(arrays=_together([part.arrays for part in parts], order, columns), errors=errors)


def _of_schema(
    schema_id: int,
    rows: NDArray[np.int64],
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    columns: Sequence[Column],
    readers: ValueReaders,
) -> list[tuple[NDArray[np.int64], DecodedColumns]]:
    """The decoded rows of one schema, separately for each Protobuf message."""
    if schema_id == NULL:
        return [(rows, _undecoded(columns, len(rows), None))]
    if schema_id == NO_FRAME:
        error_text = "it does not begin with a byte 0 and the id of a schema"
        return [(rows, _undecoded(columns, len(rows), error_text))]
    if schema_id not in readers.with_indexes:
        return _of_writer(WriterSchema(schema_id=schema_id), rows, FRAME_BYTES, ends, data, columns, readers)
    # A byte 0 means the first message, which is nearly always the case.
    starts = ends[rows] + FRAME_BYTES
    is_usual = (starts < ends[rows + 1]) & (data[np.minimum(starts, len(data) - 1)] == 0)
    first_message = WriterSchema(schema_id=schema_id, indexes=(0,))
    usual: list[tuple[NDArray[np.int64], DecodedColumns]] = []
    if bool(is_usual.any()):
        usual = _of_writer(first_message, rows[is_usual], FRAME_BYTES + 1, ends, data, columns, readers)
        rows = rows[~is_usual]
    text = data.tobytes() if len(rows) else b""
    bounds = zip(ends[rows].tolist(), ends[rows + 1].tolist(), strict=True)
    grouped: dict[tuple[int, ...] | str, tuple[list[int], list[bytes]]] = {}
    for row, (first, end) in zip(rows.tolist(), bounds, strict=True):
        value = text[first:end]
        try:
            indexes, position = message_indexes(value)
        except ValueError as error:
            grouped.setdefault(str(error), ([], []))[0].append(row)
            continue
        places, payloads = grouped.setdefault(indexes, ([], []))
        places.append(row)
        payloads.append(value[position:])
    others = [
        (
            np.array(places, dtype=np.int64),
            _undecoded(columns, len(places), indexes)
            if isinstance(indexes, str)
            else _read(WriterSchema(schema_id=schema_id, indexes=indexes), payloads, columns, readers),
        )
        for indexes, (places, payloads) in grouped.items()
    ]
    return [*usual, *others]


def _of_writer(
    writer: WriterSchema,
    rows: NDArray[np.int64],
    frame_bytes: int,
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    columns: Sequence[Column],
    readers: ValueReaders,
) -> list[tuple[NDArray[np.int64], DecodedColumns]]:
    """The decoded rows of a schema, or of one of its messages: those of the fast reader, and the others."""
    parts: list[tuple[NDArray[np.int64], DecodedColumns]] = []
    reader = readers.by_writer.get(writer)
    if reader is not None and not isinstance(reader, str) and reader.fast is not None:
        with suppress(Exception):  # a value that does not fit its column: the slow reader finds it
            arrays, good = reader.fast.read(data, ends[rows] + frame_bytes, ends[rows + 1], columns)
            parts.append((rows[good], DecodedColumns(arrays=arrays, errors=[None] * len(good))))
            rows = np.delete(rows, good)
        if not len(rows):
            return parts
    text = data.tobytes()
    bounds = zip(ends[rows].tolist(), ends[rows + 1].tolist(), strict=True)
    payloads = [text[first + frame_bytes : end] for first, end in bounds]
    return [*parts, (rows, _read(writer, payloads, columns, readers))]


def _read(
    writer: WriterSchema, payloads: Sequence[bytes], columns: Sequence[Column], readers: ValueReaders
) -> DecodedColumns:
    reader = readers.by_writer.get(writer, f"schema {writer.schema_id} is not registered")
    if isinstance(reader, str):
        return _undecoded(columns, len(payloads), reader)
    rows: list[object] = []
    errors: list[str | None] = []
    read = reader.read
    for payload in payloads:
        try:
            rows.append(read(payload))
            errors.append(None)
        except Exception as error:
            rows.append(None)
            errors.append(_error_text(writer, error))
    fields = top_fields(reader.shape)
    make = partial(field_arrays, columns, fields)
    try:
        return DecodedColumns(arrays=make(rows), errors=errors)
    except Exception:
        try:
            nulls = make([None])
        except Exception as error:  # fails without any value: the schema does not fit the columns
            return _undecoded(columns, len(payloads), _error_text(writer, error))
        arrays = _halves(make, rows, errors, 0, writer, nulls)
        return DecodedColumns(arrays=[_joined(each) for each in zip(*arrays, strict=True)], errors=errors)


def _halves(
    make: "partial[list[Arrow]]",
    rows: Sequence[object],
    errors: list[str | None],
    first: int,
    writer: WriterSchema,
    nulls: list[Arrow],
) -> list[list[Arrow]]:
    """The arrays of the rows, halved until each row that does not fit is alone.

    Such a row becomes `nulls`, and gets its error text in `errors`, whose item `first` is that of the first row.
    """
    try:
        return [make(rows)]
    except Exception as error:
        if len(rows) == 1:
            errors[first] = _error_text(writer, error)
            return [nulls]
    middle = len(rows) // 2
    return _halves(make, rows[:middle], errors, first, writer, nulls) + _halves(
        make, rows[middle:], errors, first + middle, writer, nulls
    )


def _error_text(writer: WriterSchema, error: BaseException) -> str:
    what = ": ".join(each for each in (type(error).__name__, " ".join(str(error).split())) if each)
    # An error may quote a string with half of a surrogate pair, but the column `error` is UTF-8.
    text = f"schema {writer.schema_id}: {what}"[:TYPED_ERROR_CHARS_MAX]
    return text.encode("utf-8", errors="replace").decode()


def _undecoded(columns: Sequence[Column], count: int, error: str | None) -> DecodedColumns:
    error_text = None if error is None else error[:TYPED_ERROR_CHARS_MAX]
    arrays = [pa.nulls(count, arrow_type(column.type)) for column in columns]
    return DecodedColumns(arrays=arrays, errors=[error_text] * count)


def _together(
    parts: Sequence[Sequence[Arrow]], order: Sequence[NDArray[np.int64]], columns: Sequence[Column]
) -> list[Arrow]:
    """One array for each column, in the order of the rows. `order`: the row numbers of each part."""
    if not parts:
        return [pa.nulls(0, arrow_type(column.type)) for column in columns]
    arrays = [_joined(each) for each in zip(*parts, strict=True)]
    if len(parts) == 1:
        return arrays
    places: Any = pa.array(np.argsort(np.concatenate(order), kind="stable"))
    return [each.take(places) for each in arrays]


def _joined(arrays: Sequence[Arrow]) -> Arrow:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
