"""What is the next group, what is a repeat, and what is neither."""

import pytest

from coordinator.ledger.append_rules import NewestGroup, check_group, entries_of, is_next, position_of_repeat
from coordinator.ledger.port import LedgerCorrupt, LedgerEntry, LedgerRecord
from protocol.types import Position, SessionId

SESSION = SessionId(1)
TWO_AND_THREE = (LedgerEntry(number=2, payload=b"c"), LedgerEntry(number=3, payload=b"d"))
NEWEST = NewestGroup(position=Position(9), entries=TWO_AND_THREE)
ZERO_AND_ONE = [
    LedgerRecord(position=Position(5), session=SESSION, number=number, payload=payload)
    for number, payload in enumerate((b"a", b"b"))
]


def test_a_session_begins_with_number_0() -> None:
    assert is_next(None, [LedgerEntry(number=0, payload=b"")])
    assert not is_next(None, [LedgerEntry(number=1, payload=b"")])


def test_the_next_group_follows_the_newest() -> None:
    assert is_next(NEWEST, [LedgerEntry(number=4, payload=b"")])
    assert not is_next(NEWEST, TWO_AND_THREE)
    assert not is_next(NEWEST, [LedgerEntry(number=5, payload=b"")])


def test_the_newest_group_again_is_known_without_the_log() -> None:
    assert position_of_repeat(SESSION, NEWEST, [], TWO_AND_THREE) == 9


def test_an_older_group_again_is_known_by_its_first_copy() -> None:
    assert position_of_repeat(SESSION, NEWEST, ZERO_AND_ONE, entries_of(ZERO_AND_ONE)) == 5


@pytest.mark.parametrize(
    "other",
    [
        [LedgerEntry(number=0, payload=b"a")],
        [LedgerEntry(number=0, payload=b"a"), LedgerEntry(number=1, payload=b"B")],
        [LedgerEntry(number=5, payload=b"f")],
    ],
)
def test_anything_else_contradicts_the_ledger(other: list[LedgerEntry]) -> None:
    with pytest.raises(LedgerCorrupt, match="the ledger expects number 4"):
        position_of_repeat(SESSION, NEWEST, ZERO_AND_ONE, other)
    with pytest.raises(LedgerCorrupt, match="the ledger expects number 0"):
        position_of_repeat(SESSION, None, [], [LedgerEntry(number=1, payload=b"")])


def test_a_group_is_numbered_without_gaps() -> None:
    check_group(TWO_AND_THREE)
    with pytest.raises(AssertionError, match="entry number 4 follows 2"):
        check_group([LedgerEntry(number=2, payload=b""), LedgerEntry(number=4, payload=b"")])
