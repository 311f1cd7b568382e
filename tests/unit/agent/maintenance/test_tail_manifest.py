"""The maintenance leader tells the bucket where records lie that are not archived yet."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agent.maintenance.tail_manifest import TailManifests
from coordinator.commands.commands import ReportTime, StartDrain
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from iceberg_export.tail.manifest import TailManifest, decode_manifest, encode_manifest
from protocol.limits import (
    LEDGER_SESSION_SECONDS,
    TAIL_BUSY_SHARE_MAX,
    TAIL_CHECK_SECONDS,
    TAIL_CHUNKS_PER_PARTITION_MAX,
)
from protocol.types import ObjectNumber, Position
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing, StoreUnavailable
from storage.refs import TAIL_KEY
from tests.support.agent.ledger_parts import Parts, running_parts, until
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, delete_before, start

INTERVAL_MS = 1_000


class Watched(FailingStore):
    """A store in memory that counts what it is asked."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        super().__init__(self.memory)
        self.asked: list[str] = []

    async def put(self, key: str, parts: object, *, if_absent: bool = False) -> None:
        self.asked.append("put")
        await super().put(key, parts, if_absent=if_absent)  # type: ignore[arg-type]

    async def get(self, key: str) -> bytes:
        self.asked.append("get")
        return await super().get(key)


def manifests(
    parts: Parts, *, interval_ms: int = INTERVAL_MS, chunks_each_max: int = TAIL_CHUNKS_PER_PARTITION_MAX
) -> TailManifests:
    return TailManifests(
        parts.context(),
        maintenance_leader=parts.maintenance_leader,
        interval_ms=interval_ms,
        chunks_each_max=chunks_each_max,
    )


@asynccontextmanager
async def keeping_house() -> AsyncIterator[tuple[Parts, Watched]]:
    store = Watched()
    async with running_parts(store=store) as parts:
        assert await parts.maintenance_leader.claim()
        await parts.ledger.propose(create())
        yield parts, store


async def pass_time(parts: Parts) -> None:
    """So long that the bucket is looked at; the session is kept meanwhile."""
    parts.clock.seconds += TAIL_CHECK_SECONDS
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(parts.ledger.writer.keep_session())
        await until(lambda: parts.ledger.is_confirmed)
        keeping.cancel()


async def found(store: Watched) -> TailManifest:
    return decode_manifest(await store.memory.get(TAIL_KEY))


async def produce(parts: Parts, number: int) -> None:
    made = replace(commit(number, Chunk(batches=[Batch()])), object_session=parts.ledger.session)
    await parts.ledger.propose(replace(made, object_number=ObjectNumber(number)))


async def test_what_is_new_is_written_and_nothing_else() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        assert await writing.write_if_changed()
        first = await found(store)
        assert (first.cluster_id, first.position) == (parts.ledger.state.cluster_id, parts.ledger.state.position)
        assert [topic.topic_id for topic in first.topics] == [TOPIC]
        await produce(parts, 0)
        assert await writing.write_if_changed()
        second = await found(store)
        assert second.is_newer_than(first)
        partition = second.topics[0].partitions[0]
        assert (partition.readable_end, len(partition.chunks)) == (1, 1)
        await parts.ledger.propose(ReportTime())
        assert not await writing.write_if_changed()
        assert not await writing.write_if_changed()
        assert await found(store) == second
        assert store.asked == ["put", "put"]


async def test_partitions_with_more_chunks_than_it_names_are_counted_by_who_keeps_house() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts, chunks_each_max=2)

        def cut() -> float | None:
            return parts.metrics.registry.get_sample_value("penstock_tail_manifest_truncated_partitions")

        for number, expected in enumerate((0, 0, 1)):
            await produce(parts, number)
            await writing.write_if_changed()
            assert cut() == expected
        partition = (await found(store)).topics[0].partitions[0]
        assert (partition.readable_end, partition.last_stable) == (2, 3)
        await parts.ledger.propose(delete_before(3))
        await writing.write_if_changed()
        assert cut() == 0, "nothing waits any more"
        for number in range(3, 6):
            await produce(parts, number)
        await writing.write_if_changed()
        assert cut() == 1
        await parts.ledger.propose(StartDrain(session=parts.ledger.session))
        await writing.write_if_changed()
        assert cut() == 0, "another agent's business"


async def test_only_who_keeps_house_writes_and_who_takes_over_writes_at_once() -> None:
    core, store = MemoryLedgerCore(), Watched()
    async with (
        running_parts(MemoryLedger(core), store=store) as one,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as other,
    ):
        writings = [manifests(one), manifests(other)]
        assert [await writing.write_if_changed() for writing in writings] == [False, False]
        assert await one.maintenance_leader.claim()
        await other.ledger.barrier()
        assert [await writing.write_if_changed() for writing in writings] == [True, False]
        await one.ledger.propose(StartDrain(session=one.ledger.session))
        await other.ledger.barrier()
        assert await other.maintenance_leader.claim()
        await one.ledger.barrier()
        assert [await writing.write_if_changed() for writing in writings] == [False, True]
        assert store.asked == ["put", "put"]


async def test_s9_who_may_have_lost_its_session_writes_nothing() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        parts.clock.seconds += LEDGER_SESSION_SECONDS
        assert not await writing.write_if_changed()
        await pass_time(parts)
        assert await writing.write_if_changed()
        await store.memory.delete([TAIL_KEY])
        parts.clock.seconds += TAIL_CHECK_SECONDS
        assert not await writing.write_if_changed()
        assert store.asked == ["put", "get"]


async def test_a_put_that_failed_is_made_again_though_nothing_changed() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
        with pytest.raises(StoreUnavailable):
            await writing.write_if_changed()
        with pytest.raises(ObjectMissing):
            await found(store)
        assert await writing.write_if_changed()
        assert (await found(store)).position == parts.ledger.state.position


async def test_an_older_manifest_that_lands_late_is_replaced_and_then_nothing_is_asked() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        store.script(InjectedFault(kind=FaultKind.LATE, operation=StoreOperation.PUT))
        with pytest.raises(StoreUnavailable):
            await writing.write_if_changed()
        await produce(parts, 0)
        assert await writing.write_if_changed()
        newest = await found(store)
        await store.land_late_puts()
        assert newest.is_newer_than(await found(store))
        assert not await writing.write_if_changed()
        await pass_time(parts)
        assert await writing.write_if_changed()
        assert await found(store) == newest
        for _ in range(5):
            await pass_time(parts)
            assert not await writing.write_if_changed()
        assert store.asked == ["put", "put", "get", "put", "get"]


@pytest.mark.parametrize("content", [None, b"junk"])
async def test_a_manifest_that_is_gone_or_damaged_is_written_again(content: bytes | None) -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        assert await writing.write_if_changed()
        written = await found(store)
        await (store.memory.delete([TAIL_KEY]) if content is None else store.memory.put(TAIL_KEY, [content]))
        await pass_time(parts)
        assert await writing.write_if_changed()
        assert await found(store) == written


async def test_a_newer_manifest_of_another_agent_is_left_alone() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        assert await writing.write_if_changed()
        newer = replace(await found(store), position=Position(1 << 40))
        await store.memory.put(TAIL_KEY, [encode_manifest(newer)])
        await pass_time(parts)
        assert not await writing.write_if_changed()
        assert await found(store) == newer


async def test_where_manifests_take_long_they_are_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async with keeping_house() as (parts, _):
        writing = manifests(parts)
        assert writing.pause_s == INTERVAL_MS / 1000

        def slow_topic(*_: object, **__: object) -> None:
            parts.clock.seconds += 0.5

        with monkeypatch.context() as patched:
            patched.setattr("agent.maintenance.tail_manifest.TailTopics.topic", slow_topic)
            assert await writing.write_if_changed()
            assert writing.pause_s == INTERVAL_MS / 1000
            await produce(parts, 0)
            assert not await writing.write_if_changed()
            assert writing.pause_s == 0.5 / TAIL_BUSY_SHARE_MAX
        await produce(parts, 1)
        assert await writing.write_if_changed()
        assert writing.pause_s == INTERVAL_MS / 1000


async def test_waiting_for_a_turn_is_no_work_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.maintenance.tail_manifest.ROWS_PER_TURN", 1)
    async with keeping_house() as (parts, _):
        writing = manifests(parts)

        async def others_take_long(_: float) -> None:
            parts.clock.seconds += 0.2

        with monkeypatch.context() as patched:
            patched.setattr(parts.clock, "sleep", others_take_long)
            assert await writing.write_if_changed()
        assert writing.pause_s == INTERVAL_MS / 1000


async def test_others_have_their_turn_between_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.maintenance.tail_manifest.ROWS_PER_TURN", 1)
    async with keeping_house() as (parts, store):
        parts.clock.slept.clear()
        assert await manifests(parts).write_if_changed()
        assert parts.clock.slept == [0, 0]
        assert len((await found(store)).topics) == 1


async def test_it_runs_in_the_interval_whatever_the_store_does_or_not_at_all() -> None:
    async with keeping_house() as (parts, store), asyncio.TaskGroup() as tasks:
        assert not manifests(parts, interval_ms=0).jobs
        (job,) = manifests(parts, interval_ms=250).jobs
        run = tasks.create_task(parts.repeat(job))
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
        await until(lambda: len(store.asked) == 2)
        run.cancel()
        assert parts.clock.slept[-1] == 0.25


def age(parts: Parts) -> float | None:
    return parts.metrics.registry.get_sample_value("penstock_tail_manifest_age_seconds")


async def test_who_leaves_tells_what_it_committed_last_and_waits_for_no_outage() -> None:
    async with keeping_house() as (parts, store):
        writing = manifests(parts)
        assert await writing.write_if_changed()
        await produce(parts, 0)
        await writing.leave()
        assert (await found(store)).topics[0].partitions[0].readable_end == 1
        await produce(parts, 1)
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
        await writing.leave()
        await manifests(parts, interval_ms=0).leave()
        assert (await found(store)).topics[0].partitions[0].readable_end == 1


async def test_how_old_it_is_can_be_seen() -> None:
    async with keeping_house() as (parts, _):
        writing = manifests(parts)
        assert age(parts) == 0
        await writing.write_if_changed()
        parts.clock.seconds += 7
        assert age(parts) == 7
        await writing.write_if_changed()
        assert age(parts) == 0
