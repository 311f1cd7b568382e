"""Which appends are valid, and which are repeats: the rules that every ledger backend shares.

Rule: pure decisions over what a backend remembers of a session; the backend reads, asks here, then writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.ledger.port import LedgerCorrupt, LedgerEntry, LedgerRecord
from protocol.limits import LEDGER_ENTRY_BYTES_MAX, LEDGER_GROUP_BYTES_MAX, LEDGER_GROUP_ENTRIES_MAX
from protocol.types import Position, SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestGroup:
    """The newest group that a live session appended, remembered beyond trimming (safety rule S10)."""

    position: Position
    entries: tuple[LedgerEntry, ...]

    @property
    def number_last(self) -> int:
        return self.entries[-1].number


class Appended(NamedTuple):
    """The result of an append."""

    position: Position
    is_new: bool
    """Whether it was appended, rather than recognised as a repeat."""


def check_group(entries: Sequence[LedgerEntry]) -> None:
    """Assert that `entries` can be one append: some, numbered without gaps, within the limits (safety rule S10)."""
    assert entries, "an append needs at least one entry"
    assert len(entries) <= LEDGER_GROUP_ENTRIES_MAX, f"{len(entries)} entries in one append, split them"
    number_first = entries[0].number
    assert number_first >= 0, f"an entry's number is {number_first}; numbers start at 0"
    group_bytes = 0
    for row, entry in enumerate(entries):
        assert entry.number == number_first + row, f"entry number {entry.number} follows {number_first + row - 1}"
        assert len(entry.payload) <= LEDGER_ENTRY_BYTES_MAX, f"entry {entry.number} has {len(entry.payload)} bytes"
        group_bytes += len(entry.payload)
    assert group_bytes <= LEDGER_GROUP_BYTES_MAX, f"{group_bytes} bytes in one append, split them"


def is_next(newest: NewestGroup | None, entries: Sequence[LedgerEntry]) -> bool:
    """Whether `entries` follow what their session appended last, so that they are new; otherwise they are a repeat."""
    return entries[0].number == (0 if newest is None else newest.number_last + 1)


def position_of_repeat(
    session: SessionId, newest: NewestGroup | None, first_copy: Sequence[LedgerRecord], entries: Sequence[LedgerEntry]
) -> Position:
    """The position of the first copy of `entries`, which are not new (`is_next`).

    first_copy: the revision in the log that holds the session's entry of the first number, empty where there is none.
    The newest group is recognised without it, so also once it was trimmed. Raises `LedgerCorrupt` where `entries` are
    neither the next group nor the same group again byte for byte (safety rule S10): agent and ledger disagree.
    """
    if newest is not None and tuple(entries) == newest.entries:
        return newest.position
    if first_copy and tuple(entries) == entries_of(first_copy):
        return first_copy[0].position
    number_next = 0 if newest is None else newest.number_last + 1
    raise LedgerCorrupt(
        f"session {session} appends entries {entries[0].number} to {entries[-1].number}, but the ledger expects number "
        f"{number_next} or an earlier group byte for byte: stop this agent and look at what wrote under its session"
    )


def entries_of(revision: Sequence[LedgerRecord]) -> tuple[LedgerEntry, ...]:
    """The entries of one appended group."""
    return tuple(LedgerEntry(number=record.number, payload=record.payload) for record in revision)
