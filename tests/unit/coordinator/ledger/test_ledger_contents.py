"""Everything in a ledger that another one replaces, and which of it may be left behind."""

from dataclasses import replace

import pytest

from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.port import Head, LedgerIdentity, LedgerRecord
from protocol.types import Position, SessionId
from tests.support.ledger.operations import pointer_at


def record(position: int, number: int) -> LedgerRecord:
    return LedgerRecord(position=Position(position), session=SessionId(1), number=number, payload=b"%d" % number)


CONTENTS = LedgerContents(
    identity=LedgerIdentity(cluster_id="c", incarnation=1),
    is_fenced=False,
    position_last=9,
    head=Head(position=Position(8), appends_count=5),
    trimmed=Position(2),
    pointer=pointer_at(Position(6), appends_count=3),
    records=(record(3, 0), record(3, 1), record(6, 2), record(7, 3), record(8, 4)),
)


@pytest.mark.parametrize(("revisions_max", "trimmed", "count"), [(9, 2, 5), (4, 2, 5), (3, 3, 3), (2, 6, 2), (1, 6, 2)])
def test_of_too_many_appends_the_oldest_ones_that_the_snapshot_covers_are_left_behind(
    revisions_max: int, trimmed: int, count: int
) -> None:
    newest = CONTENTS.with_newest(revisions_max)
    assert newest == replace(CONTENTS, trimmed=Position(trimmed), records=newest.records)
    assert list(newest.records) == list(CONTENTS.records)[-count:]


def test_without_a_snapshot_none_is_left_behind() -> None:
    contents = replace(CONTENTS, pointer=None)
    assert contents.with_newest(1) is contents
