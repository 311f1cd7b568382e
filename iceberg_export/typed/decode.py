"""Values of records as typed columns, and what is wrong with those that cannot be.

Rule: no value raises, whatever the formats' libraries do: what producers send must stop no pass. One that has no frame,
an unknown schema, or bytes that are none of its schema's is null in every column and has a text that says why; a null
value is null and has none. Values of one schema are decoded together.
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
from iceberg_export.typed.framing import (
    FRAME_BYTES,
    NO_FRAME,
    NULL,
    WriterSchema,
    column_schema_ids,
    message_indexes,
)
from iceberg_export.typed.shapes import Shape
from iceberg_export.typed.union import Column, top_fields
from protocol.limits import TYPED_BYTES_AT_ONCE, TYPED_ERROR_CHARS_MAX, TYPED_ROWS_AT_ONCE

if TYPE_CHECKING:
    from iceberg_export.typed.flat_avro import FlatAvro  # brings its kernel, which other formats do not need


class ValueReader(Protocol):
    """Makes a Python value of a record's bytes, for the fields of its shape to pick from."""

    shape: Shape

    @property
    def flat(self) -> "FlatAvro | None":
        """A faster way to read most records; None where there is none."""
        ...

    def read(self, data: bytes) -> object:
        """Raises whatever its library does of bytes that are none of the schema's."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueReaders:
    """What is needed to read the values of one side, keys or values.

    `by_writer`: a reader, or why there is none. `with_indexes`: ids of Protobuf schemas.
    """

    by_writer: Mapping[WriterSchema, ValueReader | str]
    with_indexes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedColumns:
    """An array for each column, all of the same length, and for each row what is wrong with it."""

    arrays: list[Arrow]
    errors: list[str | None]


def decode_column(column: BinaryColumn, columns: Sequence[Column], readers: ValueReaders) -> DecodedColumns:
    """The values as these columns. CPU work."""
    bounds = _bounds(column)
    parts = [_decode_part(column.part(first, end), columns, readers) for first, end in pairwise(bounds)]
    return DecodedColumns(
        arrays=[_joined(each) for each in zip(*(part.arrays for part in parts), strict=True)],
        errors=[error for part in parts for error in part.errors],
    )


def _bounds(column: BinaryColumn) -> list[int]:
    """Where parts begin that are decoded at once, and the end: a row each at least, but for no rows."""
    bounds = [0]
    while bounds[-1] < len(column):
        first = bounds[-1]
        in_bytes = int(np.searchsorted(column.ends, int(column.ends[first]) + TYPED_BYTES_AT_ONCE, side="right")) - 1
        bounds.append(min(max(in_bytes, first + 1), first + TYPED_ROWS_AT_ONCE, len(column)))
    return bounds if len(bounds) > 1 else [0, 0]


def _decode_part(column: BinaryColumn, columns: Sequence[Column], readers: ValueReaders) -> DecodedColumns:
    ids = column_schema_ids(column)
    # The rows' bytes alone, of which the column may have more.
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
    """The rows that were written with one schema, those of each message apart."""
    if schema_id == NULL:
        return [(rows, _undecoded(columns, len(rows), None))]
    if schema_id == NO_FRAME:
        error_text = "it does not begin with a byte 0 and the id of a schema"
        return [(rows, _undecoded(columns, len(rows), error_text))]
    if schema_id not in readers.with_indexes:
        return _of_writer(WriterSchema(schema_id=schema_id), rows, ends, data, columns, readers)
    text = data.tobytes()
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
    return [
        (
            np.array(places, dtype=np.int64),
            _undecoded(columns, len(places), indexes)
            if isinstance(indexes, str)
            else _read(WriterSchema(schema_id=schema_id, indexes=indexes), payloads, columns, readers),
        )
        for indexes, (places, payloads) in grouped.items()
    ]


def _of_writer(
    writer: WriterSchema,
    rows: NDArray[np.int64],
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    columns: Sequence[Column],
    readers: ValueReaders,
) -> list[tuple[NDArray[np.int64], DecodedColumns]]:
    """The rows of a schema without messages: those that go the fast way, and the others."""
    parts: list[tuple[NDArray[np.int64], DecodedColumns]] = []
    reader = readers.by_writer.get(writer)
    if reader is not None and not isinstance(reader, str) and reader.flat is not None:
        with suppress(Exception):  # one that no column can hold: the slow way finds out whose it is
            arrays, good = reader.flat.read(data, ends[rows] + FRAME_BYTES, ends[rows + 1], columns)
            parts.append((rows[good], DecodedColumns(arrays=arrays, errors=[None] * len(good))))
            rows = np.delete(rows, good)
        if not len(rows):
            return parts
    text = data.tobytes()
    bounds = zip(ends[rows].tolist(), ends[rows + 1].tolist(), strict=True)
    payloads = [text[first + FRAME_BYTES : end] for first, end in bounds]
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
            nothing = make([None])
        except Exception as error:  # it is the schema
            return _undecoded(columns, len(payloads), _error_text(writer, error))
        arrays = _halves(make, rows, errors, 0, writer, nothing)
        return DecodedColumns(arrays=[_joined(each) for each in zip(*arrays, strict=True)], errors=errors)


def _halves(
    make: "partial[list[Arrow]]",
    rows: Sequence[object],
    errors: list[str | None],
    first: int,
    writer: WriterSchema,
    nothing: list[Arrow],
) -> list[list[Arrow]]:
    """Arrays of ever smaller parts of the rows, until those that cannot be columns are alone; these are null, as
    `nothing` is, and `errors`, from `first` on, say so."""
    try:
        return [make(rows)]
    except Exception as error:
        if len(rows) == 1:
            errors[first] = _error_text(writer, error)
            return [nothing]
    middle = len(rows) // 2
    return _halves(make, rows[:middle], errors, first, writer, nothing) + _halves(
        make, rows[middle:], errors, first + middle, writer, nothing
    )


def _error_text(writer: WriterSchema, error: BaseException) -> str:
    what = ": ".join(each for each in (type(error).__name__, " ".join(str(error).split())) if each)
    # An error may quote a string with half of a surrogate pair, which no column can hold: `error` is UTF-8.
    text = f"schema {writer.schema_id}: {what}"[:TYPED_ERROR_CHARS_MAX]
    return text.encode("utf-8", errors="replace").decode()


def _undecoded(columns: Sequence[Column], count: int, error: str | None) -> DecodedColumns:
    error_text = None if error is None else error[:TYPED_ERROR_CHARS_MAX]
    arrays = [pa.nulls(count, arrow_type(column.type)) for column in columns]
    return DecodedColumns(arrays=arrays, errors=[error_text] * count)


def _together(
    parts: Sequence[Sequence[Arrow]], order: Sequence[NDArray[np.int64]], columns: Sequence[Column]
) -> list[Arrow]:
    """The parts' arrays as one each, in the order of the rows that the parts are of."""
    if not parts:
        return [pa.nulls(0, arrow_type(column.type)) for column in columns]
    arrays = [_joined(each) for each in zip(*parts, strict=True)]
    if len(parts) == 1:
        return arrays
    places: Any = pa.array(np.argsort(np.concatenate(order), kind="stable"))
    return [each.take(places) for each in arrays]


def _joined(arrays: Sequence[Arrow]) -> Arrow:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
