"""Batches decoded together, by the reference and by the kernels alike: cases that
`tests/property/protocol/test_records.py` does not draw.
"""

import pytest

from protocol.errors import DoesNotUnpack, InvalidBatch
from protocol.limits import TIMESTAMP_MS_MAX
from protocol.records import records
from protocol.records import reference as record_reference
from protocol.records.batch import read_header
from protocol.records.compression import Compression
from protocol.records.records import BatchRun, RecordColumns, decode_records, warm_kernels
from tests.support.records.plain_records import Record, make_batch
from tests.support.records.record_batches import RECORD_A, RECORD_B, RECORDS, hand_made, lz4_frame


@pytest.fixture(params=["reference", "kernels"], autouse=True)
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on both."""
    warm_kernels()
    monkeypatch.setattr(records, "_observers", [])
    if request.param == "reference":
        monkeypatch.setattr(records, "_workers", [record_reference])


def values_of(columns: RecordColumns) -> list[bytes]:
    places = zip(columns.value_first.tolist(), columns.value_bytes.tolist(), strict=True)
    return [columns.payload[first : first + size].tobytes() for first, size in places]


def batch_of(*values: bytes, compression: Compression = Compression.NONE) -> bytes:
    """Timestamps are 6, 7 and so on."""
    plain = [Record(offset=offset, timestamp=6 + offset, value=value) for offset, value in enumerate(values)]
    return make_batch(plain, compression)


def test_the_last_records_of_a_batch() -> None:
    batch = batch_of(b"v", b"w")
    header = read_header(batch)
    run = BatchRun()
    run.add(batch, header)
    columns = run.decode()
    first = int(columns.headers_first[0] + columns.headers_bytes[0])
    run.add_last_records(header, columns.payload[first:].tobytes(), 1)
    run.add(batch, header)
    assert run.byte_count == 2 * len(columns.payload) - first
    both = run.decode()
    assert both.timestamp.tolist() == [7, 6, 7]
    assert both.offset_delta.tolist() == [1, 0, 1]
    assert values_of(both) == [b"w", b"v", b"w"]


def test_a_payload_is_valid_until_the_next_batch() -> None:
    """One compressed batch is not copied: its records stand where the next ones are unpacked."""
    first, second = (batch_of(value, compression=Compression.ZSTD) for value in (b"v", b"w"))
    run = BatchRun()
    run.add(first, read_header(first))
    columns = run.decode()
    run.add(second, read_header(second))
    assert columns.payload.tobytes() == decode_records(second, read_header(second)).payload.tobytes()


def test_the_base_timestamp_of_each_batch_is_checked() -> None:
    run = BatchRun()
    batch = hand_made()
    run.add(batch, read_header(batch)._replace(base_timestamp=TIMESTAMP_MS_MAX + 1))
    with pytest.raises(InvalidBatch, match="base timestamp"):
        run.decode()


def test_the_bad_record_is_named() -> None:
    run = BatchRun()
    for batch in (hand_made(), hand_made(records=RECORD_A + RECORD_A), hand_made()):
        run.add(batch, read_header(batch))
    with pytest.raises(InvalidBatch, match="record 1 of 2: offset"):
        run.decode()


def test_a_count_beyond_the_bytes() -> None:
    with pytest.raises(InvalidBatch, match="1000 records in"):
        BatchRun().add(hand_made(), read_header(hand_made())._replace(record_count=1_000))


@pytest.mark.parametrize("kind", [kind for kind in Compression if kind is not Compression.NONE])
def test_what_does_not_fit_into_the_output_has_memory_of_its_own(
    kind: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(*[bytes(3_000)] * 4, compression=kind)
    header = read_header(batch)
    monkeypatch.setattr(records, "RUN_OUTPUT_BYTES", 8 * header.batch_bytes + 100)
    run = BatchRun()
    assert [run.add(batch, header) for _ in range(3)] == [len(decode_records(batch, header).payload)] * 3
    assert values_of(run.decode()) == [bytes(3_000)] * 12


def test_more_than_is_allowed_does_not_unpack() -> None:
    batch = batch_of(bytes(100_000), compression=Compression.ZSTD)
    with pytest.raises(DoesNotUnpack):
        BatchRun().add(batch, read_header(batch), unpacked_bytes_max=50_000)


class TestSeveralFrames:
    """Such batches of lz4 were accepted once, and are stored."""

    BATCH = hand_made(attributes=int(Compression.LZ4), records=lz4_frame(RECORD_A) + lz4_frame(RECORD_B))

    def test_they_are_read(self) -> None:
        run, plain = BatchRun(), hand_made()
        for batch in (plain, self.BATCH, plain):
            run.add(batch, read_header(batch))
        assert run.decode().timestamp.tolist() == [1_000, 1_005] * 3

    def test_neither_way_helps_what_is_damaged(self) -> None:
        batch = hand_made(attributes=int(Compression.LZ4), records=lz4_frame(RECORD_A) + lz4_frame(RECORD_A))
        with pytest.raises(InvalidBatch, match="record 1 of 2"):
            BatchRun().add(batch, read_header(batch))

    def test_their_bytes_are_those_of_all_frames(self) -> None:
        run = BatchRun()
        assert run.add(self.BATCH, read_header(self.BATCH)) == run.byte_count == len(RECORDS)

    def test_a_first_frame_of_too_few_bytes_for_the_records(self) -> None:
        batch = hand_made(attributes=int(Compression.LZ4), records=lz4_frame(b"") + lz4_frame(RECORDS))
        run = BatchRun()
        assert run.add(batch, read_header(batch)) == len(RECORDS)
        assert run.decode().timestamp.tolist() == [1_000, 1_005]
