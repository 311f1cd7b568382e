"""An agent that is killed at any step of its work on the lake loses nothing, doubles nothing, leaves nothing behind.

Rule: the steps are no list that somebody keeps, but what the work does: every request to the store and every append,
found by doing the work once. Then the agent dies before each of them, and after each. Another agent goes on, and what
consumers and readers of the table get is compared with what was committed, and the bucket with what the ledger names.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.lake.hadoop_metadata import HadoopMetadata
from coordinator.invariants import check
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerEntry
from protocol.types import Position, SessionId
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, ObjectMeta
from storage.refs import SNAPSHOT_PREFIX, metadata_copy_key, version_hint_key
from tests.support.agent.garbage_collection import garbage_collector
from tests.support.agent.ledger_parts import DAY_MS, Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.compaction import FILES, file_compactor, objects, served, small_files
from tests.support.lake.table_files import GRACE_MS, expire_snapshots, live_files


class Died(BaseException):
    """The agent was killed."""


@dataclass(slots=True)
class Fate:
    """Counts an agent's steps, and ends it at one of them."""

    dies_before: int | None = None
    dies_after: int | None = None
    steps: list[str] = field(default_factory=list[str])
    is_dead: bool = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One request; whoever is dead makes none, and whoever dies after one does not hear its answer."""
        number = len(self.steps)
        self._end(is_now=number == self.dies_before)
        self.steps.append(name)
        try:
            yield
        finally:
            self._end(is_now=number == self.dies_after)

    def _end(self, *, is_now: bool) -> None:
        self.is_dead |= is_now
        if self.is_dead:
            raise Died


class MortalStore(MemoryStore):
    """A store as an agent with that fate sees it."""

    def __init__(self, store: MemoryStore, fate: Fate) -> None:
        super().__init__()
        self._objects = store._objects
        self._fate = fate

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        with self._fate.step(f"put {key}"):
            await super().put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        with self._fate.step(f"get {key}"):
            return await super().get(key)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        with self._fate.step(f"get {key} from {byte_first}"):
            return await super().get_range(key, byte_first, byte_count)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        with self._fate.step(f"list {prefix}"):
            found = [meta async for meta in super().list(prefix, after=after)]
        for meta in found:
            yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        with self._fate.step(f"delete {', '.join(keys)}"):
            await super().delete(keys)


class MortalLedger(MemoryLedger):
    def __init__(self, core: MemoryLedgerCore, fate: Fate) -> None:
        super().__init__(core)
        self._fate = fate

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        with self._fate.step(f"append {[entry.number for entry in entries]}"):
            return await super().append(session, entries)


def copies(parts: Parts, store: MemoryStore) -> HadoopMetadata:
    return HadoopMetadata(parts.context(store=store))


async def first_files(core: MemoryLedgerCore, store: MemoryStore) -> None:
    """A topic whose table has one file less than is worth a merge, by an agent that ended."""
    async with running_parts(MemoryLedger(core), store=store) as parts:
        await parts.ledger.propose(create())
        await small_files(parts, store, lake_of(parts, store), count=FILES - 1)
        core.expire(parts.ledger.session)


async def work(parts: Parts, store: MemoryStore) -> None:
    """All that an agent does for the lake: a produce, a pass, a merge, copies, upkeep, and the garbage collector's
    part."""
    parts.clock.seconds += DAY_MS / 1000
    lake = lake_of(parts, store)
    await produce(parts, store, 10_000)
    await archiver(parts, store, lake).archive_topic(TOPIC)
    await file_compactor(parts, store, lake).compact(TOPIC)
    await copies(parts, store).copy(TOPIC)
    parts.clock.seconds += 2 * GRACE_MS / 1000
    await expire_snapshots(parts, lake).update_table(TOPIC)
    await copies(parts, store).copy(TOPIC)
    parts.clock.seconds += 2 * GRACE_MS / 1000
    assert await parts.maintenance_leader.claim()
    await garbage_collector(parts, store).collect()


async def lived(store: MemoryStore, core: MemoryLedgerCore, fate: Fate) -> None:
    """An agent's life with that fate."""
    ledger = MortalLedger(core, fate)
    try:
        async with running_parts(ledger, store=MortalStore(store, fate)) as parts:
            await work(parts, MortalStore(store, fate))
    except (Died, BaseExceptionGroup, asyncio.CancelledError):
        assert fate.is_dead
    for session in list(core._sessions.values()):
        core.expire(session)


async def steps() -> list[str]:
    """What an agent that is not killed does, one after the other."""
    store, core, fate = MemoryStore(), MemoryLedgerCore(), Fate()
    await first_files(core, store)
    await lived(store, core, fate)
    return fate.steps


async def test_the_work_has_every_kind_of_step() -> None:
    every = await steps()
    assert {step.split()[0] for step in every} == {"put", "get", "list", "delete", "append"}
    assert sum(step.startswith("append") for step in every) >= 6
    assert sum("/data/" in step and step.startswith("put") for step in every) == 2


@pytest.mark.parametrize("half", range(2))
async def test_a_death_at_any_step_loses_doubles_and_leaves_nothing(half: int) -> None:
    every = await steps()
    for number in range(half, len(every), 2):
        for fate in (Fate(dies_before=number), Fate(dies_after=number)):
            when = f"{'before' if fate.dies_after is None else 'after'} step {number}: {every[number]}"
            store, core = MemoryStore(), MemoryLedgerCore()
            await first_files(core, store)
            await lived(store, core, fate)
            assert fate.is_dead, when
            await check_what_is_left(store, core, when)


async def check_what_is_left(store: MemoryStore, core: MemoryLedgerCore, when: str) -> None:
    """After another agent's work and all graces."""
    async with running_parts(MemoryLedger(core), store=store) as parts:
        parts.clock.seconds += 10 * DAY_MS / 1000
        lake = lake_of(parts, store)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        while await file_compactor(parts, store, lake).compact(TOPIC) is not None:
            pass
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)  # one for all: after a step of the time it waits (S21)
        for _ in range(3):
            parts.clock.seconds += 2 * DAY_MS / 1000
            await expire_snapshots(parts, lake).update_table(TOPIC)
            await copies(parts, store).copy(TOPIC)
            await cleaning.collect()
        state = parts.ledger.state
        log_end = state.topics[TOPIC].partitions[0].log_end
        assert log_end in (3 * FILES - 3, 3 * FILES), when
        assert [record.offset for record in await served(parts, store)] == list(range(log_end)), when
        assert sorted(await offsets_in_table(parts, store)) == list(range(log_end)), when
        assert check(state) == [], when
        table = state.topics[TOPIC].table
        assert table is not None
        copied = {metadata_copy_key("t", TOPIC, version) for version in range(1, table.version + 1)}
        named = {known.key for known in state.objects.values()}
        found = {key for key in await objects(store) if not key.startswith(SNAPSHOT_PREFIX)}
        assert named <= found, when
        assert found - copied - {version_hint_key("t", TOPIC)} == named, when
        core.expire(parts.ledger.session)


async def offsets_in_table(parts: Parts, store: MemoryStore) -> list[int]:
    found: list[int] = []
    for live in await live_files(parts, store):
        column = pq.read_table(pa.BufferReader(await store.get(live.file.key)), columns=["offset"]).column("offset")
        found += column.to_pylist()
    return found
