"""An archive pass takes from the read cache what was just produced, checks it, and else reads the store."""

import pytest

from coordinator.state.chunk_index import ChunkRef
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing
from storage.refs import INTAKE_PREFIX
from tests.support.agent.data_paths import DataPaths, data_paths
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch

VALUES = [b"first", b"second", b"third"]


class CountingStore(MemoryStore):
    """Counts the reads of the intake."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self.reads += key.startswith(INTAKE_PREFIX)
        return await super().get_range(key, byte_first, byte_count)


async def produce(paths: DataPaths, more: bytes = b"") -> None:
    await paths.produce(*(make_batch([Record(offset=0, timestamp=5, value=value + more)]) for value in VALUES))


async def archived_values(paths: DataPaths) -> list[bytes | None]:
    """The values in the archive, after a pass."""
    report = await paths.archiver.archive_topic(TOPIC)
    assert report.records == len(VALUES)
    for chunk in chunks(paths):
        paths.cache.drop_chunks(chunk.object_id)
    return [record.value for record in await paths.consume(partition_bytes_max=1 << 20)]


def chunks(paths: DataPaths) -> list[ChunkRef]:
    partition = paths.parts.ledger.state.topics[TOPIC].partitions[0]
    return [partition.index.row(row) for row in range(len(partition.index))]


async def test_what_is_in_memory_is_not_read_again() -> None:
    store = CountingStore()
    async with data_paths(memory=store) as paths:
        await produce(paths)
        assert await archived_values(paths) == VALUES
        assert store.reads == 0


async def test_what_has_left_memory_is_read() -> None:
    store = CountingStore()
    async with data_paths(memory=store) as paths:
        await produce(paths)
        paths.cache.drop_chunks(chunks(paths)[1].object_id)
        assert await archived_values(paths) == VALUES
        assert store.reads == 1


async def test_where_memory_is_damaged_the_copy_in_the_store_counts(caplog: pytest.LogCaptureFixture) -> None:
    store = CountingStore()
    async with data_paths(memory=store) as paths:
        await produce(paths)
        held = paths.cache.intake_bytes(chunks(paths)[2].object_id, chunks(paths)[2].byte_first)
        assert isinstance(held, bytearray)
        held[-1] ^= 1
        assert await archived_values(paths) == VALUES
        assert store.reads == 1
        assert "a chunk of the read cache is damaged" in caplog.text


async def test_what_is_damaged_in_memory_is_not_served_behind_its_pass() -> None:
    async with data_paths() as paths:
        await produce(paths, bytes(5_000))
        held = paths.cache.intake_bytes(chunks(paths)[1].object_id, chunks(paths)[1].byte_first)
        assert isinstance(held, bytearray)
        held[-1] ^= 1
        await paths.archiver.archive_topic(TOPIC)
        read = await paths.consume(partition_bytes_max=1 << 20)
        assert [record.value for record in read] == [value + bytes(5_000) for value in VALUES]


async def test_what_the_bucket_has_lost_is_archived_from_memory() -> None:
    """Also where another chunk of the pass is gone from both."""
    store = CountingStore()
    async with data_paths(memory=store, partitions=2) as paths:
        batch = make_batch([Record(offset=0, timestamp=5, value=VALUES[0])])
        await paths.produce(batch, partition=0)
        await paths.produce(batch, partition=1)
        lost, kept = (partition.index.row(0) for partition in paths.parts.ledger.state.topics[TOPIC].partitions)
        paths.cache.drop_chunks(lost.object_id)
        await store.delete([paths.parts.ledger.state.objects[each.object_id].key for each in (lost, kept)])
        with pytest.raises(ObjectMissing):
            await paths.archiver.archive_topic(TOPIC)
        first, second = (partition.index.row(0) for partition in paths.parts.ledger.state.topics[TOPIC].partitions)
        assert (first.is_archived, second.is_archived) == (False, True)


async def test_batches_with_the_time_of_their_append_are_read_from_the_store() -> None:
    store = CountingStore()
    async with data_paths(memory=store, timestamp_type="LogAppendTime") as paths:
        await produce(paths)
        assert await archived_values(paths) == VALUES
        assert store.reads == len(VALUES)
