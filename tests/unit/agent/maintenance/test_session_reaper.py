"""An agent that is killed and comes back under another name can start, and ends what is left of the old one (S12)."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.ledger.node_ids import node_id_of
from agent.maintenance.session_reaper import SessionReaper
from coordinator.commands.commands import ReportTime, StartDrain, StartSession
from coordinator.follower import Follower
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Ledger, OutcomeUnknown
from coordinator.ledger.sqlite import SqliteLedger
from protocol.limits import (
    LEDGER_SESSION_SECONDS,
    SESSION_END_SECOND_TRY_S,
    SESSION_RETURN_SECONDS_MAX,
    SESSION_WATCH_RETRY_S,
)
from protocol.types import SessionId
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import start


async def named(name: str, ledger: Ledger) -> StartSession:
    """What an agent of that name starts with."""
    follower = Follower(await ledger.identity())
    follower.load(await ledger.load(), None)
    return replace(start(name), node_id=node_id_of(name, follower.state.sessions.values()))


def reaper(parts: Parts) -> SessionReaper:
    return SessionReaper(ledger=parts.ledger, clock=parts.clock)


async def test_s12_a_renamed_agent_starts_after_a_kill_and_ends_its_former_session() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger, await named("penstock", ledger)) as killed:
        ledger.core.expire(killed.ledger.session)
    async with running_parts(ledger, await named("renamed", ledger)) as parts:
        assert await reaper(parts).reap() == [killed.ledger.session]
        assert list(parts.ledger.state.sessions) == [parts.ledger.session]
        assert list(parts.ledger.state.sessions_ended) == [killed.ledger.session]


@pytest.mark.parametrize(("before", "after"), [("penstock", "renamed"), ("renamed", "penstock")])
async def test_s12_so_it_does_on_the_embedded_ledger(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = await SqliteLedger.open(path, new_cluster_id="c", is_durable=False)
    # Before ids followed from names, every agent had this one.
    async with running_parts(ledger, replace(start(before), node_id=1)) as killed:
        await ledger.close()
    ledger = await SqliteLedger.open(path, new_cluster_id="c", is_durable=False)
    async with running_parts(ledger, await named(after, ledger)) as parts:
        assert await reaper(parts).reap() == [killed.ledger.session]
        assert list(parts.ledger.state.sessions) == [parts.ledger.session]
        await ledger.close()


async def test_s12_a_session_whose_lease_lives_is_left_alone() -> None:
    ledger = MemoryLedger()
    async with (
        running_parts(ledger, await named("a", ledger)) as first,
        running_parts(ledger, await named("b", ledger)) as second,
    ):
        assert await reaper(second).reap() == []
        assert set(second.ledger.state.sessions) == {first.ledger.session, second.ledger.session}


async def test_two_agents_that_see_the_same_dead_session_do_no_harm() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger, await named("dead", ledger)) as killed:
        ledger.core.expire(killed.ledger.session)
    async with running_parts(ledger, await named("a", ledger)) as first:
        late = reaper(first)
        assert await late.reap() == [killed.ledger.session]
        assert await late.reap() == []


@pytest.mark.parametrize(("is_draining", "level"), [(False, "WARNING"), (True, "INFO")])
async def test_an_agent_that_is_gone_is_told_once_and_loudly_unless_it_was_stopped(
    *, is_draining: bool, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    core = MemoryLedgerCore()
    async with (
        running_parts(MemoryLedger(core), start("a", node=1)) as first,
        running_parts(MemoryLedger(core), start("b", node=2)) as second,
    ):
        async with running_parts(MemoryLedger(core), start("dead", node=3)) as dead:
            if is_draining:
                await dead.ledger.propose(StartDrain(session=dead.ledger.session))
            core.expire(dead.ledger.session)
        await first.ledger.barrier()
        await second.ledger.barrier()
        await asyncio.gather(reaper(first).reap(), reaper(second).reap())
        told = [record for record in caplog.records if record.name == "agent.maintenance.session_reaper"]
        assert [(record.levelname, record.__dict__["agent"]) for record in told] == [(level, "dead")]
        assert ("start it again" in told[0].message) is not is_draining


class TestAfterAnOutage:
    """Of the whole ledger: no agent has a lease, and all come back."""

    @pytest.mark.parametrize("is_watched", [False, True])
    async def test_s12_agents_that_return_are_not_ended(
        self, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
    ) -> None:
        core = MemoryLedgerCore()
        async with (
            running_parts(MemoryLedger(core), start("a", node=1)) as first,
            running_parts(MemoryLedger(core), start("b", node=2)) as second,
        ):
            lost, outages = second.ledger.session, [first, second]
            for parts in outages:
                parts.clock.seconds += LEDGER_SESSION_SECONDS + 1
            core.expire(lost)
            await first.ledger.propose(ReportTime())
            slept: list[float] = []

            async def return_meanwhile(seconds: float) -> None:
                slept.append(seconds)
                assert lost in first.ledger.state.sessions
                with suppress(OutcomeUnknown):
                    await second.ledger.propose(ReportTime())
                await first.ledger.barrier()

            monkeypatch.setattr(first.clock, "sleep", return_meanwhile)
            ended = await (reaper(first).end("b") if is_watched else reaper(first).reap())
            assert slept[:1] == [SESSION_RETURN_SECONDS_MAX]
            assert ended == []
            assert second.ledger.session != lost
            assert second.ledger.session in first.ledger.state.sessions

    async def test_s12_agents_that_do_not_return_are_ended_then(self) -> None:
        core = MemoryLedgerCore()
        async with (
            running_parts(MemoryLedger(core), start("a", node=1)) as first,
            running_parts(MemoryLedger(core), start("b", node=2)) as second,
        ):
            first.clock.seconds += LEDGER_SESSION_SECONDS + 1
            core.expire(second.ledger.session)
            await first.ledger.propose(ReportTime())
            assert await reaper(first).reap() == [second.ledger.session]
            assert first.clock.slept == [SESSION_RETURN_SECONDS_MAX]
            assert await reaper(first).reap() == []
            assert first.clock.slept == [SESSION_RETURN_SECONDS_MAX], "the time is over"

    async def test_s12_without_an_outage_nothing_is_waited_for(self) -> None:
        core = MemoryLedgerCore()
        async with (
            running_parts(MemoryLedger(core), start("a", node=1)) as first,
            running_parts(MemoryLedger(core), start("b", node=2)) as second,
        ):
            first.clock.seconds += LEDGER_SESSION_SECONDS
            core.expire(second.ledger.session)
            await first.ledger.propose(ReportTime())
            assert await reaper(first).reap() == [second.ledger.session]
            assert first.clock.slept == []


class CountingLedger(MemoryLedger):
    """Counts what it is asked about sessions."""

    def __init__(self, core: MemoryLedgerCore) -> None:
        super().__init__(core)
        self.asked: list[str] = []

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        self.asked.append(name)
        return await super().is_session_ended(name, session)

    async def live_names(self) -> Sequence[str]:
        self.asked.append("*")
        return await super().live_names()


class TestWhatIsAsked:
    async def test_one_question_is_enough_however_many_agents_live(self) -> None:
        core = MemoryLedgerCore()
        async with AsyncExitStack() as stack:
            for number in range(5):
                await stack.enter_async_context(
                    running_parts(MemoryLedger(core), start(f"other-{number}", node=number))
                )
            ledger = CountingLedger(core)
            async with running_parts(ledger, start("a", node=9)) as parts:
                assert await reaper(parts).reap() == []
                assert ledger.asked == ["*"]

    async def test_s12_only_what_seems_gone_is_asked_about_and_ended(self) -> None:
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core), start("dead", node=3)) as dead:
            core.expire(dead.ledger.session)
        ledger = CountingLedger(core)
        async with (
            running_parts(MemoryLedger(core), start("b", node=2)),
            running_parts(ledger, start("a", node=1)) as parts,
        ):
            await parts.ledger.barrier()
            assert await reaper(parts).reap() == [dead.ledger.session]
            assert ledger.asked == ["*", "dead"]

    async def test_who_is_alone_asks_nothing(self) -> None:
        ledger = CountingLedger(MemoryLedgerCore())
        async with running_parts(ledger, start("a", node=1)) as parts:
            assert await reaper(parts).reap() == []
            assert ledger.asked == []

    async def test_s12_a_session_that_begins_while_the_ledger_is_asked_is_not_gone(self) -> None:
        core = MemoryLedgerCore()

        class Slow(CountingLedger):
            """Another session begins, and its start is applied here, after the names were listed."""

            async def live_names(self) -> Sequence[str]:
                names = await super().live_names()
                await stack.enter_async_context(running_parts(MemoryLedger(core), start("late", node=3)))
                await parts.ledger.barrier()
                return names

        ledger = Slow(core)
        async with (
            running_parts(MemoryLedger(core), start("b", node=2)),
            running_parts(ledger, start("a", node=1)) as parts,
            AsyncExitStack() as stack,
        ):
            assert await reaper(parts).reap() == []
            assert ledger.asked == ["*"]
            assert len(parts.ledger.state.sessions) == 3


class TestEndsThatTheLedgerTells:
    async def test_s12_one_agent_ends_a_told_session_at_once_and_the_other_if_need_be(self) -> None:
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core), start("dead", node=3)) as dead:
            core.expire(dead.ledger.session)
        async with (
            running_parts(MemoryLedger(core), start("a", node=1)) as first,
            running_parts(MemoryLedger(core), start("b", node=2)) as second,
        ):
            await first.ledger.barrier()
            both = (first, second)
            chosen = [parts for parts in both if reaper(parts)._is_responsible("dead")]
            assert len(chosen) == 1
            (other,) = (parts for parts in both if parts not in chosen)
            ended = await asyncio.gather(reaper(chosen[0]).end("dead"), reaper(other).end("dead"))
            assert ended[0] == [dead.ledger.session]
            assert (chosen[0].clock.slept, other.clock.slept) == ([], [SESSION_END_SECOND_TRY_S])
            assert set(first.ledger.state.sessions_ended) == {dead.ledger.session}

    async def test_s12_a_name_that_lives_again_is_left_alone(self) -> None:
        core = MemoryLedgerCore()
        async with (
            running_parts(MemoryLedger(core), start("a", node=1)) as first,
            running_parts(MemoryLedger(core), start("b", node=2)) as second,
        ):
            assert await reaper(first).end("b") == []
            assert await reaper(first).end("never") == []
            assert second.ledger.session in first.ledger.state.sessions

    async def test_an_agent_asks_about_its_share_alone(self) -> None:
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core), start("dead", node=3)) as dead:
            core.expire(dead.ledger.session)
        async with (
            running_parts(MemoryLedger(core), start("a", node=1)) as first,
            running_parts(MemoryLedger(core), start("b", node=2)) as second,
        ):
            await first.ledger.barrier()
            shares = [await reaper(parts).reap(is_own_share=True) for parts in (first, second)]
            assert sorted(shares) == [[], [dead.ledger.session]]

    async def test_what_the_watch_tells_is_ended(self) -> None:
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core), start("a", node=1)) as first:
            watching = asyncio.ensure_future(reaper(first).run_watch())
            async with running_parts(MemoryLedger(core), start("dead", node=3)) as dead:
                await first.ledger.barrier()
                core.expire(dead.ledger.session)
            async with asyncio.timeout(30):
                while dead.ledger.session in first.ledger.state.sessions:
                    await first.clock.sleep(0)
            watching.cancel()
            await asyncio.wait([watching])

    async def test_a_ledger_that_is_away_is_watched_again(self) -> None:
        ledger = MemoryLedger()
        async with running_parts(ledger, start("a", node=1)) as parts:
            ledger.is_reachable = False
            watching = asyncio.ensure_future(reaper(parts).run_watch())
            async with asyncio.timeout(30):
                while SESSION_WATCH_RETRY_S not in parts.clock.slept:
                    await parts.clock.sleep(0)
            assert not watching.done()
            watching.cancel()
            await asyncio.wait([watching])
            ledger.is_reachable = True
