"""Records read and written by compiled kernels, without the interpreter's lock.

Rule: same results as `record_reference`, for every input (tests/property/protocol/test_records.py). Nothing outside an
array is read or written: every length is held against what remains before it is used, and `records` has checked the
columns that come in. Importing this module reads the kernels, or compiles them (`protocol.kernel_cache`):
`records.warm_kernels` does.

numba takes a mix of int64 and smaller numbers as int64; with uint64 it would make a float of it, so there is none.
Coverage cannot see into compiled code, so the kernels are excluded from it.
"""

from collections.abc import MutableSequence

import numpy as np
from numba import njit, types

from protocol.kernel_cache import kernel
from protocol.limits import TIMESTAMP_MS_MAX
from protocol.records.batch import HEADER_BYTES
from protocol.records.columns import (
    Bytes,
    EncodeColumns,
    EncodedRun,
    HeaderColumns,
    RecordColumns,
    RecordFault,
    RecordScan,
    RunBatches,
    RunScan,
)
from protocol.records.copy_kernel import copy_bytes

_CUT = int(RecordFault.CUT)
_VARINT = int(RecordFault.VARINT)
_LENGTH = int(RecordFault.LENGTH)
_OFFSET = int(RecordFault.OFFSET)
_TIMESTAMP = int(RecordFault.TIMESTAMP)
_HEADERS = int(RecordFault.HEADERS)
_TRAILING = int(RecordFault.TRAILING)
_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_DELTA_MAX = 2 * TIMESTAMP_MS_MAX
"""A larger step leaves the range of timestamps wherever it begins, and could overflow."""

Numbers = MutableSequence[int]
"""An array, as far as types are concerned: kernels see its numbers only."""

_INT, _FLAG = types.int64, types.boolean
_BYTES_IN, _BYTES_OUT = types.Array(types.uint8, 1, "C", readonly=True), types.Array(types.uint8, 1, "C")
_INT32S_IN, _INT32S_OUT = types.Array(types.int32, 1, "C", readonly=True), types.Array(types.int32, 1, "C")
_INT64S_IN, _INT64S_OUT = types.Array(types.int64, 1, "C", readonly=True), types.Array(types.int64, 1, "C")
_TABLE_OUT = types.Array(types.int64, 2, "C")
_STRINGS = (_BYTES_IN, _INT64S_IN, _INT32S_IN)


@njit(nogil=True, inline="always")
def _varint(
    data: Numbers, position: int, end: int, bytes_max: int, last_max: int
) -> tuple[int, int]:  # pragma: no cover
    """The number and the position behind it; minus the fault instead of the position."""
    raw = 0
    shift = 0
    for index in range(bytes_max):
        if position >= end:
            return raw, -_CUT
        byte = data[position]
        position += 1
        if index == bytes_max - 1 and byte > last_max:
            return raw, -_VARINT
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return ((raw >> 1) & _INT64_MAX) ^ -(raw & 1), position


@njit(nogil=True, inline="always")
def _int32(data: Numbers, position: int, end: int) -> tuple[int, int]:  # pragma: no cover
    if position < end and data[position] < 0x80:
        raw = data[position]
        return (raw >> 1) ^ -(raw & 1), position + 1
    return _varint(data, position, end, 5, 0x0F)


@njit(nogil=True, inline="always")
def _skip_bytes(data: Numbers, position: int, end: int) -> tuple[int, int]:  # pragma: no cover
    """Length (-1 for null) of a byte string, and the position behind it; minus the fault instead of the position."""
    length, position = _int32(data, position, end)
    if position < 0:
        return length, position
    if length < -1 or length > end - position:
        return length, -_LENGTH
    return length, position + max(length, 0)


@njit(nogil=True)
def _skip_headers(data: Numbers, position: int, end: int, count: int) -> int:  # pragma: no cover
    """The position behind that many headers, or minus the fault."""
    for _ in range(count):
        length, position = _skip_bytes(data, position, end)
        if position < 0:
            return position
        if length < 0:
            return -_HEADERS
        length, position = _skip_bytes(data, position, end)
        if position < 0:
            return position
    return position


@njit(nogil=True, inline="always")
def _rejected(fault: int) -> tuple[int, int, int, int, int, int, int, int, int]:  # pragma: no cover
    return fault, 0, 0, 0, 0, 0, 0, 0, 0


@njit(nogil=True)
def _scan_record(
    data: Numbers, position: int, end: int, base_timestamp: int
) -> tuple[int, int, int, int, int, int, int, int, int]:  # pragma: no cover
    """Fault, timestamp, offset delta, key, value (first byte, length), and headers (first byte, count)."""
    if position == end:
        return _rejected(_CUT)
    timestamp_delta, position = _varint(data, position + 1, end, 10, 0x01)
    if position < 0:
        return _rejected(-position)
    timestamp = base_timestamp + timestamp_delta
    if not -_DELTA_MAX <= timestamp_delta <= _DELTA_MAX or abs(timestamp) > TIMESTAMP_MS_MAX:
        return _rejected(_TIMESTAMP)
    offset_delta, position = _int32(data, position, end)
    if position < 0:
        return _rejected(-position)
    key_bytes, position = _skip_bytes(data, position, end)
    if position < 0:
        return _rejected(-position)
    key_first = position - max(key_bytes, 0)
    value_bytes, position = _skip_bytes(data, position, end)
    if position < 0:
        return _rejected(-position)
    value_first = position - max(value_bytes, 0)
    header_count, position = _int32(data, position, end)
    if position < 0:
        return _rejected(-position)
    headers_first = position
    if header_count < 0 or header_count > end - position:
        return _rejected(_HEADERS)
    if header_count > 0:
        position = _skip_headers(data, position, end, header_count)
        if position < 0:
            return _rejected(-position)
    if position != end:
        return _rejected(_TRAILING)
    return 0, timestamp, offset_delta, key_first, key_bytes, value_first, value_bytes, headers_first, header_count


@njit(nogil=True)
def _scan_batch(
    data: Numbers,
    position: int,
    data_end: int,
    row_first: int,
    record_count: int,
    base_timestamp: int,
    last_offset_delta: int,
    is_dense: bool,  # noqa: FBT001 - a kernel has no keywords
    out_offset_delta: Numbers,
    out_timestamp: Numbers,
    out_key_first: Numbers,
    out_key_bytes: Numbers,
    out_value_first: Numbers,
    out_value_bytes: Numbers,
    out_headers_first: Numbers,
    out_headers_bytes: Numbers,
    out_header_count: Numbers,
) -> tuple[int, int, int, int, int, int]:  # pragma: no cover
    """The records in `data[position:data_end]`, as columns from `row_first` on; see `RecordScan`."""
    rows = len(out_offset_delta)
    min_timestamp = max_timestamp = max_delta = keyless_delta = previous_delta = -1
    for row in range(record_count):
        length, position = _int32(data, position, data_end)
        if position < 0:
            return -position, row, -1, -1, -1, -1
        if length < 0 or length > data_end - position:
            return _LENGTH, row, -1, -1, -1, -1
        end = position + length
        (
            fault, timestamp, offset_delta, key_first, key_bytes, value_first, value_bytes, headers_first, header_count,
        ) = _scan_record(data, position, end, base_timestamp)  # fmt: skip
        if fault != 0:
            return fault, row, -1, -1, -1, -1
        position = end
        if offset_delta <= previous_delta or offset_delta > last_offset_delta or (is_dense and offset_delta != row):
            return _OFFSET, row, -1, -1, -1, -1
        previous_delta = offset_delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_delta = offset_delta
        if timestamp != -1 and (min_timestamp == -1 or timestamp < min_timestamp):
            min_timestamp = timestamp
        if key_bytes < 0 and keyless_delta < 0:
            keyless_delta = offset_delta
        out = row_first + row
        if out < rows:
            out_offset_delta[out] = offset_delta
            out_timestamp[out] = timestamp
            out_key_first[out] = key_first
            out_key_bytes[out] = key_bytes
            out_value_first[out] = value_first
            out_value_bytes[out] = value_bytes
            out_headers_first[out] = headers_first
            out_headers_bytes[out] = end - headers_first
            out_header_count[out] = header_count
    fault = 0 if position == data_end else _TRAILING
    return fault, record_count, min_timestamp, max_timestamp, max_delta, keyless_delta


@kernel(
    _BYTES_IN, _INT, _INT, _INT, _FLAG, _INT32S_OUT, _INT64S_OUT, _INT64S_OUT, _INT32S_OUT, _INT64S_OUT, _INT32S_OUT,
    _INT64S_OUT, _INT64S_OUT, _INT32S_OUT,
)  # fmt: skip
def _scan(
    data: Numbers,
    record_count: int,
    base_timestamp: int,
    last_offset_delta: int,
    is_dense: bool,  # noqa: FBT001 - a kernel has no keywords
    out_offset_delta: Numbers,
    out_timestamp: Numbers,
    out_key_first: Numbers,
    out_key_bytes: Numbers,
    out_value_first: Numbers,
    out_value_bytes: Numbers,
    out_headers_first: Numbers,
    out_headers_bytes: Numbers,
    out_header_count: Numbers,
) -> tuple[int, int, int, int, int, int]:  # pragma: no cover
    return _scan_batch(
        data, 0, len(data), 0, record_count, base_timestamp, last_offset_delta, is_dense,
        out_offset_delta, out_timestamp, out_key_first, out_key_bytes, out_value_first, out_value_bytes,
        out_headers_first, out_headers_bytes, out_header_count,
    )  # fmt: skip


@kernel(
    _BYTES_IN, _INT64S_IN, _INT64S_IN, _INT64S_IN, _INT64S_IN, _INT32S_OUT, _INT64S_OUT, _INT64S_OUT, _INT32S_OUT,
    _INT64S_OUT, _INT32S_OUT, _INT64S_OUT, _INT64S_OUT, _INT32S_OUT,
)  # fmt: skip
def _scan_batches(
    data: Numbers,
    batch_ends: Numbers,
    record_counts: Numbers,
    base_timestamps: Numbers,
    last_offset_deltas: Numbers,
    out_offset_delta: Numbers,
    out_timestamp: Numbers,
    out_key_first: Numbers,
    out_key_bytes: Numbers,
    out_value_first: Numbers,
    out_value_bytes: Numbers,
    out_headers_first: Numbers,
    out_headers_bytes: Numbers,
    out_header_count: Numbers,
) -> tuple[int, int, int]:  # pragma: no cover
    position = 0
    row = 0
    for batch in range(len(batch_ends)):
        fault, bad_row, _, _, _, _ = _scan_batch(
            data, position, batch_ends[batch], row, record_counts[batch], base_timestamps[batch],
            last_offset_deltas[batch], False,  # noqa: FBT003 - a kernel has no keywords
            out_offset_delta, out_timestamp, out_key_first, out_key_bytes, out_value_first, out_value_bytes,
            out_headers_first, out_headers_bytes, out_header_count,
        )  # fmt: skip
        if fault != 0:
            return fault, batch, bad_row
        position = batch_ends[batch]
        row += record_counts[batch]
    return 0, len(batch_ends), 0


@kernel(_BYTES_IN, _INT64S_IN, _INT64S_IN, _INT32S_IN, _INT64S_OUT, _INT32S_OUT, _INT64S_OUT, _INT32S_OUT)
def _scan_headers(
    data: Numbers,
    headers_first: Numbers,
    headers_bytes: Numbers,
    header_count: Numbers,
    out_key_first: Numbers,
    out_key_bytes: Numbers,
    out_value_first: Numbers,
    out_value_bytes: Numbers,
) -> None:  # pragma: no cover
    element = 0
    for row in range(len(headers_first)):
        position = headers_first[row]
        end = position + headers_bytes[row]
        for _ in range(header_count[row]):
            length, position = _skip_bytes(data, position, end)
            out_key_first[element] = position - max(length, 0)
            out_key_bytes[element] = length
            length, position = _skip_bytes(data, position, end)
            out_value_first[element] = position - max(length, 0)
            out_value_bytes[element] = length
            element += 1


@njit(nogil=True, inline="always")
def _zigzag(number: int) -> int:  # pragma: no cover
    return (number << 1) ^ (number >> 63)


@njit(nogil=True, inline="always")
def _varint_bytes(number: int) -> int:  # pragma: no cover
    rest = _zigzag(number)
    count = 1
    while rest > 0x7F:
        rest >>= 7
        count += 1
    return count


@njit(nogil=True, inline="always")
def _put_varint(output: Numbers, position: int, number: int) -> int:  # pragma: no cover
    rest = _zigzag(number)
    while rest > 0x7F:
        output[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    output[position] = rest
    return position + 1


@njit(nogil=True, inline="always")
def _string_bytes(length: int) -> int:  # pragma: no cover
    return _varint_bytes(length) + max(length, 0)


@njit(nogil=True)
def _put_string(output: Numbers, position: int, data: Numbers, first: int, length: int) -> int:  # pragma: no cover
    position = _put_varint(output, position, length)
    if length > 0:
        copy_bytes(output, position, data, first, length)
        position += length
    return position


@kernel(
    _INT64S_IN, _INT64S_IN, *_STRINGS, *_STRINGS, _INT64S_IN, *_STRINGS, *_STRINGS, _INT, _FLAG, _BYTES_OUT, _TABLE_OUT
)
def _encode(
    offsets: Numbers,
    timestamps: Numbers,
    key_data: Numbers,
    key_first: Numbers,
    key_bytes: Numbers,
    value_data: Numbers,
    value_first: Numbers,
    value_bytes: Numbers,
    header_ends: Numbers,
    header_key_data: Numbers,
    header_key_first: Numbers,
    header_key_bytes: Numbers,
    header_value_data: Numbers,
    header_value_first: Numbers,
    header_value_bytes: Numbers,
    bytes_target: int,
    is_split_by_timestamp: bool,  # noqa: FBT001
    output: Numbers,
    runs: MutableSequence[tuple[int, ...]],
) -> tuple[int, int]:  # pragma: no cover
    run = -1
    first = position = row_first = 0
    base_offset = base_timestamp = max_timestamp = 0
    for row in range(len(offsets)):
        timestamp = timestamps[row]
        rest = 1 + _string_bytes(key_bytes[row]) + _string_bytes(value_bytes[row])
        header_first = header_ends[row]
        header_end = header_ends[row + 1]
        rest += _varint_bytes(header_end - header_first)
        for header in range(header_first, header_end):
            rest += _string_bytes(header_key_bytes[header])
            rest += _string_bytes(header_value_bytes[header])
        timestamp_delta = timestamp - base_timestamp
        offset_delta = offsets[row] - base_offset
        body = rest + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta)
        if run < 0 or (
            position - first + body + _varint_bytes(body) > bytes_target
            or offset_delta > _INT32_MAX
            or (is_split_by_timestamp and timestamp_delta != 0)
        ):
            if run >= 0:
                runs[run] = (first, position, row_first, row, max_timestamp)
            run += 1
            first = position
            row_first = row
            position += HEADER_BYTES
            base_offset = offsets[row]
            base_timestamp = max_timestamp = timestamp
            timestamp_delta = offset_delta = 0
            body = rest + 2
        position = _put_varint(output, position, body)
        output[position] = 0
        position = _put_varint(output, position + 1, timestamp_delta)
        position = _put_varint(output, position, offset_delta)
        position = _put_string(output, position, key_data, key_first[row], key_bytes[row])
        position = _put_string(output, position, value_data, value_first[row], value_bytes[row])
        position = _put_varint(output, position, header_end - header_first)
        for header in range(header_first, header_end):
            position = _put_string(
                output, position, header_key_data, header_key_first[header], header_key_bytes[header]
            )
            position = _put_string(
                output, position, header_value_data, header_value_first[header], header_value_bytes[header]
            )
        max_timestamp = max(max_timestamp, timestamp)
    if run >= 0:
        runs[run] = (first, position, row_first, len(offsets), max_timestamp)
    return run + 1, position


def scan_records(
    payload: Bytes,
    columns: RecordColumns,
    record_count: int,
    base_timestamp: int,
    last_offset_delta: int,
    *,
    is_dense: bool,
) -> RecordScan:
    """Like `record_reference.scan_records`."""
    result: tuple[int, int, int, int, int, int] = _scan(
        payload, record_count, base_timestamp, last_offset_delta, is_dense,
        columns.offset_delta, columns.timestamp, columns.key_first, columns.key_bytes, columns.value_first,
        columns.value_bytes, columns.headers_first, columns.headers_bytes, columns.header_count,
    )  # fmt: skip
    return RecordScan(*result)


def scan_batches(payload: Bytes, batches: RunBatches, columns: RecordColumns) -> RunScan:
    """Like `record_reference.scan_batches`."""
    result: tuple[int, int, int] = _scan_batches(
        payload, batches.end, batches.record_count, batches.base_timestamp, batches.last_offset_delta,
        columns.offset_delta, columns.timestamp, columns.key_first, columns.key_bytes, columns.value_first,
        columns.value_bytes, columns.headers_first, columns.headers_bytes, columns.header_count,
    )  # fmt: skip
    return RunScan(*result)


def scan_headers(columns: RecordColumns, headers: HeaderColumns) -> None:
    """Like `record_reference.scan_headers`."""
    _scan_headers(
        columns.payload, columns.headers_first, columns.headers_bytes, columns.header_count,
        headers.key_first, headers.key_bytes, headers.value_first, headers.value_bytes,
    )  # fmt: skip


def encode_records(
    source: EncodeColumns, batch_bytes_target: int, output: Bytes, *, is_split_by_timestamp: bool
) -> list[EncodedRun]:
    """Like `record_reference.encode_records`."""
    runs = np.empty((len(source.offset), 5), dtype=np.int64)
    count, _end = _encode(
        source.offset, source.timestamp, source.key.data, source.key.first, source.key.length, source.value.data,
        source.value.first, source.value.length, source.header_ends, source.header_key.data, source.header_key.first,
        source.header_key.length, source.header_value.data, source.header_value.first, source.header_value.length,
        batch_bytes_target, is_split_by_timestamp, output, runs,
    )  # fmt: skip
    return [EncodedRun(*run) for run in runs[:count].tolist()]
