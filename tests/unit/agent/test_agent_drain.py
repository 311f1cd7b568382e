"""How an agent stops: it sends clients to the others, where there are others, and ends its session at last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent import agent as agent_module
from agent.agent import Agent
from agent.config.settings import CliCommand, load_settings
from agent.produce.produce_path import ProducePath
from coordinator.codec.codec import decode
from coordinator.commands.agents import RequestDrain
from coordinator.commands.commands import EndSession, StartDrain
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.types import SessionId
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import until
from tests.support.agent.serving_agent import serving_agent


@asynccontextmanager
async def agent_named(name: str, folder: Path, core: MemoryLedgerCore, store: MemoryStore) -> AsyncIterator[Agent]:
    values = {
        "listen": ["127.0.0.1:0"],
        "http": "127.0.0.1:0",
        "ledger": "memory:",
        "store": "memory:",
        "name": name,
        "data-dir": str(folder),
    }
    settings = load_settings(CliCommand.AGENT, values, environment={})
    async with serving_agent(settings, MemoryLedger(core), store) as agent:
        yield agent


def drains_and_ends(core: MemoryLedgerCore) -> list[StartDrain | EndSession]:
    commands = [decode(record).command for record in core.load().records]
    return [command for command in commands if isinstance(command, StartDrain | EndSession)]


@pytest.fixture
def core() -> MemoryLedgerCore:
    return MemoryLedgerCore()


async def test_an_agent_that_is_not_alone_tells_that_it_drains_before_its_session_ends(
    tmp_path: Path, core: MemoryLedgerCore
) -> None:
    store = MemoryStore()
    async with agent_named("a", tmp_path, core, store) as staying, agent_named("b", tmp_path, core, store) as leaving:
        session = SessionId(int(str(leaving.status()["session"])))
        await leaving.drain()
        assert not leaving.is_ready
        assert leaving.not_ready_line == "not ready: the agent is stopping"
        assert drains_and_ends(core) == [StartDrain(session=session), EndSession(session=session)]
        await staying.drain()


async def test_an_agent_says_where_its_http_port_is(tmp_path: Path, core: MemoryLedgerCore) -> None:
    async with agent_named("a", tmp_path, core, MemoryStore()) as agent:
        broker = agent.broker
        await until(lambda: broker.state.sessions[broker.session].version is not None)
        session = broker.state.sessions[broker.session]
        assert session.http_url == f"http://{agent.http}" == agent.status()["http"]
        assert session.started_ms > 0
        await agent.drain()


async def test_an_agent_that_is_asked_drains_and_serves_again_once_it_is_alone(
    tmp_path: Path, core: MemoryLedgerCore
) -> None:
    store = MemoryStore()
    async with agent_named("a", tmp_path, core, store) as staying, agent_named("b", tmp_path, core, store) as spare:
        session = SessionId(int(str(spare.status()["session"])))
        await staying.broker.services.ledger.propose(RequestDrain(session=session))
        await until(lambda: spare.broker.services.draining.is_redirecting)
        await until(lambda: staying.broker.state.sessions[session].is_draining)
        assert drains_and_ends(core) == [StartDrain(session=session)]
        assert [broker.node_id for broker in staying.broker.services.brokers("PLAINTEXT")] == [staying.broker.node_id]
        await until(lambda: not spare.is_serving)
        assert spare.not_ready_line == "not ready: the agent is drained, and other agents serve its clients"
        await staying.drain()
        await spare.broker.services.ledger.barrier()
        await until(lambda: spare.is_serving)
        assert [broker.node_id for broker in spare.broker.services.brokers("PLAINTEXT")] == [spare.broker.node_id]
        await spare.drain()
        assert drains_and_ends(core)[-1] == EndSession(session=session)


async def test_an_agent_that_is_alone_has_nobody_to_send_clients_to(tmp_path: Path, core: MemoryLedgerCore) -> None:
    async with agent_named("a", tmp_path, core, MemoryStore()) as agent:
        session = SessionId(int(str(agent.status()["session"])))
        await agent.drain()
        assert drains_and_ends(core) == [EndSession(session=session)]


async def test_the_last_of_those_that_drain_ends_like_one_that_is_alone(tmp_path: Path, core: MemoryLedgerCore) -> None:
    store = MemoryStore()
    async with agent_named("a", tmp_path, core, store) as first, agent_named("b", tmp_path, core, store) as last:
        sessions = [SessionId(int(str(agent.status()["session"]))) for agent in (first, last)]
        await first.drain()
        await last.broker.services.ledger.barrier()
        await last.drain()
        assert drains_and_ends(core) == [
            StartDrain(session=sessions[0]),
            EndSession(session=sessions[0]),
            EndSession(session=sessions[1]),
        ]


async def test_clients_that_do_not_leave_hold_nothing_up_for_long(
    tmp_path: Path, core: MemoryLedgerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "DRAIN_MOVE_SECONDS_MAX", 0.0)
    store = MemoryStore()
    async with agent_named("a", tmp_path, core, store) as staying, agent_named("b", tmp_path, core, store) as leaving:
        await leaving.drain()
        assert isinstance(drains_and_ends(core)[-1], EndSession)
        await staying.drain()


async def test_others_are_told_to_lead_although_what_was_accepted_cannot_be_committed(
    tmp_path: Path, core: MemoryLedgerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is away when the agent begins to drain, and back before it ends its session."""
    calls: list[ProducePath] = []

    async def drain(self: ProducePath) -> None:
        calls.append(self)
        if len(calls) == 1:
            await asyncio.Event().wait()

    monkeypatch.setattr(ProducePath, "drain", drain)
    monkeypatch.setattr(agent_module, "DRAIN_MOVE_SECONDS_MAX", 0.2)
    store = MemoryStore()
    async with agent_named("a", tmp_path, core, store) as staying, agent_named("b", tmp_path, core, store) as leaving:
        session = SessionId(int(str(leaving.status()["session"])))
        await leaving.drain()
        assert drains_and_ends(core) == [StartDrain(session=session), EndSession(session=session)]
        await staying.drain()
