"""The kernels do what the reference does: on valid records, on damaged ones, and on any bytes."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import InvalidBatch
from protocol.limits import TIMESTAMP_MS_MAX
from protocol.records import records
from protocol.records import reference as record_reference
from protocol.records.batch import BatchHeader, check_crc, patch_offsets, set_log_append_time, walk_batches
from protocol.records.columns import EncodeColumns, HeaderColumns, RecordColumns, RecordFault, RecordScan
from protocol.records.compression import Compression, compress, decompress
from protocol.records.records import BytesColumn, decode_headers, encode_batches, warm_kernels

Headers = list[tuple[bytes, bytes | None]]
Row = tuple[int, int, bytes | None, bytes | None, Headers]

STRINGS = st.binary(max_size=200)
NULLABLE = st.none() | STRINGS
TIMESTAMPS = st.integers(-1, 2_000) | st.integers(-TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
STEPS = st.integers(1, 3) | st.integers(1, 1 << 33)
HEADERS = st.lists(st.tuples(STRINGS, NULLABLE), max_size=3)
ROWS = st.lists(st.tuples(STEPS, TIMESTAMPS, NULLABLE, NULLABLE, HEADERS), max_size=12)
"""Step from the offset before, timestamp, key, value, headers."""


def column(values: list[bytes | None]) -> BytesColumn:
    ends = np.cumsum([0, *(len(value or b"") for value in values)])
    data = np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8)
    return BytesColumn.from_ends(data, ends, np.array([value is None for value in values], dtype=np.bool_))


def columns_of(rows: list[Row]) -> EncodeColumns:
    return EncodeColumns(
        offset=np.cumsum([row[0] for row in rows], dtype=np.int64),
        timestamp=np.array([row[1] for row in rows], dtype=np.int64),
        key=column([row[2] for row in rows]),
        value=column([row[3] for row in rows]),
        header_ends=np.cumsum([0, *(len(row[4]) for row in rows)]),
        header_key=column([header[0] for row in rows for header in row[4]]),
        header_value=column([header[1] for row in rows for header in row[4]]),
    )


def fast() -> "records._Worker":
    warm_kernels()
    return records._workers[-1]


def scan(
    worker: "records._Worker", payload: bytes, count: int, base: int, last: int, *, is_dense: bool
) -> tuple[RecordScan, RecordColumns]:
    data = np.frombuffer(payload, dtype=np.uint8)
    columns = RecordColumns.allocate(data, count)
    return worker.scan_records(data, columns, count, base, last, is_dense=is_dense), columns


def headers_of(worker: "records._Worker", columns: RecordColumns) -> HeaderColumns:
    count = int(columns.header_count.sum())
    headers = HeaderColumns(
        ends=np.zeros(0, np.int64), key_first=np.zeros(count, np.int64), key_bytes=np.zeros(count, np.int32),
        value_first=np.zeros(count, np.int64), value_bytes=np.zeros(count, np.int32),
    )  # fmt: skip
    worker.scan_headers(columns, headers)
    return headers


def assert_same(payload: bytes, count: int, base: int, last: int, *, is_dense: bool) -> None:
    expected, slow_columns = scan(record_reference, payload, count, base, last, is_dense=is_dense)
    found, fast_columns = scan(fast(), payload, count, base, last, is_dense=is_dense)
    assert found == expected
    if expected.fault != RecordFault.NONE:
        return
    assert_equal_columns(slow_columns, fast_columns)
    assert_equal_columns(headers_of(record_reference, slow_columns), headers_of(fast(), fast_columns))


def assert_equal_columns(one: RecordColumns | HeaderColumns, other: RecordColumns | HeaderColumns) -> None:
    for name in one._fields:
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


def encoded(
    rows: list[Row], kind: Compression = Compression.NONE, target: int = 1 << 20, *, append: bool = False
) -> bytes:
    return encode_batches(columns_of(rows), compression=kind, batch_bytes_target=target, log_append_time=append)


@given(ROWS, st.integers(1, 2_000), st.booleans())
def test_encoding_is_the_same_to_the_byte(rows: list[Row], target: int, is_split: bool) -> None:
    source = columns_of(rows)
    outputs = [np.zeros(records._encoded_bytes_max(source), dtype=np.uint8) for _ in range(2)]
    runs = [
        list(worker.encode_records(source, target, output, is_split_by_timestamp=is_split))
        for worker, output in zip((record_reference, fast()), outputs, strict=True)
    ]
    assert runs[0] == runs[1]
    for run in runs[0]:
        first = run.byte_first + 61  # the room for the header is left as it was
        assert outputs[0][first : run.byte_end].tobytes() == outputs[1][first : run.byte_end].tobytes()


@given(ROWS, st.sampled_from(Compression), st.integers(1, 2_000), st.booleans())
def test_what_was_encoded_is_decoded(rows: list[Row], kind: Compression, target: int, append: bool) -> None:
    fast()
    batches = encoded(rows, kind, target, append=append)
    found: list[Row] = []
    for header in walk_batches(batches):
        check_crc(batches, header)
        c = records.decode_records(batches, header)
        h = decode_headers(c)
        payload = c.payload.tobytes()

        def text(first: int, size: int, payload: bytes = payload) -> bytes | None:
            return None if size < 0 else payload[first : first + size]

        for i in range(header.record_count):
            headers = [
                (text(h.key_first[e], h.key_bytes[e]) or b"", text(h.value_first[e], h.value_bytes[e]))
                for e in range(h.ends[i], h.ends[i + 1])
            ]
            key, value = text(c.key_first[i], c.key_bytes[i]), text(c.value_first[i], c.value_bytes[i])
            found.append((header.base_offset + int(c.offset_delta[i]), int(c.timestamp[i]), key, value, headers))
    offsets = np.cumsum([row[0] for row in rows], dtype=np.int64).tolist()
    assert found == [(offset, *row[1:]) for offset, row in zip(offsets, rows, strict=True)]


@given(ROWS.filter(bool), st.booleans(), st.data())
def test_damaged_records_are_judged_alike(rows: list[Row], is_dense: bool, data: st.DataObject) -> None:
    fast()
    header = next(walk_batches(batches := encoded(rows)))
    payload = bytearray(batches[61 : header.end])
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    kept = data.draw(st.just(len(payload)) | st.integers(0, len(payload)))
    count = data.draw(st.just(header.record_count) | st.integers(0, header.record_count + 1))
    last = data.draw(st.just(header.last_offset_delta) | st.integers(-1, 5))
    assert_same(bytes(payload[:kept]), count, header.base_timestamp, last, is_dense=is_dense)


@given(st.binary(max_size=60), st.integers(0, 4), TIMESTAMPS, st.booleans())
def test_any_bytes_are_judged_alike(payload: bytes, count: int, base: int, is_dense: bool) -> None:
    assert_same(payload, count, base, (1 << 31) - 1, is_dense=is_dense)


@given(st.lists(st.sampled_from([0, 1, 2, 4, 6, 8, 14, 0x7F, 0x80, 0xFF]), max_size=40), st.integers(0, 3))
def test_bytes_that_look_like_records_are_judged_alike(numbers: list[int], count: int) -> None:
    assert_same(bytes(numbers), count, 0, (1 << 31) - 1, is_dense=False)


RUNS = st.lists(
    st.tuples(ROWS.filter(bool), st.sampled_from(Compression), st.sampled_from([100, 1 << 20]), st.booleans()),
    min_size=1,
    max_size=5,
)
"""Each piece of a run: rows, codec, bytes of a batch, and whether it has the time of the append."""


@given(RUNS, st.booleans(), st.data())
def test_a_run_is_decoded_like_its_batches_one_by_one(
    pieces: list[tuple[list[Row], Compression, int, bool]], is_fast: bool, data: st.DataObject
) -> None:
    buffers = [bytearray(encoded(rows, kind, target, append=append)) for rows, kind, target, append in pieces]
    for _ in range(data.draw(st.integers(0, 2))):
        buffer = data.draw(st.sampled_from(buffers))
        buffer[data.draw(st.integers(61, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    fast()
    with pytest.MonkeyPatch.context() as patch:
        if not is_fast:
            patch.setattr(records, "_workers", [record_reference])
        assert_run_is_like_batches([bytes(buffer) for buffer in buffers])


def decode_run(run: records.BatchRun, batches: list[tuple[bytes, BatchHeader]]) -> tuple[list[int], RecordColumns]:
    """The bytes of the records of each batch, and the columns of all."""
    sizes = [run.add(buffer, header) for buffer, header in batches]
    assert run.byte_count == sum(sizes)
    assert run.record_counts() == [header.record_count for _, header in batches]
    return sizes, run.decode()


def assert_run_is_like_batches(buffers: list[bytes]) -> None:
    one_by_one: list[RecordColumns] = []
    rejection: InvalidBatch | None = None
    run = records.BatchRun()
    try:
        batches = [(buffer, header) for buffer in buffers for header in walk_batches(buffer)]
    except InvalidBatch:
        return  # the length of a batch is damaged
    try:
        for buffer, header in batches:
            one_by_one.append(records.decode_records(buffer, header))
    except InvalidBatch as error:
        rejection = error
    if rejection is not None:
        with pytest.raises(InvalidBatch) as refused:
            decode_run(run, batches)
        if len(batches) == 1:  # of several, a run says of those first that do not unpack
            assert (refused.value.error_code, str(refused.value)) == (rejection.error_code, str(rejection))
        return
    sizes, found = decode_run(run, batches)
    assert (run.byte_count, run.record_counts()) == (0, [])
    assert sizes == [len(each.payload) for each in one_by_one]
    places = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(each.timestamp) for each in one_by_one])
    expected = RecordColumns._make(np.concatenate(column) for column in zip(*one_by_one, strict=True))
    assert_equal_columns(
        found,
        expected._replace(
            key_first=expected.key_first + places,
            value_first=expected.value_first + places,
            headers_first=expected.headers_first + places,
        ),
    )


@given(ROWS, st.integers(0, 1 << 50), st.integers(0, TIMESTAMP_MS_MAX))
def test_changes_in_place_keep_the_crc_right(rows: list[Row], base: int, timestamp: int) -> None:
    buffer = bytearray(encoded(rows, target=300))
    set_log_append_time(buffer, timestamp)
    end = patch_offsets(buffer, base)
    for header in walk_batches(buffer):
        check_crc(buffer, header)
        assert header.base_offset == base
        base += header.last_offset_delta + 1
    assert base == end


@pytest.mark.parametrize("kind", Compression)
@given(data=st.binary(max_size=300), position=st.integers(0), byte=st.integers(0, 255))
def test_damaged_compression_never_exceeds_the_limit(kind: Compression, data: bytes, position: int, byte: int) -> None:
    packed = bytearray(compress(kind, data))
    if packed:
        packed[position % len(packed)] = byte
    with suppress(InvalidBatch):
        assert len(decompress(kind, packed, 400)) <= 400
