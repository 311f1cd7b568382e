"""How an agent starts: whatever it writes first already carries a time that may be believed, or none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.agent import Agent
from agent.clock import SystemClock
from agent.ids import SystemIds
from agent.metrics import Metrics
from agent.settings import Command, load_settings
from agent.state_loading import load
from coordinator.command_codec import decode
from coordinator.commands import Proposal, StartSession
from coordinator.memory_log import MemoryLedger
from protocol.limits import CLOCK_SKEW_MS_MAX
from storage.failing import FailingStore, Fault, FaultKind, Operation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore


@asynccontextmanager
async def serving(folder: Path, ledger: MemoryLedger, store: ObjectStore) -> AsyncIterator[Agent]:
    """An agent on free ports of this machine that stops as it is asked to."""
    values = {"listen": ["127.0.0.1:0"], "http": "127.0.0.1:0", "data-dir": str(folder), "store": "memory:"}
    loaded = await load(ledger, store)
    async with Agent(
        settings=load_settings(Command.RUN, values, environment={}),
        identity=await ledger.identity(),
        ledger=ledger,
        store=store,
        follower=loaded.follower,
        clock=SystemClock(),
        ids=SystemIds(),
        metrics=Metrics(),
    ) as agent:
        yield agent
        await agent.drain()


async def first_entry(folder: Path, store: ObjectStore) -> Proposal:
    """The first that an agent on this store writes to its ledger."""
    ledger = MemoryLedger()
    async with serving(folder, ledger, store) as agent:
        assert agent.is_ready
    proposal = decode((await ledger.load()).records[0].payload)
    assert isinstance(proposal.command, StartSession)
    return proposal


def store_that_is_off_by(skew_ms: int) -> MemoryStore:
    clock = SystemClock()
    return MemoryStore(now_ms=lambda: clock.now_ms() + skew_ms, has_clock=True)


async def test_the_clock_is_compared_before_the_first_entry_so_that_the_session_begins_with_a_time(
    tmp_path: Path,
) -> None:
    before_ms = SystemClock().now_ms()
    time_ms = (await first_entry(tmp_path, store_that_is_off_by(0))).time_ms
    assert time_ms is not None
    assert before_ms <= time_ms <= SystemClock().now_ms()


async def test_an_agent_whose_clock_is_off_serves_and_proposes_no_time(tmp_path: Path) -> None:
    store = store_that_is_off_by(2 * CLOCK_SKEW_MS_MAX)
    assert (await first_entry(tmp_path, store)).time_ms is None


async def test_an_agent_whose_store_does_not_tell_its_time_serves_and_proposes_none_yet(tmp_path: Path) -> None:
    store = FailingStore(MemoryStore())
    store.script(Fault(kind=FaultKind.BEFORE, operation=Operation.TIME))
    assert (await first_entry(tmp_path, store)).time_ms is None
    assert [fault.operation for fault in store.struck] == [Operation.TIME]
