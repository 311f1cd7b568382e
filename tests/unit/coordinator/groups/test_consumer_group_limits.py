"""Assignments and changes of a consumer group that do not fit into a ledger entry."""

import hashlib
from dataclasses import dataclass

import pytest

from coordinator.commands.consumer_group_values import GroupPhase
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_GONE_BYTES_MAX
from protocol.types import TopicId
from tests.support.groups.consumer_groups import Coordinated, beat, owned, topic_id

TARGETS_MAX = "coordinator.groups.consumer_group_copy.CONSUMER_GROUP_TARGETS_BYTES_MAX"


@dataclass(slots=True)
class Incompressible(Coordinated):
    """Ids of topics are as random as real ones."""

    def find_topic(self, name: str) -> tuple[TopicId, int] | None:
        if name not in self.topics:
            return None
        return TopicId(hashlib.blake2b(name.encode(), digest_size=16).digest()), self.topics[name]


def test_a_member_whose_assignment_no_entry_takes_is_refused_and_the_group_stays_as_it_was() -> None:
    names = [f"{number:x}" for number in range(25_000)]
    group = Incompressible(dict.fromkeys(names, 1) | {"t": 2})
    group.say(beat("a"))
    before, deadlines = group.group.copy(), dict(group.live.sessions)
    assert group.refused(beat("b", names=names)) is ErrorCode.group_max_size_reached
    assert (group.group, group.live.sessions) == (before, deadlines)
    assert (group.live.problems.take(), group.live.changes) == ([], [])
    group.say(beat("b"))
    assert (group.group.epoch, group.live.changes) == (3, [("joins", ("b (client client)",))])


def test_nobody_is_refused_for_topics_that_have_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Coordinated({"t": 2})
    group.say(beat("a"))
    group.topics["t"] = 1_000
    monkeypatch.setattr(TARGETS_MAX, 200)
    for epoch in (2, 2):
        assert group.say(beat("a", epoch)).epoch == 2
        assert (group.group.phase(), group.group.epoch) == (GroupPhase.ASSIGNING, 3)
        assert group.has("a") == owned(t=[0, 1])
    assert len(group.live.problems.take()) == 1
    changes_count = group.changes_count
    group.say(beat("a", 2))
    group.take(group.live.assign(group.config, group.find_topic, 100.0))
    assert (group.changes_count, group.live.problems.take()) == (changes_count, [])
    assert group.refused(beat("b")) is ErrorCode.group_max_size_reached
    group.topics["t"] = 3
    assert group.say(beat("a", 2)).epoch == 4
    assert group.has("a") == owned(t=[0, 1, 2])


def test_a_member_that_was_let_in_before_its_assignment_was_found_too_large_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.groups.consumer_group.CONSUMER_GROUP_ASSIGNED_AT_ONCE_MAX", 1)
    group = Coordinated({"t": 2})
    group.say(beat("a"))
    group.say(beat("b", names=["nothing"]))
    assert (group.say(beat("c")).epoch, group.group.epoch) == (2, 4)
    with monkeypatch.context() as patched:
        patched.setattr(TARGETS_MAX, 1)
        group.take(group.live.assign(group.config, group.find_topic, 2.0))
        for _ in range(2):
            assert group.refused(beat("c", 2)) is ErrorCode.group_max_size_reached
        assert (group.say(beat("a", 2)).epoch, group.say(beat("b", 2)).epoch) == (2, 2)
        assert group.has("a") == owned(t=[0, 1])
    group.say(beat("c", -1))
    group.take(group.live.assign(group.config, group.find_topic, 4.0))
    assert group.say(beat("a", 2)).epoch == 5


def test_an_epoch_that_never_was_says_nothing_of_the_next_one_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Coordinated({"t": 2})
    group.say(beat("a"))
    group.topics["t"] = 500
    with monkeypatch.context() as patched:
        patched.setattr(TARGETS_MAX, 200)
        patched.setattr("coordinator.groups.consumer_group.fits", lambda _: False)
        assert group.refused(beat("a", 2)) is ErrorCode.group_max_size_reached
    assert group.say(beat("a", 2)).epoch == 3
    assert group.has("a") == owned(t=range(500))


def test_a_problem_that_comes_again_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Coordinated({"t": 2})
    group.say(beat("a"))
    monkeypatch.setattr(TARGETS_MAX, 200)
    for count in (500, 3, 600):
        group.topics["t"] = count
        group.say(beat("a", group.epoch("a")))
    assert len(group.live.problems.take()) == 2


def test_an_instance_that_cannot_come_back_leaves_the_place_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Coordinated({"t": 2, "u": 500})
    group.say(beat("a", instance="i"))
    group.say(beat("a", -2, instance="i"))
    before, deadlines = group.group.copy(), dict(group.live.sessions)
    monkeypatch.setattr(TARGETS_MAX, 200)
    assert group.refused(beat("b", instance="i", names="tu")) is ErrorCode.group_max_size_reached
    assert (group.group, group.live.sessions) == (before, deadlines)
    found = group.live.copy.static_member("i")
    assert found is not None
    assert found.member_id == "a"
    group.say(beat("b", instance="i"))
    assert group.has("b") == owned(t=[0, 1])


def test_whatever_no_entry_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's own rows come on top of the target assignment's."""
    group = Coordinated({"t": 4})
    group.say(beat("a"))
    group.say(beat("b"))
    revocations = dict(group.live.revocations)
    before = group.group.copy()
    with monkeypatch.context() as patched:
        patched.setattr("coordinator.groups.consumer_group.fits", lambda _: False)
        assert group.refused(beat("a", 2)) is ErrorCode.group_max_size_reached
    assert (group.group, group.live.revocations) == (before, revocations)
    group.say(beat("a", 2))
    assert group.has("a") == owned(t=[0, 1])
    assert group.live.copy.owner(topic_id("t"), group.has("a")[0][1][0]) == "a"
    assert "a" in group.live.revocations


def test_a_group_that_begins_and_is_refused_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Coordinated({"t": 4})
    with monkeypatch.context() as patched:
        patched.setattr(TARGETS_MAX, 1)
        assert group.refused(beat("a")) is ErrorCode.group_max_size_reached
    group.say(beat("a"))
    assert group.has("a") == owned(t=range(4))


def test_silent_members_with_long_ids_go_by_and_by() -> None:
    group = Coordinated({"t": 1})
    members = [letter * (CONSUMER_GROUP_GONE_BYTES_MAX // 2) for letter in "abc"]
    for member_id in members:
        group.say(beat(member_id))
    group.now_s = 100.0
    assert group.expire() == members[:2]
    assert group.live.due_s == group.now_s
    assert group.expire() == members[2:]
    assert group.live.due_s > group.now_s
