"""The parts of an agent around its ledger, over a ledger in memory and a clock that a test moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from agent.context import AgentContext
from agent.lake.table_commits import TableCommits
from agent.ledger.apply_loop import FrozenState
from agent.ledger.bootstrap import load_state
from agent.ledger.entry_objects import UncommittedObjects
from agent.ledger.ledger_client import LedgerClient
from agent.maintenance.corruption_check import CorruptionCheck
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from coordinator.commands.commands import StartSession
from coordinator.follower import Follower
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Ledger, LedgerEntry
from iceberg_export.parquet.reader import ParquetReader
from protocol.types import Milliseconds
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from tests.support.commands.commands import start

DAY_MS = 24 * 60 * 60 * 1000
BEGAN_MS = 1_700_000_000_000


class ManualClock:
    """Time passes when somebody sleeps, or when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> Milliseconds:
        return Milliseconds(BEGAN_MS + int(self.seconds * 1000))

    def monotonic_s(self) -> float:
        return self.seconds

    def uptime_s(self) -> float:
        """Counted from another moment than `monotonic_s`."""
        return self.seconds + 5_000.0

    def thread_cpu_s(self) -> float:
        """All that passes is work; counted from another moment than `monotonic_s`."""
        return self.seconds - 900.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class NobodyIsAsked(CorruptionCheck):
    """Takes what this agent computed for right: nobody in these parts answers. Real ones: `test_digest_checks`."""

    async def agreed(self) -> FrozenState | None:
        return await self._apply_loop.freeze()


NO_CONFIGS: Mapping[str, str] = {}


async def always_ours() -> bool:
    """What is told of a bucket that nobody else claims."""
    return True


class Parts:
    """An agent's session on a ledger, which is open once `ledger.open(begin)` has returned."""

    def __init__(self, ledger: Ledger, store: ObjectStore, follower: Follower, begin: StartSession) -> None:
        self.backend = ledger
        self.store = store
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.is_clock_checked = True
        self.begin = begin
        self.ledger = LedgerClient(
            backend=ledger,
            store=store,
            follower=follower,
            clock=self.clock,
            proposed_time=self.proposed_time,
            metrics=self.metrics,
        )
        self.maintenance_leader = MaintenanceLeader(ledger=self.ledger, clock=self.clock, ids=SystemIds())
        self.digests = NobodyIsAsked(self.context(), maintenance_leader=self.maintenance_leader)

    def context(
        self,
        *,
        store: ObjectStore | None = None,
        clock: Clock | None = None,
        broker_configs: Mapping[str, str] = NO_CONFIGS,
        is_bucket_ours: Callable[[], Awaitable[bool]] = always_ours,
    ) -> AgentContext:
        """What the parts of this agent share, over its own store and clock where no others are given."""
        return AgentContext(
            ledger=self.ledger,
            store=self.store if store is None else store,
            clock=self.clock if clock is None else clock,
            ids=SystemIds(),
            metrics=self.metrics,
            broker_configs=broker_configs,
            proposed_time=self.proposed_time,
            is_bucket_ours=is_bucket_ours,
        )

    async def repeat(self, job: PeriodicJob) -> None:
        """Run a job's loop as an agent does."""
        await job.run(self.clock, lambda: self.maintenance_leader.is_leader)

    def proposed_time(self) -> Milliseconds | None:
        return self.clock.now_ms() if self.is_clock_checked else None


LAKE_ROOT = "s3://bucket/prefix"


def lake_of(parts: Parts, store: ObjectStore, root: str = LAKE_ROOT) -> TableCommits:
    """The agent's share in the lake, over `store`."""
    return TableCommits(
        parts.context(store=store),
        root=root,
        archive=ParquetReader(store=store, run_in_thread=run_in_thread),
        uncommitted=uncommitted_of(parts, store),
    )


def uncommitted_of(
    parts: Parts, store: ObjectStore, is_bucket_ours: Callable[[], Awaitable[bool]] = always_ours
) -> UncommittedObjects:
    """What the agent does with objects whose entries do not come."""
    return UncommittedObjects(
        store=store,
        ledger=parts.ledger,
        is_bucket_ours=is_bucket_ours,
        metrics=parts.metrics,
    )


async def until(is_so: Callable[[], bool]) -> None:
    """Let loops run until something is so; a test that waits for what never comes is ended by its time-out."""
    while not is_so():  # noqa: ASYNC110  # nobody tells it
        await asyncio.sleep(0)


@asynccontextmanager
async def running_parts(
    ledger: Ledger | None = None,
    begin: StartSession | None = None,
    *,
    store: ObjectStore | None = None,
    is_holding_rules: bool = False,
    is_taking_over_name: bool = False,
) -> AsyncIterator[Parts]:
    """Parts whose loops run and whose session is open; on the way out they stop as a killed process does."""
    ledger, store = ledger or MemoryLedger(), store or MemoryStore()
    parts = Parts(ledger, store, (await load_state(ledger, store)).follower, begin or start())
    async with asyncio.TaskGroup() as tasks:
        loops = [
            tasks.create_task(parts.ledger.apply_loop.run()),
            tasks.create_task(parts.ledger.apply_loop.run_barriers()),
        ]
        await parts.ledger.open(parts.begin, is_holding_rules=is_holding_rules, is_taking_over_name=is_taking_over_name)
        loops.append(tasks.create_task(parts.ledger.writer.run()))
        try:
            yield parts
        finally:
            for loop in loops:
                loop.cancel()


async def ledger_at(position: int) -> MemoryLedger:
    """A ledger whose newest entry is at that position."""
    ledger = MemoryLedger()
    session = await ledger.open_session("a")
    for number in range(position - session):
        await ledger.append(session, [LedgerEntry(number=number, payload=b"x")])
    assert (await ledger.head()).position == position
    return ledger
