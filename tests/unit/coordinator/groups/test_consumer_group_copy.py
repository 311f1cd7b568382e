"""A coordinator's copy of a group: what it finds, and the rows that it gives for what was changed."""

from msgspec.structs import replace

from coordinator.commands.consumer_group_values import NO_TOPICS_HASH, ConsumerGroup, replay
from coordinator.groups.consumer_group_copy import GroupCopy, preferred_assignor
from protocol.types import PartitionIndex, TopicId
from tests.support.groups.consumer_groups import Coordinated, beat, owned, topic_id


def stable() -> ConsumerGroup:
    """The members `a` and `b` with two partitions of `t` each; `b` is static."""
    group = Coordinated({"t": 4})
    group.say(beat("a"))
    group.say(beat("b", instance="i"))
    group.say(beat("a", 2, said=owned(t=[0, 1])))
    group.say(beat("b", 3, instance="i"))
    assert group.written is not None
    return group.written


def find_topic(name: str) -> tuple[TopicId, int] | None:
    return (topic_id(name), 4) if name in "tu" else None


def test_it_knows_who_has_what_and_who_is_which_instance() -> None:
    copy = GroupCopy(stable())
    assert copy.owner(topic_id("t"), PartitionIndex(2)) == "b"
    assert copy.owner(topic_id("t"), PartitionIndex(4)) is None
    found = copy.static_member("i")
    assert found is not None
    assert found.member_id == "b"
    assert copy.static_member("j") is None


def test_the_group_in_the_state_stays_as_it_is() -> None:
    group = stable()
    before = group.copy()
    copy = GroupCopy(group)
    copy.remove("a")
    copy.raise_epoch(b"other")
    assert group == before


def test_nothing_changed_is_no_change() -> None:
    group = stable()
    copy = GroupCopy(group)
    for member_id, member in group.members.items():
        copy.put_member(member)
        copy.put_assignment(member_id, group.assignments[member_id])
        copy.put_target(member_id, group.targets[member_id])
    copy.put_target("a", group.targets["a"])
    assert copy.take_change() is None


def test_it_can_be_again_what_it_was_when_rows_were_taken_last() -> None:
    group = stable()
    copy = GroupCopy(group)
    copy.undo()
    assert copy.group == group
    copy.put_member(replace(group.members["a"], client_host="/elsewhere"))
    copy.take_change()
    before = copy.group.copy()
    copy.remove("b")
    copy.put_regex("x", ("t",))
    copy.raise_epoch(b"other")
    copy.undo()
    assert copy.group == before
    assert copy.take_change() is None
    assert copy.owner(topic_id("t"), PartitionIndex(2)) == "b"
    assert copy.static_member("i") is not None


def test_a_group_that_begins_is_a_change_though_nothing_is_in_it() -> None:
    copy = GroupCopy(None)
    change = copy.take_change()
    assert change is not None
    assert change.is_new
    assert copy.take_change() is None


def test_only_what_was_changed_is_a_row() -> None:
    group = stable()
    copy = GroupCopy(group)
    member = replace(group.members["a"], client_host="/elsewhere")
    copy.put_member(member)
    change = copy.take_change()
    assert change is not None
    assert (change.members, change.assignments, change.targets, change.removed) == ((member,), (), (), ())
    assert replay(group, change) == copy.group


def test_who_is_removed_frees_what_it_had() -> None:
    group = stable()
    copy = GroupCopy(group)
    copy.put_member(replace(group.members["b"], client_host="/elsewhere"))
    copy.remove("b")
    assert copy.owner(topic_id("t"), PartitionIndex(2)) is None
    assert copy.static_member("i") is None
    change = copy.take_change()
    assert change is not None
    assert (change.members, change.removed) == ((), ("b",))


def test_an_instance_that_another_member_has_taken_stays_that_members() -> None:
    group = stable()
    copy = GroupCopy(group)
    copy.put_member(replace(group.members["b"], member_id="c"))
    copy.remove("b")
    found = copy.static_member("i")
    assert found is not None
    assert found.member_id == "c"


class TestWhatTopicsLookLike:
    def test_it_is_another_where_a_topic_came_went_or_grew(self) -> None:
        topics = {"t": 1}
        group = Coordinated(topics)
        group.say(beat("a", names="tu"))
        copy = group.live.copy
        looks = [copy.topics_hash(group.find_topic)]
        for change in ({"t": 2}, {"u": 1}, {"u": 2}):
            topics.update(change)
            looks.append(copy.topics_hash(group.find_topic))
        del topics["u"]
        assert copy.topics_hash(group.find_topic) == looks[1]
        assert len(set(looks)) == len(looks)
        topics.clear()
        assert copy.topics_hash(group.find_topic) == NO_TOPICS_HASH

    def test_nothing_is_looked_up_again_by_what_finds_the_same(self) -> None:
        looked: list[str] = []

        def counting(name: str) -> tuple[TopicId, int] | None:
            looked.append(name)
            return find_topic(name)

        copy = GroupCopy(stable())
        before = copy.topics_hash(counting)
        assert (copy.topics_hash(counting), looked) == (before, ["t"])
        copy.put_member(replace(copy.group.members["a"], subscribed_names=("t", "u")))
        assert copy.topics_hash(counting) != before
        assert looked == ["t", "t", "u"]
        assert copy.topics_hash(lambda _: None) == NO_TOPICS_HASH

    def test_topics_of_expressions_count_too(self) -> None:
        group = Coordinated({"t": 1, "u": 1})
        group.say(beat("a", regex="x"))
        copy = group.live.copy
        before = copy.topics_hash(group.find_topic)
        copy.put_regex("x", ("u",))
        assert copy.topics_hash(group.find_topic) != before
        assert copy.topics_of(group.group.members["a"], group.find_topic) == {topic_id("u")}

    def test_what_nobody_subscribes_to_does_not_count(self) -> None:
        copy = GroupCopy(stable())
        before = copy.topics_hash(find_topic)
        copy.put_member(replace(copy.group.members["a"], subscribed_names=("t", "u")))
        assert copy.topics_hash(find_topic) != before
        copy.put_member(replace(copy.group.members["a"], subscribed_names=("t",)))
        assert copy.topics_hash(find_topic) == before


class TestAssignors:
    def test_members_that_ask_for_none_get_the_default(self) -> None:
        assert preferred_assignor(stable(), "uniform") == "uniform"

    def test_the_first_by_name_wins_where_as_many_ask_for_each(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", assignor="uniform"))
        group.say(beat("b", assignor="range"))
        assert preferred_assignor(group.group, "uniform") == "range"
