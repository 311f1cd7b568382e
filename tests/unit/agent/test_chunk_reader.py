"""Chunks read together: what is damaged fails alone, and each is served in the compression that was asked for."""

import asyncio

from agent.chunk_cache import ServedChunk
from protocol.compression import Compression
from protocol.record_batch import walk_batches
from storage.object_store import ObjectDamaged
from tests.made_commands import TOPIC
from tests.made_records import Record, make_batch
from tests.unit.agent.data_paths import data_paths

BATCH = make_batch([Record(offset=n, timestamp=1_000, value=b"x" * 50) for n in range(3)])


async def test_a_damaged_chunk_fails_alone_among_those_read_with_it() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.metadata.state
        damaged = state.topics[TOPIC].partitions[0].index.row(0)
        whole = damaged._replace(byte_first=damaged.byte_first + len(BATCH))
        await paths.memory.put(state.objects[whole.object_id].key, [bytes(damaged.byte_first + len(BATCH)), BATCH])
        both, alone = await asyncio.gather(
            paths.reader.read(state, [damaged, whole], [Compression.NONE] * 2),
            paths.reader.read(state, [whole], [Compression.NONE]),
            return_exceptions=True,
        )
    assert isinstance(both, ObjectDamaged)
    assert isinstance(alone, list)
    assert alone[0].buffer == BATCH


async def test_archived_rows_are_served_in_the_compression_of_each_request() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH)
        await paths.archiver.archive_topic(TOPIC)
        state = paths.parts.metadata.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        at_once = await asyncio.gather(
            *(paths.reader.read(state, [row], [codec]) for codec in (Compression.NONE, Compression.ZSTD))
        )
        later = await paths.reader.read(state, [row, row], [Compression.ZSTD, Compression.NONE])
    assert [compression_of(served) for (served,) in at_once] == [Compression.NONE, Compression.ZSTD]
    assert [compression_of(served) for served in later] == [Compression.ZSTD, Compression.NONE]


def compression_of(served: ServedChunk) -> Compression:
    return next(iter(walk_batches(served.buffer))).compression
