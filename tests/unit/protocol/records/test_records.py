"""Records checked, decoded and encoded, by the reference and by the kernels alike."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import ErrorCode, InvalidBatch
from protocol.limits import TIMESTAMP_MS_MAX
from protocol.records import records
from protocol.records import reference as record_reference
from protocol.records.batch import check_crc, encode_varint, read_header, walk_batches
from protocol.records.compression import Compression, compress
from protocol.records.records import (
    BytesColumn,
    EncodeColumns,
    RecordColumns,
    decode_headers,
    decode_records,
    encode_batches,
    kernels_ready,
    observe_plain_records,
    validate_records,
    warm_kernels,
)
from tests.support.records.record_batches import RECORD_A, RECORD_B, RECORDS, hand_made, lz4_frame

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(params=["reference", "kernels"], autouse=True)
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on both."""
    warm_kernels()
    monkeypatch.setattr(records, "_observers", [])
    if request.param == "reference":
        monkeypatch.setattr(records, "_workers", [record_reference])


def column(values: list[bytes | None]) -> BytesColumn:
    """Byte strings back to back, nulls of no bytes."""
    ends = np.cumsum([0, *(len(value or b"") for value in values)])
    data = np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8)
    return BytesColumn.from_ends(data, ends, np.array([value is None for value in values], dtype=np.bool_))


Row = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
"""Offset, timestamp, key, value, headers."""


def columns_of(rows: list[Row]) -> EncodeColumns:
    return EncodeColumns(
        offset=np.array([row[0] for row in rows], dtype=np.int64),
        timestamp=np.array([row[1] for row in rows], dtype=np.int64),
        key=column([row[2] for row in rows]),
        value=column([row[3] for row in rows]),
        header_ends=np.cumsum([0, *(len(row[4]) for row in rows)]),
        header_key=column([header[0] for row in rows for header in row[4]]),
        header_value=column([header[1] for row in rows for header in row[4]]),
    )


def text(columns: RecordColumns, first: int, length: int) -> bytes | None:
    return None if length < 0 else columns.payload[first : first + length].tobytes()


def rows_of(batches: bytes) -> list[Row]:
    """Every record, with its absolute offset."""
    rows: list[Row] = []
    for header in walk_batches(batches):
        check_crc(batches, header)
        c = decode_records(batches, header)
        h = decode_headers(c)
        for i in range(header.record_count):
            headers = [
                (text(c, h.key_first[e], h.key_bytes[e]) or b"", text(c, h.value_first[e], h.value_bytes[e]))
                for e in range(h.ends[i], h.ends[i + 1])
            ]
            key, value = text(c, c.key_first[i], c.key_bytes[i]), text(c, c.value_first[i], c.value_bytes[i])
            rows.append((header.base_offset + int(c.offset_delta[i]), int(c.timestamp[i]), key, value, headers))
    return rows


def encode(
    rows: list[Row], *, compression: Compression = Compression.NONE, target: int = 1 << 20, append_time: bool = False
) -> bytes:
    return encode_batches(
        columns_of(rows), compression=compression, batch_bytes_target=target, log_append_time=append_time
    )


def rejection(batch: bytes) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as refused:
        validate_records(batch, read_header(batch), decompressed_bytes_max=1 << 20)
    return refused.value


def record(
    *,
    timestamp: bytes = b"\x00",
    offset: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    rest: bytes = b"\x00",
) -> bytes:
    """One record of encoded fields, with its length."""
    body = b"\x00" + timestamp + offset + key + value + rest
    return encode_varint(len(body)) + body


class TestValidation:
    def test_the_summary(self) -> None:
        batch = hand_made()
        summary = validate_records(batch, read_header(batch), decompressed_bytes_max=len(RECORDS))
        assert (summary.record_count, summary.min_timestamp, summary.max_timestamp) == (2, 1_000, 1_005)
        assert (summary.offset_of_max_timestamp, summary.first_without_key) == (1, 1)

    def test_the_first_of_equal_timestamps_counts(self) -> None:
        batch = hand_made(records=RECORD_A + RECORD_B.replace(b"\x0a", b"\x00", 1))
        summary = validate_records(batch, read_header(batch), decompressed_bytes_max=100)
        assert (summary.max_timestamp, summary.offset_of_max_timestamp) == (1_000, 0)

    def test_records_without_timestamps_and_with_keys(self) -> None:
        batch = hand_made(records=RECORD_A, record_count=1, base_timestamp=-1)
        summary = validate_records(batch, read_header(batch), decompressed_bytes_max=100)
        assert (summary.min_timestamp, summary.max_timestamp, summary.offset_of_max_timestamp) == (-1, -1, -1)
        assert summary.first_without_key == -1

    @pytest.mark.parametrize("kind", Compression)
    def test_every_codec(self, kind: Compression) -> None:
        batch = b"?" + hand_made(records=bytes(compress(kind, RECORDS)), attributes=int(kind))
        header = read_header(batch, 1)
        assert validate_records(batch, header, decompressed_bytes_max=len(RECORDS)).record_count == 2
        with pytest.raises(InvalidBatch) as refused:
            validate_records(batch, header, decompressed_bytes_max=len(RECORDS) - 1)
        assert refused.value.error_code is ErrorCode.invalid_record

    @pytest.mark.parametrize(
        ("records", "fault"),
        [
            (b"\x80" * 7, "varint"),
            (b"\x80\x80\x80\x80\x10\x00\x00", "varint"),
            (b"\x80" * 4 + b"\x80\x00\x00", "varint"),
            (b"\x00" * 7, "cut"),
            (b"\x02" + bytes(6), "cut"),
            (b"\x01" + bytes(6), "length"),
            (b"\x0e" + bytes(6), "length"),
            (record(timestamp=b"\x80" * 10), "varint"),
            (record(timestamp=b"\x80" * 9 + b"\x02"), "varint"),
            (record(offset=b"\x80" * 5), "varint"),
            (record(offset=b"\x02"), "offset"),
            (record(offset=b"\x01"), "offset"),
            (record(key=b"\x03"), "length"),
            (record(key=b"\x10"), "length"),
            (record(value=b"\x05"), "length"),
            (record(value=b"\x08"), "length"),
            (record(value=b"\x80"), "cut"),
            (record(key=b"\x02k", rest=b""), "cut"),
            (record(rest=b"\x01"), "headers"),
            (record(rest=b"\x06\x00\x00"), "headers"),
            (record(rest=b"\x04\x00\x00"), "cut"),
            (record(rest=b"\x02\x00\x80"), "cut"),
            (record(rest=b"\x02\x01\x00"), "headers"),
            (record(rest=b"\x02\x06\x00"), "length"),
            (record(rest=b"\x02\x00\x05"), "length"),
            (record(rest=b"\x00\x00"), "trailing"),
            (record() + b"\x00", "trailing"),
        ],
    )
    def test_malformed_records(self, records: bytes, fault: str) -> None:
        error = rejection(hand_made(records=records, record_count=1))
        assert error.error_code is ErrorCode.invalid_record
        assert str(error).endswith(fault)

    def test_the_bad_record_is_named(self) -> None:
        error = rejection(hand_made(records=RECORD_A + RECORD_A))
        assert str(error) == "record 1 of 2: offset"

    @pytest.mark.parametrize("count", [3, 2**31 - 1])
    def test_a_count_beyond_the_bytes(self, count: int) -> None:
        assert rejection(hand_made(record_count=count)).error_code is ErrorCode.invalid_record

    def test_a_count_below_the_records(self) -> None:
        assert str(rejection(hand_made(record_count=1))).endswith("trailing")

    @pytest.mark.parametrize("base", [TIMESTAMP_MS_MAX + 1, -TIMESTAMP_MS_MAX - 1, TIMESTAMP_MS_MAX, -(1 << 63)])
    def test_a_timestamp_out_of_range(self, base: int) -> None:
        error = rejection(hand_made(base_timestamp=base))
        assert error.error_code is ErrorCode.invalid_timestamp

    @pytest.mark.parametrize(
        "delta", [b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", encode_varint(-TIMESTAMP_MS_MAX)]
    )
    def test_a_step_out_of_range(self, delta: bytes) -> None:
        batch = hand_made(records=record(timestamp=delta), record_count=1, base_timestamp=-1)
        assert rejection(batch).error_code is ErrorCode.invalid_timestamp

    def test_numbers_longer_than_they_need_to_be(self) -> None:
        batch = hand_made(
            records=record(offset=b"\x80\x80\x80\x80\x00", timestamp=b"\x80" * 9 + b"\x00"), record_count=1
        )
        assert validate_records(batch, read_header(batch), decompressed_bytes_max=100).max_timestamp == 1_000


class TestDecoding:
    def test_columns(self) -> None:
        batch = hand_made(base_offset=40)
        assert rows_of(batch) == [
            (40, 1_000, b"k", b"val", []),
            (41, 1_005, None, None, [(b"h1", b"xy")]),
        ]

    def test_where_headers_lie(self) -> None:
        batch = hand_made()
        columns = decode_records(batch, read_header(batch))
        assert columns.header_count.tolist() == [0, 1]
        first, size = int(columns.headers_first[1]), int(columns.headers_bytes[1])
        assert columns.payload[first : first + size].tobytes() == b"\x04h1\x04xy"

    def test_append_time_stands_for_every_timestamp(self) -> None:
        batch = hand_made(attributes=8, max_timestamp=7)
        assert decode_records(batch, read_header(batch)).timestamp.tolist() == [7, 7]

    def test_gaps_are_kept(self) -> None:
        batch = hand_made(records=record(offset=b"\x04") + record(offset=b"\x0a"), last_offset_delta=9)
        assert decode_records(batch, read_header(batch)).offset_delta.tolist() == [2, 5]

    @pytest.mark.parametrize("last", [1, 4])
    def test_offsets_ascend_up_to_the_last(self, last: int) -> None:
        repeated = record(offset=b"\x04") + record(offset=b"\x04" if last == 4 else b"\x06")
        batch = hand_made(records=repeated, last_offset_delta=last)
        with pytest.raises(InvalidBatch):
            decode_records(batch, read_header(batch))

    def test_a_batch_that_compaction_left_empty(self) -> None:
        batch = hand_made(records=b"", record_count=0, last_offset_delta=5)
        assert len(decode_records(batch, read_header(batch)).offset_delta) == 0


ROWS: list[Row] = [
    (100, 1_000, b"k", b"val", []),
    (101, 1_001, None, None, [(b"h1", b"xy"), (b"", None)]),
    (105, 999, b"", b"", []),
    (1 << 40, 2_000, b"key" * 100, b"v" * 5_000, [(b"\xff\xfe", b"")]),
]


class TestEncoding:
    def test_bytes_of_a_batch(self) -> None:
        rows: list[Row] = [(40, 1_000, b"k", b"val", []), (41, 1_005, None, None, [(b"h1", b"xy")])]
        assert encode(rows) == hand_made(base_offset=40, leader_epoch=0)

    @pytest.mark.parametrize("kind", Compression)
    @pytest.mark.parametrize("target", [1, 100, 1 << 20])
    def test_what_was_encoded_is_decoded(self, kind: Compression, target: int) -> None:
        assert rows_of(encode(ROWS, compression=kind, target=target)) == ROWS

    def test_a_batch_holds_at_most_the_target(self) -> None:
        rows: list[Row] = [(i, 0, None, b"x" * 93, []) for i in range(20)]
        sizes = [header.batch_bytes for header in walk_batches(encode(rows, target=61 + 3 * 102))]
        assert sizes == [61 + 3 * 102] * 6 + [61 + 2 * 102]

    def test_headers_of_batches(self) -> None:
        (first, second) = walk_batches(encode(ROWS))
        assert (first.base_offset, first.last_offset_delta, first.record_count) == (100, 5, 3)
        assert (first.base_timestamp, first.max_timestamp, first.attributes) == (1_000, 1_001, 0)
        assert (second.base_offset, second.last_offset_delta, second.record_count) == (1 << 40, 0, 1)

    def test_append_time_splits_batches(self) -> None:
        rows: list[Row] = [(i, 5 + i // 2, None, b"", []) for i in range(4)]
        headers = list(walk_batches(encode(rows, append_time=True, compression=Compression.ZSTD)))
        assert [(h.record_count, h.max_timestamp, h.is_log_append_time) for h in headers] == [
            (2, 5, True),
            (2, 6, True),
        ]

    @pytest.mark.parametrize("kind", Compression)
    def test_no_records_are_no_batches(self, kind: Compression) -> None:
        assert encode([], compression=kind) == b""

    def test_records_without_headers(self) -> None:
        source = columns_of([(3, 4, b"a", None, [])])
        plain = EncodeColumns.without_headers(
            offset=source.offset, timestamp=source.timestamp, key=source.key, value=source.value
        )
        batches = encode_batches(plain, compression=Compression.NONE, batch_bytes_target=1, log_append_time=False)
        assert rows_of(batches) == [(3, 4, b"a", None, [])]

    def test_a_part_of_longer_header_columns(self) -> None:
        source = columns_of(ROWS)
        part = EncodeColumns(
            offset=source.offset[1:2], timestamp=source.timestamp[1:2],
            key=BytesColumn(data=source.key.data, first=source.key.first[1:2], length=source.key.length[1:2]),
            value=BytesColumn(data=source.value.data, first=source.value.first[1:2], length=source.value.length[1:2]),
            header_ends=source.header_ends[1:3], header_key=source.header_key, header_value=source.header_value,
        )  # fmt: skip
        batches = encode_batches(part, compression=Compression.NONE, batch_bytes_target=1, log_append_time=False)
        assert rows_of(batches) == [ROWS[1]]

    @pytest.mark.parametrize(
        "changed",
        [
            {"offset": np.array([1, 1])},
            {"offset": np.array([-1, 1])},
            {"timestamp": np.array([1])},
            {"timestamp": np.array([1, TIMESTAMP_MS_MAX + 1])},
            {"key": column([b"a"])},
            {
                "value": BytesColumn(
                    data=np.zeros(1, np.uint8), first=np.array([0, 1]), length=np.array([1, 1], np.int32)
                )
            },
            {
                "value": BytesColumn(
                    data=np.zeros(1, np.uint8), first=np.array([0, -1]), length=np.array([1, 1], np.int32)
                )
            },
            {"value": BytesColumn(data=np.zeros(1, np.uint8), first=np.array([0, 0]), length=np.array([1], np.int32))},
            {"header_ends": np.array([0, 1])},
            {"header_ends": np.array([-1, 0, 0])},
            {"header_ends": np.array([1, 0, 1])},
            {"header_ends": np.array([0, 1, 2])},
            {"header_key": column([None]), "header_value": column([None])},
            {"header_key": column([b"", b""])},
            {
                "header_key": BytesColumn(
                    data=np.zeros(0, np.uint8), first=np.array([1]), length=np.array([1], np.int32)
                )
            },
        ],
    )
    def test_columns_that_point_outside_are_a_bug(self, changed: dict[str, object]) -> None:
        good = columns_of([(1, 1, b"a", b"b", [(b"h", b"v")]), (2, 2, b"c", b"d", [])])
        fields = {name: getattr(good, name) for name in EncodeColumns.__slots__} | changed
        with pytest.raises(AssertionError):
            encode_batches(
                EncodeColumns(**fields), compression=Compression.NONE, batch_bytes_target=1, log_append_time=False
            )


def repeated_noise(count: int) -> bytes:
    """Kilobytes of noise, again and again: farther apart than gzip looks back, not than zstd does."""
    return np.random.default_rng(1).bytes(40_000) * count


class TestBatchesAboveTheBound:
    """A record that only a codec made small is not served in its full size."""

    @pytest.mark.parametrize(
        ("compression", "value", "bytes_max", "codec"),
        [
            (Compression.NONE, bytes(10_000), 10_000 + 100, Compression.NONE),
            (Compression.NONE, bytes(10_000), 9_999, Compression.GZIP),
            (Compression.NONE, repeated_noise(10), 50_000, Compression.ZSTD),
            (Compression.NONE, repeated_noise(10), 30_000, Compression.ZSTD),
            (Compression.NONE, repeated_noise(1), 30_000, Compression.NONE),
            (Compression.LZ4, repeated_noise(10), 50_000, Compression.ZSTD),
            (Compression.LZ4, repeated_noise(1), 30_000, Compression.LZ4),
            (Compression.ZSTD, repeated_noise(1), 30_000, Compression.ZSTD),
            (Compression.NONE, bytes(100), 0, Compression.GZIP),
        ],
    )
    def test_it_is_in_the_codec_that_every_client_reads_if_that_helps(
        self, compression: Compression, value: bytes, bytes_max: int, codec: Compression
    ) -> None:
        rows: list[Row] = [(5, 6, b"k", b"small", []), (7, 8, b"k", value, [(b"h", None)]), (9, 10, None, b"s", [])]
        batches = encode_batches(
            columns_of(rows),
            compression=compression,
            batch_bytes_target=90,
            log_append_time=False,
            batch_bytes_max=bytes_max,
        )
        headers = list(walk_batches(batches))
        for header in headers:
            check_crc(batches, header)
        assert headers[1].compression is codec
        assert rows_of(batches) == rows

    def test_what_stays_below_is_as_it_was_asked_for(self) -> None:
        rows: list[Row] = [(5, 6, b"k", b"small", []), (7, 8, b"k", bytes(10_000), [])]
        source = columns_of(rows)
        batches = encode_batches(
            source, compression=Compression.NONE, batch_bytes_target=90, log_append_time=True, batch_bytes_max=9_999
        )
        assert [header.compression for header in walk_batches(batches)] == [Compression.NONE, Compression.GZIP]
        assert all(header.is_log_append_time for header in walk_batches(batches))


def test_records_are_told_of_while_the_reference_takes_them() -> None:
    told: list[int] = []
    observe_plain_records(told.append)
    source = columns_of([(5, 6, b"k", b"v", []), (7, 8, b"k", b"v", [(b"h", None)])])
    batch = encode_batches(source, compression=Compression.NONE, batch_bytes_target=1 << 20, log_append_time=False)
    decode_headers(decode_records(batch, read_header(batch)))
    assert told == ([] if kernels_ready() else [2, 2])


def test_strings_of_a_column_without_nulls() -> None:
    strings = BytesColumn.from_ends(np.frombuffer(b"abc", np.uint8), np.array([0, 1, 3], np.int32))
    assert strings.length.tolist() == [1, 2]
    assert strings.total_bytes() == 3


def run_python(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout


class TestWarming:
    def test_ready_once_warm(self) -> None:
        warm_kernels()
        assert kernels_ready() is (len(records._workers) > 1)

    def test_an_import_does_not_load_the_compiler(self) -> None:
        assert run_python("import protocol.records.records, sys; print('numba' in sys.modules)") == "False\n"


class TestSeveralFramesOfLz4:
    """Java's clients read the first frame of a batch alone, and would lose the records of the others."""

    BATCH = hand_made(attributes=int(Compression.LZ4), records=lz4_frame(RECORD_A) + lz4_frame(RECORD_B))

    def test_a_producer_may_not_send_them(self) -> None:
        with pytest.raises(InvalidBatch) as refused:
            validate_records(self.BATCH, read_header(self.BATCH), decompressed_bytes_max=1_000)
        assert refused.value.error_code is ErrorCode.invalid_record

    def test_those_that_are_stored_are_read(self) -> None:
        columns = decode_records(self.BATCH, read_header(self.BATCH))
        assert columns.timestamp.tolist() == [1_000, 1_005]

    def test_what_stands_behind_the_first_frame_is_not_read(self) -> None:
        batch = hand_made(attributes=int(Compression.LZ4), records=lz4_frame(RECORDS) + lz4_frame(RECORD_B) + b"x")
        assert validate_records(batch, read_header(batch), decompressed_bytes_max=1_000).record_count == 2
        assert decode_records(batch, read_header(batch)).timestamp.tolist() == [1_000, 1_005]

    def test_neither_way_helps_what_is_damaged(self) -> None:
        batch = hand_made(attributes=int(Compression.LZ4), records=lz4_frame(RECORD_A) + lz4_frame(RECORD_A))
        with pytest.raises(InvalidBatch):
            decode_records(batch, read_header(batch))
