"""Garbage of several agents: all of it goes, and nothing that is referred to, in flight, or wanted by a recovery.

Rule: the store itself judges each deletion, by a state of its own that it reads from the ledger, not by any agent's. A
seed makes a run; what it does in which order is drawn from it alone (safety rules S1, S6 and S9).
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest

from agent.bucket.bucket_watch import BucketWatch
from agent.bucket.cluster_identity import check_bucket
from agent.cache.chunk_cache import ChunkCache
from agent.lake.archiver import Archiver
from agent.maintenance.garbage_collector import GarbageCollector
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.session_reaper import SessionReaper
from agent.maintenance.snapshots import Snapshots
from agent.recovery.audit import Audit
from agent.runtime.ids import SystemIds
from coordinator.commands.commands import ChunkColumns, CreateTopic, DeleteTopic, ReportTime
from coordinator.follower import Follower
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import OutcomeUnknown
from coordinator.snapshot import decode_snapshot
from coordinator.state.state import ClusterState
from iceberg_export.archive.plan import ArchivePolicy
from protocol.types import ObjectNumber, PartitionIndex, Position, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX, SNAPSHOT_PREFIX, intake_key, session_of_key, topic_of_copy
from tests.support.agent.ledger_parts import DAY_MS, Parts, lake_of, running_parts
from tests.support.commands.commands import Batch, Chunk, commit, start
from tests.support.records.plain_records import Record, make_batch

GRACE_MS = 60_000
STEPS = 100
SECONDS_MAX = 60.0


class WitnessedCore(MemoryLedgerCore):
    """Knows its own state, whatever is trimmed."""

    def __init__(self) -> None:
        super().__init__()
        self._witness = Follower(self.identity)
        self.referred: set[str] = set()
        """Every object that was ever referred to."""

    @property
    def state(self) -> ClusterState:
        """At the head."""
        while records := self.read_after(self._witness.state.position):
            self._witness.receive(records)
            self.referred |= self._witness.state.object_ids.keys()
        return self._witness.state

    def trim(self, position: Position) -> None:
        assert self.state.position >= position
        super().trim(position)


class JudgingStore(MemoryStore):
    """Refuses to delete what must stay."""

    def __init__(self, core: WitnessedCore) -> None:
        super().__init__()
        self._core = core
        self.deleted_count = 0
        self.discarded: set[str] = set()

    async def delete(self, keys: Sequence[str]) -> None:
        state = self._core.state
        for key in keys:
            session = session_of_key(key)
            if (topic_id := topic_of_copy(key)) is not None:
                assert topic_id not in state.topics, f"{key} belongs to a topic"
                continue
            if session is None:
                assert key.startswith("ledger/"), key
                continue
            if key not in self._objects:
                continue  # another agent was first
            self.deleted_count += 1
            assert key not in state.object_ids, f"{key} is referred to"
            if key not in state.released and session in self._core._newest:
                self.discarded.add(key)  # by its own session, which knows that no entry brings it in
                continue
            assert key in state.released or session in state.sessions_ended, f"{key} is of no ended session"
            if self._core.pointer is not None:
                known = decode_snapshot(await self.get(self._core.pointer.object_key))
                assert key not in known.object_ids, f"{key} is referred to by the newest snapshot"
        await super().delete(keys)


@dataclass(slots=True)
class CleaningAgent:
    stack: AsyncExitStack
    parts: Parts
    archiver: Archiver
    garbage_collector: GarbageCollector
    snapshots: Snapshots
    reaper: SessionReaper
    number: int = 0


class SelfAppointed(MaintenanceLeader):
    """Always takes the role for its own."""

    @property
    def is_leader(self) -> bool:
        return True


class World:
    """A ledger, a bucket, and agents that come and go."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.core = WitnessedCore()
        self.store = JudgingStore(self.core)
        self.agents: list[CleaningAgent] = []
        self.names = 0
        self.seconds = 0.0

    async def join(self) -> None:
        """An agent comes."""
        self.names += 1
        stack = AsyncExitStack()
        parts = await stack.enter_async_context(
            running_parts(MemoryLedger(self.core), start(f"agent{self.names}", node=self.names), store=self.store)
        )
        parts.clock.seconds = self.seconds
        maintenance_leader = SelfAppointed(ledger=parts.ledger, clock=parts.clock, ids=SystemIds())
        snapshots = Snapshots(
            parts.context(store=self.store),
            maintenance_leader=maintenance_leader,
            digests=parts.digests,
            entries_interval=20,
            bytes_interval=1 << 20,
        )
        archiver = Archiver(
            parts.context(), lake=lake_of(parts, self.store), cache=ChunkCache(bytes_max=0), policy=ArchivePolicy()
        )
        garbage_collector = GarbageCollector(
            parts.context(
                store=self.store,
                is_bucket_ours=BucketWatch(
                    store=self.store,
                    ledger=parts.backend,
                    identity=self.core.identity,
                    position=lambda: parts.ledger.state.position,
                    clock=parts.clock,
                ).is_ours,
            ),
            maintenance_leader=maintenance_leader,
            snapshots=snapshots,
            grace_ms=GRACE_MS,
        )
        reaper = SessionReaper(ledger=parts.ledger, clock=parts.clock)
        self.agents.append(CleaningAgent(stack, parts, archiver, garbage_collector, snapshots, reaper))

    async def kill(self) -> None:
        """An agent is gone; its lease runs out at some time."""
        if len(self.agents) > 1:
            gone = self.agents.pop(self.random.randrange(len(self.agents)))
            await gone.stack.aclose()
            self.core.expire(gone.parts.ledger.session)

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        for agent in self.agents:
            agent.parts.clock.seconds = self.seconds

    # What agents do.

    async def create(self, agent: CleaningAgent) -> None:
        name = self.random.choice(["one", "two", "three"])
        topic_id = TopicId(self.random.randbytes(16))
        await agent.parts.ledger.propose(CreateTopic(name=name, topic_id=topic_id, partition_count=1, configs=()))

    async def delete(self, agent: CleaningAgent) -> None:
        topics = sorted(self.core.state.topics)
        if topics:
            await agent.parts.ledger.propose(DeleteTopic(topic_id=self.random.choice(topics)))

    async def produce(self, agent: CleaningAgent, *, is_committed: bool = True) -> None:
        topics = sorted(agent.parts.ledger.state.topics)
        if not topics:
            return
        topic_id, session = self.random.choice(topics), agent.parts.ledger.session
        number, agent.number = agent.number, agent.number + 1
        batch = make_batch([Record(offset=0, timestamp=1_000, key=b"k", value=b"v")])
        encoded = encode_object(
            session,
            ObjectNumber(number),
            [ChunkParts(topic_id=topic_id, partition=PartitionIndex(0), parts=[batch])],
        )
        await self.store.put(intake_key(session, ObjectNumber(number)), encoded.parts)
        if is_committed:
            rows = [Batch(size=len(batch), timestamp=1_000)]
            command = commit(number, Chunk(batches=rows, topic_id=topic_id), session=session)
            chunks = ChunkColumns(topic=[0], partition=[0], byte_first=encoded.byte_firsts, batch_count=[1])
            await agent.parts.ledger.propose(replace(command, chunks=chunks, object_bytes=encoded.object_bytes))

    async def leave_an_orphan(self, agent: CleaningAgent) -> None:
        await self.produce(agent, is_committed=False)

    async def archive(self, agent: CleaningAgent) -> None:
        topics = sorted(agent.parts.ledger.state.topics)
        if topics:
            await agent.archiver.archive_topic(self.random.choice(topics))

    async def keep_house(self, agent: CleaningAgent) -> None:
        """Every agent acts as if the role were its own: it spares work, and nothing rests on it."""
        await agent.parts.maintenance_leader.claim()
        await agent.reaper.reap()
        await agent.snapshots.take()
        await agent.parts.ledger.propose(ReportTime())
        await agent.garbage_collector.collect()

    async def step(self) -> None:
        """Up to three agents do something at once."""
        acts = [self.create, self.delete, self.produce, self.produce, self.produce]
        acts += [self.leave_an_orphan, self.archive, self.keep_house, self.keep_house]
        busy = self.random.sample(self.agents, self.random.randint(1, min(3, len(self.agents))))
        async with asyncio.TaskGroup() as tasks:
            for agent in busy:
                tasks.create_task(self._tried(self.random.choice(acts)(agent)))

    async def _tried(self, act: Awaitable[None]) -> None:
        with contextlib.suppress(OutcomeUnknown):
            await act


async def keys_of_data(store: MemoryStore) -> set[str]:
    return {meta.key for prefix in (INTAKE_PREFIX, LAKE_PREFIX) async for meta in store.list(prefix)}


@pytest.mark.parametrize("seed", range(10))
async def test_s6_all_garbage_goes_and_nothing_else_ever_does(seed: int) -> None:
    world = World(seed)
    await check_bucket(world.store, world.core.identity)
    async with asyncio.timeout(SECONDS_MAX):
        for _ in range(3):
            await world.join()
        for _ in range(STEPS):
            match world.random.randrange(20):
                case 0:
                    await world.kill()
                case 1:
                    await world.join()
                case 2 | 3:
                    world.pass_time(world.random.choice([1, GRACE_MS / 2000, GRACE_MS / 1000 + 1]))
                case _:
                    await world.step()
        last = world.agents[0]
        while len(world.agents) > 1:
            gone = world.agents.pop()
            await gone.stack.aclose()
            world.core.expire(gone.parts.ledger.session)
        for _ in range(4):
            await world.keep_house(last)
            world.pass_time(DAY_MS / 1000)
        await last.parts.ledger.barrier()
        assert not world.store.discarded & world.core.referred
        session = last.parts.ledger.session
        in_flight = {key for key in await keys_of_data(world.store) if session_of_key(key) == session}
        assert await keys_of_data(world.store) - in_flight == set(world.core.state.object_ids) - in_flight
        assert not world.core.state.released
        assert world.store.deleted_count > 0
        report = await Audit(last.parts.backend, world.store, grace_ms=GRACE_MS).run(is_repairing=False)
        assert report.disagreements == []
        assert len([meta async for meta in world.store.list(SNAPSHOT_PREFIX)]) <= 2
        await last.stack.aclose()


def test_session_ids_are_positions() -> None:
    """What the judge above relies on: the ledger's own sessions are those in the keys."""
    core = MemoryLedgerCore()
    assert session_of_key(intake_key(core.open_session("a"), ObjectNumber(0))) == SessionId(1)
