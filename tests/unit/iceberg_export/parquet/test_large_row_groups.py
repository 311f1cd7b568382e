"""Large row groups of one partition: their chunks are read by pages, with the same records as from a small one."""

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from coordinator.commands.commands import ArchivedChunk
from iceberg_export.compaction.topic_files import MergeChunk
from iceberg_export.compaction.writer import merge_files
from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.reader import ParquetReader, pages_of_chunk, parse_footer
from iceberg_export.parquet.row_group import SMALL_ROW_GROUPS, RowGroupSizes
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.rows.executor import P, T
from iceberg_export.rows.footer import FileUnreadable
from protocol.records.compression import Compression
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from storage.memory_store import MemoryStore
from tests.support.lake.parquet_files import as_indexed
from tests.support.records.plain_records import Record, make_batch, read_batches

KEY = "lake/t/data/1.parquet"
PORTION_BYTES = 4_000
SIZES = RowGroupSizes(
    group_bytes_max=40_000,
    chunk_bytes_target=PORTION_BYTES,
    page_bytes_target=1_000,
    page_bytes_max=6_000,
    page_rows_min=2,
)


def record(offset: int, size: int = 100, *, keys: int = 3) -> Record:
    headers = [(b"h%d" % (offset % 2), b"%d" % offset)] * (offset % 3)
    return Record(
        offset=offset,
        timestamp=5 + offset,
        key=b"k%d" % (offset % keys),
        value=bytes([offset % 251]) * size,
        headers=tuple(headers),
    )


def written(partitions: dict[int, list[Record]], sizes: RowGroupSizes = SIZES) -> ArchiveFile:
    with ArchiveWriter(
        topic_id=TopicId(bytes(16)), row_group_bytes_target=PORTION_BYTES, key=KEY, sizes=sizes
    ) as writer:
        for number, records in partitions.items():
            for first in range(0, len(records), 10):
                part = records[first : first + 10]
                behind = records[first + 10 : first + 11]
                offset_end = behind[0].offset if behind else part[-1].offset + 1
                writer.add(
                    SourceChunk(
                        partition=PartitionIndex(number),
                        offset_first=Offset(part[0].offset),
                        offset_end=Offset(offset_end),
                        append_time_ms=NO_TIMESTAMP,
                        records=make_batch(part, last=offset_end - 1),
                    )
                )
        return writer.finish()


class Requests(MemoryStore):
    """Counts the bytes of ranged reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self.read_bytes += byte_count
        return await super().get_range(key, byte_first, byte_count)


async def at_once(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


def reader_of(store: MemoryStore, *, small_file_bytes_max: int = 0) -> ParquetReader:
    return ParquetReader(store=store, run_in_thread=at_once, small_file_bytes_max=small_file_bytes_max)


async def served(reader: ParquetReader, chunk: ArchivedChunk) -> list[Record]:
    return list(read_batches(await reader.read(KEY, chunk, Compression.NONE)).records)


SHAPES: dict[str, dict[int, list[Record]]] = {
    "one partition": {0: [record(offset) for offset in range(900)]},
    "several, and small ones behind": {
        **{number: [record(offset) for offset in range(300)] for number in range(2)},
        **{number: [record(offset) for offset in range(5)] for number in range(2, 6)},
    },
    "records grow": {0: [record(offset, 10 + 4 * offset) for offset in range(400)]},
    "a large record first": {0: [record(0, 5_000), *(record(offset, 20) for offset in range(1, 600))]},
    "many keys": {0: [record(offset, keys=10_000) for offset in range(900)]},
    "a gap": {0: [record(offset * 3) for offset in range(500)]},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("small_file_bytes_max", [0, 1 << 20], ids=["ranges", "a file that is read whole"])
async def test_chunks_have_the_records_that_were_written(shape: str, small_file_bytes_max: int) -> None:
    file = written(SHAPES[shape])
    store = MemoryStore()
    await store.put(KEY, file.parts)
    reader = reader_of(store, small_file_bytes_max=small_file_bytes_max)
    for number, chunks in file.partitions:
        found = [each for chunk in chunks for each in await served(reader, chunk)]
        assert found == SHAPES[shape][number]
        assert [chunk.offset_first for chunk in chunks[1:]] == [chunk.offset_end for chunk in chunks[:-1]]


async def test_a_row_group_is_large_and_a_chunk_of_it_is_read_alone() -> None:
    file = written(SHAPES["one partition"])
    ((_, chunks),) = file.partitions
    assert len({chunk.row_group for chunk in chunks}) * 7 <= len(chunks)
    store = Requests()
    await store.put(KEY, file.parts)
    reader = reader_of(store)
    await served(reader, chunks[0])
    before = store.read_bytes
    await served(reader, chunks[1])
    assert store.read_bytes - before < chunks[1].byte_count


async def test_damage_in_one_page_costs_only_the_chunk_that_has_it() -> None:
    file = written(SHAPES["one partition"])
    ((_, chunks),) = file.partitions
    data = bytearray(b"".join(file.parts))
    footer = parse_footer(data, key=KEY, file_bytes=len(data))
    pages = pages_of_chunk(footer, chunks[3])
    assert pages is not None
    first, end = pages.spans[-1]
    data[(first + end) // 2] ^= 1
    store = MemoryStore()
    await store.put(KEY, [bytes(data)])
    reader = reader_of(store)
    for chunk in (chunks[2], chunks[4]):
        await served(reader, chunk)
    with pytest.raises(FileUnreadable, match="damaged"):
        await served(reader, chunks[3])


async def test_an_index_that_names_other_rows_is_rejected() -> None:
    file = written(SHAPES["one partition"])
    ((_, chunks),) = file.partitions
    store = MemoryStore()
    await store.put(KEY, file.parts)
    moved = replace(chunks[1], row_first=chunks[2].row_first, row_count=chunks[2].row_count)
    with pytest.raises(FileUnreadable, match="are not offsets"):
        await served(reader_of(store), moved)


async def test_small_row_groups_stay_what_they_were() -> None:
    small = written(SHAPES["one partition"], SMALL_ROW_GROUPS)
    ((_, chunks),) = small.partitions
    assert [chunk.row_group for chunk in chunks] == list(range(len(chunks)))
    footer = parse_footer(b"".join(small.parts), key=KEY, file_bytes=small.object_bytes)
    assert set(map(partial(pages_of_chunk, footer), chunks)) == {None}


async def test_files_are_merged_by_pages_into_large_row_groups() -> None:
    """Several times, as tiers of files are: what was read by pages is written in pages."""
    records = SHAPES["one partition"][0]
    halves = [written({0: records[:450]}), written({0: records[450:]})]
    for _ in range(2):
        chunks = [
            MergeChunk(partition=PartitionIndex(0), file=number, chunk=as_indexed(chunk))
            for number, file in enumerate(halves)
            for chunk in file.partitions[0][1]
        ]
        merged = merge_files(
            TopicId(bytes(16)),
            chunks,
            [b"".join(file.parts) for file in halves],
            keys=[KEY] * len(halves),
            row_group_bytes_target=PORTION_BYTES,
            key=KEY,
            sizes=SIZES,
        )
        halves = [merged]
    ((_, chunks_merged),) = merged.partitions
    assert len({chunk.row_group for chunk in chunks_merged}) * 7 <= len(chunks_merged)
    store = MemoryStore()
    await store.put(KEY, merged.parts)
    reader = reader_of(store)
    assert [each for chunk in chunks_merged for each in await served(reader, chunk)] == records
