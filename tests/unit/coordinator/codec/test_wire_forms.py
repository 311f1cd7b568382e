"""What is written under which version of the rules, and what a program of another version makes of it (S3)."""

from typing import Annotated, ClassVar

import msgspec
import pytest

from coordinator.codec.wire_forms import (
    NewerForm,
    WireStruct,
    annotations_in_form,
    form_needed,
    in_form,
    since,
)
from coordinator.commands.rules import RULES_FIRST

SECOND, THIRD = RULES_FIRST + 1, RULES_FIRST + 2


class Old(WireStruct):
    """As it was before the second version."""

    number: int


class Inner(WireStruct):
    number: int
    checksum: Annotated[int | None, since(SECOND)] = None


class Outer(WireStruct, tag=8):
    name: str
    rows: list[tuple[int, Inner]]
    numbers: list[tuple[int, int]] = []
    marks: Annotated[list[int], since(SECOND)] = []
    last: Annotated[Annotated[int, msgspec.Meta(ge=0)], since(THIRD)] = 0


class Unchanged(WireStruct, tag=9):
    text: str


class Added(WireStruct, tag=10):
    SINCE: ClassVar[int] = THIRD
    text: str


class Envelope(WireStruct):
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
        class Mixed(WireStruct):
            newer: Annotated[int, since(SECOND)] = 0
            older: int = 0

        with pytest.raises(AssertionError, match="Mixed: a newer field stands before an older one"):
            form_needed(Mixed())

    def test_a_newer_field_without_a_default(self) -> None:
        class Strict(WireStruct):
            newer: Annotated[int, since(SECOND)]

        with pytest.raises(AssertionError, match="Strict: a newer field has no default"):
            form_needed(Strict(1))


def test_a_struct_is_described_in_every_form() -> None:
    assert [name for name, _ in annotations_in_form(Outer, RULES_FIRST)] == ["name", "rows", "numbers"]
    assert [name for name, _ in annotations_in_form(Outer, SECOND)] == ["name", "rows", "numbers", "marks"]
    assert annotations_in_form(Old, RULES_FIRST) == [("number", "<class 'int'>")]
