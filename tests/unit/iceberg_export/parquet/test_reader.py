"""A reference that does not fit the file is refused, never answered with other records; a gap at the end is bridged."""

import asyncio
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from coordinator.commands.commands import ArchivedChunk
from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.reader import (
    INLINE_CHUNKS_PER_ROUND,
    BatchForm,
    ParquetReader,
    check_place,
    decode_row_group,
    encode_chunk,
    parse_footer,
)
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.rows.checksums import tail_bytes
from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.executor import P, T
from iceberg_export.rows.footer import FileUnreadable, tail_bytes_first
from iceberg_export.rows.kafka_rows import encode_rows
from protocol.limits import FOOTER_READ_BYTES_MIN
from protocol.records.batch import walk_batches
from protocol.records.compression import Compression
from protocol.records.records import warm_kernels
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from storage.decorators.metered import MeteredStore
from storage.memory_store import MemoryStore
from tests.support.records.plain_records import Record, make_batch, read_batches

RECORDS = [Record(offset=offset, timestamp=5, value=b"v") for offset in (3, 4, 9)]


def file_of_two_partitions() -> tuple[ArchiveFile, bytes, ArchivedChunk]:
    with ArchiveWriter(topic_id=TopicId(bytes(16))) as writer:
        for partition in (0, 1):
            writer.add(
                SourceChunk(
                    partition=PartitionIndex(partition),
                    offset_first=Offset(3),
                    offset_end=Offset(12),
                    append_time_ms=NO_TIMESTAMP,
                    records=make_batch(RECORDS, last=11),
                )
            )
        file = writer.finish()
    return file, b"".join(file.parts), file.partitions[1][1][0]


def encoded(data: bytes, chunk: ArchivedChunk) -> bytes:
    footer = parse_footer(data)
    check_place(footer, chunk)
    piece = data[chunk.byte_first : chunk.byte_first + chunk.byte_count]
    return encode_chunk(footer, piece, chunk, BatchForm(Compression.NONE))


def test_gaps_keep_their_offsets_and_the_end_is_reached() -> None:
    _, data, chunk = file_of_two_partitions()
    read = read_batches(encoded(data, chunk))
    assert read.records == RECORDS
    assert read.ranges == [(3, 10), (10, 12)]


@pytest.mark.parametrize(("bytes_max", "codec"), [(1 << 20, Compression.GZIP), (5 << 20, Compression.NONE)])
async def test_a_record_that_only_compression_made_small_is_served_small(bytes_max: int, codec: Compression) -> None:
    """Its producer's batch was within max.message.bytes, so what consumers are given is, too."""
    records = [Record(offset=3, timestamp=5, value=b"v"), Record(offset=4, timestamp=5, value=bytes(4 << 20))]
    source = SourceChunk(
        partition=PartitionIndex(0),
        offset_first=Offset(3),
        offset_end=Offset(5),
        append_time_ms=NO_TIMESTAMP,
        records=make_batch(records, Compression.LZ4),
    )
    with ArchiveWriter(topic_id=TopicId(bytes(16))) as writer:
        writer.add(source)
        file = writer.finish()
    store = MemoryStore()
    await store.put("lake/f", file.parts)
    reader = ParquetReader(
        store=store, run_in_thread=asyncio.to_thread, batch_bytes_max_of={"lake/f": bytes_max}.__getitem__
    )
    [(_, [chunk])] = file.partitions
    batches = await reader.read("lake/f", chunk, Compression.NONE)
    assert read_batches(batches).records == records
    small, large = walk_batches(batches)
    assert (small.compression, large.compression) == (Compression.NONE, codec)
    assert large.batch_bytes <= bytes_max


def test_batches_are_no_larger_than_the_topic_allows() -> None:
    data = file_of_two_partitions()[1]
    footer = parse_footer(data)
    chunk = file_of_two_partitions()[2]
    piece = data[chunk.byte_first : chunk.byte_first + chunk.byte_count]
    batches = encode_chunk(footer, piece, chunk, BatchForm(Compression.NONE, 75))
    assert read_batches(batches).records == RECORDS
    assert [header.record_count for header in walk_batches(batches)] == [1, 1, 1, 1], "three records, and the gap"


class Requests:
    """Counts a store's requests."""

    def __init__(self) -> None:
        self.count = 0

    def observe(self, object_bytes: int, seconds: float, *, failure: str | None) -> None:
        self.count += 1


@pytest.mark.parametrize(("row_groups_bytes_max", "requests"), [(1 << 20, 2), (0, 3)])
async def test_a_row_group_that_partitions_share_is_read_once_for_all(row_groups_bytes_max: int, requests: int) -> None:
    warm_kernels()  # few rows are then encoded without a thread
    file, data, chunk = file_of_two_partitions()
    store, gets, heads = MemoryStore(), Requests(), Requests()
    await store.put("lake/f", [data])
    reader = ParquetReader(
        store=MeteredStore(store, observer_of=lambda name: gets if name == "get" else heads, monotonic_s=lambda: 0.0),
        run_in_thread=asyncio.to_thread,
        row_groups_bytes_max=row_groups_bytes_max,
        small_file_bytes_max=0,
    )
    chunks = [file.partitions[0][1][0], chunk]
    together = await asyncio.gather(*(reader.read("lake/f", wanted, Compression.NONE) for wanted in chunks))
    assert [read_batches(batches).records for batches in together] == [RECORDS, RECORDS]
    assert read_batches(await reader.read("lake/f", chunk, Compression.ZSTD)).records == RECORDS
    assert (gets.count, heads.count) == (requests, 1), "a read of the footer comes first"


@pytest.mark.parametrize("footers_max", [1_000, 0])
async def test_a_small_file_is_one_request(footers_max: int) -> None:
    file, data, chunk = file_of_two_partitions()
    store, gets, heads = MemoryStore(), Requests(), Requests()
    await store.put("lake/f", [data])
    reader = ParquetReader(
        store=MeteredStore(store, observer_of=lambda name: gets if name == "get" else heads, monotonic_s=lambda: 0.0),
        run_in_thread=asyncio.to_thread,
        bytes_of={"lake/f": len(data)}.get,
        small_file_bytes_max=len(data),
        row_groups_bytes_max=0,
        footers_max=footers_max,
    )
    for wanted in (file.partitions[0][1][0], chunk):
        assert read_batches(await reader.read("lake/f", wanted, Compression.NONE)).records == RECORDS
    assert (gets.count, heads.count) == (1, 0)


async def test_the_footer_of_a_full_size_file_is_one_request() -> None:
    """Its row groups are small, so it is longer than that of most files."""
    row_groups = 100
    with ArchiveWriter(topic_id=TopicId(bytes(16)), row_group_bytes_target=1) as writer:
        records = make_batch([Record(offset=offset, timestamp=5, value=b"v") for offset in range(row_groups)])
        writer.add(SourceChunk(PartitionIndex(0), Offset(0), Offset(row_groups), NO_TIMESTAMP, records))
        data = b"".join(writer.finish().parts)
    assert tail_bytes(data, len(data)) > FOOTER_READ_BYTES_MIN
    store, gets = MemoryStore(), Requests()
    # Only the end is read here, so zeros replace the values of a file of this size.
    await store.put("lake/f", [bytes(64 << 20), data])
    reader = ParquetReader(
        store=MeteredStore(store, observer_of=lambda name: gets if name == "get" else Requests(), monotonic_s=float),
        run_in_thread=asyncio.to_thread,
    )
    assert (await reader.describe("lake/f")).record_count == row_groups
    assert gets.count == 1


def test_the_first_read_of_a_footer_is_a_part_of_the_file_within_bounds() -> None:
    sizes = [100, 1 << 20, 128 << 20, 4 << 30]
    assert [tail_bytes_first(size) for size in sizes] == [100, 64 << 10, 256 << 10, 512 << 10]


async def test_a_small_file_that_came_damaged_is_read_again() -> None:
    _, data, chunk = file_of_two_partitions()
    store = MemoryStore()
    await store.put("lake/f", [bytes(len(data))])
    reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread)
    with pytest.raises(FileUnreadable):
        await reader.read("lake/f", chunk, Compression.NONE)
    await store.put("lake/f", [data])
    assert read_batches(await reader.read("lake/f", chunk, Compression.NONE)).records == RECORDS


class Rounds:
    """Counts the rounds of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._next()

    def _next(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def end(self) -> None:
        self._handle.cancel()


async def test_of_those_who_wait_for_a_row_group_few_encode_in_one_round() -> None:
    warm_kernels()
    _, data, chunk = file_of_two_partitions()
    store, go_on, in_threads = MemoryStore(), asyncio.Event(), list[object]()
    await store.put("lake/f", [data])

    async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        in_threads.append(work)
        if work is decode_row_group:
            await go_on.wait()
        return work(*args, **kwargs)

    reader = ParquetReader(store=store, run_in_thread=in_thread)
    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(reader.read("lake/f", chunk, Compression.NONE)) for _ in range(50)]
        while decode_row_group not in in_threads:
            await asyncio.wait(reads, timeout=0)
        ended_in = list[int]()
        rounds = Rounds()
        for read in reads:
            read.add_done_callback(lambda _: ended_in.append(rounds.count))
        go_on.set()
        await asyncio.wait(reads)
        rounds.end()
    assert in_threads == [parse_footer, decode_row_group]
    assert max(Counter(ended_in).values()) == INLINE_CHUNKS_PER_ROUND
    assert {bytes(read.result()) for read in reads} == {encoded(data, chunk)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"row_group": 1},
        {"byte_first": 5},
        {"row_count": 4},
        {"row_first": 2},
        {"offset_first": Offset(4)},
        {"offset_end": Offset(9)},
    ],
)
def test_a_reference_that_does_not_fit_is_refused(wrong: dict[str, int]) -> None:
    _, data, chunk = file_of_two_partitions()
    with pytest.raises(FileUnreadable):
        encoded(data, replace(chunk, **wrong))


def test_rows_of_different_timestamp_types_never_share_a_batch() -> None:
    nothing = BinaryColumn(ends=np.zeros(4, np.int32), data=np.zeros(0, np.uint8), is_null=np.ones(3, np.bool_))
    no_headers = BinaryColumn(ends=np.zeros(1, np.int32), data=np.zeros(0, np.uint8), is_null=None)
    rows = RecordRows(
        partition=np.zeros(3, np.int32),
        offset=np.array([0, 1, 2], np.int64),
        timestamp_ms=np.array([1, 50, 50], np.int64),
        timestamp_type=np.array([0, 1, 1], np.int32),
        key=nothing,
        value=nothing,
        header_ends=np.zeros(4, np.int32),
        header_key=no_headers,
        header_value=no_headers,
    )
    read = read_batches(encode_rows(rows, Compression.NONE, 1 << 20))
    assert read.ranges == [(0, 1), (1, 3)]
    assert [(record.timestamp, record.is_append_time) for record in read.records] == [
        (1, False),
        (50, True),
        (50, True),
    ]
