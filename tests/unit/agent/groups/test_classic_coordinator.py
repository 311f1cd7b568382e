"""Classic groups on their coordinator: what is told and when, whose groups are held, and what ends that (S13)."""

import asyncio
import gc
import logging
import weakref
from dataclasses import replace

import pytest

from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from coordinator.commands.commands import EndSession
from coordinator.commands.group_values import ClassicGroup
from coordinator.groups.classic_messages import Leaver
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_ENTRY_BYTES_MAX, LEDGER_SESSION_SECONDS, MEMBER_ID_PREFIX_CHARS_MAX
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import start
from tests.support.commands.group_commands import GENERATION, JOINED
from tests.support.groups.classic_coordinator import (
    CONFIGS,
    SECONDS_MAX,
    a_join,
    coordinator_of,
    join,
    one_agent,
    running,
    stable,
    sync,
)


class JumpingClock(SystemClock):
    """The machine's clock; `stood_still_s` is for how long the process did not run."""

    def __init__(self) -> None:
        self.stood_still_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.stood_still_s


def written(parts: Parts) -> ClassicGroup:
    value = parts.ledger.state.groups["g"].value
    assert isinstance(value, ClassicGroup)
    return value


async def test_what_a_member_is_told_is_in_the_ledger_already() -> None:
    async with one_agent() as (parts, groups):
        told = await join(groups)
        assert (told.generation, told.leader, told.member_id.startswith("client-")) == (1, told.member_id, True)
        assert (written(parts).generation, written(parts).is_synced) == (1, False)
        assigned = await sync(groups, told.member_id, (told.member_id, b"part"))
        assert assigned.assignment == b"part"
        assert written(parts).is_synced
        assert written(parts).members[0].assignment == b"part"


async def test_a_member_id_begins_with_the_client_id_or_the_instance_id() -> None:
    async with one_agent() as (_, groups):
        assert groups.new_member_id("client", None).startswith("client-")
        assert groups.new_member_id("client", "instance").startswith("instance-")
        longest = groups.new_member_id("c" * 32_767, None)
        assert len(longest) == MEMBER_ID_PREFIX_CHARS_MAX + len("-00000000-0000-0000-0000-000000000000")


async def test_heartbeats_and_repeats_cost_no_entry() -> None:
    async with one_agent() as (parts, groups):
        member_id = await stable(groups)
        position = parts.ledger.state.position
        for _ in range(3):
            assert await groups.heartbeat("g", member_id, None, 1) is ErrorCode.none
        assert (await sync(groups, member_id)).assignment == b"part"
        assert parts.ledger.state.position == position


async def test_an_answer_waits_for_what_was_written_before_it() -> None:
    async with one_agent() as (_, groups):
        member_id = await stable(groups)
        leave = asyncio.ensure_future(groups.leave("g", [Leaver(member_id, None)]))
        heartbeat = asyncio.ensure_future(groups.heartbeat("g", member_id, None, 1))
        done, _ = await asyncio.wait([leave, heartbeat], return_when=asyncio.FIRST_COMPLETED)
        assert leave in done
        assert leave.result() == (ErrorCode.none, (ErrorCode.none,))
        assert await heartbeat is ErrorCode.unknown_member_id


async def test_a_group_that_does_not_exist_knows_nobody_and_is_not_claimed() -> None:
    async with one_agent() as (parts, groups):
        assert await groups.heartbeat("g", "a", None, 1) is ErrorCode.unknown_member_id
        assert (await sync(groups, "a")).error_code is ErrorCode.unknown_member_id
        assert await groups.leave("g", [Leaver("a", None)]) == (ErrorCode.none, (ErrorCode.unknown_member_id,))
        told = await join(groups, "a")
        assert (told.error_code, told.member_id) == (ErrorCode.unknown_member_id, "a")
        assert "g" not in parts.ledger.state.groups


async def test_a_group_without_an_id_is_invalid() -> None:
    async with one_agent() as (parts, groups):
        assert (await (await groups.join("", a_join(groups)))).error_code is ErrorCode.invalid_group_id
        assert (await sync(groups, "a", group_id="")).error_code is ErrorCode.invalid_group_id
        assert await groups.heartbeat("", "a", None, 1) is ErrorCode.invalid_group_id
        assert await groups.leave("", [Leaver("a", None)]) == (ErrorCode.invalid_group_id, ())
        assert parts.ledger.state.groups == {}


@pytest.mark.parametrize(("session_ms", "error_code"), [(99, 26), (100, 0), (60_000, 0), (60_001, 26)])
async def test_session_timeouts_have_bounds(session_ms: int, error_code: int) -> None:
    async with one_agent() as (_, groups):
        assert (await join(groups, session_ms=session_ms)).error_code == error_code


async def test_who_brings_no_protocol_makes_no_group() -> None:
    async with one_agent() as (parts, groups):
        empty = replace(a_join(groups), protocols=())
        assert (await (await groups.join("g", empty))).error_code is ErrorCode.inconsistent_group_protocol
        assert parts.ledger.state.groups == {}


async def test_a_silent_member_goes_and_what_is_empty_is_not_held() -> None:
    async with one_agent() as (parts, groups):
        await stable(groups, session_ms=100)
        while written(parts).members:
            await parts.ledger.apply_loop.reach(type(parts.ledger.state.position)(parts.ledger.state.position + 1))
        assert written(parts).generation == 2
        while groups.groups_count:
            await asyncio.wait_for(_turn(), SECONDS_MAX)
        assert groups.generations_count == 1


async def _turn() -> None:
    await SystemClock().sleep(0.01)


async def test_a_coordinator_that_stood_still_hears_its_members_before_they_count_as_gone() -> None:
    clock = JumpingClock()
    async with (
        running_parts() as parts,
        asyncio.timeout(SECONDS_MAX),
        running(coordinator_of(parts, clock=clock)) as groups,
    ):
        member_id = await stable(groups, session_ms=1_000)
        clock.stood_still_s = 60.0
        begun_s = clock.monotonic_s()
        while clock.monotonic_s() < begun_s + 1.5:
            await _turn()
            assert await groups.heartbeat("g", member_id, None, 1) is ErrorCode.none


async def test_a_refused_entry_is_reported_and_the_group_goes_on_from_the_ledger() -> None:
    async with one_agent() as (parts, groups):
        incompressible = b"".join(SystemIds().new_uuid() for _ in range(LEDGER_ENTRY_BYTES_MAX // 16 + 1_000))
        told = await (await groups.join("g", a_join(groups, metadata=incompressible)))
        assert told.error_code is ErrorCode.unknown_server_error
        assert parts.ledger.state.groups["g"].value is None
        assert (await join(groups)).generation == 1


async def test_an_assignment_that_no_entry_takes_is_told_and_the_group_stays_held() -> None:
    async with one_agent() as (parts, groups):
        told = await join(groups)
        incompressible = b"".join(SystemIds().new_uuid() for _ in range(LEDGER_ENTRY_BYTES_MAX // 16 + 1_000))
        position = parts.ledger.state.position
        refused = await sync(groups, told.member_id, (told.member_id, incompressible))
        assert refused.error_code is ErrorCode.unknown_server_error
        assert await groups.heartbeat("g", told.member_id, None, 1) is ErrorCode.rebalance_in_progress
        assert parts.ledger.state.position == position
        again = await join(groups, told.member_id)
        assert again.generation == 2
        assigned = await sync(groups, told.member_id, (told.member_id, b"less"), generation=2)
        assert assigned.assignment == b"less"


async def test_s13_who_waits_is_told_when_the_claim_is_over() -> None:
    async with one_agent({**CONFIGS, "group.initial.rebalance.delay.ms": "60000"}) as (parts, groups):
        waiting = await groups.join("g", a_join(groups))
        await parts.ledger.propose(EndSession(session=parts.ledger.session))
        assert (await waiting).error_code is ErrorCode.not_coordinator


async def test_s13_a_coordinator_that_was_not_confirmed_for_a_lease_asks_the_ledger_before_it_speaks() -> None:
    async with one_agent() as (parts, groups):
        member_id = await stable(groups)
        parts.clock.seconds += LEDGER_SESSION_SECONDS
        assert _commit(groups, member_id, 1) is ErrorCode.not_coordinator
        position = parts.ledger.state.position
        assert await groups.heartbeat("g", member_id, None, 1) is ErrorCode.none
        assert parts.ledger.state.position > position


async def test_a_stopping_agent_coordinates_nothing_any_more() -> None:
    async with one_agent({**CONFIGS, "group.initial.rebalance.delay.ms": "60000"}) as (_, groups):
        waiting = await groups.join("g", a_join(groups))
        groups.stop()
        assert (await waiting).error_code is ErrorCode.not_coordinator
        assert (await join(groups)).error_code is ErrorCode.not_coordinator
        assert await groups.heartbeat("g", "a", None, 1) is ErrorCode.not_coordinator
        told = groups.check_commit("g", member_id="", group_instance_id=None, generation=-1, api_version=9)
        assert told is ErrorCode.not_coordinator


async def test_a_group_that_was_deleted_is_forgotten() -> None:
    async with one_agent({**CONFIGS, "group.initial.rebalance.delay.ms": "60000"}) as (_, groups):
        waiting = await groups.join("g", a_join(groups))
        groups.forget("g")
        groups.forget("g")
        assert (await waiting).error_code is ErrorCode.unknown_member_id
        assert groups.groups_count == 0


async def test_a_group_that_was_lost_is_not_kept_until_its_time_has_come() -> None:
    async with one_agent({**CONFIGS, "group.initial.rebalance.delay.ms": "60000"}) as (_, groups):
        waiting = await groups.join("g", a_join(groups))
        live = weakref.ref(groups._live["g"])
        groups.forget("g")
        await waiting
        gc.collect()
        assert live() is None


async def test_a_group_whose_changes_are_on_their_way_is_taken_over_later() -> None:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        groups = coordinator_of(parts)
        await groups._group_ledger.claim("g")
        change = groups._group_ledger.write("g", GENERATION)
        groups.take_over("g", "why", is_rebalanced=True)
        assert (groups.groups_count, groups._owned.is_load_due) == (0, True)
        await change


class TestNextCoordinator:
    async def test_s13_the_next_coordinator_goes_on_without_a_rebalance(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core)) as one, asyncio.timeout(SECONDS_MAX):
            async with running(coordinator_of(one)) as groups:
                member_id = await stable(groups)
                groups.stop()
            await one.ledger.propose(EndSession(session=one.ledger.session))
            async with (
                running_parts(MemoryLedger(core), start("b", node=2)) as other,
                running(coordinator_of(other)) as next_groups,
            ):
                assert await next_groups.heartbeat("g", member_id, None, 1) is ErrorCode.none
                assert (await sync(next_groups, member_id)).assignment == b"part"
                assert written(other).generation == 1
                while len(news := [vars(each) for each in caplog.records if "names" in vars(each)]) < 2:
                    await _turn()
            assert [(each["message"].split()[2], each["groups"], each["names"]) for each in news] == [
                ("hands", 1, "g"),
                ("coordinates", 1, "g"),
            ]

    async def test_it_minds_members_of_whom_nobody_hears(self) -> None:
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core)) as one, asyncio.timeout(SECONDS_MAX):
            groups = coordinator_of(one)
            async with running(groups):
                member_id = await stable(groups, session_ms=500)
            await one.ledger.propose(EndSession(session=one.ledger.session))
            clock = JumpingClock()
            async with (
                running_parts(MemoryLedger(core), start("b", node=2)) as other,
                running(coordinator_of(other, clock=clock)) as next_groups,
            ):
                while not next_groups.groups_count:
                    await _turn()
                clock.stood_still_s += 1.0
                # Whoever coordinated before may have heard them for a lease more, where its watch lagged (S4).
                assert _commit(next_groups, member_id, 1) is ErrorCode.none
                # Its timer comes soon, so that all are looked at that are due by then.
                await next_groups.join("other", a_join(next_groups, session_ms=300))
                clock.stood_still_s += LEDGER_SESSION_SECONDS
                while written(other).members:
                    await _turn()
                assert written(other).generation == 2

    async def test_it_takes_the_assignment_of_a_generation_that_began_before(self) -> None:
        core = MemoryLedgerCore()
        async with running_parts(MemoryLedger(core)) as one, asyncio.timeout(SECONDS_MAX):
            async with running(coordinator_of(one)) as groups:
                member_id = (await join(groups)).member_id
            await one.ledger.propose(EndSession(session=one.ledger.session))
            async with (
                running_parts(MemoryLedger(core), start("b", node=2)) as other,
                running(coordinator_of(other)) as next_groups,
            ):
                assert (await sync(next_groups, member_id, (member_id, b"part"))).assignment == b"part"

    async def test_s13_the_one_before_can_write_nothing_any_more(self) -> None:
        core = MemoryLedgerCore()
        async with (
            running_parts(MemoryLedger(core)) as one,
            running_parts(MemoryLedger(core), start("b", node=2)) as other,
            asyncio.timeout(SECONDS_MAX),
        ):
            for parts in (one, other):
                await parts.ledger.barrier()
            owner, _ = (one, other) if _owns(one, "g") else (other, one)
            async with running(coordinator_of(owner)) as groups:
                member_id = await stable(groups)
                await owner.ledger.propose(EndSession(session=owner.ledger.session))
                assert await groups.heartbeat("g", member_id, None, 1) is not ErrorCode.none
                told = groups.check_commit(
                    "g", member_id=member_id, group_instance_id=None, generation=1, api_version=9
                )
                assert told is ErrorCode.not_coordinator


def _owns(parts: Parts, group_id: str) -> bool:
    ledger = GroupLedger(ledger=parts.ledger, clock=parts.clock)
    return ledger.coordinator(group_id) == parts.ledger.session


class TestCommits:
    """Source: OffsetMetadataManager.validateOffsetCommit (Kafka 4.3)."""

    async def test_a_generation_of_a_group_that_does_not_exist(self) -> None:
        async with one_agent() as (parts, groups):
            ledger = GroupLedger(ledger=parts.ledger, clock=parts.clock)
            assert _commit(groups, "a", 1) is ErrorCode.not_coordinator
            groups = coordinator_of(parts)
            groups._group_ledger = ledger
            await ledger.claim("g")
            assert _commit(groups, "a", 1, version=8) is ErrorCode.illegal_generation
            assert _commit(groups, "a", 1, version=9) is ErrorCode.group_id_not_found
            assert _commit(groups, "", -1) is ErrorCode.none

    async def test_members_commit_for_their_generation(self) -> None:
        async with one_agent() as (_, groups):
            member_id = await stable(groups)
            assert _commit(groups, member_id, 1) is ErrorCode.none
            assert _commit(groups, member_id, 2) is ErrorCode.illegal_generation
            assert _commit(groups, "nobody", 1) is ErrorCode.unknown_member_id
            assert _commit(groups, "", -1) is ErrorCode.unknown_member_id

    async def test_a_group_of_the_consumer_protocol_is_not_judged_here(self) -> None:
        async with one_agent() as (parts, groups):
            ledger = groups._group_ledger
            await ledger.claim("g")
            await ledger.write_consumer("g", JOINED)
            assert _commit(groups, "m1", 1) is ErrorCode.unknown_member_id
            assert await groups.describe("g") is None
            assert await groups.heartbeat("g", "m1", None, 1) is ErrorCode.unknown_member_id
            assert parts.ledger.state.groups["g"].has_members


def _commit(groups: ClassicGroupCoordinator, member_id: str, generation: int, *, version: int = 9) -> ErrorCode:
    return groups.check_commit(
        "g", member_id=member_id, group_instance_id=None, generation=generation, api_version=version
    )


class TestDescriptions:
    async def test_a_group_is_described_as_it_is_now(self) -> None:
        async with one_agent({**CONFIGS, "group.initial.rebalance.delay.ms": "60000"}) as (_, groups):
            assert await groups.describe("g") is None
            await groups.join("g", a_join(groups))
            told = await groups.describe("g")
            assert told is not None
            assert (told.state, len(told.members)) == ("PreparingRebalance", 1)
            assert groups.unwritten() == ["g"]

    async def test_what_is_not_held_is_described_from_the_ledger(self) -> None:
        async with one_agent() as (parts, groups):
            member_id = await stable(groups)
            told = await coordinator_of(parts).describe("g")
            assert told is not None
            assert (told.state, told.members[0].member_id, told.members[0].assignment) == ("Stable", member_id, b"part")
            assert groups.unwritten() == []

    async def test_a_group_that_was_lost_meanwhile_is_not_described(self) -> None:
        async with one_agent() as (_, groups):
            member_id = await stable(groups)
            leave = asyncio.ensure_future(groups.leave("g", [Leaver(member_id, None)]))
            await asyncio.sleep(0)
            describe = asyncio.ensure_future(groups.describe("g"))
            await asyncio.sleep(0)
            groups.forget("g")
            with pytest.raises(NotCoordinator):
                await describe
            assert await leave == (ErrorCode.unknown_member_id, ())
