"""Chunks become rows of row groups, and the index learns exactly which."""

import io
import json
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest

from iceberg_export.parquet import archive_file
from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.source_chunks import ChunkMismatch, SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.rows.schema import FieldId
from iceberg_export.tables.data_file import RowBounds
from protocol.errors import InvalidBatch
from protocol.limits import DECOMPRESSED_BYTES_MAX
from protocol.records.batch import HEADER_BYTES
from protocol.records.compression import Compression, compress
from protocol.records.control_batches import empty_control_batch
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, PartitionIndex, TopicId
from tests.support.records.plain_records import Record, make_batch
from tests.support.records.record_batches import hand_made

TOPIC = TopicId(bytes(range(16)))


def source(partition: int, first: int, end: int, records: bytes, append_time: int = NO_TIMESTAMP) -> SourceChunk:
    return SourceChunk(
        partition=PartitionIndex(partition),
        offset_first=Offset(first),
        offset_end=Offset(end),
        append_time_ms=Milliseconds(append_time),
        records=records,
    )


def records(first: int, end: int, size: int = 100) -> bytes:
    return make_batch([Record(offset=o, timestamp=1000 + o, value=bytes(size)) for o in range(first, end)])


def written(*chunks: SourceChunk, target: int = 1 << 22, key: str | None = None) -> ArchiveFile:
    with ArchiveWriter(topic_id=TOPIC, row_group_bytes_target=target, key=key) as writer:
        for chunk in chunks:
            writer.add(chunk)
        return writer.finish()


def rows(file: ArchiveFile) -> list[tuple[int, int, int, int, int, int]]:
    return [
        (partition, chunk.offset_first, chunk.offset_end, chunk.row_group, chunk.row_first, chunk.row_count)
        for partition, archived in file.partitions
        for chunk in archived
    ]


def test_small_partitions_share_a_row_group() -> None:
    file = written(source(0, 5, 7, records(5, 7)), source(2, 0, 3, records(0, 3)))
    assert rows(file) == [(0, 5, 7, 0, 0, 2), (2, 0, 3, 0, 2, 3)]
    assert [archived[0].max_timestamp for _, archived in file.partitions] == [1006, 1002]


def test_a_large_partition_has_row_groups_to_itself() -> None:
    file = written(source(0, 0, 20, records(0, 20)), source(1, 0, 1, records(0, 1)), target=1000)
    assert rows(file) == [(0, 0, 10, 0, 0, 10), (0, 10, 20, 1, 0, 10), (1, 0, 1, 2, 0, 1)]


def test_a_record_above_the_target_has_a_row_group_of_its_own() -> None:
    file = written(source(0, 0, 3, records(0, 3, size=5000)), target=1000)
    assert [row[3] for row in rows(file)] == [0, 1, 2]


def test_places_of_row_groups_are_those_in_the_file() -> None:
    file = written(source(0, 0, 20, records(0, 20)), target=1000)
    metadata = pq.read_metadata(io.BytesIO(b"".join(file.parts)))
    for chunk in file.partitions[0][1]:
        assert chunk.byte_first == metadata.row_group(chunk.row_group).column(0).dictionary_page_offset
        assert chunk.byte_first + chunk.byte_count <= file.object_bytes
    assert metadata.num_rows == file.row_count == 20


def test_the_footer_says_what_the_file_answers_for() -> None:
    file = written(source(0, 5, 7, records(5, 7)), source(0, 7, 9, records(7, 9)), source(2, 0, 3, records(0, 3)))
    pairs = pq.read_metadata(io.BytesIO(b"".join(file.parts))).metadata
    assert json.loads(pairs[b"penstock.archive"]) == {
        "version": 1,
        "topic_id": TOPIC.hex(),
        "partitions": [[0, 5, 9], [2, 0, 3]],
    }


def test_append_time_stands_for_every_timestamp() -> None:
    file = written(source(0, 0, 2, records(0, 2), append_time=77))
    table = pq.read_table(io.BytesIO(b"".join(file.parts)))
    assert table.column("timestamp_type").to_pylist() == [1, 1]
    assert {moment.timestamp() for moment in table.column("timestamp").to_pylist()} == {0.077}
    assert file.partitions[0][1][0].max_timestamp == 77


def test_control_batches_leave_a_gap() -> None:
    file = written(source(0, 0, 4, records(0, 2) + empty_control_batch(2, 4)))
    assert rows(file) == [(0, 0, 4, 0, 0, 2)]


def test_a_range_of_nothing_but_control_batches_keeps_its_place_in_the_index() -> None:
    file = written(source(0, 3, 5, empty_control_batch(3, 5)))
    assert rows(file) == [(0, 3, 5, 0, 0, 0)]


def test_a_chunk_that_ends_elsewhere_than_the_index_says_is_refused() -> None:
    with pytest.raises(ChunkMismatch, match="ends at 2"):
        written(source(0, 0, 3, records(0, 2)))


def test_a_damaged_chunk_is_refused() -> None:
    damaged = bytearray(records(0, 2))
    damaged[-1] ^= 1
    with pytest.raises(InvalidBatch):
        written(source(0, 0, 2, bytes(damaged)))


def test_a_bad_record_under_a_sound_checksum_is_refused_at_the_end_of_its_row_group() -> None:
    bad = bytearray(make_batch([Record(offset=0, timestamp=1, value=b"abc")])[HEADER_BYTES:])
    bad[-1] = 9  # headers that are not there
    batch = hand_made(records=bytes(bad), record_count=1)
    with ArchiveWriter(topic_id=TOPIC) as writer:
        writer.add(source(0, 0, 1, batch))
        with pytest.raises(InvalidBatch, match="record 0 of 1"):
            writer.finish()


def test_batches_without_records_are_passed_over() -> None:
    """Kafka's log compaction leaves such ones."""
    empty = hand_made(records=b"", record_count=0, last_offset_delta=1)
    assert rows(written(source(0, 0, 2, empty))) == [(0, 0, 2, 0, 0, 0)]
    file = written(source(0, 0, 6, empty + records(2, 4) + empty), source(1, 0, 2, empty))
    assert rows(file) == [(0, 0, 6, 0, 0, 2), (1, 0, 2, 0, 0, 0)]


class Reservations:
    """Memory that batches ask for before they are unpacked."""

    def __init__(self) -> None:
        self.bytes_asked_for: list[int] = []
        self.held_count = 0

    @contextmanager
    def __call__(self, byte_count: int) -> Iterator[None]:
        assert self.held_count == 0
        self.bytes_asked_for.append(byte_count)
        self.held_count += 1
        try:
            yield
        finally:
            self.held_count -= 1


def values(file: ArchiveFile) -> list[bytes]:
    found: list[bytes] = pq.read_table(io.BytesIO(b"".join(file.parts))).column("value").to_pylist()
    return found


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD, Compression.LZ4])
@pytest.mark.parametrize("target", [1, 700, 1 << 22])
def test_large_batches_have_a_reservation_while_they_are_unpacked(
    compression: Compression, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_export.parquet.writer.UNPACKED_BYTES_UNRESERVED_MAX", 500)
    plain = [Record(offset=offset, timestamp=1, value=bytes([offset]) * 90) for offset in range(24)]
    parts = [plain[:2], plain[2:14], plain[14:15], plain[15:22], plain[22:]]
    reservations = Reservations()
    with ArchiveWriter(topic_id=TOPIC, row_group_bytes_target=target) as writer:
        for part in parts:
            first, end = part[0].offset, part[-1].offset + 1
            writer.add(source(0, first, end, make_batch(part, compression))._replace(reserve=reservations))
            assert reservations.held_count == 0
        file = writer.finish()
    assert values(file) == [record.value for record in plain]
    is_reserved = compression is not Compression.NONE
    assert reservations.bytes_asked_for == ([DECOMPRESSED_BYTES_MAX] * 2 if is_reserved else [])


def test_a_reservation_ends_where_a_batch_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iceberg_export.parquet.writer.UNPACKED_BYTES_UNRESERVED_MAX", 10)
    payload = bytes(compress(Compression.ZSTD, b"\xff" * 100))
    batch = hand_made(records=payload, record_count=1, attributes=int(Compression.ZSTD))
    reservations = Reservations()
    with pytest.raises(InvalidBatch):
        written(source(0, 0, 1, batch)._replace(reserve=reservations))
    assert (reservations.bytes_asked_for, reservations.held_count) == ([DECOMPRESSED_BYTES_MAX], 0)


@pytest.mark.parametrize("target", [1, 300, 1_000, 1 << 22])
def test_stored_batches_of_several_frames_keep_their_places(target: int) -> None:
    """They unpack to more than their first frame says."""
    plain = [Record(offset=offset, timestamp=1, value=bytes([offset]) * 90) for offset in range(24)]
    with ArchiveWriter(topic_id=TOPIC, row_group_bytes_target=target) as writer:
        for first in range(0, 24, 4):
            whole = make_batch(plain[first : first + 4])
            payload = whole[HEADER_BYTES:]
            half = len(payload) // 2
            frames = b"".join(bytes(compress(Compression.LZ4, part)) for part in (payload[:half], payload[half:]))
            batch = hand_made(records=frames, record_count=4, attributes=int(Compression.LZ4))
            partition, offset = divmod(first, 12)
            writer.add(source(partition, offset, offset + 4, batch))
        file = writer.finish()
    table = pq.read_table(io.BytesIO(b"".join(file.parts)))
    assert table.column("value").to_pylist() == [record.value for record in plain]
    assert table.column("partition").to_pylist() == [0] * 12 + [1] * 12
    assert table.column("offset").to_pylist() == [*range(12)] * 2


def test_partitions_and_offsets_out_of_order_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        written(source(1, 0, 1, records(0, 1)), source(0, 0, 1, records(0, 1)))
    with pytest.raises(AssertionError):
        written(source(1, 0, 1, records(0, 1)), source(1, 2, 3, records(2, 3)))


@pytest.mark.parametrize("key", [None, "lake/x/data/y.parquet"], ids=["without checksums", "with checksums"])
def test_a_file_too_large_for_memory_is_mapped(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    chunks = [source(0, 0, 20, records(0, 20))]
    in_memory = b"".join(written(*chunks, key=key).parts)
    monkeypatch.setattr(archive_file, "ARCHIVE_FILE_MEMORY_BYTES_MAX", 10)
    file = written(*chunks, key=key)
    assert isinstance(memoryview(file.parts[0]).obj, mmap.mmap)
    assert b"".join(file.parts) == in_memory


def test_a_file_tells_its_table_what_its_rows_are_bounded_by() -> None:
    keyed = make_batch(
        [
            Record(offset=o, timestamp=-1 if o == 3 else 5_000 - o, key=b"k" if o % 2 else None, value=None)
            for o in (3, 4)
        ]
    )
    file = written(source(1, 5, 7, records(5, 7)), source(4, 3, 5, keyed), target=20)
    data_file = file.data_file("lake/x/data/y.parquet")
    assert data_file.bounds == RowBounds(
        partition_min=1,
        partition_max=4,
        offset_min=3,
        offset_max=6,
        timestamp_us_min=-1_000,
        timestamp_us_max=4_996_000,
    )
    assert data_file.record_count == 4
    assert [data_file.counts.nulls_of(each) for each in (FieldId.KEY, FieldId.VALUE)] == [3, 2]
    assert (data_file.key, data_file.object_bytes) == ("lake/x/data/y.parquet", file.object_bytes)


def test_split_offsets_are_the_first_bytes_of_row_groups() -> None:
    file = written(source(0, 0, 20, records(0, 20)), target=1000)
    metadata = pq.read_metadata(io.BytesIO(b"".join(file.parts)))
    assert file.split_offsets == tuple(
        metadata.row_group(index).column(0).dictionary_page_offset for index in range(metadata.num_row_groups)
    )
    assert len(file.split_offsets) == 2


def test_a_file_without_rows_has_no_bounds() -> None:
    with ArchiveWriter(topic_id=TOPIC) as writer:
        writer.leave_out(PartitionIndex(0), Offset(0), Offset(3))
        file = writer.finish()
    assert (file.bounds, file.row_count, file.split_offsets) == (None, 0, ())
