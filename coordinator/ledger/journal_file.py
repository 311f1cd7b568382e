"""The ledger in a journal: every operation as records of `storage.embedded.journal`.

Rule: blocking, and used by one thread only (`coordinator.ledger.journal` owns it). An operation that fails has changed
nothing here, and the journal does not count what it may have written (`Journal.append`). Entries stay in the journal's
files; where each group is, is known in memory. Bytes: `coordinator.ledger.journal_codec`.
"""

import contextlib
import errno
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from coordinator.ledger.append_rules import Appended, NewestGroup, entries_of, is_next, position_of_repeat
from coordinator.ledger.journal_codec import (
    StoredGroup,
    StoredState,
    decode_group,
    decode_state,
    encode_group,
    encode_state,
    first_state,
    stored_pointer,
)
from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.live_sessions import LiveSessions
from coordinator.ledger.port import (
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerFull,
    LedgerIdentity,
    LedgerMissing,
    LedgerRecord,
    LedgerStart,
    LedgerUnavailable,
    LedgerUnsupported,
    SnapshotPointer,
    Trimmed,
    being_recovered,
    check_restart,
    not_fenced,
)
from protocol.decoding import Undecodable
from protocol.limits import LEDGER_TAIL_RECORDS_MAX
from protocol.types import Position, SessionId
from storage.embedded.journal.format import RECORDS_PER_WRITE_MAX
from storage.embedded.journal.journal import Journal
from storage.embedded.journal.records import JournalContent, JournalEntry, LocationColumns, RecordLocation
from storage.object_store import ObjectDamaged, ObjectToPut, ObjectUnreadable

INCARNATION_FIRST: Final = 1
_FULL_CODES: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
REVISIONS_PER_WRITE: Final = RECORDS_PER_WRITE_MAX - 1
"""A ledger is taken over by one write, which has a state, too."""
REMEDY: Final = (
    "do not remove it: the records that wait for the archive lie in it, too. "
    'docs/operations/recovery.md, "The ledger in a journal is damaged"'
)


class JournalLedgerFile:
    """The ledger in `journal`, which was opened and has `content`. Where there is none, that of a new cluster is begun.

    `predecessor`: what a ledger held that this one replaces, where it was not begun yet. `is_begun_again`: for a
    recovery, that of a new cluster replaces whatever is there, by its first write; before, nothing is changed, and
    objects stay. Without `new_cluster_id` and `predecessor` an existing ledger is only read: each change raises
    `LedgerUnavailable`. Raises `LedgerMissing` where there is none, `LedgerCorrupt` where entries or states are missing
    or damaged, `NewerRules` for a newer format, and `LedgerUnavailable`.
    """

    _state: StoredState
    """Everything but the entries, with the head of now: what the newest written state says, and the appends behind."""

    def __init__(
        self,
        journal: Journal,
        content: JournalContent,
        *,
        new_cluster_id: str | None,
        predecessor: LedgerContents | None = None,
        is_begun_again: bool = False,
    ) -> None:
        self._journal = journal
        self._is_read_only = new_cluster_id is None and predecessor is None
        self._is_opening = True
        self._sessions = LiveSessions()
        self._groups = LocationColumns()
        """Where each group is that was not trimmed; the stamp of each is its position."""
        self._used_bytes = 0
        self._is_at_rest = False
        """Whether a state was written behind the newest group."""
        self._replaced: JournalContent | None = None
        """The contents that the first write of this ledger replaces, until that is done."""
        self._is_settled = False
        with self._mapped_errors():
            if is_begun_again:
                assert new_cluster_id is not None, "a ledger that is begun again has the name of a cluster"
                self._replace(content, new_cluster_id)
            elif content.has_records:
                self._read(content)
            elif content.has_gaps:
                raise _damaged("nothing of its ledger can be read")
            elif predecessor is not None:
                self._take_over(content, predecessor)
            elif new_cluster_id is None:
                raise LedgerMissing("the journal does not exist, or is empty: name the folder that an agent uses")
            else:
                self._replace(content, new_cluster_id)
                self._write_state(self._state)
        self._is_opening = False

    @property
    def identity(self) -> LedgerIdentity:
        return self._state.identity

    def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        if not self._state.bucket_id:
            self._check_open()
            self._change(bucket_id=bucket_id)
        return self.identity

    # Sessions.

    def open_session(self, name: str) -> SessionId:
        self._sessions.check_free(name)
        self._check_open()
        session = SessionId(self._state.position_last + 1)
        self._change(position_last=session)
        self._sessions.add(name, session)
        return session

    def close_session(self, session: SessionId) -> None:
        self._sessions.close(session)

    def revoke_session(self, name: str, session: SessionId) -> None:
        self._sessions.revoke(name, session)

    def check_session(self, session: SessionId) -> None:
        """Raise `Fenced` where it is over. A ledger at rest writes its state once.

        The newest write may be one that a crash has torn. With another one behind it, damage in it is seen as such.
        """
        self._sessions.check(session)
        if not self._is_at_rest:
            # The session needs no write, and lives where none is possible: on a full disk, what frees space needs it.
            with contextlib.suppress(LedgerUnavailable):
                self._change()

    def is_session_ended(self, name: str, session: SessionId) -> bool:
        return self._sessions.is_ended(name, session)

    def live_names(self) -> Sequence[str]:
        return self._sessions.names()

    # Entries.

    def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Appended:
        return self.append_with(session, entries, ())[0]

    def append_with(
        self, session: SessionId, entries: Sequence[LedgerEntry], objects: Sequence[ObjectToPut]
    ) -> tuple[Appended, Sequence[RecordLocation]]:
        """Append a group, and before it the objects that it names, by one write; returns where the objects are.

        With a repeat of a group that is in the ledger, nothing is written: its objects were written with it.
        """
        self._check_open()
        self._sessions.check(session)
        newest = self._sessions.newest[session]
        if not is_next(newest, entries):
            with self._mapped_errors():
                first_copy = self._revision_of(session, entries[0].number)
            position = position_of_repeat(session, newest, first_copy, entries)
            return Appended(position, is_new=False), ()
        state = self._state
        group = StoredGroup(
            position=Position(state.position_last + 1),
            appends_count=state.appends_count + 1,
            state_number=state.number,
            session=session,
            entries=tuple(entries),
        )
        self._check_writable()
        with self._mapped_errors(has_objects=bool(objects)):
            stored = JournalEntry(parts=encode_group(group), stamp=group.position)
            written = self._journal.append(objects, entries=[stored])
        self._state = msgspec.structs.replace(
            state, position_last=group.position, position=group.position, appends_count=group.appends_count
        )
        self._is_at_rest = False
        self._add(written.entries[0])
        self._sessions.newest[session] = NewestGroup(position=group.position, entries=group.entries)
        return Appended(group.position, is_new=True), written.objects

    def load(self) -> LedgerStart:
        pointer = self.pointer()
        after = Position(0) if pointer is None else pointer.position
        return LedgerStart(pointer=pointer, head=self.head(), records=self.entries_above(after))

    def entries_above(self, after: Position) -> list[LedgerRecord]:
        """The records above `after` that were not trimmed."""
        with self._mapped_errors():
            return [record for group in self._groups_after(after) for record in group.records()]

    def read_after(self, after: Position) -> list[LedgerRecord]:
        """Records above `after` by whole revisions, as many as a tail hands over at once; none where nothing is new."""
        if after < self._state.trimmed:
            raise Trimmed(f"position {after} was asked for, everything up to {self._state.trimmed} is trimmed")
        records: list[LedgerRecord] = []
        with self._mapped_errors():
            for group in self._groups_after(after):
                records.extend(group.records())
                if len(records) >= LEDGER_TAIL_RECORDS_MAX:
                    break
        return records

    def head(self) -> Head:
        return self._state.head

    def used_bytes(self) -> int:
        """The bytes of the entries that were not trimmed, and of the state."""
        return self._used_bytes + len(self._encoded_state())

    # Snapshots.

    def pointer(self) -> SnapshotPointer | None:
        return self._state.snapshot

    def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        self._check_open()
        if self.pointer() != expected:
            return False
        self._change(pointer=stored_pointer(pointer))
        return True

    def trim_step(self, position: Position) -> tuple[Position, bool]:
        """Drop the entries at or below `position`; all of them, as no entry is touched for it.

        Returns the position up to which everything is dropped now, and that there is no more to drop.
        """
        self._check_open()
        pointer = self.pointer()
        covered = Position(0) if pointer is None else pointer.position
        if position > covered:
            raise LedgerCorrupt(f"trim up to {position} was asked for, but the snapshot covers only up to {covered}")
        count = self._row_after(position)
        if count:
            last = self._groups[count - 1]
            appends_count = self._state.trimmed_appends_count + count
            self._change(trimmed=last.stamp, trimmed_appends_count=appends_count)
            self._drop(count)
        return Position(self._state.trimmed), False

    def fence(self) -> None:
        self._sessions.check_none()
        self._change(is_fenced=True)

    def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        check_restart(identity, pointer)
        if (self.identity, self.pointer()) == (identity, pointer):
            return
        if not self._state.is_fenced:
            raise not_fenced()
        state = first_state(identity, pointer, number=self._state.number + 1)
        self._write_state(state)
        self._drop(len(self._groups))

    def _check_open(self) -> None:
        """Raise `LedgerCorrupt` where it is fenced."""
        if self._state.is_fenced:
            raise being_recovered()

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise LedgerUnavailable("the ledger was opened for reading only")

    # Writing.

    def _change(self, **changes: object) -> None:
        """Write a new state, with these changes. Without any it says how far the ledger has come."""
        self._write_state(msgspec.structs.replace(self._state, number=self._state.number + 1, **changes))

    def _write_state(self, state: StoredState) -> None:
        self._check_writable()
        with self._mapped_errors():
            if self._replaced is not None and not self._is_settled:
                # Files of the former ledger are used again only once this one is durable.
                self._journal.settle(self._replaced, released_write=-1, current_state=self._encoded_state)
                self._is_settled = True
            self._journal.append(state=encode_state(state))
        self._state = state
        self._is_at_rest = True
        if self._replaced is not None:
            self._journal.release(self._replaced.write_next - 1)
            self._journal.take_back_unneeded()
            self._replaced = None

    def _replace(self, content: JournalContent, cluster_id: str) -> None:
        """A ledger without entries, above everything that another one may have left in the journal. It is begun by its
        first write."""
        identity = LedgerIdentity(cluster_id=cluster_id, incarnation=INCARNATION_FIRST)
        last = max((entry.stamp for entry in content.entries), default=0)
        self._state = msgspec.structs.replace(
            first_state(identity, None, number=content.write_next + 1),
            position_last=last,
            position=last,
            trimmed=last,
        )
        self._replaced = content
        self._is_at_rest = True

    def _take_over(self, content: JournalContent, predecessor: LedgerContents) -> None:
        """Begin with everything that another ledger held, by one write: all of it counts then, or nothing."""
        revisions = predecessor.revisions()
        if len(revisions) > REVISIONS_PER_WRITE:
            raise LedgerUnsupported(
                f"no snapshot covers {len(revisions)} appends of the ledger that is replaced: start the version that "
                "wrote it once more, until it has taken a snapshot"
            )
        trimmed_count = predecessor.head.appends_count - len(revisions)
        self._state = msgspec.structs.replace(
            first_state(predecessor.identity, predecessor.pointer, number=1),
            is_fenced=predecessor.is_fenced,
            position_last=predecessor.position_last,
            position=predecessor.head.position,
            appends_count=predecessor.head.appends_count,
            trimmed=predecessor.trimmed,
            trimmed_appends_count=trimmed_count,
        )
        groups = [
            StoredGroup(
                position=revision[0].position,
                appends_count=appends_count,
                state_number=0,
                session=revision[0].session,
                entries=entries_of(revision),
            )
            for appends_count, revision in enumerate(revisions, trimmed_count + 1)
        ]
        self._journal.settle(content, released_write=-1, current_state=self._encoded_state)
        stored = [JournalEntry(parts=encode_group(group), stamp=group.position) for group in groups]
        written = self._journal.append(entries=stored, state=self._encoded_state())
        for location in written.entries:
            self._add(location)
        self._is_at_rest = True

    def contents(self) -> LedgerContents:
        """Everything that is in the ledger."""
        state = self._state
        return LedgerContents(
            identity=state.identity,
            is_fenced=state.is_fenced,
            position_last=state.position_last,
            head=state.head,
            trimmed=Position(state.trimmed),
            pointer=state.snapshot,
            records=self.entries_above(Position(0)),
        )

    def _add(self, location: RecordLocation) -> None:
        self._groups.append(location)
        self._used_bytes += location.payload_bytes

    def _drop(self, count: int) -> None:
        """Forget the first groups, which were trimmed, and give back the files that are not needed any more."""
        if not count:
            return
        first_kept = self._groups[count] if count < len(self._groups) else None
        released = _released_write(self._groups[count - 1], first_kept)
        self._used_bytes -= sum(self._groups[row].payload_bytes for row in range(count))
        self._groups.drop(count)
        self._journal.release(released)
        self._journal.take_back_unneeded()

    # Reading.

    def _read(self, content: JournalContent) -> None:
        """Remember what a start found. Raises `LedgerCorrupt` where something is missing."""
        if not content.states:
            raise _damaged("no state of its ledger can be read")
        newest = content.states[-1]
        (payload,) = self._journal.records.payloads([newest])
        state = decode_state(payload)
        # The head as far as entries before the state show it; it has to be the state's.
        self._state = msgspec.structs.replace(
            state, position_last=state.trimmed, position=state.trimmed, appends_count=state.trimmed_appends_count
        )
        trimmed_count = bisect_right(content.entries, state.trimmed, key=attrgetter("stamp"))
        older_count = bisect_left(content.entries, _order(newest), key=_order)
        self._read_groups(content.entries[trimmed_count:older_count], is_older=True)
        if self.head() != state.head:
            raise _damaged(f"its ledger lacks entries up to position {state.position}")
        self._state = state
        behind = content.entries[max(trimmed_count, older_count) :]
        self._read_groups(behind, is_older=False)
        self._is_at_rest = not behind
        if (behind[-1] if behind else newest).write < content.damaged_write:
            # Nothing behind the damage shows whether there was an entry: its offsets would be given to other records.
            raise _damaged("its ledger may lack its newest entries")
        released_write = -1
        if trimmed_count:
            first_kept = content.entries[trimmed_count] if trimmed_count < len(content.entries) else None
            released_write = _released_write(content.entries[trimmed_count - 1], first_kept)
        self._journal.settle(content, released_write=released_write, current_state=self._encoded_state)

    def _read_groups(self, locations: Sequence[RecordLocation], *, is_older: bool) -> None:
        """Remember groups that follow all others; `is_older`: than the newest state."""
        for location, payload in zip(locations, self._journal.records.payloads(locations), strict=True):
            group, state = decode_group(payload), self._state
            is_next = group.appends_count == state.appends_count + 1 and group.position > state.position_last
            is_state_known = group.state_number <= state.number if is_older else group.state_number == state.number
            if not (is_next and is_state_known and group.position == location.stamp):
                raise _damaged(f"its ledger lacks entries or a state before position {group.position}")
            self._state = msgspec.structs.replace(
                state, position_last=group.position, position=group.position, appends_count=group.appends_count
            )
            self._add(location)

    def _encoded_state(self) -> bytes:
        return encode_state(self._state)

    def _row_after(self, position: Position) -> int:
        return bisect_right(self._groups.stamps, position)

    def _groups_after(self, position: Position) -> Iterator[StoredGroup]:
        """The groups above `position`, in order."""
        rows = range(self._row_after(position), len(self._groups))
        return map(decode_group, self._journal.records.payloads(self._groups[row] for row in rows))

    def _revision_of(self, session: SessionId, number: int) -> Sequence[LedgerRecord]:
        """The revision that holds an entry; empty where there is none. Reads backwards: only for a late repeat."""
        for row in reversed(range(len(self._groups))):
            (payload,) = self._journal.records.payloads([self._groups[row]])
            group = decode_group(payload)
            if group.session == session and group.entries[0].number <= number <= group.entries[-1].number:
                return group.records()
        return ()

    @contextlib.contextmanager
    def _mapped_errors(self, *, has_objects: bool = False) -> Generator[None, None, None]:
        """Turn errors of the journal into the ledger's. What is not damage may pass (a full disk, an I/O error).

        Entries alone wait for room. With objects they must not, as those that free it may wait behind them.
        """
        try:
            yield
        except ObjectUnreadable as error:
            # A recovery begins a ledger again that cannot be opened. One that is open has its entries in memory: its
            # agent goes on as in any outage, and the next snapshot covers what cannot be read.
            if self._is_opening:
                raise _damaged(str(error)) from error
            raise LedgerUnavailable(f"the journal could not be read ({error}): check the disk") from error
        except (ObjectDamaged, Undecodable, FileNotFoundError) as error:
            raise _damaged(str(error)) from error
        except OSError as error:
            if has_objects and error.errno in _FULL_CODES:
                raise LedgerFull(f"there is no room for the objects of an append: {error}") from error
            raise LedgerUnavailable(
                f"the journal could not be read or written ({error}): check the disk and its free space"
            ) from error


def _order(location: RecordLocation) -> tuple[int, int]:
    """The order of records in a journal: those of one write are in one file."""
    return location.write, location.record_first


def _released_write(dropped: RecordLocation, first_kept: RecordLocation | None) -> int:
    """The newest write of which no entry is needed. `dropped`: the newest entry that is not needed any more.

    A ledger that was taken over has many groups in one write.
    """
    return dropped.write if first_kept is None else min(dropped.write, first_kept.write - 1)


def _damaged(reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"the journal is damaged ({reason}): {REMEDY}")
