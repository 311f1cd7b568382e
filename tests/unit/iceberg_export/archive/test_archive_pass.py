"""A pass from chunks in the bucket to the entry that swaps them, and back to what a consumer reads."""

import asyncio
from dataclasses import replace

import pytest

from coordinator.commands.commands import ReplacedChunk
from iceberg_export.archive.archive_pass import ArchivedPass, archive
from iceberg_export.archive.plan import ArchivePass, IntakeChunk
from iceberg_export.parquet.reader import ParquetReader
from iceberg_export.parquet.source_chunks import ChunkMismatch
from iceberg_export.rows.footer import FileUnreadable
from protocol.records.batch import check_crcs
from protocol.records.compression import Compression
from protocol.types import NO_TIMESTAMP, ObjectId, ObjectNumber, Offset, PartitionIndex, SessionId, TopicId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing
from storage.refs import intake_key
from tests.support.records.plain_records import Record, make_batch, read_batches

TOPIC = TopicId(b"t" * 16)
SESSION = SessionId(9)
KEYS = [intake_key(SESSION, ObjectNumber(number)) for number in range(2)]


def records(partition: int, first: int, end: int) -> list[Record]:
    return [Record(offset=o, timestamp=o, value=b"%d:%d" % (partition, o)) for o in range(first, end)]


WANTED = {0: records(0, 0, 5), 1: records(1, 10, 12)}
RUNS = [(0, 0, 3, 0), (0, 3, 5, 1), (1, 10, 12, 0)]
"""Partition, offsets, object."""


async def filled_store() -> tuple[MemoryStore, ArchivePass]:
    store = MemoryStore()
    objects = [b"PADDING", b"PADDING"]
    chunks: list[IntakeChunk] = []
    for partition, first, end, number in RUNS:
        data = make_batch(records(partition, first, end), Compression.ZSTD)
        chunks.append(
            IntakeChunk(
                partition=PartitionIndex(partition),
                offset_first=Offset(first),
                offset_end=Offset(end),
                object_id=ObjectId(number),
                object_key=KEYS[number],
                byte_first=len(objects[number]),
                byte_count=len(data),
                append_time_ms=NO_TIMESTAMP,
                checksum=check_crcs(data),
            )
        )
        objects[number] += data
    for key, data in zip(KEYS, objects, strict=True):
        await store.put(key, [data])
    return store, ArchivePass(topic_id=TOPIC, name="orders", chunks=tuple(chunks))


async def archived_by(store: MemoryStore, planned: ArchivePass, number: int = 4) -> ArchivedPass:
    return await archive(
        planned, store=store, session=SESSION, number=ObjectNumber(number), run_in_thread=asyncio.to_thread
    )


async def test_the_entry_names_what_it_replaces_and_what_stands_in_its_place() -> None:
    store, planned = await filled_store()
    done = await archived_by(store, planned)
    command = done.command
    assert command.object_key == f"lake/orders-{TOPIC.hex()}/data/{9:016x}-{4:016x}.parquet"
    assert (command.topic_id, command.object_session) == (TOPIC, SESSION)
    assert command.object_bytes == (await store.head(command.object_key)).size_bytes
    first, second = command.partitions
    assert (first.partition, second.partition) == (0, 1)
    assert first.replaced == tuple(
        ReplacedChunk(
            offset_first=chunk.offset_first,
            offset_end=chunk.offset_end,
            object_key=chunk.object_key,
            byte_first=chunk.byte_first,
        )
        for chunk in planned.chunks[:2]
    )
    assert [(chunk.offset_first, chunk.offset_end) for chunk in first.archived] == [(0, 5)]
    assert [(chunk.offset_first, chunk.offset_end) for chunk in second.archived] == [(10, 12)]
    assert (done.file.record_count, done.source_bytes) == (7, sum(chunk.byte_count for chunk in planned.chunks))


@pytest.mark.parametrize("compression", Compression)
async def test_consumers_read_the_same_records_from_the_archive(compression: Compression) -> None:
    store, planned = await filled_store()
    command = (await archived_by(store, planned)).command
    await store.delete(KEYS)
    reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread)
    for replacement in command.partitions:
        [chunk] = replacement.archived
        data = await reader.read(command.object_key, chunk, compression)
        assert read_batches(data).records == WANTED[replacement.partition]


async def test_the_footer_is_read_once_for_many_chunks() -> None:
    store, planned = await filled_store()
    command = (await archived_by(store, planned)).command
    asked: list[str] = []

    def bytes_of(key: str) -> int:
        asked.append(key)
        return command.object_bytes

    reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread, bytes_of=bytes_of)
    for replacement in command.partitions:
        await reader.read(command.object_key, replacement.archived[0], Compression.NONE)
    assert asked == [command.object_key]


async def test_the_oldest_footer_makes_room() -> None:
    store, planned = await filled_store()
    command = (await archived_by(store, planned)).command
    other = (await archived_by(store, planned, 5)).command
    reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread, footers_max=1)
    for made in (command, other, command):
        assert await reader.read(made.object_key, made.partitions[0].archived[0], Compression.NONE)


async def test_an_intake_object_that_is_gone_fails_the_pass_before_anything_is_put() -> None:
    store, planned = await filled_store()
    await store.delete(KEYS[1:])
    with pytest.raises(ObjectMissing):
        await archived_by(store, planned)
    assert [meta.key async for meta in store.list("lake/")] == []


async def test_another_object_in_the_place_of_one_fails_the_pass_before_anything_is_put() -> None:
    """Safety rule S20: its batches are whole, and its offsets fit."""
    store, planned = await filled_store()
    others = make_batch([replace(record, value=b"other") for record in records(0, 3, 5)], Compression.NONE)
    last = planned.chunks[1]._replace(byte_count=len(others))
    await store.put(last.object_key, [b"PADDING", others])
    with pytest.raises(ChunkMismatch, match="the chunk at offset 3 have the checksum"):
        await archived_by(store, replace(planned, chunks=(planned.chunks[0], last, planned.chunks[2])))
    assert [meta.key async for meta in store.list("lake/")] == []
    unchecked = last._replace(checksum=0)
    await archived_by(store, replace(planned, chunks=(planned.chunks[0], unchecked, planned.chunks[2])))


async def test_a_pass_that_is_cancelled_as_a_read_fails_ends() -> None:
    """Before Python 3.13 the read's task group tells of the failure alone, and the agent's end waited for the pass."""
    _, planned = await filled_store()

    class Gone(MemoryStore):
        async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
            passing.cancel()
            raise ObjectMissing(key)

    passing = asyncio.create_task(archived_by(Gone(), planned))
    with pytest.raises(asyncio.CancelledError):
        await passing


@pytest.mark.parametrize("content", [b"", b"shorts", b"not a Parquet file", b"\xff\xff\xff\x7fPAR1"])
async def test_what_is_not_parquet_is_refused(content: bytes) -> None:
    store, planned = await filled_store()
    command = (await archived_by(store, planned)).command
    await store.put("lake/other", [content])
    reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread)
    with pytest.raises(FileUnreadable):
        await reader.read("lake/other", command.partitions[0].archived[0], Compression.NONE)
