"""The port to the ledger: one totally ordered log of entries, shared by all agents.

Rule: an append is one revision or nothing, guarded by the session that makes it; an entry is identified by
(session, number), so repeating an append whose outcome is unknown is safe. Contract: tests/contract/test_ledger.py.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from protocol.types import Position, SessionId
from storage.object_store import ObjectToPut

POSITION_REVISION_BITS: Final = 44
"""An incarnation has room for so many revisions: 10,000 a second for fifty years."""


def position_first(incarnation: int) -> Position:
    """The position before everything of an incarnation, and after everything of the one before.

    A position is this plus the revision, so positions never fall, and sessions' ids, which are positions and stand in
    the keys of objects, never come again after a recovery (safety rules S6 and S9).
    """
    return Position((incarnation - 1) << POSITION_REVISION_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """An entry as it is appended. `number` counts the entries of its session from 0, without gaps."""

    number: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """An entry as it is read. Records of one append share their position and come in order of their number."""

    position: Position
    session: SessionId
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPointer:
    """Where the newest snapshot is.

    `appends_count` is the number of append transactions up to `position`: a reader that adds the revisions it read must
    arrive at `Head.appends_count`, or one is missing (safety rule S9). `digest` is the state's at `position` (S3).
    """

    position: Position
    object_key: str
    appends_count: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The position of the newest append, and how many append transactions were made in all.

    Sessions count positions too, but do not move the head: a reader that applied every entry has reached it. Without
    appends it is at `position_first` of the incarnation.
    """

    position: Position
    appends_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIdentity:
    """Which cluster this ledger belongs to, part of every position, and which bucket to it (safety rule S9).

    `bucket_id` is empty until the first agent has claimed a bucket (`Ledger.claim_bucket`).
    """

    cluster_id: str
    incarnation: int
    bucket_id: str = ""

    def is_incarnation_of(self, other: "LedgerIdentity") -> bool:
        """Whether both name one incarnation of one cluster, whether its bucket is known or not."""
        return (self.cluster_id, self.incarnation) == (other.cluster_id, other.incarnation)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStart:
    """Pointer, head and live entries read at one pinned revision (safety rule S9).

    `records` are those above the pointer's position (all, where there is no snapshot), in order.
    """

    pointer: SnapshotPointer | None
    head: Head
    records: Sequence[LedgerRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSize:
    """How much of its capacity the ledger uses."""

    used_bytes: int
    quota_bytes: int | None
    """None where the ledger grows with its disk."""

    @property
    def pressure(self) -> float:
        """The used part of the quota; 0 without one. Near 1 a snapshot and a trim are due early (safety rule S10)."""
        return 0.0 if self.quota_bytes is None else self.used_bytes / self.quota_bytes


class LedgerError(Exception):
    """The ledger did not do what was asked. Subclasses say what the caller should do."""


class LedgerUnavailable(LedgerError):
    """Ask again later. For an append the outcome is *unknown* until the same entries were appended again."""


class LedgerFull(LedgerError):
    """There is no room for the objects of an append (`JointLedger`), and nothing of it was appended or put."""


class Fenced(LedgerError):
    """The session is over: open a new one. It does not mean that the append did not happen (safety rule S1)."""


class Trimmed(LedgerError):
    """The position was trimmed: reload from the snapshot."""


class SessionHeld(LedgerError):
    """Another process holds a session under this name: wait for it to end, end it, or use another name."""

    def __init__(self, message: str, session: SessionId | None = None) -> None:
        """`session`: the one that lives under the name, where that is what was asked for."""
        super().__init__(message)
        self.session = session


class LedgerUnsupported(LedgerError):
    """The server behind the ledger cannot do what is needed; the message says what it lacks."""


class LedgerMissing(LedgerError):
    """There is no ledger, and none was to be created."""


class LedgerCorrupt(LedgerError):
    """The ledger contradicts itself or its bucket: do not serve. The message says how and what to do."""


class NewerRules(LedgerCorrupt):
    """Rules are in force that this program does not know. Nothing is damaged: a newer program reads the ledger."""


# Not a `LedgerError`: those say that the ledger did not do what was asked, and here it may have.
class OutcomeUnknown(Exception):
    """The third outcome of an append, beside applied and rejected: the entry may or may not have happened.

    This agent has not seen the entry applied, and will not. Clients may retry (safety rule S1).
    """


RECOVER = 'docs/operations/recovery.md, "etcd was wiped or restored from a backup"'
UNREADABLE = 'docs/operations/recovery.md, "The ledger holds what cannot be read"'
"""The runbook's section for a key, a value or an entry that no agent can decode."""


def check_restart(identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
    """Assert that a ledger can be restarted with these (`Ledger.restart`)."""
    assert identity.incarnation > 1, f"incarnation {identity.incarnation} does not follow another one"
    beginning = (position_first(identity.incarnation), 0)
    assert (pointer.position, pointer.appends_count) == beginning, f"{pointer} is not where the incarnation begins"


def being_recovered() -> LedgerCorrupt:
    """The error of a write to a fenced ledger (`Ledger.fence`)."""
    return LedgerCorrupt(
        "this ledger is being recovered: let `penstock recover` finish, then start the agents "
        '(docs/operations/recovery.md, "etcd was wiped or restored from a backup")'
    )


def newer_rules(rules_version: int, known: int) -> NewerRules:
    """The error of a program that knows rules up to `known`, where `rules_version` is in force."""
    return NewerRules(
        f"rules {rules_version} are in force, this program knows {known}: upgrade it (S3). Agents of the newer version "
        "that serve go on; an upgrade whose rules are in force cannot be taken back "
        "(docs/operations/upgrade.md, 'Go back')"
    )


def not_fenced() -> LedgerCorrupt:
    """The error of a restart of a ledger that is not fenced."""
    return LedgerCorrupt("this ledger was not fenced, so agents may write to it meanwhile: nothing was changed")


def another_incarnation(opened: LedgerIdentity, current: LedgerIdentity) -> str:
    """Says that a ledger became another one while it was open."""
    return (
        f"this agent opened the ledger of cluster {opened.cluster_id}, incarnation {opened.incarnation}, and now it is "
        f"that of {current.cluster_id}, incarnation {current.incarnation}: was the cluster recovered? Start the agent "
        "again"
    )


class Ledger(Protocol):
    """Methods raise `LedgerError`s only. After `LedgerUnavailable` the object stays usable."""

    async def identity(self) -> LedgerIdentity:
        """The cluster's id and incarnation; created with the ledger and never changed but by recovery.

        The bucket's id is the one that this object knows of: before it claims one it may be empty although another
        agent has claimed one by now.
        """
        ...

    async def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        """Let the ledger belong to that bucket, unless it has one, and return the identity that holds from now on.

        A caller that gets another bucket's id came second: its own bucket is not this ledger's (safety rule S9). A
        ledger that has a bucket keeps it until `restart`. After `LedgerUnavailable` a repeat is fine.
        """
        ...

    async def open_session(self, name: str) -> SessionId:
        """Begin a session: a lease under `name`. Raises `SessionHeld` while another one lives (safety rule S12)."""
        ...

    async def keep_session(self, session: SessionId) -> None:
        """Renew the session's lease, which ends `LEDGER_SESSION_SECONDS` after the last renewal.

        A ledger that only one process can hold has nothing to renew. Raises `Fenced` where the session is over.
        """
        ...

    async def close_session(self, session: SessionId) -> None:
        """End a session: appends under it are rejected from now on."""
        ...

    async def revoke_session(self, name: str, session: SessionId) -> None:
        """End a session of any agent, as if its lease had run out: whatever it appends from now on raises `Fenced`.

        Only the session that is named: where another one has the name, nothing happens, so that a late repeat is fine.
        """
        ...

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        """Whether the lease of `session` is gone, so that a SessionEnded entry for it is true (safety rule S12)."""
        ...

    def released_names(self) -> AsyncGenerator[str, None]:
        """Names whose session has ended, as that happens; it does not end.

        A hint that saves requests: a session that ends while this is not read, or the ledger is away, may be missing. A
        ledger that only one process can open yields nothing.
        """
        ...

    async def live_names(self) -> Sequence[str]:
        """The names under which sessions live, in order."""
        ...

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        """Append all entries in one revision and return it.

        Entries that are in the ledger already (same session and numbers, a repeat) are not appended again: the position
        of the first copy is returned. A repeat is the same group byte for byte (safety rule S10). Raises `Fenced`, or
        `LedgerUnavailable` when the outcome is unknown; a cancelled append is unknown too. Raises `LedgerCorrupt` where
        the entries are neither the session's next ones nor a repeat.
        """
        ...

    async def load(self) -> LedgerStart:
        """The snapshot pointer and the entries above it, from which a reader starts (safety rule S9)."""
        ...

    def tail(self, after: Position) -> AsyncIterator[Sequence[LedgerRecord]]:
        """Every record above `after`, in order, none twice, by whole revisions, as they come; it does not end.

        Raises `Trimmed` where `after` is below what is kept.
        """
        ...

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        """All entries that were not trimmed, in order, with those that the snapshot covers: for inspection."""
        ...

    async def head(self) -> Head:
        """The newest position, linearizable: the read barrier (safety rule S4)."""
        ...

    async def pointer(self) -> SnapshotPointer | None:
        """The snapshot pointer alone, linearizable: what it says holds where entries cannot be read, too."""
        ...

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        """Compare-and-set of the snapshot pointer; False if another one was there."""
        ...

    async def trim(self, position: Position) -> None:
        """Drop entries at or below `position`, which a durable snapshot covers.

        Raises `LedgerCorrupt`, and drops nothing, where the pointer's snapshot does not reach so far.
        """
        ...

    async def size(self) -> LedgerSize:
        """The bytes in use and the quota. Keys of other users of the same server count too."""
        ...

    async def fence(self) -> None:
        """Close the ledger until `restart`: from now on no session opens and nothing is appended, even by agents that
        have it open already, so a read after it is complete.

        Attempts raise `LedgerCorrupt`, or `Fenced` under a session that is over, and a tail may end with the former;
        `identity`, `load` and `head` go on. Durable; a repeat is fine. Raises `SessionHeld`, and fences
        nothing, while sessions live: stop their agents first.
        """
        ...

    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        """Begin another incarnation: all that is in this fenced ledger is dropped; `identity` and `pointer` stand in
        its place, in one revision, which ends the fence.

        The pointer is at `position_first` of the new incarnation, after 0 appends; so is the head then. Other objects
        that have the ledger open under the former identity raise `LedgerCorrupt` from now on. A repeat, after
        `LedgerUnavailable`, changes nothing more. Raises `LedgerCorrupt`, and drops nothing, without a fence.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class JointLedger(Ledger, Protocol):
    """A ledger that has a part of the bucket: objects and the entries that name them become durable by one write."""

    async def append_with(
        self, session: SessionId, entries: Sequence[LedgerEntry], objects: Sequence[ObjectToPut]
    ) -> Position:
        """Put `objects`, and append `entries` behind them; otherwise as `append`.

        Everything is durable then, or nothing counts. Raises `LedgerFull` where there is no room: the entries' numbers
        are free again. A cancelled call goes on: what `objects` hold must not change.
        """
        ...
