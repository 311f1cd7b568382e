"""An agent that is killed and comes back under another name can start, and ends what is left of the old one (S12)."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.node_ids import node_id_of
from agent.session_reaper import SessionReaper
from coordinator.commands import StartSession
from coordinator.follower import Follower
from coordinator.log import Ledger
from coordinator.memory_log import MemoryLedger
from coordinator.sqlite_log import SqliteLedger
from tests.made_commands import start
from tests.unit.agent.ledger_parts import Parts, running_parts


async def named(name: str, ledger: Ledger) -> StartSession:
    """What an agent of that name starts with."""
    follower = Follower(await ledger.identity())
    follower.load(await ledger.load(), None)
    return replace(start(name), node_id=node_id_of(name, follower.state.sessions.values()))


def reaper(parts: Parts) -> SessionReaper:
    return SessionReaper(ledger=parts.ledger, metadata=parts.metadata, writer=parts.writer, clock=parts.clock)


async def test_s12_a_renamed_agent_starts_after_a_kill_and_ends_its_former_session() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger, await named("penstock", ledger)) as killed:
        ledger.core.expire(killed.writer.session)
    async with running_parts(ledger, await named("renamed", ledger)) as parts:
        assert await reaper(parts).reap() == [killed.writer.session]
        assert list(parts.metadata.state.sessions) == [parts.writer.session]
        assert list(parts.metadata.state.sessions_ended) == [killed.writer.session]


@pytest.mark.parametrize(("before", "after"), [("penstock", "renamed"), ("renamed", "penstock")])
async def test_s12_so_it_does_on_the_embedded_ledger(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = await SqliteLedger.open(path, new_cluster_id="c", is_durable=False)
    # Before ids followed from names, every agent had this one.
    async with running_parts(ledger, replace(start(before), node_id=1)) as killed:
        await ledger.close()
    ledger = await SqliteLedger.open(path, new_cluster_id="c", is_durable=False)
    async with running_parts(ledger, await named(after, ledger)) as parts:
        assert await reaper(parts).reap() == [killed.writer.session]
        assert list(parts.metadata.state.sessions) == [parts.writer.session]
        await ledger.close()


async def test_s12_a_session_whose_lease_lives_is_left_alone() -> None:
    ledger = MemoryLedger()
    async with (
        running_parts(ledger, await named("a", ledger)) as first,
        running_parts(ledger, await named("b", ledger)) as second,
    ):
        assert await reaper(second).reap() == []
        assert set(second.metadata.state.sessions) == {first.writer.session, second.writer.session}


async def test_two_agents_that_see_the_same_dead_session_do_no_harm() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger, await named("dead", ledger)) as killed:
        ledger.core.expire(killed.writer.session)
    async with running_parts(ledger, await named("a", ledger)) as first:
        late = reaper(first)
        assert await late.reap() == [killed.writer.session]
        assert await late.reap() == []
