"""Everything in an embedded ledger, for the one that takes its place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

from coordinator.ledger.port import Head, LedgerIdentity, LedgerRecord, SnapshotPointer
from protocol.types import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContents:
    """A ledger without its sessions, which end with the process that holds it."""

    identity: LedgerIdentity
    is_fenced: bool
    position_last: int
    """The newest position that an append or a session got."""
    head: Head
    trimmed: Position
    """The position of the newest entry that was dropped."""
    pointer: SnapshotPointer | None
    records: Sequence[LedgerRecord]
    """The entries that were not trimmed, in order."""

    def revisions(self) -> list[list[LedgerRecord]]:
        """The entries of each append together."""
        return [list(group) for _, group in groupby(self.records, key=lambda record: record.position)]

    def with_newest(self, revisions_max: int) -> "LedgerContents":
        """The same ledger after a trim of the oldest appends that the snapshot covers, where there are more."""
        revisions = self.revisions()
        covered = Position(0) if self.pointer is None else self.pointer.position
        count = 0
        while len(revisions) - count > revisions_max and revisions[count][0].position <= covered:
            count += 1
        if not count:
            return self
        records = list(chain.from_iterable(revisions[count:]))
        return replace(self, trimmed=revisions[count - 1][0].position, records=records)
