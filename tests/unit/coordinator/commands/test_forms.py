"""What is written under which version of the rules, and what a program of another version makes of it (S3)."""

from enum import IntEnum
from typing import Annotated, ClassVar, NewType

import msgspec
import pytest

from coordinator.commands.forms import (
    NewerForm,
    WireStruct,
    form_needed,
    in_form,
    layout_in_form,
    since,
)
from coordinator.commands.rules import RULES_FIRST

SECOND, THIRD = RULES_FIRST + 1, RULES_FIRST + 2


TopicNumber = NewType("TopicNumber", int)


class Colour(IntEnum):
    BLUE = 7
    RED = 1


class Old(WireStruct, frozen=True):
    """As it was before the second version."""

    number: int


class Inner(WireStruct, frozen=True):
    number: int
    checksum: Annotated[int | None, since(SECOND)] = None


class Outer(WireStruct, frozen=True, tag=8):
    name: str
    rows: list[tuple[int, Inner]]
    numbers: list[tuple[int, int]] = []
    marks: Annotated[list[int], since(SECOND)] = []
    last: Annotated[Annotated[int, msgspec.Meta(ge=0)], since(THIRD)] = 0


class Unchanged(WireStruct, frozen=True, tag=9):
    text: str


class Added(WireStruct, frozen=True, tag=10):
    SINCE: ClassVar[int] = THIRD
    text: str


class Envelope(WireStruct, frozen=True):
    time: int | None
    command: Outer | Unchanged | Added


def written(wire: object, rules_version: int) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(in_form(wire, rules_version)))


PLAIN = Envelope(5, Outer("a", [(1, Inner(2))], [(3, 4)]))


class TestWriting:
    def test_an_older_form_lacks_what_came_later_at_every_depth(self) -> None:
        assert written(PLAIN, RULES_FIRST) == [5, [8, "a", [[1, [2]]], [[3, 4]]]]
        assert written(PLAIN, SECOND) == [5, [8, "a", [[1, [2, None]]], [[3, 4]], []]]
        assert written(PLAIN, THIRD) == [5, [8, "a", [[1, [2, None]]], [[3, 4]], [], 0]]

    def test_the_newest_form_is_the_struct_itself(self) -> None:
        assert in_form(PLAIN, THIRD) is PLAIN

    def test_so_is_what_never_changed(self) -> None:
        wire = Unchanged("b")
        assert in_form(wire, RULES_FIRST) is wire
        assert written(Envelope(None, wire), RULES_FIRST) == [None, [9, "b"]]

    @pytest.mark.parametrize(
        ("wire", "allowed", "message"),
        [
            (Outer("a", [], marks=[7]), SECOND, "Outer.marks comes with rules 2, 1 are in force"),
            (Outer("a", [(1, Inner(2, 0))]), SECOND, "Inner.checksum comes with rules 2, 1 are in force"),
            (Outer("a", [], last=1), THIRD, "Outer.last comes with rules 3, 2 are in force"),
            (Added("c"), THIRD, "Added comes with rules 3, 2 are in force"),
        ],
    )
    def test_what_an_older_form_has_no_place_for_is_not_left_out(
        self, wire: WireStruct, allowed: int, message: str
    ) -> None:
        with pytest.raises(NewerForm, match=message):
            in_form(wire, allowed - 1)
        in_form(wire, allowed)
        assert form_needed(wire) == allowed
        assert form_needed([wire]) == allowed

    def test_what_says_nothing_new_needs_the_first_form(self) -> None:
        assert form_needed(PLAIN) == RULES_FIRST
        assert form_needed(Unchanged("b")) == RULES_FIRST
        assert form_needed([]) == RULES_FIRST


class TestReading:
    def test_every_older_form_is_read(self) -> None:
        for rules_version in (RULES_FIRST, SECOND, THIRD):
            data = msgspec.msgpack.encode(in_form(PLAIN, rules_version))
            assert msgspec.msgpack.decode(data, type=Envelope) == PLAIN

    @pytest.mark.parametrize("wire", [[1, 2], [1, None]])
    def test_a_program_refuses_what_stands_behind_the_last_field_that_it_knows(self, wire: object) -> None:
        """msgspec ignores it otherwise: a checksum that a newer agent wrote would be lost without a word."""
        with pytest.raises(msgspec.ValidationError, match="at most length 1, got 2"):
            msgspec.msgpack.decode(msgspec.msgpack.encode(wire), type=Old)


class TestStructsThatContradictThemselves:
    def test_a_newer_field_before_an_older_one(self) -> None:
        class Mixed(WireStruct, frozen=True):
            newer: Annotated[int, since(SECOND)] = 0
            older: int = 0

        with pytest.raises(AssertionError, match="Mixed: a newer field stands before an older one"):
            form_needed(Mixed())

    def test_a_newer_field_without_a_default(self) -> None:
        class Strict(WireStruct, frozen=True):
            newer: Annotated[int, since(SECOND)]

        with pytest.raises(AssertionError, match="Strict: a newer field has no default"):
            form_needed(Strict(1))


class TestLayout:
    def test_a_struct_has_the_fields_of_the_form(self) -> None:
        assert layout_in_form(Outer, RULES_FIRST) == [
            ("name", "str()"),
            ("rows", "[(int(), (int()))]"),
            ("numbers", "[(int(), int())]"),
        ]
        assert [name for name, _ in layout_in_form(Outer, SECOND)] == ["name", "rows", "numbers", "marks"]
        assert dict(layout_in_form(Outer, SECOND))["rows"] == "[(int(), (int(), int() | none()))]"
        assert layout_in_form(Outer, THIRD)[-1] == ("last", "int(ge=0)")

    def test_one_of_many_is_named_by_its_tag_from_its_own_version_on(self) -> None:
        assert layout_in_form(Envelope, RULES_FIRST) == [("time", "int() | none()"), ("command", "tag 8 | tag 9")]
        assert layout_in_form(Envelope, THIRD)[-1] == ("command", "tag 10 | tag 8 | tag 9")

    def test_it_is_the_same_where_the_bytes_are_the_same(self) -> None:
        class AsLists(WireStruct, frozen=True):
            pairs: list[tuple[int, bytes]]

        class Pair(WireStruct, frozen=True):
            number: TopicNumber
            data: memoryview

        class AsStructs(WireStruct, frozen=True):
            pairs: tuple[Pair, ...]

        assert layout_in_form(AsLists, RULES_FIRST) == layout_in_form(AsStructs, RULES_FIRST)

    def test_an_enumeration_is_what_it_may_be(self) -> None:
        class Painted(WireStruct, frozen=True):
            colour: Colour

        assert layout_in_form(Painted, RULES_FIRST) == [("colour", "any of [1, 7]")]
