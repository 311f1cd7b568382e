"""A cluster comes back out of its bucket: the snapshot, and every intake object (safety rule S9)."""

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
from crc32c import crc32c

from agent.cluster_identity import check_bucket, check_reached
from agent.recovery import RecoveryReport, recover
from agent.snapshots import Snapshots
from agent.state_loading import load
from coordinator.commands import (
    AllocateProducerIds,
    ChunkColumns,
    ChunksCommitted,
    CreateTopic,
    DeleteTopic,
    ProducerIdsAllocated,
)
from coordinator.log import (
    LedgerCorrupt,
    LedgerIdentity,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    position_first,
)
from coordinator.memory_log import MemoryLedger, MemoryLedgerCore
from coordinator.recovery import PRODUCER_ID_BITS
from coordinator.state import ClusterState
from protocol.types import ObjectNumber, PartitionIndex, ProducerId, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from storage.refs import SNAPSHOT_PREFIX, intake_key, parquet_key
from tests.made_commands import TOPIC, Batch, Chunk, commit, create, start
from tests.made_records import Record, make_batch
from tests.unit.agent.ledger_parts import Parts, running_parts

OTHER = TopicId(bytes([7] * 16))


class TimedStore(MemoryStore):
    """Each object is a second younger than the one before."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        super().__init__(now_ms=self._tick)

    def _tick(self) -> int:
        self.now_ms += 1_000
        return self.now_ms


async def put_intake(
    store: ObjectStore, session: SessionId, number: int, *batches: tuple[int, int], topic_id: TopicId = TOPIC
) -> int:
    """An intake object of one chunk; a batch is (producer id or -1, base sequence). Three records each."""
    encoded = encode_object(
        session, ObjectNumber(number), [ChunkParts(topic_id=topic_id, partition=PartitionIndex(0), parts=made(batches))]
    )
    await store.put(intake_key(session, ObjectNumber(number)), encoded.parts)
    return encoded.object_bytes


def made(batches: Sequence[tuple[int, int]]) -> list[bytes]:
    records = [Record(offset=n, timestamp=1_000 + n, key=b"k", value=b"%d" % n) for n in range(3)]
    return [of_producer(make_batch(records), producer, sequence) for producer, sequence in batches]


def of_producer(batch: bytes, producer: int, sequence: int) -> bytes:
    """The batch with producer id, epoch 0 and base sequence in its header, and the checksum that this makes."""
    if producer < 0:
        return batch
    changed = bytearray(batch)
    struct.pack_into(">qhi", changed, 43, producer, 0, sequence)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return bytes(changed)


async def produce(parts: Parts, number: int, *batches: tuple[int, int]) -> None:
    """An intake object, put and committed."""
    session = parts.writer.session
    object_bytes = await put_intake(parts.store, session, number, *batches)
    rows = [
        Batch(
            records=3,
            size=len(batch),
            timestamp=1_002,
            producer=producer,
            epoch=min(producer, 0),
            sequence=sequence,
        )
        for batch, (producer, sequence) in zip(made(batches), batches, strict=True)
    ]
    command = commit(number, Chunk(batches=rows), session=session)
    chunks = ChunkColumns(topic=[0], partition=[0], byte_first=[12], batch_count=[len(batches)])
    outcome = await parts.writer.submit(replace(command, chunks=chunks, object_bytes=object_bytes))
    assert isinstance(outcome, ChunksCommitted)
    assert set(outcome.error_codes) == {0}


async def snapshot(parts: Parts) -> None:
    assert await Snapshots(
        ledger=parts.ledger,
        store=parts.store,
        metadata=parts.metadata,
        housekeeper=parts.housekeeper,
        clock=parts.clock,
        metrics=parts.metrics,
        entries_interval=1_000,
        bytes_interval=1 << 20,
    ).take()


async def lived(store: ObjectStore) -> MemoryLedger:
    """A cluster whose snapshot knows the first object of three; its agent was killed."""
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.writer.submit(create())
        await produce(parts, 0, (7, 0))
        await snapshot(parts)
        await produce(parts, 1, (7, 3), (-1, -1))
        await produce(parts, 2, (7, 6))
        ledger.core.expire(parts.writer.session)
    return ledger


async def all_keys(store: ObjectStore) -> set[str]:
    return {meta.key async for meta in store.list("")}


async def state_of(ledger: MemoryLedger, store: ObjectStore) -> ClusterState:
    await check_bucket(store, await ledger.identity(), appends_count=(await ledger.head()).appends_count)
    await check_reached(store, ledger)
    return (await load(ledger, store)).follower.state


def log_end(state: ClusterState, topic_id: TopicId = TOPIC) -> int:
    found = state.partition(topic_id, PartitionIndex(0))
    assert found is not None
    return found.log_end


def told(report: RecoveryReport) -> list[tuple[str, int, int, int, int]]:
    return [(t.topic, t.records, t.duplicates, t.without_sequence, t.refused) for t in report.topics]


async def test_s9_a_wiped_ledger_is_refused_and_everything_comes_back() -> None:
    store = TimedStore()
    await lived(store)
    before = await all_keys(store)
    wiped = MemoryLedger(MemoryLedgerCore(cluster_id="another"))
    with pytest.raises(LedgerCorrupt, match="penstock recover"):
        await check_bucket(store, await wiped.identity())
    report = await recover(wiped, store, is_dry_run=False)
    assert report.is_carried_out
    assert await wiped.identity() == LedgerIdentity(cluster_id="mine", incarnation=2)
    assert told(report) == [("t", 9, 0, 0, 0)]
    assert (report.objects_known, report.objects_committed, report.missing, report.damaged) == (1, 2, [], [])
    state = await state_of(wiped, store)
    assert (log_end(state), state.position, state.incarnation) == (12, position_first(2), 2)
    assert state.sessions == {}
    assert before < await all_keys(store)
    async with running_parts(wiped, store=store) as parts:
        await produce(parts, 0, (7, 9))
        assert log_end(parts.metadata.state) == 15


async def test_no_producer_id_is_given_twice_and_producers_from_before_go_on() -> None:
    store = TimedStore()
    ledger = await lived(store)
    await recover(ledger, store, is_dry_run=False)
    async with running_parts(ledger, store=store) as parts:
        given = await parts.writer.submit(AllocateProducerIds(count=10))
        assert given == ProducerIdsAllocated(producer_id_first=ProducerId(1 << PRODUCER_ID_BITS), count=10)
        await produce(parts, 0, (8, 30))  # an old producer of which nothing was found


async def test_s9_a_ledger_restored_from_a_backup_is_refused_and_recovered_alike() -> None:
    store = TimedStore()
    await lived(store)
    older = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    async with running_parts(older) as parts:
        await parts.writer.submit(create())
        older.core.expire(parts.writer.session)
    with pytest.raises(LedgerCorrupt, match="older copy"):
        await check_reached(store, older)
    await recover(older, store, is_dry_run=False)
    assert log_end(await state_of(older, store)) == 12


async def test_nothing_happens_while_agents_live() -> None:
    store = TimedStore()
    ledger = await lived(store)
    before = await all_keys(store)
    await ledger.open_session("zombie")
    with pytest.raises(SessionHeld, match="zombie"):
        await recover(ledger, store, is_dry_run=False)
    assert await all_keys(store) == before


async def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    store = TimedStore()
    ledger = await lived(store)
    before, identity = await all_keys(store), await ledger.identity()
    planned = await recover(ledger, store, is_dry_run=True)
    assert not planned.is_carried_out
    assert (await all_keys(store), await ledger.identity()) == (before, identity)
    carried_out = await recover(ledger, store, is_dry_run=False)
    assert told(planned) == told(carried_out)
    assert planned.incarnation == carried_out.incarnation


async def test_objects_come_in_the_order_in_which_producers_wrote_whatever_sessions_say() -> None:
    """A producer whose hint moved: sequence 0 through one agent, 3 through another, 6 through the first again."""
    store = MemoryStore()  # without times to go by
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with (
        running_parts(ledger, store=store) as one,
        running_parts(MemoryLedger(ledger.core), start("b", node=2), store=store) as two,
    ):
        await one.writer.submit(create())
        await snapshot(one)
        await two.metadata.barrier()
        await produce(one, 0, (7, 0))
        await produce(two, 0, (7, 3))
        await produce(one, 1, (7, 6))
        for parts in (one, two):
            ledger.core.expire(parts.writer.session)
    report = await recover(ledger, store, is_dry_run=False)
    assert told(report) == [("t", 9, 0, 0, 0)]
    partition = (await state_of(ledger, store)).topics[TOPIC].partitions[0]
    assert partition.producers[7].sequence_next == 9  # type: ignore[index]


async def test_repeats_are_recognised_and_what_has_lost_its_predecessor_is_kept() -> None:
    store = TimedStore()
    ledger = await lived(store)
    dead = SessionId(1)
    await put_intake(store, dead, 3, (7, 6), (7, 12), (7, 15))
    report = await recover(ledger, store, is_dry_run=False)
    assert told(report) == [("t", 15, 1, 2, 0)]


async def test_a_topic_that_is_younger_than_the_snapshot_comes_back_by_the_name_that_the_bucket_knows() -> None:
    store = TimedStore()
    ledger = await lived(store)
    third = TopicId(bytes([9] * 16))
    dead = SessionId(1)
    await put_intake(store, dead, 3, (-1, -1), topic_id=OTHER)
    await put_intake(store, dead, 4, (-1, -1), topic_id=third)
    await store.put(parquet_key("orders", OTHER, dead, ObjectNumber(0)), [b"a file that the snapshot does not know"])
    report = await recover(ledger, store, is_dry_run=False)
    assert [(topic.topic, topic.is_name_lost) for topic in report.topics] == [
        ("orders", False),
        (f"recovered-{third.hex()}", True),
        ("t", False),
    ]
    assert report.objects_left == 1
    state = await state_of(ledger, store)
    assert (log_end(state, OTHER), log_end(state, third)) == (3, 3)


async def test_a_snapshot_that_is_damaged_is_told_and_the_one_before_serves() -> None:
    store = TimedStore()
    ledger = await lived(store)
    await store.put(f"{SNAPSHOT_PREFIX}{100:016x}", [b"not a snapshot"])
    report = await recover(ledger, store, is_dry_run=False)
    assert [key for key, _ in report.damaged] == [f"{SNAPSHOT_PREFIX}{100:016x}"]
    assert log_end(await state_of(ledger, store)) == 12


async def test_damaged_and_missing_objects_are_told_and_the_others_come_back() -> None:
    store = TimedStore()
    ledger = await lived(store)
    dead = SessionId(1)
    await store.delete([intake_key(dead, ObjectNumber(0))])
    torn = await store.get(intake_key(dead, ObjectNumber(2)))
    flipped = bytearray(await store.get(intake_key(dead, ObjectNumber(1))))
    flipped[40] ^= 1
    await store.put(intake_key(dead, ObjectNumber(1)), [flipped])
    await store.put(intake_key(dead, ObjectNumber(3)), [torn[:-1]])
    report = await recover(ledger, store, is_dry_run=False)
    assert report.missing == [intake_key(dead, ObjectNumber(0))]
    assert [key for key, _ in report.damaged] == [intake_key(dead, ObjectNumber(n)) for n in (1, 3)]
    assert told(report) == [("t", 3, 0, 1, 0)]
    assert await store.get(intake_key(dead, ObjectNumber(3))) == torn[:-1]


async def test_without_any_snapshot_everything_that_the_intake_holds_comes_back() -> None:
    store = TimedStore()
    await lived(store)
    await store.delete([key for key in await all_keys(store) if key.startswith(SNAPSHOT_PREFIX)])
    wiped = MemoryLedger(MemoryLedgerCore(cluster_id="another"))
    report = await recover(wiped, store, is_dry_run=False)
    assert (report.snapshot_key, report.objects_committed) == ("", 3)
    assert log_end(await state_of(wiped, store)) == 12


async def test_a_bucket_of_no_cluster_is_left_alone() -> None:
    store = MemoryStore()
    with pytest.raises(LedgerCorrupt, match=r"no cluster\.json"):
        await recover(MemoryLedger(), store, is_dry_run=False)
    await store.put("cluster.json", [b"{"])
    with pytest.raises(LedgerCorrupt, match="cannot be read"):
        await recover(MemoryLedger(), store, is_dry_run=False)


class LostAnswers(MemoryLedger):
    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        raise LedgerUnavailable("cut off")


async def test_after_a_crash_no_agent_starts_and_the_same_is_done_again() -> None:
    store = TimedStore()
    ledger = await lived(store)
    with pytest.raises(LedgerUnavailable):
        await recover(LostAnswers(ledger.core), store, is_dry_run=False)
    with pytest.raises(LedgerCorrupt, match="penstock recover"):
        await check_bucket(store, await ledger.identity(), appends_count=1)
    report = await recover(ledger, store, is_dry_run=False)
    assert (report.incarnation, report.objects_committed) == (3, 0)
    assert log_end(await state_of(ledger, store)) == 12


async def test_what_the_snapshot_calls_released_stays_released() -> None:
    store = TimedStore()
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.writer.submit(create())
        await produce(parts, 0, (7, 0))
        await parts.writer.submit(DeleteTopic(topic_id=TOPIC))
        await parts.writer.submit(CreateTopic(name="t", topic_id=OTHER, partition_count=1, configs=()))
        await snapshot(parts)
        ledger.core.expire(parts.writer.session)
    report = await recover(ledger, store, is_dry_run=False)
    assert (report.objects_committed, report.topics) == (0, [])
    state = await state_of(ledger, store)
    assert list(state.released) == [intake_key(SessionId(1), ObjectNumber(0))]
    assert list(state.topics) == [OTHER]
