"""What a consumer group has room for of what its expressions match."""

from collections.abc import Mapping
from random import Random

from coordinator.consumer_group_regexes import room_for
from protocol.errors import ErrorCode
from protocol.limits import (
    CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX,
    CONSUMER_GROUP_NAMES_BYTES_MAX,
    CONSUMER_GROUP_REGEX_CHARS_MAX,
    CONSUMER_GROUP_REGEXES_BYTES_MAX,
)
from tests.made_consumer_groups import Coordinated, beat

NAME_BYTES = 200


def names(size: int, first: int = 0) -> tuple[str, ...]:
    """So many bytes of names, about."""
    return tuple(f"{number:0{NAME_BYTES}}" for number in range(first, first + size // NAME_BYTES))


HALF = names(CONSUMER_GROUP_NAMES_BYTES_MAX // 2)
ALL = names(CONSUMER_GROUP_NAMES_BYTES_MAX)


def due(group: Coordinated) -> list[str]:
    return group.live.regexes.due(group.live.copy, group.config, group.now_s, are_topics_new=False)


class TestRoom:
    def test_all_is_taken_where_there_is_room(self) -> None:
        found: Mapping[str, tuple[str, ...]] = {"x": ("t",), "y": ()}
        room = room_for(found, {})
        assert (room.taken, room.kept, room.refused) == (found, [], {})

    def test_small_ones_go_before_large_ones(self) -> None:
        room = room_for({"a": HALF, "b": HALF, "c": ("t",)}, {})
        assert set(room.taken) == {"a", "c"}
        assert set(room.refused) == {"b"}

    def test_what_members_have_is_not_taken_away_for_others(self) -> None:
        room = room_for({"a": HALF, "b": HALF, "c": ALL}, {"b": ("t",), "c": HALF})
        assert set(room.taken) == {"b"}
        assert (room.kept, set(room.refused)) == (["c"], {"a"})

    def test_one_alone_matches_no_more_than_an_entry_takes(self) -> None:
        random = Random(7)
        found = tuple(sorted(random.randbytes(NAME_BYTES // 2).hex() for _ in range(8_000)))
        room = room_for({"a": found, "b": names(NAME_BYTES * len(found))}, {})
        assert set(room.taken) == {"b"}
        assert "a ledger entry" in room.refused["a"]

    def test_those_that_were_not_looked_up_count(self) -> None:
        assert set(room_for({"a": HALF}, {"b": HALF}).refused) == {"a"}


class TestGroups:
    def test_a_member_whose_expression_matches_too_much_is_told_and_the_others_go_on(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="t"))
        group.say(beat("b", regex=".*"))
        group.resolve({"t": ("t",), ".*": ALL})
        assert group.group.regexes == {"t": ("t",)}
        assert group.refused(beat("b", group.epoch("b"))) is ErrorCode.group_max_size_reached
        assert group.refused(beat("c", regex=".*")) is ErrorCode.group_max_size_reached
        group.say(beat("a", 2))
        assert group.has("a")

    def test_it_is_not_looked_up_again_for_that_and_told_to_the_operator_once(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex=".*"))
        group.resolve({".*": ALL})
        assert len(group.live.problems.take()) == 1
        group.now_s = 100.0
        assert due(group) == []
        group.resolve({".*": ALL})
        assert group.live.problems.take() == []
        group.say(beat("b", regex="t"))
        group.now_s = 200.0
        assert due(group) == [".*", "t"]
        group.resolve({".*": ("t",), "t": ("t",)})
        group.say(beat("a", 2))
        group.now_s = 300.0
        group.resolve({".*": ALL, "t": ("t",)})
        assert len(group.live.problems.take()) == 1
        assert group.group.regexes[".*"] == ("t",)
        group.say(beat("a", group.epoch("a"), said=()))

    def test_it_is_free_again_once_nobody_subscribes_to_it(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex=".*"))
        group.resolve({".*": ALL})
        group.say(beat("a", -1))
        group.say(beat("b", regex=".*"))
        group.now_s = 100.0
        assert due(group) == [".*"]

    def test_what_does_not_fit_into_one_entry_goes_into_several_and_costs_one_rebalance(self) -> None:
        group = Coordinated({"t": 1})
        size = CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX // 3
        found = {regex: names(size, first) for first, regex in enumerate("uvwxyz")}
        for regex in found:
            group.say(beat(f"member-{regex}", regex=regex))
        epoch, changes_count = group.group.epoch, group.changes_count
        group.resolve(found)
        assert group.group.regexes == found
        assert (group.group.epoch, group.changes_count) == (epoch + 1, changes_count + 3)

    def test_expressions_have_so_many_bytes_together(self) -> None:
        group = Coordinated({"t": 1})
        count = CONSUMER_GROUP_REGEXES_BYTES_MAX // CONSUMER_GROUP_REGEX_CHARS_MAX
        regexes = [f"{number:0{CONSUMER_GROUP_REGEX_CHARS_MAX}}" for number in range(count)]
        for number, regex in enumerate(regexes):
            group.say(beat(f"m{number}", regex=regex))
        assert group.refused(beat("a", regex="x")) is ErrorCode.group_max_size_reached
        group.say(beat("a", regex=regexes[0]))
