"""The records inside a batch: checked, taken apart into columns, and put together again.

Rule: importing this module is cheap. The heavy part is done by `record_kernels` once `warm_kernels` has run, and by
`record_reference` until then; results are the same.

Where a batch's bytes come from a client, `validate_records` comes first. The other functions check every bound too, but
do not distinguish error codes. Source: org.apache.kafka.common.record.DefaultRecord, LogValidator (Kafka 4.3).
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from protocol.errors import ErrorCode, InvalidBatch
from protocol.limits import (
    DECOMPRESSED_BYTES_MAX,
    RECORDS_PER_BATCH_MAX,
    RUN_OUTPUT_BYTES,
    TIMESTAMP_MS_MAX,
)
from protocol.records import reference as record_reference
from protocol.records.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME_BIT, BatchHeader, pack_header
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
from protocol.records.compression import EXPANSION_USUAL, Compression, compress, decompress, lz4_frame_bytes
from protocol.wire import Buffer

__all__ = [
    "BatchRun",
    "BatchSummary",
    "BytesColumn",
    "EncodeColumns",
    "HeaderColumns",
    "RecordColumns",
    "decode_headers",
    "decode_records",
    "encode_batches",
    "kernels_ready",
    "observe_plain_records",
    "validate_records",
    "warm_kernels",
]

_RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers."""
_RECORD_OVERHEAD_MAX: Final = 36
"""Length, attributes, timestamp and offset deltas, and the lengths of key, value and headers."""
_HEADER_OVERHEAD_MAX: Final = 10


class _Worker(Protocol):
    """The module that does the heavy part: `record_reference` or `record_kernels`."""

    def scan_records(
        self,
        payload: Bytes,
        columns: RecordColumns,
        record_count: int,
        base_timestamp: int,
        last_offset_delta: int,
        *,
        is_dense: bool,
    ) -> RecordScan: ...

    def scan_batches(self, payload: Bytes, batches: RunBatches, columns: RecordColumns) -> RunScan: ...

    def scan_headers(self, columns: RecordColumns, headers: HeaderColumns) -> None: ...

    def encode_records(
        self, source: EncodeColumns, batch_bytes_target: int, output: Bytes, *, is_split_by_timestamp: bool
    ) -> Sequence[EncodedRun]: ...


_NO_COLUMNS: Final = RecordColumns.allocate(np.empty(0, dtype=np.uint8), 0)
"""Columns of no rows, for callers that only check."""
_workers: list[_Worker] = [record_reference]
"""The last one works."""
_observers: list[Callable[[int], object]] = []
"""Called before the reference works on records; one at most."""


class BatchSummary(NamedTuple):
    """The result of a batch's validation. Timestamps in milliseconds, as the producer wrote them."""

    record_count: int
    max_timestamp: int
    """-1 where no record has one."""
    offset_of_max_timestamp: int
    """The offset delta of the first record that has it; -1 where none has one."""
    min_timestamp: int
    """The least one that is not -1; -1 where no record has one."""
    first_without_key: int
    """The offset delta of the first record whose key is null (a compacted topic rejects it); -1 where there is none."""


def kernels_ready() -> bool:
    """Whether the compiled kernels do the work."""
    return len(_workers) > 1


def warm_kernels() -> None:
    """Load the kernels, compiling those that no cache holds (`protocol.kernel_cache`). Blocking, for seconds the first
    time: use a thread.
    """
    if kernels_ready():
        return
    from protocol.records import kernels as record_kernels

    _workers.append(record_kernels)


def observe_plain_records(observer: Callable[[int], object]) -> None:
    """Calls `observer` with the number of records each time before the reference decodes some, in the same thread.

    It replaces the observer before. It is not called any more once the kernels do the work.
    """
    _observers[:] = [observer]


def validate_records(buffer: Buffer, header: BatchHeader, *, decompressed_bytes_max: int) -> BatchSummary:
    """Check a producer's records to the last byte. Raises `InvalidBatch` with the code for the producer.

    buffer: what `header` was read from; its CRC has been checked. Offset deltas must count up from 0.
    `Differs from Kafka:` an uncompressed batch whose deltas do not is rejected instead of being stored as it is.
    """
    payload = _payload(buffer, header, decompressed_bytes_max)
    scan = _scan(header, payload, _NO_COLUMNS, is_dense=True)
    return BatchSummary(
        record_count=scan.row,
        max_timestamp=scan.max_timestamp,
        offset_of_max_timestamp=scan.max_timestamp_offset_delta,
        min_timestamp=scan.min_timestamp,
        first_without_key=scan.keyless_offset_delta,
    )


def decode_records(
    buffer: Buffer, header: BatchHeader, *, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> RecordColumns:
    """A batch's records as columns; offset deltas may have gaps. Raises `InvalidBatch`: `DoesNotUnpack` where they
    unpack to more than `unpacked_bytes_max` bytes. Records that are not compressed have no such limit.

    Timestamps are the batch's max timestamp if its type is LogAppendTime, as Kafka's consumers read them. An
    uncompressed batch's payload shares `buffer`, which must not change as long as the columns live.
    """
    bytes_max = max(unpacked_bytes_max, header.batch_bytes)
    try:
        return _decoded(header, _payload(buffer, header, bytes_max))
    except InvalidBatch:
        if header.compression is not Compression.LZ4:
            raise
        # Batches of several frames were accepted once, and are stored: they have all their records together alone.
        return _decoded(header, _payload(buffer, header, bytes_max, is_every_frame=True))


class _RunPart(NamedTuple):
    """A batch of a run: its header, and its records."""

    header: BatchHeader
    payload: Buffer


class BatchRun:
    """Batches whose records are decoded together: one call of a kernel for all of them.

    They are unpacked into memory that the next run uses again, as far as it suffices.
    """

    def __init__(self) -> None:
        self._parts: list[_RunPart] = []
        self._output: memoryview | None = None
        self._output_used = 0
        self.byte_count = 0
        """The bytes of the records, unpacked."""

    def add(self, buffer: Buffer, header: BatchHeader, *, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> int:
        """Append the batch that `header` was read from; return the bytes of its records.

        Raises as `decode_records` does, except for faults inside records, which `decode` finds.
        """
        payload: Buffer
        if header.attributes & CODEC_MASK == Compression.NONE:
            payload = memoryview(buffer)[header.position + HEADER_BYTES : header.end]
            _check_count(header, len(payload))
        elif header.compression is Compression.LZ4 and _has_several_frames(buffer, header):
            # Rare: were accepted once, and are stored. Which frames count is known once they are decoded.
            payload = decode_records(buffer, header, unpacked_bytes_max=unpacked_bytes_max).payload.data
        else:
            payload = self._unpacked(buffer, header, max(unpacked_bytes_max, header.batch_bytes))
        self._append(header, payload)
        return len(payload)

    def add_last_records(self, header: BatchHeader, payload: Buffer, record_count: int) -> None:
        """Append the last `record_count` records of a batch, whose bytes are `payload`: decoded before by a run."""
        self._append(header._replace(record_count=record_count), payload)

    def record_counts(self) -> list[int]:
        """The count of records of each batch."""
        return [part.header.record_count for part in self._parts]

    def decode(self) -> RecordColumns:
        """All records as columns, in order, with offset deltas of their own batch; the run is empty then.

        Timestamps are as `decode_records` gives them. The payload is valid until the next `add`, and may share the
        memory of a batch. Raises `InvalidBatch`.
        """
        parts, self._parts, self.byte_count, self._output_used = self._parts, [], 0, 0
        for header, _ in parts:
            _check_base_timestamp(header)
        payload = parts[0].payload if len(parts) == 1 else b"".join(part.payload for part in parts)
        columns = RecordColumns.allocate(
            np.frombuffer(payload, dtype=np.uint8), sum(header.record_count for header, _ in parts)
        )
        scan = _worker(len(columns.offset_delta)).scan_batches(columns.payload, _run_batches(parts), columns)
        if scan.fault != RecordFault.NONE:
            raise _bad_record(parts[scan.batch].header, scan.fault, scan.row)
        row = 0
        for header, _ in parts:
            if header.is_log_append_time:
                columns.timestamp[row : row + header.record_count] = header.max_timestamp
            row += header.record_count
        return columns

    def _append(self, header: BatchHeader, payload: Buffer) -> None:
        self._parts.append(_RunPart(header, payload))
        self.byte_count += len(payload)

    def _unpacked(self, buffer: Buffer, header: BatchHeader, bytes_max: int) -> memoryview:
        if self._output is None:
            self._output = np.empty(RUN_OUTPUT_BYTES, dtype=np.uint8).data  # memory is only taken as it is written
        free = self._output[self._output_used :]
        # A batch that does not fit would be unpacked twice.
        output = free[:bytes_max] if EXPANSION_USUAL * header.batch_bytes <= len(free) else None
        payload = _payload(buffer, header, bytes_max, output=output).data
        self._output_used += len(payload)  # at least: a batch may have had memory of its own
        return payload


def _has_several_frames(buffer: Buffer, header: BatchHeader) -> bool:
    packed = memoryview(buffer)[header.position + HEADER_BYTES : header.end]
    return lz4_frame_bytes(packed) < len(packed)


def _run_batches(parts: Sequence[_RunPart]) -> RunBatches:
    headers = [part.header for part in parts]
    return RunBatches(
        end=np.cumsum([len(part.payload) for part in parts], dtype=np.int64),
        record_count=np.array([header.record_count for header in headers], dtype=np.int64),
        base_timestamp=np.array([header.base_timestamp for header in headers], dtype=np.int64),
        last_offset_delta=np.array([header.last_offset_delta for header in headers], dtype=np.int64),
    )


def _decoded(header: BatchHeader, payload: Bytes) -> RecordColumns:
    columns = RecordColumns.allocate(payload, header.record_count)
    _scan(header, payload, columns, is_dense=False)
    if header.is_log_append_time:
        columns.timestamp.fill(header.max_timestamp)
    return columns


def decode_headers(columns: RecordColumns) -> HeaderColumns:
    """The headers of all records."""
    ends = np.zeros(len(columns.header_count) + 1, dtype=np.int64)
    np.cumsum(columns.header_count, out=ends[1:])
    count = int(ends[-1])
    headers = HeaderColumns(
        ends=ends,
        key_first=np.empty(count, dtype=np.int64),
        key_bytes=np.empty(count, dtype=np.int32),
        value_first=np.empty(count, dtype=np.int64),
        value_bytes=np.empty(count, dtype=np.int32),
    )
    if count:
        _workers[-1].scan_headers(columns, headers)  # `_observers` saw their records when those were scanned
    return headers


def encode_batches(
    source: EncodeColumns,
    *,
    compression: Compression,
    batch_bytes_target: int,
    log_append_time: bool,
    batch_bytes_max: int | None = None,
) -> bytes:
    """Concatenated v2 batches of the records, with their own offsets; gaps within a batch stand in the offset deltas.

    batch_bytes_target: a batch's size before compression, at most; a record that is larger has a batch of its own.
    log_append_time: batches say LogAppendTime, and each holds records of one timestamp only.
    batch_bytes_max: a batch that `compression` leaves larger than this is compressed otherwise, where that helps.
    """
    assert _is_sound(source)
    output = np.empty(_encoded_bytes_max(source), dtype=np.uint8)
    runs = _worker(len(source.offset)).encode_records(
        source, batch_bytes_target, output, is_split_by_timestamp=log_append_time
    )
    timestamp_type = LOG_APPEND_TIME_BIT if log_append_time else 0
    records_bytes_max = None if batch_bytes_max is None else max(batch_bytes_max - HEADER_BYTES, 0)
    view = output.data
    parts: list[Buffer] = []
    for run in runs:
        base_offset = int(source.offset[run.row_first])
        records = view[run.byte_first + HEADER_BYTES : run.byte_end]
        codec, packed = _compress(compression, records, records_bytes_max)
        header = pack_header(
            base_offset=base_offset,
            attributes=codec | timestamp_type,
            last_offset_delta=int(source.offset[run.row_end - 1]) - base_offset,
            base_timestamp=int(source.timestamp[run.row_first]),
            max_timestamp=run.max_timestamp,
            record_count=run.row_end - run.row_first,
            records=packed,
        )
        if codec is Compression.NONE:
            view[run.byte_first : run.byte_first + HEADER_BYTES] = header
            parts.append(view[run.byte_first : run.byte_end])
        else:
            parts += (header, packed)
    return b"".join(parts)


def _compress(compression: Compression, records: memoryview, bytes_max: int | None) -> tuple[Compression, Buffer]:
    """The records in the codec that is asked for, or in another one if they would be larger than `bytes_max`.

    A producer of more than the bound used a codec, which consumers have to read anyway. Which one is not known: gzip is
    read by every client, and zstd is taken only where gzip does far less, for then zstd alone made the batch small.
    Where no codec does much, the bound is younger than the batch, and its producer may have used none.
    """
    usual = compress(compression, records)
    if bytes_max is None or len(usual) <= bytes_max:
        return compression, usual
    zstd = usual if compression is Compression.ZSTD else compress(Compression.ZSTD, records)
    if len(zstd) > max(bytes_max, len(usual) // 2):
        return compression, usual
    gzip = compress(Compression.GZIP, records)
    return (Compression.GZIP, gzip) if len(gzip) <= max(bytes_max, 2 * len(zstd)) else (Compression.ZSTD, zstd)


def _worker(record_count: int) -> _Worker:
    """Who takes the next so many records."""
    if not kernels_ready():
        for observe in _observers:
            observe(record_count)
    return _workers[-1]


def _payload(
    buffer: Buffer,
    header: BatchHeader,
    bytes_max: int,
    *,
    is_every_frame: bool = False,
    output: memoryview | None = None,
) -> Bytes:
    packed = memoryview(buffer)[header.position + HEADER_BYTES : header.end]
    unpacked = decompress(header.compression, packed, bytes_max, is_every_frame=is_every_frame, output=output)
    _check_count(header, len(unpacked))
    return np.frombuffer(unpacked, dtype=np.uint8)


def _check_count(header: BatchHeader, payload_bytes: int) -> None:
    if not 0 <= header.record_count <= min(payload_bytes // _RECORD_BYTES_MIN, RECORDS_PER_BATCH_MAX):
        raise InvalidBatch(ErrorCode.invalid_record, f"{header.record_count} records in {payload_bytes} bytes")


def _scan(header: BatchHeader, payload: Bytes, columns: RecordColumns, *, is_dense: bool) -> RecordScan:
    _check_base_timestamp(header)
    scan = _worker(header.record_count).scan_records(
        payload, columns, header.record_count, header.base_timestamp, header.last_offset_delta, is_dense=is_dense
    )
    if scan.fault != RecordFault.NONE:
        raise _bad_record(header, scan.fault, scan.row)
    return scan


def _check_base_timestamp(header: BatchHeader) -> None:
    if not -TIMESTAMP_MS_MAX <= header.base_timestamp <= TIMESTAMP_MS_MAX:
        raise InvalidBatch(ErrorCode.invalid_timestamp, f"base timestamp {header.base_timestamp} is out of range")


def _bad_record(header: BatchHeader, fault_number: int, row: int) -> InvalidBatch:
    fault = RecordFault(fault_number)
    code = ErrorCode.invalid_timestamp if fault is RecordFault.TIMESTAMP else ErrorCode.invalid_record
    return InvalidBatch(code, f"record {row} of {header.record_count}: {fault.name.lower()}")


def _is_sound(source: EncodeColumns) -> bool:
    """Whether the kernels may trust the columns: nothing points outside, and numbers are in range."""
    rows, header_ends = len(source.offset), source.header_ends
    if not (source.key.is_sound(rows) and source.value.is_sound(rows)):
        return False
    if len(header_ends) != rows + 1 or int(header_ends[0]) < 0 or bool((header_ends[1:] < header_ends[:-1]).any()):
        return False
    headers = len(source.header_key.first)
    if int(header_ends[-1]) > headers or not source.header_key.is_sound(headers):
        return False
    if not source.header_value.is_sound(headers) or bool((source.header_key.length < 0).any()):
        return False
    return len(source.timestamp) == rows and bool(
        (source.offset[1:] > source.offset[:-1]).all()
        and (source.offset >= 0).all()
        and (abs(source.timestamp) <= TIMESTAMP_MS_MAX).all()
    )


def _encoded_bytes_max(source: EncodeColumns) -> int:
    strings = (source.key, source.value, source.header_key, source.header_value)
    overhead = len(source.offset) * (HEADER_BYTES + _RECORD_OVERHEAD_MAX)
    return overhead + len(source.header_key.first) * _HEADER_OVERHEAD_MAX + sum(s.total_bytes() for s in strings)
