"""The newest revisions in memory, from which tails are served. Threads and tails: tests/contract/test_ledger.py."""

from coordinator.ledger.port import LedgerRecord
from coordinator.ledger.threaded import RecentRevisions
from protocol.types import Position, SessionId


def record(position: int, *, payload: bytes = b"x", number: int = 0) -> LedgerRecord:
    return LedgerRecord(position=Position(position), session=SessionId(1), number=number, payload=payload)


class TestRecentRevisions:
    def test_nothing_is_known_before_the_first_revision(self) -> None:
        recent = RecentRevisions()
        assert recent.after(Position(0)) is None
        recent.add((record(5), record(5, number=1)))
        assert recent.after(Position(3)) is None
        assert recent.after(Position(4)) == [record(5), record(5, number=1)]
        assert recent.after(Position(5)) == []

    def test_the_oldest_are_forgotten_beyond_the_bound_but_never_the_newest(self) -> None:
        recent = RecentRevisions(bytes_max=2)
        for position in (1, 2, 4):
            recent.add((record(position),))
        assert recent.after(Position(0)) is None
        assert recent.after(Position(1)) == [record(2), record(4)]
        recent.add((record(7, payload=b"large"),))
        assert recent.after(Position(4)) == [record(7, payload=b"large")]
        assert recent.after(Position(3)) is None

    def test_after_an_unknown_outcome_it_begins_again(self) -> None:
        recent = RecentRevisions()
        recent.add((record(1),))
        recent.forget()
        assert recent.after(Position(1)) is None
        recent.add((record(3),))
        assert recent.after(Position(1)) is None
        assert recent.after(Position(2)) == [record(3)]

    def test_what_was_trimmed_is_not_handed_over(self) -> None:
        recent = RecentRevisions()
        recent.drop(Position(9))
        for position in (11, 12):
            recent.add((record(position),))
        recent.drop(Position(11))
        assert recent.after(Position(10)) is None
        assert recent.after(Position(11)) == [record(12)]
        recent.drop(Position(13))
        assert recent.after(Position(12)) is None
        assert recent.after(Position(13)) == []
