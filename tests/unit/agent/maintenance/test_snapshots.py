"""Snapshots: the object, then the pointer, then the trim; a crash in between loses nothing."""

import asyncio

import pytest

from agent.maintenance.snapshots import Snapshots
from coordinator.commands.admin import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigOperation,
    ConfigResourceType,
    CreatePartitions,
    OperationKind,
)
from coordinator.commands.commands import Command, Done, ReportTime, StartDrain
from coordinator.follower import Follower
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerSize, SnapshotPointer
from coordinator.snapshot import digest, encode_with_digest
from coordinator.state.state import ClusterState
from protocol.limits import LEDGER_KEPT_DIVISOR, LEDGER_PRESSURE_HIGH, SNAPSHOT_EARLY_INTERVAL_S
from protocol.types import Milliseconds, Position, TopicId
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore, StoreUnavailable
from storage.refs import SNAPSHOT_PREFIX, snapshot_key
from tests.support.agent.ledger_parts import BEGAN_MS, Parts, running_parts
from tests.support.commands.commands import TOPIC, create, start


def snapshots(parts: Parts, store: ObjectStore) -> Snapshots:
    return Snapshots(
        parts.context(store=store),
        maintenance_leader=parts.maintenance_leader,
        digests=parts.digests,
        entries_interval=10,
        bytes_interval=1 << 20,
    )


async def keys(store: ObjectStore) -> list[str]:
    return [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]


async def reloaded(ledger: MemoryLedger, store: ObjectStore) -> ClusterState:
    start = await ledger.load()
    follower = Follower(await ledger.identity())
    follower.load(start, None if start.pointer is None else await store.get(start.pointer.object_key))
    return follower.state


async def pointer_of(ledger: MemoryLedger) -> SnapshotPointer:
    pointer = (await ledger.load()).pointer
    assert pointer is not None
    return pointer


async def test_a_snapshot_replaces_the_entries_before_it() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        assert await snapshots(parts, store).take()
        assert (await pointer_of(ledger)).object_key == snapshot_key(parts.ledger.state.position)
        assert list((await ledger.load()).records) == []
        await parts.ledger.propose(create("later", topic_id=bytes(16)))  # type: ignore[arg-type]
        assert digest(await reloaded(ledger, store)) == digest(parts.ledger.state)


async def test_the_one_before_the_newest_is_kept() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        taking = snapshots(parts, store)
        taken: list[str] = []
        for _ in range(4):
            assert await taking.take()
            taken.append((await pointer_of(ledger)).object_key)
            assert await keys(store) == taken[-2:]
            await parts.ledger.propose(ReportTime())


async def test_where_nothing_happened_the_newest_is_good_enough() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        taking = snapshots(parts, store)
        assert await taking.take()
        pointer = await pointer_of(ledger)
        assert await taking.take()
        assert await pointer_of(ledger) == pointer
        assert await keys(store) == [pointer.object_key]


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
async def test_a_put_that_fails_leaves_ledger_and_pointer_as_they_were(kind: FaultKind) -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    async with running_parts(ledger, store=store) as parts:
        taking = snapshots(parts, store)
        store.script(InjectedFault(kind=kind, operation=StoreOperation.PUT))
        with pytest.raises(StoreUnavailable):
            await taking.take()
        assert (await ledger.load()).pointer is None
        assert taking.covered_ms == 0
        assert digest(await reloaded(ledger, store)) == digest(parts.ledger.state)
        assert await taking.take()
        await pointer_of(ledger)


async def test_a_pointer_that_another_agent_moved_is_left_alone() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        slow = snapshots(parts, store)
        assert await slow.take()
        await parts.ledger.propose(ReportTime())
        assert await snapshots(parts, store).take()
        other = await pointer_of(ledger)
        await parts.ledger.propose(ReportTime())
        assert not await slow.take()
        assert await pointer_of(ledger) == other
        await parts.ledger.propose(ReportTime())
        assert await slow.take()
        assert await pointer_of(ledger) != other


async def test_an_agent_behind_the_pointer_does_not_move_it_back() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    ledger = MemoryLedger(core)
    async with (
        running_parts(ledger, store=store) as parts,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as others,
    ):
        await parts.ledger.barrier()
        await others.ledger.barrier()
        assert await snapshots(others, store).take()
        pointer = await pointer_of(ledger)
        parts.ledger.state.position = Position(pointer.position - 1)
        assert not await snapshots(parts, store).take()
        assert await pointer_of(ledger) == pointer


async def test_what_a_crash_left_before_the_pointer_moved_goes_with_the_next_snapshot() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        await store.put(snapshot_key(parts.ledger.state.position), [b"nobody refers to this"])
        await parts.ledger.propose(ReportTime())
        assert await snapshots(parts, store).take()
        assert await keys(store) == [(await pointer_of(ledger)).object_key]


async def test_an_old_one_that_cannot_be_deleted_is_reported_once_and_holds_up_no_newer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    async with running_parts(ledger, store=store) as parts:
        taking = snapshots(parts, store)
        store.undeletable.add(snapshot_key(parts.ledger.state.position))
        for _ in range(5):
            assert await taking.take()
            await parts.ledger.propose(ReportTime())
        assert len(await keys(store)) == 3, "the protected one, the one before the newest, and the newest"
        assert len([record for record in caplog.records if "did not delete" in record.message]) == 1
        store.undeletable.clear()
        assert await taking.take()
        assert len(await keys(store)) == 2


async def test_a_newer_one_stays_because_another_agent_may_be_about_to_point_at_it() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        newer = snapshot_key(Position(parts.ledger.state.position + 1))
        await store.put(newer, [b"on its way"])
        assert await snapshots(parts, store).take()
        assert await keys(store) == [(await pointer_of(ledger)).object_key, newer]


async def test_entries_of_earlier_lives_count_too() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    for _ in range(5):
        async with running_parts(ledger, store=store) as parts:
            await parts.ledger.propose(ReportTime())
            ledger.core.expire(parts.ledger.session)
    async with running_parts(ledger, store=store) as parts:
        assert await parts.maintenance_leader.claim()
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(parts.repeat(snapshots(parts, store).job))
            while not await keys(store):
                await parts.clock.sleep(0)
            run.cancel()


async def test_only_the_maintenance_leader_takes_them_and_its_successor_goes_on_where_it_stopped() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with (
        running_parts(MemoryLedger(core), store=store) as parts,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as others,
    ):
        assert await others.maintenance_leader.claim()
        idle, busy = snapshots(parts, store), snapshots(others, store)
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(parts.repeat(idle.job)), tasks.create_task(others.repeat(busy.job))]
            for _ in range(10):
                await others.ledger.propose(ReportTime())
            while not busy.covered_ms:
                await others.clock.sleep(0)
            await parts.ledger.barrier()
            assert idle.covered_ms == 0
            count = parts.metrics.snapshots._value.get() + others.metrics.snapshots._value.get()
            assert count == others.metrics.snapshots._value.get() == 1
            await others.ledger.propose(StartDrain(session=others.ledger.session))
            await parts.ledger.barrier()
            assert await parts.maintenance_leader.claim()
            while not parts.metrics.snapshots._value.get():
                await parts.ledger.propose(ReportTime())
            for loop in loops:
                loop.cancel()
        assert others.metrics.snapshots._value.get() == 1


async def test_what_is_covered_is_known_by_the_state_s_time() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        assert await parts.maintenance_leader.claim()
        taking = snapshots(parts, store)
        parts.clock.seconds = 5
        await parts.ledger.propose(ReportTime())
        assert await taking.cover(interval_s=60)
        assert taking.covered_ms == parts.ledger.state.time_ms == Milliseconds(BEGAN_MS + 5_000)
        parts.clock.seconds = 64
        await parts.ledger.propose(ReportTime())
        assert not await taking.cover(interval_s=60)
        assert taking.covered_ms == Milliseconds(BEGAN_MS + 5_000)
        parts.clock.seconds = 65
        assert await taking.cover(interval_s=60)
        assert taking.covered_ms == Milliseconds(BEGAN_MS + 64_000)


async def turn() -> None:
    """Let others have theirs."""
    await asyncio.sleep(0)


class TestEarlySnapshots:
    @staticmethod
    async def one(parts: Parts, taking: Snapshots, seconds: float) -> int:
        """How many snapshots there were after the clock was moved and the loop has looked."""
        parts.clock.seconds += seconds
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(parts.repeat(taking.job))
            slept = len(parts.clock.slept)
            while len(parts.clock.slept) < slept + 2:
                await turn()
            run.cancel()
        return int(parts.metrics.snapshots._value.get())

    async def test_s9_a_new_topic_is_covered_soon_and_not_often(self) -> None:
        store = MemoryStore()
        async with running_parts(store=store) as parts:
            assert await parts.maintenance_leader.claim()
            taking = snapshots(parts, store)
            assert await self.one(parts, taking, 0) == 0
            await parts.ledger.propose(create())
            assert await self.one(parts, taking, 0) == 1
            await parts.ledger.propose(create("other", topic_id=TopicId(bytes([9] * 16))))
            assert await self.one(parts, taking, 1) == 1
            assert await self.one(parts, taking, SNAPSHOT_EARLY_INTERVAL_S) == 2
            assert await self.one(parts, taking, SNAPSHOT_EARLY_INTERVAL_S) == 2

    @pytest.mark.parametrize(
        "command",
        [
            CreatePartitions(topic_id=TOPIC, partition_count=2),
            AlterConfigs(
                resource_type=ConfigResourceType.TOPIC,
                resource_name="t",
                is_whole=False,
                operations=(ConfigOperation(kind=OperationKind.SET, name="retention.ms", value="5"),),
            ),
            AlterClientQuotas(entity=(("user", None),), quotas=(("producer_byte_rate", 1.0),)),
        ],
    )
    async def test_s9_so_is_what_else_no_object_of_the_intake_tells(self, command: Command) -> None:
        store = MemoryStore()
        async with running_parts(store=store) as parts:
            assert await parts.maintenance_leader.claim()
            await parts.ledger.propose(create())
            taking = snapshots(parts, store)
            assert await self.one(parts, taking, 0) == 1
            assert await parts.ledger.propose(command) == Done()
            assert await self.one(parts, taking, SNAPSHOT_EARLY_INTERVAL_S) == 2
            await parts.ledger.propose(ReportTime())
            assert await self.one(parts, taking, SNAPSHOT_EARLY_INTERVAL_S) == 2

    async def test_a_successor_knows_whether_a_topic_is_newer_than_the_last_snapshot(self) -> None:
        store = MemoryStore()
        async with running_parts(store=store) as parts:
            assert await parts.maintenance_leader.claim()
            await parts.ledger.propose(create())
            assert await snapshots(parts, store).take()
            await parts.ledger.propose(ReportTime())
            assert await self.one(parts, snapshots(parts, store), 0) == 1
            await parts.ledger.propose(create("other", topic_id=TopicId(bytes([9] * 16))))
            assert await self.one(parts, snapshots(parts, store), 0) == 2

    async def test_s10_a_ledger_that_runs_out_of_room_is_trimmed_early(self) -> None:
        class Full(MemoryLedger):
            async def size(self) -> LedgerSize:
                return LedgerSize(used_bytes=9, quota_bytes=10)

        store = MemoryStore()
        async with running_parts(Full(), store=store) as parts:
            assert await parts.maintenance_leader.claim()
            taking = snapshots(parts, store)
            assert await self.one(parts, taking, 0) == 1
            assert await self.one(parts, taking, SNAPSHOT_EARLY_INTERVAL_S) == 1
            await parts.ledger.propose(ReportTime())
            assert await self.one(parts, taking, 0) == 2


async def test_a_snapshot_that_another_version_wrote_in_other_bytes_is_not_replaced() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        key = snapshot_key(parts.ledger.state.position)
        await store.put(key, [b"by another version"])
        taking = snapshots(parts, store)
        assert not await taking.take()
        assert await store.get(key) == b"by another version"
        assert (await ledger.load()).pointer is None
        await parts.ledger.propose(ReportTime())
        assert await taking.take()


async def test_a_snapshot_that_is_there_already_is_pointed_to() -> None:
    """Its put was repeated, or whoever wrote it did not live to move the pointer."""
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        state = parts.ledger.state
        await store.put(snapshot_key(state.position), [encode_with_digest(state)[0]])
        assert await snapshots(parts, store).take()
        assert (await pointer_of(ledger)).position == state.position


async def test_nobody_but_the_maintenance_leader_covers_the_present() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        assert not await snapshots(parts, store).cover(interval_s=0)
        assert await parts.maintenance_leader.claim()
        assert await snapshots(parts, store).cover(interval_s=0)


class FullLedger(MemoryLedger):
    """It has little room left."""

    async def size(self) -> LedgerSize:
        return LedgerSize(used_bytes=round(LEDGER_PRESSURE_HIGH * 1_000), quota_bytes=1_000)


@pytest.mark.parametrize(("kind", "kept_count"), [(MemoryLedger, 2), (FullLedger, 0)], ids=["room", "no room"])
async def test_s10_the_newest_entries_stay_for_people_to_look_at_unless_room_is_short(
    kind: type[MemoryLedger], kept_count: int
) -> None:
    ledger, store = kind(), MemoryStore()
    async with running_parts(ledger, store=store) as parts:
        taking = Snapshots(
            parts.context(store=store),
            maintenance_leader=parts.maintenance_leader,
            digests=parts.digests,
            entries_interval=2 * LEDGER_KEPT_DIVISOR,
            bytes_interval=1 << 20,
        )
        for _ in range(3):
            for _ in range(5):
                await parts.ledger.propose(ReportTime())
            assert await taking.take()
            entries = await ledger.untrimmed_entries()
            assert [record.position for record in entries] == [
                parts.ledger.state.position - behind for behind in reversed(range(kept_count))
            ]
            assert list((await ledger.load()).records) == []
            assert digest(await reloaded(ledger, store)) == digest(parts.ledger.state)
