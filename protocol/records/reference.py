"""Records read and written one by one in plain Python: the meaning that the fast kernels are held to.

Rule: written to be read, and independent of `record_kernels`: tests compare the two, on valid and on damaged bytes. It
also does the work until the kernels are ready.

Layout: KIP-98 and org.apache.kafka.common.record.DefaultRecord (Kafka 4.3). `Differs from Kafka:` numbers that overflow
their type, and lengths below -1, are rejected instead of being cut and read as null: other clients read them otherwise.
"""

import numpy as np

from protocol.limits import TIMESTAMP_MS_MAX
from protocol.records.batch import HEADER_BYTES, encode_varint
from protocol.records.columns import (
    Bytes,
    BytesColumn,
    EncodeColumns,
    EncodedRun,
    HeaderColumns,
    RecordColumns,
    RecordFault,
    RecordScan,
    RunBatches,
    RunScan,
)
from protocol.types import NO_TIMESTAMP

_INT32_MAX = (1 << 31) - 1


class _Rejected(Exception):
    def __init__(self, fault: RecordFault) -> None:
        super().__init__(fault.name)
        self.fault = fault


class _RecordCursor:
    """Reads forward in `data`, never beyond `end`."""

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def byte(self) -> int:
        if self.position >= self.end:
            raise _Rejected(RecordFault.CUT)
        self.position += 1
        return self.data[self.position - 1]

    def varint(self, bits: int) -> int:
        """A zigzag number of at most that many bits."""
        raw = shift = 0
        while True:
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if shift + 7 > bits and byte >> (bits - shift):
                raise _Rejected(RecordFault.VARINT)
            if byte < 0x80:
                return -(raw >> 1) - 1 if raw & 1 else raw >> 1
            shift += 7

    def skip(self, length: int) -> None:
        if length > self.end - self.position:
            raise _Rejected(RecordFault.LENGTH)
        self.position += length

    def bytes_or_null(self) -> tuple[int, int]:
        """First byte and length (-1 for null) of a byte string."""
        length = self.varint(32)
        first = self.position
        if length < -1:
            raise _Rejected(RecordFault.LENGTH)
        self.skip(max(length, 0))
        return first, length

    def headers(self) -> tuple[int, int]:
        """Where the headers begin, and their count; they are passed over."""
        count = self.varint(32)
        first = self.position
        if not 0 <= count <= self.end - self.position:
            raise _Rejected(RecordFault.HEADERS)
        for _ in range(count):
            if self.bytes_or_null()[1] < 0:
                raise _Rejected(RecordFault.HEADERS)
            self.bytes_or_null()
        return first, count


def scan_records(
    payload: Bytes,
    columns: RecordColumns,
    record_count: int,
    base_timestamp: int,
    last_offset_delta: int,
    *,
    is_dense: bool,
) -> RecordScan:
    """Read the records in `payload` and check all that can be checked.

    Columns are filled as far as they have rows. `is_dense`: offset deltas must count 0, 1, 2... as producers must, else
    they ascend up to `last_offset_delta`.
    """
    cursor = _RecordCursor(payload.tobytes(), 0, len(payload))
    min_timestamp = max_timestamp = int(NO_TIMESTAMP)
    max_timestamp_delta = keyless_delta = previous_delta = -1
    for row in range(record_count):
        try:
            timestamp, offset_delta, has_key = _scan_record(cursor, columns, row, base_timestamp)
            if (is_dense and offset_delta != row) or not previous_delta < offset_delta <= last_offset_delta:
                raise _Rejected(RecordFault.OFFSET)
        except _Rejected as rejected:
            return RecordScan(rejected.fault, row, -1, -1, -1, -1)
        previous_delta = offset_delta
        if timestamp > max_timestamp:
            max_timestamp, max_timestamp_delta = timestamp, offset_delta
        if timestamp != NO_TIMESTAMP and (min_timestamp == NO_TIMESTAMP or timestamp < min_timestamp):
            min_timestamp = timestamp
        if keyless_delta < 0 and not has_key:
            keyless_delta = offset_delta
    fault = RecordFault.NONE if cursor.position == cursor.end else RecordFault.TRAILING
    return RecordScan(fault, record_count, min_timestamp, max_timestamp, max_timestamp_delta, keyless_delta)


def scan_batches(payload: Bytes, batches: RunBatches, columns: RecordColumns) -> RunScan:
    """Read the records of all `batches` in `payload`, up to the first bad one. `columns` has a row for each record.

    Offset deltas are those of each batch, and ascend within it up to its last one.
    """
    first = row_first = 0
    for batch, (end, count, base_timestamp, last_offset_delta) in enumerate(
        zip(*(column.tolist() for column in batches), strict=True)
    ):
        rows = slice(row_first, row_first + count)
        own = RecordColumns._make((columns.payload, *(column[rows] for column in columns[1:])))
        scan = scan_records(payload[first:end], own, count, base_timestamp, last_offset_delta, is_dense=False)
        if scan.fault != RecordFault.NONE:
            return RunScan(scan.fault, batch, scan.row)
        for column in (own.key_first, own.value_first, own.headers_first):
            column += first
        first, row_first = end, row_first + count
    return RunScan(RecordFault.NONE, len(batches.end), 0)


def _scan_record(
    payload: _RecordCursor, columns: RecordColumns, row: int, base_timestamp: int
) -> tuple[int, int, bool]:
    """Timestamp, offset delta, and whether there is a key."""
    length = payload.varint(32)
    if length < 0:
        raise _Rejected(RecordFault.LENGTH)
    payload.skip(length)
    cursor = _RecordCursor(payload.data, payload.position - length, payload.position)
    cursor.byte()  # attributes: no bit of a record's is in use
    timestamp = base_timestamp + cursor.varint(64)
    if not -TIMESTAMP_MS_MAX <= timestamp <= TIMESTAMP_MS_MAX:
        raise _Rejected(RecordFault.TIMESTAMP)
    offset_delta = cursor.varint(32)
    key_first, key_bytes = cursor.bytes_or_null()
    value_first, value_bytes = cursor.bytes_or_null()
    headers_first, header_count = cursor.headers()
    if cursor.position != cursor.end:
        raise _Rejected(RecordFault.TRAILING)
    if row < len(columns.offset_delta):
        columns.offset_delta[row] = offset_delta
        columns.timestamp[row] = timestamp
        columns.key_first[row] = key_first
        columns.key_bytes[row] = key_bytes
        columns.value_first[row] = value_first
        columns.value_bytes[row] = value_bytes
        columns.headers_first[row] = headers_first
        columns.headers_bytes[row] = cursor.end - headers_first
        columns.header_count[row] = header_count
    return timestamp, offset_delta, key_bytes >= 0


def scan_headers(columns: RecordColumns, headers: HeaderColumns) -> None:
    """Fill `headers` but for its `ends` from scanned records."""
    data = columns.payload.tobytes()
    element = 0
    for first, size, count in zip(
        columns.headers_first.tolist(), columns.headers_bytes.tolist(), columns.header_count.tolist(), strict=True
    ):
        cursor = _RecordCursor(data, first, first + size)
        for _ in range(count):
            headers.key_first[element], headers.key_bytes[element] = cursor.bytes_or_null()
            headers.value_first[element], headers.value_bytes[element] = cursor.bytes_or_null()
            element += 1


def encode_records(
    source: EncodeColumns, batch_bytes_target: int, output: Bytes, *, is_split_by_timestamp: bool
) -> list[EncodedRun]:
    """Write all records into `output`, in runs of at most the target (one record at least), and say where.

    Each run leaves room for a batch's header. A run holds one timestamp only if `is_split_by_timestamp`.
    """
    runs: list[EncodedRun] = []
    written = bytearray()
    first = row_first = 0
    base_offset = base_timestamp = max_timestamp = 0
    for row, (offset, timestamp) in enumerate(zip(source.offset.tolist(), source.timestamp.tolist(), strict=True)):
        record = _encode_record(source, row, timestamp - base_timestamp, offset - base_offset)
        if row > row_first and (
            len(written) - first + len(record) > batch_bytes_target
            or offset - base_offset > _INT32_MAX
            or (is_split_by_timestamp and timestamp != base_timestamp)
        ):
            runs.append(EncodedRun(first, len(written), row_first, row, max_timestamp))
            first, row_first = len(written), row
        if row == row_first:
            written += bytes(HEADER_BYTES)
            base_offset, base_timestamp, max_timestamp = offset, timestamp, timestamp
            record = _encode_record(source, row, 0, 0)
        written += record
        max_timestamp = max(max_timestamp, timestamp)
    if len(source.offset):
        runs.append(EncodedRun(first, len(written), row_first, len(source.offset), max_timestamp))
    output[: len(written)] = np.frombuffer(written, dtype=np.uint8)
    return runs


def _encode_record(source: EncodeColumns, row: int, timestamp_delta: int, offset_delta: int) -> bytes:
    headers = range(int(source.header_ends[row]), int(source.header_ends[row + 1]))
    body = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    body += [_encode_bytes(source.key, row), _encode_bytes(source.value, row), encode_varint(len(headers))]
    for header in headers:
        body += [_encode_bytes(source.header_key, header), _encode_bytes(source.header_value, header)]
    encoded = b"".join(body)
    return encode_varint(len(encoded)) + encoded


def _encode_bytes(column: BytesColumn, row: int) -> bytes:
    first, length = int(column.first[row]), int(column.length[row])
    return encode_varint(length) + column.data[first : first + max(length, 0)].tobytes()
