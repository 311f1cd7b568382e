"""What costs a member of a group its place, and when it may be told (safety rule S4)."""

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from agent.groups import group_ledger
from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.classic_group import next_ticket
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.membership_errors import check_confirmed, is_fatal_to_member
from coordinator.commands.commands import StartDrain
from coordinator.commands.group import ClaimGroups
from coordinator.groups.classic_messages import Leaver, Sync
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Head
from protocol.errors import ErrorCode
from protocol.types import Position
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import create
from tests.support.commands.group_commands import GENERATION, generation, member
from tests.support.groups.classic_coordinator import a_join, coordinator_of, join, one_agent, running, stable, sync
from tests.support.groups.consumer_coordinator import SECONDS_MAX, GroupAgent, two_agents
from tests.support.groups.consumer_coordinator import one_agent as one_agent_of_consumers
from tests.support.groups.consumer_groups import beat, subscription


@pytest.mark.parametrize(
    "error_code",
    [
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.stale_member_epoch,
        ErrorCode.unreleased_instance_id,
        ErrorCode.group_id_not_found,
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.group_max_size_reached,
    ],
)
def test_what_ends_a_membership_costs_a_place(error_code: ErrorCode) -> None:
    assert is_fatal_to_member(error_code)


@pytest.mark.parametrize(
    "error_code",
    [
        ErrorCode.none,
        ErrorCode.rebalance_in_progress,
        ErrorCode.member_id_required,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    ],
)
def test_what_makes_a_member_ask_or_join_again_costs_none(error_code: ErrorCode) -> None:
    assert not is_fatal_to_member(error_code)


async def test_s4_a_barrier_that_does_not_come_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        ledger = GroupLedger(ledger=parts.ledger, clock=parts.clock)
        claimed = await ledger.claim("g")
        begun: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(parts.ledger, "begin_barrier", lambda: begun)
        monkeypatch.setattr(group_ledger, "BARRIER_SECONDS_MAX", 0.01)
        with pytest.raises(NotCoordinator) as caught:
            await check_confirmed(ledger, "g", claimed.claim_epoch)
        assert caught.value.error_code is ErrorCode.coordinator_not_available
        begun.set_result(parts.ledger.state.position)
        await asyncio.sleep(0)


class TestClassicGroups:
    """What costs a member its place is told behind a barrier (safety rule S4)."""

    async def changes(self, groups: ClassicGroupCoordinator, member_id: str) -> list[ErrorCode]:
        """By every request of a member of a generation that is over."""
        left, leaver_codes = await groups.leave("g", [Leaver("nobody", None)])
        return [
            await groups.heartbeat("g", "nobody", None, 1),
            await groups.heartbeat("g", member_id, None, 7),
            (await sync(groups, "nobody")).error_code,
            (await sync(groups, member_id, generation=7)).error_code,
            (await join(groups, "nobody")).error_code,
            left or leaver_codes[0],
        ]

    async def test_s4_a_coordinator_that_is_cut_off_calls_nobody_unknown(self) -> None:
        """They may have joined elsewhere."""
        ledger = MemoryLedger()
        async with (
            running_parts(ledger) as parts,
            asyncio.timeout(SECONDS_MAX),
            running(coordinator_of(parts)) as groups,
        ):
            member_id = await stable(groups)
            unknown, illegal = ErrorCode.unknown_member_id, ErrorCode.illegal_generation
            assert await self.changes(groups, member_id) == [unknown, illegal, unknown, illegal, unknown, unknown]
            ledger.is_reachable = False
            assert await self.changes(groups, member_id) == [ErrorCode.coordinator_not_available] * 6
            assert await groups.heartbeat("g", member_id, None, 1) is ErrorCode.none
            ledger.is_reachable = True
            assert await groups.heartbeat("g", "nobody", None, 1) is unknown
            assert await groups.heartbeat("g", member_id, None, 1) is ErrorCode.none

    async def test_s4_nor_does_one_whose_claim_is_over_by_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with one_agent() as (parts, groups):
            await stable(groups)
            begun = gated_barriers(parts, monkeypatch)
            joining = await groups.join("g", a_join(groups, "nobody"))
            beating = asyncio.ensure_future(groups.heartbeat("g", "nobody", None, 1))
            while len(begun) < 2:
                await turn()
            await parts.ledger.propose(ClaimGroups(group_ids=("g",)))
            for each in begun:
                each.set_result(parts.ledger.state.position)
            assert (await joining).error_code is ErrorCode.not_coordinator
            assert await beating is ErrorCode.not_coordinator

    async def test_many_of_them_share_barriers_and_other_answers_take_none(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = MemoryLedger()
        async with (
            running_parts(ledger) as parts,
            asyncio.timeout(SECONDS_MAX),
            running(coordinator_of(parts)) as groups,
        ):
            asked: list[str] = []
            head_right = ledger.head

            async def head() -> Head:
                asked.append("head")
                return await head_right()

            await parts.ledger.barrier()
            monkeypatch.setattr(ledger, "head", head)
            member_id = (await join(groups)).member_id
            heads_count = len(asked)
            await sync(groups, member_id, (member_id, b"part"))
            assert await groups.heartbeat("g", member_id, None, 1) is ErrorCode.none
            needs_id = await (await groups.join("g", replace(a_join(groups), needs_known_id=True)))
            assert needs_id.error_code is ErrorCode.member_id_required
            assert len(asked) == heads_count
            told = await asyncio.gather(*(groups.heartbeat("g", "nobody", None, 1) for _ in range(100)))
            assert set(told) == {ErrorCode.unknown_member_id}
            assert len(asked) <= heads_count + 2

    async def test_who_waits_for_one_is_told_when_the_claim_is_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with one_agent() as (parts, groups):
            await stable(groups)
            begun = gated_barriers(parts, monkeypatch)
            joining = await groups.join("g", a_join(groups, "nobody"))
            beating = asyncio.ensure_future(groups.heartbeat("g", "nobody", None, 1))
            while len(begun) < 2:
                await turn()
            assert [joining.done(), beating.done()] == [False, False]
            groups.stop()
            assert (await joining).error_code is ErrorCode.not_coordinator
            assert await beating is ErrorCode.not_coordinator
            for each in begun:
                each.set_result(parts.ledger.state.position)
            await turn()

    async def test_who_waits_for_a_barrier_is_told_also_where_the_group_is_over_by_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That the last member left is in the ledger, so nobody is told that this agent could not do it."""
        async with one_agent() as (parts, groups):
            member_id = await stable(groups)
            begun = gated_barriers(parts, monkeypatch)
            leaving = asyncio.ensure_future(groups.leave("g", [Leaver(member_id, None), Leaver("nobody", None)]))
            while not begun:
                await turn()
            await groups._unload_lost()
            begun[0].set_result(parts.ledger.state.position)
            assert await leaving == (ErrorCode.none, (ErrorCode.none, ErrorCode.unknown_member_id))
            await groups._unload_lost()
            assert groups.groups_count == 0


class TestConsumerGroups:
    async def test_who_waits_for_a_barrier_is_told_also_where_the_group_is_over_by_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with one_agent_of_consumers() as agent:
            await agent.say(beat("a"))
            await agent.say(beat("a", -1))
            begun = gated_barriers(agent.parts, monkeypatch)
            asked = asyncio.ensure_future(agent.refused(beat("a", 2)))
            while not begun:
                await turn()
            await agent.groups.look_after()
            for each in begun:
                each.set_result(agent.parts.ledger.state.position)
            assert await asked is ErrorCode.unknown_member_id
            await agent.groups.look_after()
            assert agent.groups.groups_count == 0

    async def test_who_waits_for_a_barrier_is_told_at_once_when_the_claim_is_over(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with one_agent_of_consumers() as agent:
            await agent.say(beat("a"))
            begun = gated_barriers(agent.parts, monkeypatch)
            asked = asyncio.ensure_future(agent.refused(beat("nobody", 2)))
            while not begun:
                await turn()
            agent.groups.stop()
            assert await asked is ErrorCode.not_coordinator
            for each in begun:
                each.set_result(agent.parts.ledger.state.position)

    async def test_s4_a_classic_group_that_is_cut_off_is_not_called_full(self) -> None:
        """A consumer that is told so ends; members may have left elsewhere."""
        ledger = MemoryLedger()
        async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
            await parts.ledger.propose(create(partitions=2))
            agent = GroupAgent(parts, **{"group.consumer.max.size": "1"})
            await agent.ledger.claim("g")
            kept = structs.replace(member(), protocols=(("range", subscription("t")),), assignment=b"")
            await agent.ledger.write("g", generation(1, kept))
            assert await agent.refused(beat("a")) is ErrorCode.group_max_size_reached
            ledger.is_reachable = False
            assert await agent.refused(beat("a")) is ErrorCode.coordinator_not_available


def gated_barriers(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Future[Position]]:
    """Those that begin from now on, which the test answers."""
    begun: list[asyncio.Future[Position]] = []

    def begin_barrier() -> asyncio.Future[Position]:
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    monkeypatch.setattr(parts.ledger, "begin_barrier", begin_barrier)
    return begun


async def turn() -> None:
    await asyncio.sleep(0)


async def test_s4_who_speaks_the_classic_protocol_is_not_unknown_to_a_consumer_group_that_is_cut_off() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        await parts.ledger.propose(create(partitions=2))
        agent = GroupAgent(parts)
        await agent.say(beat("a"))
        b = Leaver(member_id="b", group_instance_id=None)
        unknown, away = ErrorCode.unknown_member_id, ErrorCode.coordinator_not_available
        assert await told_by_classic_requests(agent, "b") == [unknown, unknown]
        assert await agent.classic.leave("g", [b]) == (ErrorCode.none, (unknown,))
        ledger.is_reachable = False
        assert await told_by_classic_requests(agent, "b") == [away, away]
        assert await agent.classic.leave("g", [b]) == (away, ())


async def told_by_classic_requests(agent: GroupAgent, member_id: str) -> list[ErrorCode]:
    """By Heartbeat and SyncGroup."""
    sync = Sync(
        ticket=next_ticket(),
        member_id=member_id,
        group_instance_id=None,
        generation=2,
        protocol_type=None,
        protocol=None,
        assignments=(),
    )
    synced = await (await agent.classic.sync("g", sync))
    return [await agent.classic.heartbeat("g", member_id, None, 2), synced.error_code]


async def test_s4_a_group_that_a_consumer_may_not_begin_is_looked_up_before_it_is_told_so() -> None:
    """It may be one of consumers by now."""
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        await parts.ledger.propose(create(partitions=2))
        agent = GroupAgent(parts, **{"group.consumer.migration.policy": "disabled"})
        await agent.ledger.claim("g")
        await agent.ledger.write("g", GENERATION)
        assert await agent.refused(beat("a")) is ErrorCode.group_id_not_found
        ledger.is_reachable = False
        assert await agent.refused(beat("a")) is ErrorCode.coordinator_not_available


async def test_s4_who_is_unknown_under_a_claim_that_is_over_looks_for_another() -> None:
    async with two_agents() as (first, second):
        await first.say(beat("a"))
        claim_epoch = first.parts.ledger.state.groups["g"].claim_epoch
        await check_confirmed(first.ledger, "g", claim_epoch)
        await first.parts.ledger.propose(StartDrain(session=first.parts.ledger.session))
        await second.parts.ledger.barrier()
        with pytest.raises(NotCoordinator) as caught:  # nobody has claimed it yet
            await check_confirmed(first.ledger, "g", claim_epoch)
        assert caught.value.error_code is ErrorCode.not_coordinator
        await second.parts.ledger.propose(ClaimGroups(group_ids=("g",)))
        with pytest.raises(NotCoordinator) as caught:
            await check_confirmed(first.ledger, "g", claim_epoch)
        assert caught.value.error_code is ErrorCode.not_coordinator
        with pytest.raises(NotCoordinator) as caught:
            await check_confirmed(second.ledger, "g", claim_epoch)
        assert caught.value.error_code is ErrorCode.not_coordinator
