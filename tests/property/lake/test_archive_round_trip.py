"""Whatever a producer may send comes back from the archive exactly: offsets, timestamps, keys, values, headers."""

import asyncio
from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commands.commands import ArchivedChunk
from iceberg_export.compaction.topic_files import MergeChunk
from iceberg_export.compaction.writer import merge_files
from iceberg_export.parquet.archive_file import ArchiveFile, write_whole_file
from iceberg_export.parquet.reader import ParquetReader
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.tables.column_counts import ColumnCount, ColumnCounts
from iceberg_export.tables.data_file import RowBounds
from protocol.limits import TIMESTAMP_MS_MAX
from protocol.records.compression import Compression
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, PartitionIndex, TopicId
from storage.memory_store import MemoryStore
from tests.support.lake.parquet_files import as_indexed
from tests.support.records.plain_records import Record, make_batch, read_batches

KEY = "lake/t/data/1-1.parquet"

timestamps = st.one_of(st.just(-1), st.integers(0, 10), st.integers(0, TIMESTAMP_MS_MAX))
byte_strings = st.binary(max_size=40)
header_keys = byte_strings | st.text(max_size=5).map(str.encode)
headers = st.lists(st.tuples(header_keys, st.none() | byte_strings), max_size=4).map(tuple)
gaps = st.sampled_from([0, 0, 0, 1, 5, 100_000])


@st.composite
def sources(draw: st.DrawFn) -> tuple[list[SourceChunk], dict[int, list[Record]]]:
    """A few partitions' chunks, in order, and the records that a consumer must see for each."""
    chunks: list[SourceChunk] = []
    expected: dict[int, list[Record]] = {}
    for partition in sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=3))):
        offset = draw(st.integers(0, 1 << 40))
        expected[partition] = []
        for _ in range(draw(st.integers(1, 3))):
            append_time = draw(st.sampled_from([NO_TIMESTAMP, NO_TIMESTAMP, 1_700_000_000_000]))
            first, data = offset, b""
            for _ in range(draw(st.integers(1, 3))):
                records: list[Record] = []
                for index in range(draw(st.integers(1, 6))):
                    offset += draw(gaps) if index else 0
                    records.append(
                        Record(
                            offset=offset,
                            timestamp=draw(timestamps),
                            key=draw(st.none() | byte_strings),
                            value=draw(st.none() | byte_strings),
                            headers=draw(headers),
                        )
                    )
                    offset += 1
                offset += draw(gaps)
                data += make_batch(records, draw(st.sampled_from(Compression)), last=offset - 1)
                expected[partition] += [_seen(record, append_time) for record in records]
            chunks.append(
                SourceChunk(
                    partition=PartitionIndex(partition),
                    offset_first=Offset(first),
                    offset_end=Offset(offset),
                    append_time_ms=Milliseconds(append_time),
                    records=data,
                )
            )
    return chunks, expected


def _seen(record: Record, append_time: int) -> Record:
    return Record(
        offset=record.offset,
        timestamp=record.timestamp if append_time < 0 else append_time,
        key=record.key,
        value=record.value,
        headers=record.headers,
        is_append_time=append_time >= 0,
    )


def archive(chunks: list[SourceChunk], row_group_bytes_target: int) -> ArchiveFile:
    def write(*, has_header_keys: bool) -> ArchiveFile:
        with ArchiveWriter(
            topic_id=TopicId(b"t" * 16),
            row_group_bytes_target=row_group_bytes_target,
            has_header_keys=has_header_keys,
        ) as writer:
            for chunk in chunks:
                writer.add(chunk)
            return writer.finish()

    return write_whole_file(write)


async def read_all(file: ArchiveFile, archived: tuple[ArchivedChunk, ...], compression: Compression) -> list[bytes]:
    store = MemoryStore()
    await store.put(KEY, file.parts)
    reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread)
    return [await reader.read(KEY, chunk, compression) for chunk in archived]


EXAMPLES = min(settings().max_examples, 300)
"""An example takes a tenth of a second, and a test three minutes at most."""


@given(sources(), st.sampled_from([1, 60, 300, 1 << 22]), st.sampled_from(Compression))
@settings(max_examples=EXAMPLES)
def test_what_comes_out_is_what_went_in(
    source: tuple[list[SourceChunk], dict[int, list[Record]]], row_group_bytes_target: int, compression: Compression
) -> None:
    chunks, expected = source
    assert_holds(archive(chunks, row_group_bytes_target), chunks, expected, compression)


@given(sources(), st.data(), st.sampled_from([1, 60, 300, 1 << 22]))
@settings(max_examples=EXAMPLES // 3)  # an example merges what several of the other test archive
def test_files_that_are_merged_hold_what_they_held(
    source: tuple[list[SourceChunk], dict[int, list[Record]]], data: st.DataObject, row_group_bytes_target: int
) -> None:
    chunks, expected = source
    files: dict[PartitionIndex, int] = {}
    chunks_of: list[list[SourceChunk]] = [[] for _ in range(4)]
    for chunk in chunks:  # each partition's chunks go into files that follow each other
        first = files.get(chunk.partition, 0)
        files[chunk.partition] = data.draw(st.integers(first, len(chunks_of) - 1))
        chunks_of[files[chunk.partition]].append(chunk)
    sources_of = [archive(some, data.draw(st.sampled_from([1, 60, 1 << 22]))) for some in chunks_of if some]
    to_merge = [
        MergeChunk(partition=partition, file=number, chunk=as_indexed(chunk))
        for number, file in enumerate(sources_of)
        for partition, of_partition in file.partitions
        for chunk in of_partition
    ]
    to_merge.sort(key=lambda each: (each.partition, each.chunk.offset_first))
    merged = merge_files(
        TopicId(b"t" * 16),
        to_merge,
        [b"".join(file.parts) for file in sources_of],
        row_group_bytes_target=row_group_bytes_target,
    )
    assert_holds(merged, chunks, expected, Compression.NONE)
    assert merged.counts == reduce(added_up, (file.counts for file in sources_of))
    bounds = [file.bounds for file in sources_of if file.bounds is not None]
    assert merged.bounds == reduce(RowBounds.with_also, bounds)


def added_up(one: ColumnCounts, two: ColumnCounts) -> ColumnCounts:
    return ColumnCounts.of(
        ColumnCount(a.field_id, a.values + b.values, a.nulls + b.nulls) for a, b in zip(one, two, strict=True)
    )


def assert_holds(
    file: ArchiveFile, chunks: list[SourceChunk], expected: dict[int, list[Record]], compression: Compression
) -> None:
    assert file.object_bytes == sum(len(part) for part in file.parts)
    assert file.row_count == sum(map(len, expected.values()))
    assert [partition for partition, _ in file.partitions] == sorted(expected)
    for partition, archived in file.partitions:
        of_partition = [chunk for chunk in chunks if chunk.partition == partition]
        assert archived[0].offset_first == of_partition[0].offset_first
        assert archived[-1].offset_end == of_partition[-1].offset_end
        seen: list[Record] = []
        for chunk, data in zip(archived, asyncio.run(read_all(file, archived, compression)), strict=True):
            read = read_batches(data)
            position = read.ranges[0][0]
            assert chunk.offset_first <= position
            for first, end in read.ranges:
                assert position <= first < end
                position = end
            assert position == chunk.offset_end, "a consumer arrives at the end of the chunk's range"
            assert len(read.records) == chunk.row_count
            assert max(record.timestamp for record in read.records) == chunk.max_timestamp
            seen += read.records
        assert seen == expected[partition]


def test_a_range_without_records_stays_one_when_files_are_merged() -> None:
    """Markers and aborted records alone: the index keeps the range, and no row answers for it."""
    files = []
    for first in (0, 10):
        with ArchiveWriter(topic_id=TopicId(b"t" * 16)) as writer:
            writer.leave_out(PartitionIndex(0), Offset(first), Offset(first + 10))
            records = [Record(offset=first + 3, timestamp=5, value=b"v")]
            writer.add(
                SourceChunk(
                    partition=PartitionIndex(1),
                    offset_first=Offset(first + 3),
                    offset_end=Offset(first + 13),
                    append_time_ms=Milliseconds(NO_TIMESTAMP),
                    records=make_batch(records, last=first + 12),
                )
            )
            files.append(writer.finish())
    to_merge = [
        MergeChunk(partition=PartitionIndex(partition), file=number, chunk=as_indexed(file.partitions[partition][1][0]))
        for partition in range(2)
        for number, file in enumerate(files)
    ]
    merged = merge_files(TopicId(b"t" * 16), to_merge, [b"".join(file.parts) for file in files])
    assert [
        [(one.offset_first, one.offset_end, one.row_count) for one in chunks] for _, chunks in merged.partitions
    ] == [
        [(0, 20, 0)],
        [(3, 23, 2)],
    ]
