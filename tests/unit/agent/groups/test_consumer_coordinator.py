"""Consumer groups on their coordinator: what is in the ledger before members are told, and what ends a claim (S13)."""

import asyncio
from copy import deepcopy

import pytest
from msgspec.structs import replace

from agent.groups.group_ledger import NotCoordinator
from coordinator.commands.admin import CreatePartitions
from coordinator.commands.commands import Command, DeleteTopic, Done, StartDrain
from coordinator.commands.consumer_group_values import (
    LEAVE_EPOCH,
    ConsumerGroupChange,
    GroupPhase,
    without_epochs,
)
from coordinator.commands.group import ClaimGroups
from coordinator.commands.group_values import GroupState
from coordinator.groups.consumer_group_messages import GroupRejection
from coordinator.ledger.memory import MemoryLedger
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_SESSION_SECONDS
from protocol.types import PartitionIndex, TopicId
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.groups.consumer_coordinator import SECONDS_MAX, GroupAgent, one_agent, problems, two_agents
from tests.support.groups.consumer_groups import beat

ALL = ((TOPIC, (PartitionIndex(0), PartitionIndex(1))),)
OTHER = TopicId(bytes([7] * 16))


async def test_a_member_is_told_of_nothing_that_the_ledger_does_not_have() -> None:
    async with one_agent() as agent:
        answer = await agent.say(beat("a"))
        assert (answer.epoch, answer.assigned is not None) == (2, True)
        assert without_epochs(agent.group.assignment("a").assigned) == ALL
        assert agent.group.phase() is GroupPhase.STABLE


async def test_a_heartbeat_without_news_costs_no_entry() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        before = agent.entries
        for _ in range(3):
            await agent.say(beat("a", 2))
            await agent.groups.look_after()
        assert agent.entries == before


async def test_a_heartbeat_looks_up_no_topic_where_none_came_went_or_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_agent() as agent:
        looked_up: list[str] = []

        def find_topic(name: str) -> tuple[TopicId, int] | None:
            looked_up.append(name)
            state = agent.parts.ledger.state
            topic_id = state.topic_ids.get(name)
            return None if topic_id is None else (topic_id, len(state.topics[topic_id].partitions))

        monkeypatch.setattr(agent.groups._topics, "_find", find_topic)
        await agent.say(beat("a", names="tu"))
        changes: tuple[Command, ...] = (
            CreatePartitions(topic_id=TOPIC, partition_count=3),
            replace(create(), topic_id=OTHER, name="u"),
            DeleteTopic(topic_id=OTHER),
        )
        for epoch, command in enumerate(changes, start=2):
            looked_up.clear()
            assert (await agent.say(beat("a", epoch))).epoch == epoch
            assert looked_up == []
            await agent.parts.ledger.propose(command)
            await agent.say(beat("a", epoch))
            assert agent.group.epoch == epoch + 1
            assert set(looked_up) == {"t", "u"}


async def test_an_assignment_that_no_entry_takes_ends_no_group_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        monkeypatch.setattr("coordinator.groups.consumer_group_copy.CONSUMER_GROUP_TARGETS_BYTES_MAX", 200)
        await agent.parts.ledger.propose(CreatePartitions(topic_id=TOPIC, partition_count=200))
        assert (await agent.say(beat("a", 2))).epoch == 2
        entries, claim_epoch = agent.entries, agent.parts.ledger.state.groups["g"].claim_epoch
        for _ in range(3):
            assert (await agent.say(beat("a", 2))).epoch == 2
            assert await agent.refused(beat("b")) is ErrorCode.group_max_size_reached
            await agent.groups.look_after()
        assert (agent.entries, agent.parts.ledger.state.groups["g"].claim_epoch) == (entries, claim_epoch)
        assert (agent.group.phase(), list(agent.group.members)) == (GroupPhase.ASSIGNING, ["a"])
        assert without_epochs(agent.group.assignment("a").assigned) == ALL
        assert len(problems(caplog)) == 1


async def test_an_expression_that_matches_too_much_is_an_error_for_its_members_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_agent() as agent:
        await agent.parts.ledger.propose(replace(create(), topic_id=OTHER, name="other"))
        monkeypatch.setattr("coordinator.groups.consumer_group_regexes.CONSUMER_GROUP_NAMES_BYTES_MAX", 12)
        await agent.say(beat("a", regex="t"))
        await agent.say(beat("b", regex="t|other"))
        await agent.groups.look_after()
        assert without_epochs((await agent.say(beat("a", agent.group.assignment("a").epoch))).assigned or ()) == ALL
        version = agent.parts.ledger.state.groups["g"].version
        for _ in range(3):
            error_code = await agent.refused(beat("b", agent.group.assignment("b").epoch))
            assert error_code is ErrorCode.group_max_size_reached
            await agent.wait(11)
            await agent.groups.look_after()
        assert agent.parts.ledger.state.groups["g"].version == version
        assert len(problems(caplog)) == 1


async def test_an_expression_that_was_refused_is_looked_up_again_when_there_are_other_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one_agent() as agent:
        await agent.parts.ledger.propose(replace(create(), topic_id=OTHER, name="other"))
        monkeypatch.setattr("coordinator.groups.consumer_group_regexes.CONSUMER_GROUP_NAMES_BYTES_MAX", 12)
        await agent.say(beat("a", regex=".*"))
        await agent.groups.look_after()
        assert await agent.refused(beat("a", 2)) is ErrorCode.group_max_size_reached
        await agent.parts.ledger.propose(DeleteTopic(topic_id=OTHER))
        await agent.wait(11)
        await agent.groups.look_after()
        assert without_epochs((await agent.say(beat("a", 2))).assigned or ()) == ALL


async def test_members_that_come_together_are_in_one_order() -> None:
    async with one_agent() as agent:
        answers = await asyncio.gather(*(agent.say(beat(name)) for name in "abcd"))
        assert sorted(answer.epoch for answer in answers) == [2, 3, 4, 5]
        assert agent.group.epoch == 5


async def test_who_changes_nothing_still_waits_for_what_was_changed_before() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        answers = await asyncio.gather(agent.say(beat("a", 2, rack="r")), agent.say(beat("a", 2)))
        assert [answer.epoch for answer in answers] == [2, 2]
        assert agent.group.members["a"].rack_id == "r"


async def test_who_was_taken_out_while_its_answer_waited_is_told_so() -> None:
    """What it had been assigned may be another one's by then."""
    async with one_agent() as agent:
        await agent.say(beat("a"))
        told, _ = await asyncio.gather(agent.refused(beat("b")), agent.say(beat("b", LEAVE_EPOCH)))
        assert told is ErrorCode.unknown_member_id
        assert list(agent.group.members) == ["a"]


async def test_so_is_who_is_taken_out_by_what_is_not_applied_yet() -> None:
    """Where the ledger was behind, both are applied at once, and another one's answer may arrive first."""
    async with one_agent() as agent:
        await agent.say(beat("a"))
        await agent.say(beat("b"))
        before = deepcopy(agent.parts.ledger.state)
        (live,) = agent.groups._live.values()
        await live.check_stays(before, "b")
        await agent.say(beat("b", LEAVE_EPOCH))
        with pytest.raises(GroupRejection, match="b"):
            await live.check_stays(before, "b")


async def test_what_is_not_there_is_not_made_by_asking() -> None:
    async with one_agent() as agent:
        before = agent.entries
        assert await agent.refused(beat("a", 5)) is ErrorCode.group_id_not_found
        assert await agent.refused(beat("a", -1)) is ErrorCode.group_id_not_found
        assert await agent.refused(beat("a"), group_id="") is ErrorCode.invalid_request
        assert await agent.refused(beat("a", assignor="nosuch")) is ErrorCode.unsupported_assignor
        assert agent.entries == before


async def test_a_group_whose_first_member_is_refused_is_not_begun() -> None:
    async with one_agent() as agent:
        assert await agent.refused(beat("a", regex="(")) is ErrorCode.invalid_regular_expression
        assert agent.groups.groups_count == 0
        assert agent.parts.ledger.state.groups["g"].is_vacant


async def test_only_the_agent_whose_group_it_is_answers() -> None:
    async with two_agents() as (coordinator, other):
        await coordinator.say(beat("a"))
        assert await other.refused(beat("b")) is ErrorCode.not_coordinator
        await other.parts.ledger.barrier()
        assert await other.refused(beat("a", 2)) is ErrorCode.not_coordinator


async def test_the_next_coordinator_goes_on_without_a_rebalance() -> None:
    async with two_agents() as (first, second):
        await first.say(beat("a"))
        await first.parts.ledger.propose(StartDrain(session=first.parts.ledger.session))
        await second.parts.ledger.barrier()
        assert await first.refused(beat("a", 2)) is ErrorCode.not_coordinator
        assert first.groups.groups_count == 0
        answer = await second.say(beat("a", 2))
        assert (answer.epoch, answer.assigned) == (2, None)


async def test_a_coordinator_that_lost_its_claim_unaware_changes_nothing() -> None:
    """Safety rule S13: what the paused agent had in memory is refused, and its member is sent to the next one."""
    async with two_agents() as (paused, other):
        await paused.say(beat("a"))
        await paused.parts.ledger.propose(StartDrain(session=paused.parts.ledger.session))
        await other.parts.ledger.barrier()
        await other.parts.ledger.propose(ClaimGroups(group_ids=("g",)))
        version = other.parts.ledger.state.groups["g"].version
        assert await paused.refused(beat("b")) is ErrorCode.not_coordinator
        await other.parts.ledger.barrier()
        assert other.parts.ledger.state.groups["g"].version == version


async def test_s4_who_is_unknown_to_a_coordinator_that_is_cut_off_looks_for_another() -> None:
    """It may have joined there."""
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        await parts.ledger.propose(create(partitions=2))
        agent = GroupAgent(parts)
        await agent.say(beat("a"))
        assert await agent.refused(beat("b", 3)) is ErrorCode.unknown_member_id
        ledger.is_reachable = False
        assert await agent.refused(beat("b", 3)) is ErrorCode.coordinator_not_available


async def test_a_change_that_is_refused_ends_the_copy() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        # Another claim of the same agent: entries under the former one are refused from here on.
        agent.parts.ledger.propose(ClaimGroups(group_ids=("g",)))
        assert await agent.refused(beat("b")) is ErrorCode.not_coordinator
        assert agent.groups.groups_count == 0
        assert list(agent.group.members) == ["a"]
        answer = await agent.say(beat("b"))
        assert answer.epoch == 3


@pytest.mark.parametrize("epoch", [2, LEAVE_EPOCH])
async def test_who_is_refused_for_a_change_that_never_was_is_told_to_look_for_the_coordinator(epoch: int) -> None:
    async with one_agent() as agent:
        await agent.say(beat("a", instance="i"))
        await agent.say(beat("a", -2, instance="i"))
        agent.parts.ledger.propose(ClaimGroups(group_ids=("g",)))
        replaced, refused = await asyncio.gather(
            agent.refused(beat("b", instance="i")), agent.refused(beat("a", epoch, instance="i"))
        )
        assert (replaced, refused) == (ErrorCode.not_coordinator, ErrorCode.not_coordinator)
        assert list(agent.group.members) == ["a"]


async def test_who_is_refused_for_what_was_changed_is_told_so_once_it_is_applied() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a", instance="i"))
        await agent.say(beat("a", -2, instance="i"))
        _, refused = await asyncio.gather(agent.say(beat("b", instance="i")), agent.refused(beat("a", 2, instance="i")))
        assert refused is ErrorCode.fenced_instance_id
        assert list(agent.group.members) == ["b"]


async def test_groups_that_fall_to_an_agent_are_taken_up_unasked_and_their_dead_members_fenced() -> None:
    async with two_agents() as (first, second):
        await first.say(beat("a"))
        await first.parts.ledger.propose(StartDrain(session=first.parts.ledger.session))
        await second.parts.ledger.barrier()
        await second.groups.look_after()
        assert second.groups.groups_count == 1
        # The first one may have heard its members for a lease more, where its watch lagged (S4).
        await second.wait(46)
        await second.groups.look_after()
        await second.parts.ledger.barrier()
        assert second.group.phase() is GroupPhase.STABLE
        await second.wait(LEDGER_SESSION_SECONDS)
        await second.groups.look_after()
        await second.parts.ledger.barrier()
        assert second.group.phase() is GroupPhase.EMPTY
        await second.groups.look_after()
        assert second.groups.groups_count == 0


async def test_a_group_that_was_lost_while_nobody_confirmed_the_session_is_taken_up_again() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        await agent.groups.look_after()
        agent.parts.clock.seconds += 20
        assert not agent.groups.is_live("g")
        await agent.wait(0)
        await agent.groups.look_after()
        assert agent.groups.is_live("g")


async def test_a_take_up_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        restarted = GroupAgent(agent.parts)

        async def unconfirmed(_: str) -> GroupState:
            raise NotCoordinator(ErrorCode.not_coordinator)

        with monkeypatch.context() as patched:
            patched.setattr(restarted.ledger, "claim", unconfirmed)
            await restarted.groups.look_after()
        assert restarted.groups.groups_count == 0
        await restarted.groups.look_after()
        assert restarted.groups.groups_count == 1


async def test_who_spoke_while_the_agent_stood_still_is_no_silent_member() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        await agent.say(beat("b"))
        await agent.groups.look_after()
        await agent.wait(60)
        await asyncio.gather(agent.groups.look_after(), agent.say(beat("b", 3)))
        await agent.parts.ledger.barrier()
        assert list(agent.group.members) == ["b"]


async def test_an_expression_is_looked_up_and_followed() -> None:
    async with one_agent() as agent:
        assert (await agent.say(beat("a", regex="t|x.*"))).assigned == ()
        await agent.groups.look_after()
        answer = await agent.say(beat("a", 2))
        assert answer.assigned is not None
        assert without_epochs(answer.assigned) == ALL
        await agent.parts.ledger.propose(replace(create(), topic_id=OTHER, name="xyz"))
        await agent.wait(11)
        await agent.groups.look_after()
        answer = await agent.say(beat("a", answer.epoch))
        assert answer.assigned is not None
        assert {topic_id for topic_id, _ in answer.assigned} == {TOPIC, OTHER}


async def test_dynamic_configs_of_a_group_come_before_the_brokers() -> None:
    configs = {"group.consumer.heartbeat.interval.ms": "1234"}
    async with one_agent(**configs) as agent:
        assert (await agent.say(beat("a"))).heartbeat_interval_ms == 1234
        agent.parts.ledger.state.group_configs["g"] = {"consumer.heartbeat.interval.ms": "777"}
        assert (await agent.say(beat("a", 2))).heartbeat_interval_ms == 777


async def test_the_brokers_own_bound_on_members_holds() -> None:
    async with one_agent(**{"group.consumer.max.size": "1"}) as agent:
        await agent.say(beat("a"))
        assert await agent.refused(beat("b")) is ErrorCode.group_max_size_reached


async def test_commits_are_judged_by_what_the_coordinator_knows() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))

        def judged(member_id: str, epoch: int) -> ErrorCode:
            group = agent.parts.ledger.state.groups["g"]
            partitions = [(TOPIC, PartitionIndex(99))]
            return agent.groups.check_commit(
                group, member_id=member_id, epoch=epoch, api_version=9, partitions=partitions
            )

        assert judged("a", 2) is ErrorCode.none
        assert judged("a", 1) is ErrorCode.stale_member_epoch
        agent.groups.forget("g")
        assert judged("b", 2) is ErrorCode.unknown_member_id
        group = agent.group
        written = agent.ledger.write_consumer(
            "g", ConsumerGroupChange(epoch=3, target_epoch=2, topics_hash=group.topics_hash)
        )
        assert judged("a", 2) is ErrorCode.coordinator_load_in_progress
        assert await written == Done()
        assert judged("a", 2) is ErrorCode.none
        agent.groups.stop()
        assert judged("a", 2) is ErrorCode.not_coordinator


async def test_an_agent_that_stops_coordinates_nothing() -> None:
    async with one_agent() as agent:
        await agent.say(beat("a"))
        assert agent.groups.is_live("g")
        agent.groups.stop()
        assert not agent.groups.is_live("g")
        assert await agent.refused(beat("a", 2)) is ErrorCode.not_coordinator
