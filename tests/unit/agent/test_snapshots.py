"""Snapshots: the object, then the pointer, then the trim; a crash in between loses nothing."""

import pytest

from agent.snapshots import Snapshots
from coordinator.commands import ReportTime
from coordinator.follower import Follower
from coordinator.log import SnapshotPointer
from coordinator.memory_log import MemoryLedger
from coordinator.snapshot import digest
from coordinator.state import ClusterState
from storage.failing import FailingStore, Fault, FaultKind, Operation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore, StoreUnavailable
from storage.refs import SNAPSHOT_PREFIX, snapshot_key
from tests.made_commands import create
from tests.unit.agent.ledger_parts import Parts, running_parts


def snapshots(parts: Parts, store: ObjectStore, *, pointer: SnapshotPointer | None = None) -> Snapshots:
    return Snapshots(
        ledger=parts.ledger,
        store=store,
        metadata=parts.metadata,
        clock=parts.clock,
        metrics=parts.metrics,
        pointer=pointer,
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


async def test_a_snapshot_replaces_the_entries_before_it() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        await parts.writer.submit(create())
        pointer = await snapshots(parts, store).take()
        assert pointer.object_key == snapshot_key(parts.metadata.state.position)
        start = await ledger.load()
        assert (start.pointer, list(start.records)) == (pointer, [])
        await parts.writer.submit(create("later", topic_id=bytes(16)))  # type: ignore[arg-type]
        assert digest(await reloaded(ledger, store)) == digest(parts.metadata.state)


async def test_the_next_snapshot_removes_the_one_before() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        taking = snapshots(parts, store)
        await taking.take()
        await parts.writer.submit(ReportTime())
        second = await taking.take()
        assert await keys(store) == [second.object_key]
        assert (await taking.take()).object_key == second.object_key
        assert await keys(store) == [second.object_key]


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
async def test_a_put_that_fails_leaves_ledger_and_pointer_as_they_were(kind: FaultKind) -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    async with running_parts(ledger) as parts:
        taking = snapshots(parts, store)
        store.script(Fault(kind=kind, operation=Operation.PUT))
        with pytest.raises(StoreUnavailable):
            await taking.take()
        assert (await ledger.load()).pointer is None
        assert digest(await reloaded(ledger, store)) == digest(parts.metadata.state)
        pointer = await taking.take()
        assert (await ledger.load()).pointer == pointer


async def test_a_pointer_that_another_agent_moved_is_left_alone() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        slow = snapshots(parts, store)
        other = await snapshots(parts, store).take()
        await parts.writer.submit(ReportTime())
        await slow.take()
        assert (await ledger.load()).pointer == other
        await slow.take()
        assert (await ledger.load()).pointer != other
