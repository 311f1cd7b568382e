"""What a consumer group has room for of what its expressions match."""

from collections.abc import Mapping
from random import Random
from weakref import ref

import pytest

from coordinator.commands.consumer_group_values import ConsumerGroupChange, replay
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_regexes import RegexCapacity, room_for
from protocol.errors import ErrorCode
from protocol.limits import (
    CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX,
    CONSUMER_GROUP_NAMES_BYTES_MAX,
    CONSUMER_GROUP_REGEX_CHARS_MAX,
    CONSUMER_GROUP_REGEXES_BYTES_MAX,
)
from tests.support.groups.consumer_groups import Coordinated, beat

NAME_BYTES = 200

Found = Mapping[str, tuple[str, ...]]


def names(size: int, first: int = 0) -> tuple[str, ...]:
    """So many bytes of names, about."""
    return tuple(f"{number:0{NAME_BYTES}}" for number in range(first, first + size // NAME_BYTES))


def part(percent: int, first: int = 0) -> tuple[str, ...]:
    """What takes as much of the room that a group has, and a little more."""
    return names(CONSUMER_GROUP_NAMES_BYTES_MAX * percent // 100, first)


HALF = part(50)
ALL = part(100)
RANDOM = tuple(sorted(Random(number).randbytes(NAME_BYTES // 2).hex() for number in range(8_000)))


class Name(str):
    """One that can be seen to be forgotten."""

    __slots__ = ("__weakref__",)


def due(group: Coordinated) -> list[str]:
    return group.live.regexes.to_resolve(group.live.copy, group.config, group.now_s, are_topics_new=False)


def room(found: Found, before: Found | None = None) -> RegexCapacity:
    return room_for(found, found.__getitem__, before or {})


class TestRoom:
    def test_all_is_taken_where_there_is_room(self) -> None:
        found: Found = {"x": ("t",), "y": ()}
        assert room(found) == RegexCapacity(taken=dict(found))

    def test_small_ones_go_before_large_ones(self) -> None:
        found = room({"a": HALF, "b": HALF, "c": ("t",)})
        assert set(found.taken) == {"a", "c"}
        assert set(found.rejected) == {"b"}

    def test_a_large_one_gives_way_to_smaller_ones_that_are_found_later(self) -> None:
        found = room({"a": part(40), "b": part(20), "c": part(20), "d": part(30)})
        assert set(found.taken) == {"b", "c", "d"}
        assert set(found.rejected) == {"a"}

    def test_what_members_have_is_not_taken_away_for_others(self) -> None:
        found = room({"a": HALF, "b": part(40), "c": ALL}, {"b": ("t",), "c": HALF})
        assert set(found.taken) == {"b"}
        assert (found.unchanged, set(found.rejected)) == (["c"], {"a"})

    def test_what_others_keep_leaves_no_room_to_grow(self) -> None:
        found = room({"a": part(70), "b": part(80)}, {"a": part(48), "b": part(48)})
        assert (found.taken, found.unchanged) == ({}, ["a", "b"])

    def test_one_that_shrinks_makes_room_for_another(self) -> None:
        found = room({"a": ("t",), "b": part(90)}, {"a": part(48), "b": part(48)})
        assert (set(found.taken), found.unchanged) == ({"a", "b"}, [])

    def test_one_alone_matches_no_more_than_an_entry_takes(self) -> None:
        found = room({"a": RANDOM, "b": names(NAME_BYTES * len(RANDOM))})
        assert set(found.taken) == {"b"}
        assert "a ledger entry" in found.rejected["a"]

    def test_the_same_names_are_encoded_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        judged: list[ConsumerGroupChange] = []

        def fits(change: ConsumerGroupChange) -> bool:
            judged.append(change)
            return False

        monkeypatch.setattr("coordinator.groups.consumer_group_regexes.fits", fits)
        found = room(dict.fromkeys("abcdef", RANDOM) | {"g": RANDOM[1:]})
        assert (set(found.rejected), len(judged)) == (set("abcdefg"), 2)

    def test_no_more_is_held_than_there_is_room_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("coordinator.groups.consumer_group_regexes.fits", lambda _: True)
        held: list[ref[Name]] = []

        def match(regex: str) -> tuple[str, ...]:
            assert sum(each() is not None for each in held) <= 4
            name = Name(regex)
            held.append(ref(name))
            return (name, *part(25, len(held)))

        found = room_for([f"x{number}" for number in range(20)], match, {})
        assert (len(found.taken), len(found.rejected)) == (3, 17)

    def test_those_that_were_not_looked_up_count(self) -> None:
        assert set(room({"a": HALF}, {"b": HALF}).rejected) == {"a"}


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

    @pytest.mark.parametrize(("others", "entries_count"), [("x", 1), ("xy", 2)])
    def test_wherever_such_entries_are_cut_members_get_what_their_expressions_match(
        self, others: str, entries_count: int
    ) -> None:
        group = Coordinated({"t": 3})
        size = CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX * 2 // 3
        found = {regex: ("t", *names(size, first)) for first, regex in enumerate((*others, "z"))}
        group.say(beat("a", regex="z"))
        group.resolve({"z": found["z"]})
        group.say(beat("a", 2))
        for regex in others:
            group.say(beat(regex, regex=regex))
        before = group.group.copy()
        changes = group.live.regexes.put(group.live.copy, room(found, before.regexes), group.find_topic, group.now_s)
        for cut in range(len(changes) + 1):
            written = before.copy()
            for change in changes[:cut]:
                replay(written, change)
            following = Coordinated(group.topics, LiveConsumerGroup("g", written.copy(), 0.0), written)
            following.resolve(found)
            following.say(beat("a", 3))
            assert set(following.group.targets) == {"a", *others}
        assert len(changes) == entries_count

    def test_expressions_have_so_many_bytes_together(self) -> None:
        group = Coordinated({"t": 1})
        count = CONSUMER_GROUP_REGEXES_BYTES_MAX // CONSUMER_GROUP_REGEX_CHARS_MAX
        regexes = [f"{number:0{CONSUMER_GROUP_REGEX_CHARS_MAX}}" for number in range(count)]
        for number, regex in enumerate(regexes):
            group.say(beat(f"m{number}", regex=regex))
        assert group.refused(beat("a", regex="x")) is ErrorCode.group_max_size_reached
        group.say(beat("a", regex=regexes[0]))

    def test_what_nobody_subscribes_to_any_more_once_it_is_found_is_not_taken(self) -> None:
        group = Coordinated({"t": 1})
        for name in ("a", "b"):
            group.say(beat(name, regex=name))
        found = room({"a": ("t",), "b": ALL})
        group.say(beat("a", -1))
        group.say(beat("b", -1))
        group.say(beat("c", regex="c"))
        group.take(*group.live.regexes.put(group.live.copy, found, group.find_topic, 0.0))
        assert group.group.regexes == {}
        assert group.live.problems.take() == []
