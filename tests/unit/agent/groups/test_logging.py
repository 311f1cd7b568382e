"""What the log says of consumer groups: once for each change, and bounded, whatever clients do and call themselves."""

import logging

import pytest

from agent.groups.consumer_coordinator import SILENT
from agent.groups.logging import first_names
from coordinator.commands.commands import StartDrain
from coordinator.commands.consumer_group_values import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from coordinator.configs.config_types import SHOWN_CHARS_MAX
from protocol.errors import ErrorCode
from protocol.limits import GROUP_NAMES_LISTED_MAX
from tests.support.groups.consumer_coordinator import one_agent, two_agents
from tests.support.groups.consumer_groups import beat


def test_all_names_are_told_where_they_are_few() -> None:
    assert first_names({"gr": 1, "gc": 2}) == "gr,gc"


def test_of_many_the_first_are_told_and_how_many_more_there_are() -> None:
    assert first_names(["a", "b", "c", "d", "e"]) == "a,b,c and 2 more"


@pytest.mark.parametrize("count", [1, 1_000])
def test_names_that_are_long_do_not_make_the_line_long(count: int) -> None:
    assert len(first_names(["n" * 30_000] * count)) < GROUP_NAMES_LISTED_MAX * (SHOWN_CHARS_MAX + 30) + 20


def changes(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int, str]]:
    """Group epoch, target epoch and what was told of each change."""
    records = [vars(record) for record in caplog.records if record.message == "a group changes"]
    return [(record["epoch"], record["target_epoch"], record["what"]) for record in records]


async def test_members_that_come_and_go_are_told_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = "a new target assignment"
    async with one_agent() as agent:
        await agent.say(beat("a"))
        for _ in range(3):
            await agent.say(beat("a", 2))
            await agent.groups.look_after()
        assert changes(caplog) == [(2, 2, f"joins: a (client client); {made}")]
        await agent.say(beat("b", names=("t", "u"), instance="i"))
        await agent.say(beat("b", LEAVE_STATIC_EPOCH, instance="i"))
        await agent.say(beat("c", names=("t", "u"), instance="i"))
        await agent.say(beat("c", LEAVE_EPOCH, instance="i"))
        await agent.groups.look_after()
        await agent.wait(46)
        await agent.groups.look_after()
        assert changes(caplog)[1:] == [
            (3, 3, f"joins: b (client client); {made}"),
            (3, 3, "leaves for a while: b"),
            (3, 3, "joins: c (client client) in the place of b"),
            (4, 3, "leaves: c"),
            (4, 4, made),
            (5, 4, f"{SILENT}: a"),
        ]


async def test_other_topics_are_reported_as_a_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with one_agent() as agent:
        await agent.say(beat("a"))
        await agent.say(beat("a", 2, names=("t", "u")))
        assert changes(caplog)[1:] == [
            (3, 3, "its subscribed topics, or their partitions, have changed; a new target assignment"),
        ]


async def test_an_instance_that_is_refused_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with one_agent() as agent:
        await agent.say(beat("a", instance="i"))
        for _ in range(3):
            assert await agent.refused(beat("b", instance="i")) is ErrorCode.unreleased_instance_id
            assert await agent.refused(beat("b", 2, instance="i")) is ErrorCode.fenced_instance_id
        assert await agent.refused(beat("x", 2)) is ErrorCode.unknown_member_id
        refused = [vars(record) for record in caplog.records if record.levelno == logging.WARNING]
        assert [(each["group"], each["instance"], each["client"]) for each in refused] == [("g", "i", "client")]


async def test_groups_that_are_taken_up_and_handed_over_are_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with two_agents() as (first, second):
        await first.say(beat("a"))
        first.groups.stop()
        await first.parts.ledger.propose(StartDrain(session=first.parts.ledger.session))
        await second.parts.ledger.barrier()
        for _ in range(3):
            await second.groups.look_after()
        news = [vars(record) for record in caplog.records if "names" in vars(record)]
        assert [(each["message"].split()[2], each["groups"], each["names"]) for each in news] == [
            ("hands", 1, "g"),
            ("coordinates", 1, "g"),
        ]
