"""Safety rule S3 between running agents: who computed another state than most stops, and nobody publishes it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from agent.ledger.apply_loop import ApplyLoop, FrozenState
from agent.maintenance.corruption_check import CorruptionCheck
from agent.maintenance.snapshots import Snapshots
from coordinator.apply.digest_comparison import DigestVerdict
from coordinator.codec.snapshot_wire import snapshot_shape
from coordinator.commands.commands import CompareDigest, EndSession, ReportTime
from coordinator.commands.rules import RULES_FIRST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerCorrupt, OutcomeUnknown
from coordinator.snapshot import Frozen, digest
from coordinator.state.state import ClusterState, DigestComparison
from protocol.limits import DIGEST_ALONE_SECONDS_MIN, DIGEST_COMPARISON_INTERVAL_S, DIGEST_WAIT_SECONDS_MAX
from protocol.types import ObjectId
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts
from tests.support.commands.commands import create, start

SECONDS_MAX = 30.0


class BusyClock(ManualClock):
    """While one agent waits, its state is frozen where that was asked for, and others do what a test says."""

    def __init__(self, apply_loop: ApplyLoop) -> None:
        super().__init__()
        self._apply_loop = apply_loop
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await self._apply_loop.freeze()
        if self.meanwhile is not None:
            await self.meanwhile()


class ComparedAgent:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.clock = BusyClock(parts.ledger.apply_loop)
        self.checks = CorruptionCheck(parts.context(clock=self.clock), maintenance_leader=parts.maintenance_leader)

    @property
    def state(self) -> ClusterState:
        return self.parts.ledger.state

    @property
    def comparison(self) -> DigestComparison:
        assert self.state.comparison is not None
        return self.state.comparison

    def diverge(self) -> None:
        """From now on its state is another one than the ledger makes, and nobody is told."""
        self.state.object_id_next = ObjectId(self.state.object_id_next + 1)

    async def run(self) -> None:
        await self.checks.job.run(self.clock, lambda: self.parts.maintenance_leader.is_leader)

    async def check(self) -> None:
        await self.parts.ledger.barrier()
        await self.parts.ledger.apply_loop.freeze()  # what was asked for is frozen before
        await self.checks.check()

    def count(self, verdict: DigestVerdict) -> int:
        label = verdict.value.replace(" ", "_")
        return int(self.parts.metrics.corruption_checks.labels(label)._value.get())


@asynccontextmanager
async def agents(count: int) -> AsyncIterator[list[ComparedAgent]]:
    """All of them know each other."""
    core, store = MemoryLedgerCore(), MemoryStore()
    async with AsyncExitStack() as stack, asyncio.timeout(SECONDS_MAX):
        found = [
            ComparedAgent(
                await stack.enter_async_context(running_parts(MemoryLedger(core), start(name, node=node), store=store))
            )
            for node, name in enumerate("abc"[:count], 1)
        ]
        for agent in found:
            await agent.parts.ledger.barrier()
        yield found


def answering(others: Sequence[ComparedAgent]) -> Callable[[], Awaitable[None]]:
    """What others do while one waits. Whoever finds itself wrong says nothing more."""
    over: set[int] = set()

    async def answer() -> None:
        for row, other in enumerate(others):
            if row not in over:
                try:
                    await other.check()
                except LedgerCorrupt:
                    over.add(row)

    return answer


async def asked(agent: ComparedAgent, others: Sequence[ComparedAgent]) -> Frozen | None:
    agent.clock.meanwhile = answering(others)
    return frozen_of(await agent.checks.agreed())


def frozen_of(agreed: FrozenState | None) -> Frozen | None:
    return None if agreed is None else agreed.frozen


async def test_s3_agents_that_agree_go_on_and_the_state_may_be_published() -> None:
    async with agents(3) as (one, two, three):
        frozen = await asked(one, [two, three])
        assert frozen is not None
        assert frozen.position == one.comparison.position
        assert set(one.comparison.digests.values()) == {frozen.digest()}
        for agent in (one, two, three):
            await agent.check()
            await agent.check()
            assert agent.count(DigestVerdict.AGREED) == 1


async def test_s3_one_of_three_that_differs_stops_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with agents(3) as (one, two, three):
        three.diverge()
        one.clock.meanwhile = answering([two])
        asking = asyncio.create_task(one.checks.agreed())
        with pytest.raises(LedgerCorrupt, match="differs from the majority") as stopped:
            await three.run()
        frozen = frozen_of(await asking)
        assert frozen is not None
        assert frozen.digest() == one.comparison.digests[two.parts.ledger.session]
        await two.check()
        assert (one.count(DigestVerdict.OTHERS_DIFFER), two.count(DigestVerdict.OTHERS_DIFFER)) == (1, 1)
        assert three.count(DigestVerdict.DIVERGED) == 1
    told = str(stopped.value)
    wrong = one.comparison.digests[three.parts.ledger.session]
    assert wrong is not None
    for part in (
        f"position {frozen.position}",
        wrong.hex(),
        frozen.digest().hex(),
        "Start it again",
        "troubleshooting.md",
    ):
        assert part in told
    assert [record.levelno for record in caplog.records if "of another agent differs" in record.message] == [
        logging.ERROR
    ] * 2


async def test_s3_the_one_that_asks_may_be_the_one_that_is_wrong() -> None:
    async with agents(3) as (one, two, three):
        one.diverge()
        with pytest.raises(LedgerCorrupt, match="differs from the majority"):
            await asked(one, [two, three])
        for agent in (two, three):
            await agent.check()
            assert agent.count(DigestVerdict.OTHERS_DIFFER) == 1


def snapshots(agent: ComparedAgent) -> Snapshots:
    parts = agent.parts
    return Snapshots(
        parts.context(),
        maintenance_leader=parts.maintenance_leader,
        digests=agent.checks,
        entries_interval=10,
        bytes_interval=1 << 20,
    )


async def test_s3_of_two_that_differ_neither_serves_on_and_neither_is_published() -> None:
    async with agents(2) as (one, two):
        one.diverge()
        one.clock.meanwhile = answering([two])
        with pytest.raises(LedgerCorrupt, match="none has a majority"):
            await snapshots(one).take()
        with contextlib.suppress(LedgerCorrupt):  # it may have looked while the other waited
            await two.check()
        assert two.count(DigestVerdict.UNDECIDED) == 1
        assert (await one.parts.backend.load()).pointer is None


async def test_s3_a_snapshot_is_what_was_compared() -> None:
    async with agents(3) as (one, two, three):
        one.clock.meanwhile = answering([two, three])
        assert await snapshots(one).take()
        pointer = (await one.parts.backend.load()).pointer
        assert pointer is not None
        assert pointer.position == one.comparison.position < one.state.position
        assert set(one.comparison.digests.values()) == {pointer.digest}


async def test_s3_an_agent_that_says_nothing_does_not_hold_up_snapshots_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agents(3) as (one, two, _):
        assert await asked(one, [two]) is not None
        assert one.clock.seconds == DIGEST_WAIT_SECONDS_MAX
        assert [record.__dict__["agents"] for record in caplog.records if "did not report" in record.message] == [["c"]]


async def test_s3_what_one_of_three_alone_said_is_not_published() -> None:
    async with agents(3) as (one, _, _):
        assert await asked(one, []) is None
        assert not await snapshots(one).take()


async def test_s3_those_whose_sessions_ended_meanwhile_are_asked_anew() -> None:
    """Of three the two that are right lose their sessions: the third one's word is not that of most."""
    async with agents(3) as (one, two, three):
        three.diverge()
        await three.parts.ledger.propose(CompareDigest(shape=snapshot_shape(RULES_FIRST)))
        for agent in (one, two):
            await agent.parts.ledger.barrier()
            three.parts.backend.core.expire(agent.parts.ledger.session)  # type: ignore[attr-defined]
            await three.parts.ledger.propose(EndSession(session=agent.parts.ledger.session))
        assert await three.checks._wait() is None
        assert three.count(DigestVerdict.INCOMPLETE) == 1
        for agent in (one, two):
            with contextlib.suppress(OutcomeUnknown):
                await agent.parts.ledger.propose(ReportTime())  # finds its session ended, and opens another
            await agent.parts.ledger.propose(ReportTime())
            await agent.check()
        answer = answering([one, two])
        one.clock.meanwhile = answering([two])
        asking = asyncio.create_task(one.checks.agreed())
        with pytest.raises(LedgerCorrupt, match="differs from the majority"):
            await three.run()
        assert await asking is not None
        await answer()


async def test_s3_those_that_start_again_after_nobody_knew_come_up_with_one_state() -> None:
    async with agents(2) as (one, two):
        one.diverge()
        with pytest.raises(LedgerCorrupt, match="none has a majority"):
            await asked(one, [two])
        core, store = one.parts.backend.core, one.parts.store  # type: ignore[attr-defined]
        async with (
            running_parts(MemoryLedger(core), start("c", node=3), store=store) as third,
            running_parts(MemoryLedger(core), start("d", node=4), store=store) as fourth,
        ):
            again = [ComparedAgent(third), ComparedAgent(fourth)]
            for agent in again:
                await agent.check()
            for gone in (one, two):
                core.expire(gone.parts.ledger.session)
                await third.ledger.propose(EndSession(session=gone.parts.ledger.session))
            again[0].clock.meanwhile = answering(again[1:])
            assert await snapshots(again[0]).take()
            assert again[0].count(DigestVerdict.AGREED) == 1


async def test_s3_an_agent_that_came_past_the_position_by_a_snapshot_cannot_tell() -> None:
    async with agents(2) as (one, two):

        async def passed() -> None:
            two.parts.ledger.apply_loop._follower.frozen = None
            await two.check()

        one.clock.meanwhile = passed
        assert frozen_of(await one.checks.agreed()) is not None
        assert two.parts.ledger.session not in one.comparison.digests
        assert (one.comparison.asked_count, one.count(DigestVerdict.AGREED)) == (1, 0)


async def test_s3_nothing_is_published_while_one_says_nothing_and_another_disagrees() -> None:
    async with agents(3) as (one, two, three):
        two.diverge()
        assert await asked(one, [two]) is None
        assert not await snapshots(one).take()
        await three.check()
        with pytest.raises(LedgerCorrupt):
            await two.check()
        await one.check()


async def test_s3_an_agent_that_lags_behind_publishes_nothing() -> None:
    async with agents(2) as (one, _):

        async def reload() -> None:
            one.checks._own = None

        one.clock.meanwhile = reload
        assert await one.checks.agreed() is None


async def test_s3_an_agent_that_is_alone_asks_nobody() -> None:
    async with agents(1) as (one,):
        before = one.state.position
        frozen = frozen_of(await one.checks.agreed())
        assert frozen is not None
        assert frozen.digest() == digest(one.state)
        assert one.state.position == before


async def test_s3_who_was_left_alone_a_moment_ago_publishes_nothing() -> None:
    async with agents(2) as (one, two):
        await one.check()
        two.parts.backend.core.expire(two.parts.ledger.session)  # type: ignore[attr-defined]
        await one.parts.ledger.propose(EndSession(session=two.parts.ledger.session))
        assert len(one.state.sessions) == 1
        assert await one.checks.agreed() is None
        one.clock.seconds += DIGEST_ALONE_SECONDS_MIN
        assert await one.checks.agreed() is not None


async def test_s3_of_two_of_which_one_ends_without_a_word_the_other_s_is_enough() -> None:
    async with agents(2) as (one, two):

        async def ends() -> None:
            one.clock.meanwhile = None
            two.parts.backend.core.expire(two.parts.ledger.session)  # type: ignore[attr-defined]
            await one.parts.ledger.propose(EndSession(session=two.parts.ledger.session))

        one.clock.meanwhile = ends
        assert await one.checks.agreed() is not None
        assert one.clock.seconds < DIGEST_WAIT_SECONDS_MAX
        assert one.count(DigestVerdict.INCOMPLETE) == 1


async def test_s3_versions_that_write_other_bytes_are_not_compared() -> None:
    async with agents(2) as (one, two):
        await one.parts.ledger.propose(CompareDigest(shape=b"another!"))
        await two.check()
        await one.check()
        assert one.comparison.digests == {}
        assert one.count(DigestVerdict.AGREED) == two.count(DigestVerdict.AGREED) == 0


async def test_s3_an_agent_that_comes_later_says_nothing_and_is_not_judged() -> None:
    async with agents(3) as (one, two, three):
        await asked(one, [two, three])
        core = one.parts.backend.core  # type: ignore[attr-defined]
        async with running_parts(MemoryLedger(core), start("d", node=4), store=one.parts.store) as parts:
            late = ComparedAgent(parts)
            assert parts.ledger.apply_loop._follower.frozen is not None
            late.diverge()
            await late.check()
            assert parts.ledger.session not in late.comparison.digests
            assert not any(late.count(verdict) for verdict in DigestVerdict)


async def test_s3_what_was_asked_before_the_newest_question_is_not_answered() -> None:
    async with agents(2) as (one, two):
        await one.parts.ledger.propose(CompareDigest(shape=snapshot_shape(RULES_FIRST)))
        await two.parts.ledger.barrier()
        await two.parts.ledger.apply_loop.freeze()
        late = two.parts.ledger.apply_loop._follower.frozen
        assert late is not None
        await one.parts.ledger.propose(ReportTime())
        await one.parts.ledger.propose(CompareDigest(shape=snapshot_shape(RULES_FIRST)))
        await two.parts.ledger.barrier()
        await two.parts.ledger.apply_loop.freeze()
        two.parts.ledger.apply_loop._follower.frozen = late
        await two.check()
        assert two.parts.ledger.session not in two.comparison.digests  # it cannot tell


async def test_s3_while_entries_come_it_is_compared_now_and_then() -> None:
    async with agents(2) as (one, two):
        assert await one.parts.maintenance_leader.claim()
        answer = answering([two])
        counts: dict[float, int] = {}

        async def meanwhile() -> None:
            await answer()
            counts[one.clock.seconds] = one.count(DigestVerdict.AGREED)
            if one.clock.seconds == 2.5 * DIGEST_COMPARISON_INTERVAL_S:
                await one.parts.ledger.propose(create())
            if one.clock.seconds >= 4 * DIGEST_COMPARISON_INTERVAL_S:
                running.cancel()

        one.clock.meanwhile = meanwhile
        running = asyncio.create_task(one.run())
        await asyncio.wait([running])
        asked_at = [at for before, at in pairwise(counts) if counts[at] > counts[before]]
        assert [round(at / DIGEST_COMPARISON_INTERVAL_S, 1) for at in asked_at] == [1.0, 2.5]
