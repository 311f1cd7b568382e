"""Groups that change their protocol on their coordinator (KIP-848): who is asked, and what is in the ledger."""

import asyncio
from dataclasses import replace
from random import Random

import pytest
from msgspec import structs

from coordinator.commands.commands import Done
from coordinator.commands.consumer_group_values import LEAVE_EPOCH
from coordinator.commands.group import ClaimGroups
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.groups.classic_messages import Leaver, Sync, Ticket
from protocol.consumer_protocol import read_assignment, write_assignment
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_MEMBER_BYTES_MAX, LEDGER_ENTRY_BYTES_MAX
from protocol.types import Position
from tests.support.groups.consumer_coordinator import GroupAgent, one_agent, problems
from tests.support.groups.consumer_groups import beat, subscription
from tests.support.groups.mixed_group import ask

SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}

SYNC = Sync(
    ticket=Ticket(0),
    member_id="m",
    group_instance_id=None,
    generation=6,
    protocol_type="consumer",
    protocol="range",
    assignments=(),
)


def classic(member_id: str, partitions: list[int]) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=30_000,
        session_timeout_ms=10_000,
        protocols=(("range", subscription("t")),),
        assignment=write_assignment({"t": partitions}, 1),
    )


def generation(number: int, *members: ClassicMember, protocol_type: str = "consumer") -> ClassicGroup:
    return ClassicGroup(
        generation=number,
        protocol_type=protocol_type,
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        members=members,
        is_synced=True,
    )


async def write(agent: GroupAgent, group: ClassicGroup) -> None:
    """Put a classic group into the ledger."""
    await agent.ledger.claim("g")
    assert await agent.ledger.write("g", group) == Done()


def value(agent: GroupAgent) -> ClassicGroup:
    found = agent.parts.ledger.state.groups["g"].value
    assert isinstance(found, ClassicGroup)
    return found


async def test_the_first_member_of_the_consumer_protocol_takes_the_group_with_it() -> None:
    async with one_agent(**SETTINGS) as agent:
        await write(agent, generation(5, classic("m", [0, 1])))
        answer = await agent.say(beat("a"))
        assert (answer.epoch, answer.assigned) == (6, ())
        assert sorted(agent.group.members) == ["a", "m"]
        assert await agent.classic.heartbeat("g", "m", None, 5) is ErrorCode.rebalance_in_progress
        joined = await (await agent.classic.join("g", ask("m", has={"t": [0, 1]})))
        assert (joined.error_code, joined.generation) == (ErrorCode.none, 5)
        joined = await (await agent.classic.join("g", ask("m", has={"t": [0]})))
        assert joined.generation == 6
        synced = await (await agent.classic.sync("g", SYNC))
        assert synced.assignment == write_assignment({"t": [0]}, 1)
        assert (await agent.say(beat("a", 6))).assigned is not None
        assert await agent.classic.heartbeat("g", "m", None, 6) is ErrorCode.none


async def test_members_of_both_protocols_cost_no_barrier_while_their_group_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one_agent(**SETTINGS) as agent:
        await write(agent, generation(5, classic("m", [0, 1])))
        assert (await agent.say(beat("a"))).epoch == 6
        barriers: list[str] = []

        begin_right = agent.parts.ledger.begin_barrier

        def begin_barrier() -> asyncio.Future[Position]:
            barriers.append("barrier")
            return begin_right()

        monkeypatch.setattr(agent.parts.ledger, "begin_barrier", begin_barrier)
        assert await agent.classic.heartbeat("g", "m", None, 5) is ErrorCode.rebalance_in_progress
        joined = await (await agent.classic.join("g", ask("m", has={"t": [0]})))
        synced = await (await agent.classic.sync("g", SYNC))
        assert (joined.generation, synced.error_code) == (6, ErrorCode.none)
        assert (await agent.say(beat("a", 6))).epoch == 6
        assert await agent.classic.leave("g", [Leaver("m", None)]) == (ErrorCode.none, (ErrorCode.none,))
        assert barriers == []
        agent.groups.forget("g")
        assert await agent.classic.heartbeat("g", "a", None, 6) is ErrorCode.unknown_member_id
        assert barriers


async def test_who_waits_in_the_classic_group_is_told_to_join_again() -> None:
    async with one_agent(**SETTINGS | {"group.initial.rebalance.delay.ms": "60000"}) as agent:
        waiting = await agent.classic.join("g", ask("", needs_known_id=False))
        assert not waiting.done()
        assert (await agent.say(beat("a"))).epoch == 2
        assert (await waiting).error_code is ErrorCode.rebalance_in_progress
        joined = await (await agent.classic.join("g", ask("new")))
        assert (joined.error_code, joined.generation) == (ErrorCode.none, 3)


async def test_so_is_who_waits_in_a_group_that_was_one_of_consumers_and_is_empty() -> None:
    async with one_agent(**SETTINGS | {"group.initial.rebalance.delay.ms": "60000"}) as agent:
        await agent.say(beat("a"))
        await agent.say(beat("a", LEAVE_EPOCH))
        epoch = agent.group.epoch
        waiting = await agent.classic.join("g", ask("", needs_known_id=False))
        assert not waiting.done()
        assert (await agent.say(beat("b"))).epoch == epoch + 1
        assert (await waiting).error_code is ErrorCode.rebalance_in_progress
        assert agent.classic.groups_count == 0
        joined = await (await agent.classic.join("g", ask("new")))
        assert (joined.error_code, joined.generation) == (ErrorCode.none, epoch + 2)
        assert sorted(agent.group.members) == ["b", "new"]


async def test_where_groups_may_not_change_a_consumer_is_turned_away_by_who_waits_in_such_a_group() -> None:
    settings = {"group.initial.rebalance.delay.ms": "60000", "group.consumer.migration.policy": "disabled"}
    async with one_agent(**SETTINGS | settings) as agent:
        await agent.say(beat("a"))
        await agent.say(beat("a", LEAVE_EPOCH))
        waiting = await agent.classic.join("g", ask("", needs_known_id=False))
        assert await agent.refused(beat("b")) is ErrorCode.group_id_not_found
        assert not waiting.done()


@pytest.mark.parametrize(
    ("group", "configs"),
    [
        (generation(5, classic("m", [0])), {"group.consumer.migration.policy": "disabled"}),
        (generation(5, classic("m", [0])), {"group.consumer.migration.policy": "downgrade"}),
        (generation(5, classic("m", [0]), protocol_type="connect"), {}),
        (generation(5, structs.replace(classic("m", [0]), assignment=b"part")), {}),
        (generation(5, classic("m", [0]), classic("n", [1])), {"group.consumer.max.size": "1"}),
    ],
)
async def test_a_group_that_cannot_change_stays_as_it_is(group: ClassicGroup, configs: dict[str, str]) -> None:
    async with one_agent(**SETTINGS | configs) as agent:
        await write(agent, group)
        assert await agent.refused(beat("a")) is ErrorCode.group_id_not_found
        assert value(agent) == group
        assert await agent.classic.heartbeat("g", "m", None, 5) is ErrorCode.none


def incompressible(size: int) -> bytes:
    """A subscription to `t` with so many bytes of an assignor's own."""
    return b"\0\1\0\0\0\1\0\1t" + size.to_bytes(4, "big") + Random(size).randbytes(size) + bytes(4)


async def test_a_group_that_no_entry_takes_as_a_consumer_group_stays_a_classic_one() -> None:
    async with one_agent(**SETTINGS) as agent:
        subscribed = incompressible(LEDGER_ENTRY_BYTES_MAX - 3_000)
        group = generation(5, structs.replace(classic("m", [0]), protocols=(("range", subscribed),)))
        await write(agent, group)
        claim_epoch = agent.parts.ledger.state.groups["g"].claim_epoch
        names = [Random(number).randbytes(100).hex() for number in range(100)]
        for _ in range(3):
            assert await agent.refused(beat("a", names=names)) is ErrorCode.group_max_size_reached
            assert value(agent) == group
            assert await agent.classic.heartbeat("g", "m", None, 5) is ErrorCode.none
        assert agent.parts.ledger.state.groups["g"].claim_epoch == claim_epoch


async def test_a_group_that_no_entry_takes_as_a_classic_one_stays_a_consumer_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with one_agent(**SETTINGS) as agent:
        await agent.say(beat("a"))
        size = CONSUMER_GROUP_MEMBER_BYTES_MAX - 100
        requests = [
            replace(ask(f"m{number}"), protocols=(("range", incompressible(size - number)),)) for number in range(5)
        ]
        for request in requests:
            joined = await (await agent.classic.join("g", request))
            assert joined.error_code is ErrorCode.none
        claim_epoch = agent.parts.ledger.state.groups["g"].claim_epoch
        assert (await agent.say(beat("a", -1))).epoch == -1
        joined = await (await agent.classic.join("g", replace(requests[4], protocols=requests[0].protocols)))
        assert joined.error_code is ErrorCode.none
        entries = agent.entries
        for _ in range(3):
            await agent.groups.look_after()
        assert (agent.entries, agent.parts.ledger.state.groups["g"].claim_epoch) == (entries, claim_epoch)
        assert sorted(agent.group.members) == [f"m{number}" for number in range(5)]
        assert len(problems(caplog)) == 1


async def test_members_that_are_no_consumers_are_left_alone_while_they_join() -> None:
    async with one_agent(**SETTINGS | {"group.initial.rebalance.delay.ms": "60000"}) as agent:
        waiting = await agent.classic.join("g", ask("", needs_known_id=False, protocol_type="connect"))
        assert await agent.refused(beat("a")) is ErrorCode.group_id_not_found
        assert not waiting.done()


async def test_an_empty_classic_group_is_followed_by_higher_epochs() -> None:
    async with one_agent(**SETTINGS | {"group.consumer.migration.policy": "disabled"}) as agent:
        await write(agent, generation(5))
        assert (await agent.say(beat("a"))).epoch == 6


async def test_an_empty_consumer_group_is_followed_by_higher_generations() -> None:
    async with one_agent(**SETTINGS) as agent:
        epoch = (await agent.say(beat("a"))).epoch
        await agent.say(beat("a", -1))
        timers = asyncio.create_task(agent.classic.run_timers())
        joined = await (await agent.classic.join("g", ask("", needs_known_id=False)))
        timers.cancel()
        assert joined.error_code is ErrorCode.none
        assert joined.generation > epoch


async def test_a_group_is_held_by_nobody_before_what_was_decided_of_it_is_applied() -> None:
    async with one_agent(**SETTINGS) as agent:
        await write(agent, generation(5))
        written = agent.ledger.write("g", generation(6))
        joined = await (await agent.classic.join("g", ask("", needs_known_id=False)))
        assert joined.error_code is ErrorCode.coordinator_load_in_progress
        assert await agent.refused(beat("a")) is ErrorCode.coordinator_load_in_progress
        assert await written == Done()
        assert (await agent.say(beat("a"))).epoch == 7


async def mixed(agent: GroupAgent) -> None:
    """The consumer `a` and the classic member `m`, with one partition each, at epoch 6."""
    await write(agent, generation(5, classic("m", [0])))
    await agent.say(beat("a"))
    await (await agent.classic.join("g", ask("m", has={"t": [0]})))
    await (await agent.classic.sync("g", SYNC))
    await agent.say(beat("a", 6))


async def test_when_the_last_consumer_leaves_the_rest_is_a_classic_group_that_rebalances() -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        answer = await agent.say(beat("a", -1))
        assert (answer.member_id, answer.epoch) == ("a", -1)
        assert value(agent).generation == 6
        assert [member.member_id for member in value(agent).members] == ["m"]
        assert agent.groups.groups_count == 0
        assert await agent.classic.heartbeat("g", "m", None, 6) is ErrorCode.rebalance_in_progress
        joined = await (await agent.classic.join("g", ask("m")))
        assert (joined.error_code, joined.generation, joined.leader) == (ErrorCode.none, 7, "m")


async def test_the_next_coordinator_rebalances_what_a_consumer_left_behind() -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        await agent.say(beat("a", -1))
        agent.classic.stop()
        restarted = GroupAgent(agent.parts, **SETTINGS)
        assert await restarted.classic.heartbeat("g", "m", None, 6) is ErrorCode.rebalance_in_progress


async def test_a_group_stays_a_consumer_group_where_no_entry_takes_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        monkeypatch.setattr("coordinator.groups.group_migration.CLASSIC_MEMBERS_BYTES_MAX", 10)
        await agent.say(beat("a", -1))
        assert list(agent.group.members) == ["m"]


async def test_that_it_stays_is_told_once_whatever_its_members_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        monkeypatch.setattr("coordinator.groups.group_migration.CLASSIC_MEMBERS_BYTES_MAX", 10)
        for _ in range(2):
            await agent.say(beat("a", -1))
            for size in (1, 2, 3):
                await agent.classic.join("g", replace(ask("m"), protocols=(("range", incompressible(size)),)))
                await agent.groups.look_after()
            await agent.say(beat("a"))
            await agent.classic.join("g", ask("m"))
        assert len(problems(caplog)) == 2


async def test_when_the_last_consumer_is_silent_the_rest_is_a_classic_group_too() -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        for _ in range(5):
            await agent.wait(9)
            assert await agent.classic.heartbeat("g", "m", None, 6) is ErrorCode.none
        await agent.wait(1)
        await agent.groups.look_after()
        await agent.parts.ledger.barrier()
        assert [member.member_id for member in value(agent).members] == ["m"]


async def test_consumers_that_are_silent_together_leave_a_classic_group_too() -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        await agent.say(beat("b"))
        joined = await (await agent.classic.join("g", ask("m")))
        await (await agent.classic.sync("g", replace(SYNC, generation=joined.generation)))
        for _ in range(5):
            await agent.wait(9)
            assert await agent.classic.heartbeat("g", "m", None, joined.generation) is ErrorCode.none
        await agent.wait(1)
        await agent.groups.look_after()
        await agent.parts.ledger.barrier()
        assert [member.member_id for member in value(agent).members] == ["m"]


async def test_a_group_stays_a_consumer_group_where_it_may_not_go_back() -> None:
    async with one_agent(**SETTINGS | {"group.consumer.migration.policy": "upgrade"}) as agent:
        await mixed(agent)
        await agent.say(beat("a", -1))
        assert list(agent.group.members) == ["m"]


async def test_a_static_consumer_that_comes_back_as_a_classic_one_takes_the_group_back() -> None:
    async with one_agent(**SETTINGS) as agent:
        await agent.say(beat("a", instance="i"))
        await agent.say(beat("a", -2, instance="i"))
        joined = await (await agent.classic.join("g", ask("", instance="i")))
        assert (joined.error_code, joined.member_id, joined.generation) == (ErrorCode.none, "new", 2)
        assert [member.member_id for member in value(agent).members] == ["new"]
        assert await agent.classic.heartbeat("g", "new", "i", 2) is ErrorCode.none


async def test_who_waits_for_partitions_then_is_told_to_join_again() -> None:
    async with one_agent(**SETTINGS) as agent:
        await agent.say(beat("a", instance="i"))
        await (await agent.classic.join("g", ask("m", needs_known_id=False)))
        waiting = replace(SYNC, generation=3)
        synced = await (await agent.classic.sync("g", waiting))
        assert (synced.error_code, read_assignment(synced.assignment).partitions) == (ErrorCode.none, ())
        await agent.say(beat("a", -2, instance="i"))
        assert await agent.classic.heartbeat("g", "m", None, 3) is ErrorCode.none
        await (await agent.classic.join("g", ask("", instance="i")))
        assert [member.member_id for member in value(agent).members] == ["m", "new"]
        assert await agent.classic.heartbeat("g", "m", None, 3) is ErrorCode.rebalance_in_progress
        waits = await agent.classic.join("g", ask("m", ticket=Ticket(1)))
        comes = await agent.classic.join("g", ask("new", instance="i", ticket=Ticket(2)))
        assert [(await joined).generation for joined in (waits, comes)] == [4, 4]


async def test_classic_members_leave_a_consumer_group() -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        told = await agent.classic.leave("g", [Leaver("m", None), Leaver("nobody", None)])
        assert told == (ErrorCode.none, (ErrorCode.none, ErrorCode.unknown_member_id))
        assert list(agent.group.members) == ["a"]


async def test_classic_members_that_no_entry_takes_out_stay_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_agent(**SETTINGS) as agent:
        await mixed(agent)
        claim_epoch = agent.parts.ledger.state.groups["g"].claim_epoch
        monkeypatch.setattr("coordinator.groups.consumer_group.fits", lambda _: False)
        assert await agent.classic.leave("g", [Leaver("m", None)]) == (ErrorCode.group_max_size_reached, ())
        assert (agent.groups.is_live("g"), sorted(agent.group.members)) == (True, ["a", "m"])
        assert agent.parts.ledger.state.groups["g"].claim_epoch == claim_epoch


async def test_a_join_that_is_refused_for_a_change_that_never_was_is_told_to_look_for_the_coordinator() -> None:
    async with one_agent(**SETTINGS) as agent:
        await agent.say(beat("a"))
        joined = await (await agent.classic.join("g", ask("", instance="i", new_id="m", needs_known_id=False)))
        assert joined.error_code is ErrorCode.none
        agent.parts.ledger.propose(ClaimGroups(group_ids=("g",)))
        replacing, refused = await asyncio.gather(
            agent.groups.join("g", ask("", instance="i")), agent.groups.join("g", ask("m", instance="i"))
        )
        assert (replacing.error_code, refused.error_code) == (ErrorCode.not_coordinator, ErrorCode.not_coordinator)
        assert sorted(agent.group.members) == ["a", "m"]
