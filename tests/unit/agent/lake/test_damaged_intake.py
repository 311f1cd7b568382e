"""A chunk of the intake that is damaged or gone holds up the archive of its own partition, and of no other."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from coordinator.commands.admin import CreatePartitions
from coordinator.commands.commands import ChunksCommitted, DeleteTopic
from iceberg_export.archive.plan import ArchivePolicy
from iceberg_export.archive.topic_intake import intake_bytes, intake_first
from protocol.limits import COMPACTION_DAMAGED_SECONDS_FIRST
from protocol.types import ObjectNumber, Offset, PartitionIndex
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.object_store import ObjectDamaged, ObjectMissing
from storage.refs import intake_key
from tests.support.agent.ledger_parts import Parts, running_parts, until
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, delete_before
from tests.support.lake.archivers import archiver
from tests.support.records.plain_records import Record, make_batch

RECORDS = 3


async def produce(parts: Parts, store: MemoryStore, number: int, partitions: Sequence[int]) -> str:
    """Put and commit an intake object with three records for each of these partitions; returns its key."""
    batches = [
        make_batch([Record(offset=n, timestamp=1_000 + n, value=b"value %d of %d" % (n, each)) for n in range(RECORDS)])
        for each in partitions
    ]
    session, key = parts.ledger.session, intake_key(parts.ledger.session, ObjectNumber(number))
    encoded = encode_object(
        session,
        ObjectNumber(number),
        [
            ChunkParts(topic_id=TOPIC, partition=PartitionIndex(each), parts=[batch])
            for each, batch in zip(partitions, batches, strict=True)
        ],
    )
    await store.put(key, encoded.parts)
    chunks = [
        Chunk(partition=each, batches=[Batch(records=RECORDS, size=len(batch), timestamp=1_000 + RECORDS - 1)])
        for each, batch in zip(partitions, batches, strict=True)
    ]
    command = commit(number, *chunks, session=session)
    columns = command.chunks
    columns = replace(columns, byte_first=encoded.byte_firsts)
    outcome = await parts.ledger.propose(replace(command, chunks=columns, object_bytes=encoded.object_bytes))
    assert isinstance(outcome, ChunksCommitted)
    assert list(outcome.error_codes) == [0] * len(partitions)
    return key


async def damage(store: MemoryStore, key: str, partition: int) -> bytes:
    """Flip a bit of a partition's records in an object. Returns what it was before."""
    whole = await store.get(key)
    data = bytearray(whole)
    data[data.index(b"value 1 of %d" % partition)] ^= 1
    await store.delete([key])
    await store.put(key, [bytes(data)])
    return whole


@asynccontextmanager
async def three_partitions() -> AsyncIterator[tuple[Parts, MemoryStore, list[str]]]:
    """Three objects with records of three partitions, of which nothing is archived."""
    store = MemoryStore()
    async with running_parts(store=store) as parts, asyncio.timeout(30):
        await parts.ledger.propose(create(partitions=3))
        yield parts, store, [await produce(parts, store, number, [0, 1, 2]) for number in range(3)]


def archived(parts: Parts) -> list[int]:
    """Per partition, up to which offset it is archived."""
    return [int(offset) for offset in intake_first(parts.ledger.state, TOPIC)]


def unreadable(parts: Parts) -> float:
    return float(parts.metrics.archive_unreadable_chunks._value.get())


def passes(parts: Parts, outcome: str) -> float:
    return float(parts.metrics.archive_passes.labels(outcome)._value.get())


def errors(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [record.__dict__ for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_damaged_chunk_holds_up_its_own_partition_from_there_on(caplog: pytest.LogCaptureFixture) -> None:
    async with three_partitions() as (parts, store, keys):
        right = await damage(store, keys[1], partition=1)
        running = asyncio.create_task(parts.repeat(archiver(parts, store).job))
        await until(lambda: archived(parts) == [9, 3, 9])
        await produce(parts, store, 3, [0, 1, 2])
        await until(lambda: archived(parts) == [12, 3, 12])
        quiet_s = parts.clock.seconds + COMPACTION_DAMAGED_SECONDS_FIRST / 2
        await until(lambda: parts.clock.seconds > quiet_s)
        assert (passes(parts, "done"), passes(parts, "failed")) == (2, 1)
        assert unreadable(parts) == 1
        (told,) = errors(caplog)
        assert (told["topic"], told["partition"], told["offset"], told["key"]) == ("t", 1, 3, keys[1])
        assert "InvalidBatch" in str(told["reason"])
        assert parts.metrics.background_topics_failing.labels("archiver")._value.get() == 0
        await until(lambda: passes(parts, "failed") == 3)
        assert len(errors(caplog)) == 1, "told once, however often it is tried"
        await store.put(keys[1], [right])
        await until(lambda: archived(parts) == [12, 12, 12])
        await until(lambda: unreadable(parts) == 0)
        running.cancel()


async def test_where_an_object_is_gone_all_its_partitions_wait_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with three_partitions() as (parts, store, _):
        gone = await produce(parts, store, 3, [0, 2])
        await produce(parts, store, 4, [0, 1, 2])
        whole = await store.get(gone)
        await store.delete([gone])
        running = asyncio.create_task(parts.repeat(archiver(parts, store).job))
        await until(lambda: archived(parts) == [9, 12, 9])
        assert unreadable(parts) == 2
        assert [(told["partition"], told["offset"], told["key"]) for told in errors(caplog)] == [
            (0, 9, gone),
            (2, 9, gone),
        ]
        await store.put(gone, [whole])
        await until(lambda: archived(parts) == [15, 12, 15])
        running.cancel()


async def test_on_demand_all_that_can_be_is_archived_before_it_says_what_cannot() -> None:
    async with three_partitions() as (parts, store, keys):
        right = await damage(store, keys[0], partition=2)
        archiving = archiver(parts, store)
        for _ in range(2):
            with pytest.raises(ObjectDamaged, match=f"{keys[0]}, partition 2, offset 0: "):
                await archiving.archive_topic(TOPIC)
            assert archived(parts) == [9, 9, 0]
        await store.put(keys[0], [right])
        report = await archiving.archive_topic(TOPIC)
        assert report.records == 3 * RECORDS, "asked for, it waits for no pause"
        assert archived(parts) == [9, 9, 9]


class GrowingStore(MemoryStore):
    """A partition is added while the first object is read, with a chunk that is damaged at once; the read fails."""

    parts: Parts | None = None
    damaged = ""

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        if self.parts is not None:
            parts, self.parts = self.parts, None
            await parts.ledger.propose(CreatePartitions(topic_id=TOPIC, partition_count=2))
            self.damaged = await produce(parts, self, 1, [1])
            await damage(self, self.damaged, partition=1)
            raise ObjectMissing(f"{key} does not exist")
        return await super().get_range(key, byte_first, byte_count)


async def test_on_demand_partitions_that_were_added_meanwhile_hold_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = GrowingStore()
    async with running_parts(store=store) as parts, asyncio.timeout(30):
        await parts.ledger.propose(create())
        await produce(parts, store, 0, [0])
        store.parts = parts
        report = await archiver(parts, store).archive_topic(TOPIC)
        assert report.records == RECORDS
        assert archived(parts) == [3, 0]
        assert [(told["partition"], told["key"]) for told in errors(caplog)] == [(1, store.damaged)]


async def test_in_the_background_it_is_tried_when_the_first_pause_is_over_however_often_it_was_asked_for() -> None:
    async with three_partitions() as (parts, store, keys):
        right = await damage(store, keys[0], partition=2)
        archiving = archiver(parts, store)
        running = asyncio.create_task(parts.repeat(archiving.job))
        await until(lambda: archived(parts) == [9, 9, 0])
        began_s = parts.clock.seconds
        for _ in range(5):
            with pytest.raises(ObjectDamaged):
                await archiving.archive_topic(TOPIC)
        await store.put(keys[0], [right])
        await until(lambda: archived(parts) == [9, 9, 9])
        assert parts.clock.seconds - began_s <= COMPACTION_DAMAGED_SECONDS_FIRST + 60
        running.cancel()


async def test_on_demand_a_chunk_that_is_gone_is_missing() -> None:
    async with three_partitions() as (parts, store, keys):
        await store.delete([keys[2]])
        with pytest.raises(ObjectMissing, match=f"{keys[2]}, partition 0, offset 6: "):
            await archiver(parts, store).archive_topic(TOPIC)
        assert archived(parts) == [6, 6, 6]


async def test_an_object_that_ends_early_holds_up_the_partitions_behind_its_end() -> None:
    async with three_partitions() as (parts, store, keys):
        whole = await store.get(keys[0])
        await store.put(keys[0], [whole[: whole.index(b"value 2 of 1")]])
        with pytest.raises(ObjectDamaged):
            await archiver(parts, store).archive_topic(TOPIC)
        assert archived(parts) == [9, 0, 0]


async def test_records_that_are_deleted_with_the_damaged_ones_hold_up_nothing() -> None:
    async with three_partitions() as (parts, store, keys):
        await damage(store, keys[1], partition=1)
        running = asyncio.create_task(parts.repeat(archiver(parts, store).job))
        await until(lambda: archived(parts) == [9, 3, 9])
        await parts.ledger.propose(delete_before(6, partition=1))
        await until(lambda: archived(parts) == [9, 9, 9])
        assert unreadable(parts) == 0
        running.cancel()


class DeletingStore(MemoryStore):
    """The topic is deleted, and an object of it, when that is to be archived."""

    parts: Parts | None = None

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        if self.parts is not None:
            parts, self.parts = self.parts, None
            await self.delete([key])
            await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        return await super().get_range(key, byte_first, byte_count)


async def test_s6_what_the_state_let_go_of_meanwhile_is_not_damaged(caplog: pytest.LogCaptureFixture) -> None:
    store = DeletingStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0, [0])
        store.parts = parts
        assert (await archiver(parts, store).archive_topic(TOPIC)).object_keys == ()
        assert (unreadable(parts), errors(caplog)) == (0, [])


async def test_bytes_that_wait_do_not_count() -> None:
    async with three_partitions() as (parts, _, _):
        state = parts.ledger.state
        one = intake_bytes(state, TOPIC) // 9
        assert intake_bytes(state, TOPIC, {PartitionIndex(1): Offset(3)}) == 7 * one
        assert intake_bytes(state, TOPIC, {PartitionIndex(0): Offset(0), PartitionIndex(2): Offset(6)}) == 5 * one


async def test_bytes_that_wait_do_not_hasten_passes_over_other_partitions() -> None:
    async with three_partitions() as (parts, store, keys):
        await damage(store, keys[1], partition=1)
        two_chunks = intake_bytes(parts.ledger.state, TOPIC) * 2 // 9
        policy = ArchivePolicy(age_ms=10_000_000, bytes_target=two_chunks)
        running = asyncio.create_task(parts.repeat(archiver(parts, store, policy=policy).job))
        await until(lambda: archived(parts) == [9, 3, 9])
        await produce(parts, store, 3, [0])
        later_s = parts.clock.seconds + COMPACTION_DAMAGED_SECONDS_FIRST / 2
        await until(lambda: parts.clock.seconds > later_s)
        assert archived(parts) == [9, 3, 9]
        await produce(parts, store, 4, [0])
        await until(lambda: archived(parts) == [15, 3, 9])
        running.cancel()
