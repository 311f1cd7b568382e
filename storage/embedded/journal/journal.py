"""A journal: appends objects and entries to its newest file, finds them again after a crash, and uses files again.

Rule: blocking. `append` is called by one thread at a time, the rest by any. A write counts once its file is synced. To
a file whose sync failed nothing is added, because the failed sync may have dropped its pages. A start never appends to
a file of an earlier one. What the names of files say is not believed. Bytes: `storage.embedded.journal.format`. What a
start finds: `storage.embedded.journal.opening`.

A file is needed while one of its objects is not marked as deleted, or one of its entries is not released.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import zip_longest
from operator import attrgetter
from threading import Lock

from protocol.limits import JOURNAL_ALLOCATED_BYTES_STEP, JOURNAL_FILE_BYTES_TARGET
from storage.embedded.journal.folder import JournalFolder
from storage.embedded.journal.format import (
    DEAD,
    LIVE,
    NO_SUCCESSOR,
    RECORD_HEADER_BYTES,
    RECORDS_FIRST,
    STATE_POSITION,
    RecordKind,
)
from storage.embedded.journal.opening import JournalFiles, OpenedFile, OpenedFiles
from storage.embedded.journal.reading import RecordReader
from storage.embedded.journal.records import (
    FileFate,
    JournalContent,
    JournalEntry,
    JournalFile,
    RecordLocation,
    Written,
)
from storage.embedded.journal.writes import NewRecord, encode_end, encode_write
from storage.embedded.local_files import Files
from storage.object_store import Buffer, ObjectToPut
from storage.store_damage import OnDamage, OnRemoved, StoreDamage, ignore_damage, ignore_removed

_COPY_BYTES = 1 << 20
"""The bytes that a start reads and writes again at once."""


class Journal:
    """The files of `folder`, which exists, and to which no other process writes.

    `new_nonce` gives 16 unguessable bytes. A file that has reached `file_bytes_target` is followed by another one, and
    gets its blocks `allocated_bytes_step` at a time. `is_durable=False` leaves out every sync but those that begin a
    file: a crash of the machine (not of the process) may lose the newest writes. With `is_writer=False` nothing is
    changed, and nothing may be appended or marked; a folder that is not there is empty.
    """

    def __init__(
        self,
        folder: str,
        *,
        new_nonce: Callable[[], bytes],
        is_durable: bool,
        files: Files,
        is_writer: bool = True,
        file_bytes_target: int = JOURNAL_FILE_BYTES_TARGET,
        allocated_bytes_step: int = JOURNAL_ALLOCATED_BYTES_STEP,
        on_damage: OnDamage = ignore_damage,
        on_removed: OnRemoved = ignore_removed,
    ) -> None:
        self._is_durable = is_durable
        self._is_writer = is_writer
        self._files = files
        self._file_bytes_target = file_bytes_target
        self._allocated_bytes_step = allocated_bytes_step
        self._on_damage = on_damage
        self._on_removed = on_removed
        self._journal_files = JournalFiles(folder, files, on_damage=on_damage)
        self.path = self._journal_files.path
        self.records = RecordReader(files, self.path)
        """Reads records whose location is known."""
        self._folder = JournalFolder(folder, self.path, new_nonce=new_nonce, files=files)
        self._lock = Lock()
        """Held while files are added or removed here, and while what of them is needed changes."""
        self._giving_back = Lock()
        """Held while files are given back: each of them once."""
        self._begun: set[JournalFile] = set()
        """Every file that has writes and was not given back."""
        self._unsettled: OpenedFiles | None = None
        """The result of the start, until it is settled."""
        self._state_file: JournalFile | None = None
        """The file of the newest state that a start could read, until the first append writes that again: what the
        newest file begins with may be damaged."""
        self._released_write = -1
        self._write_next = 0
        self._current_state: Callable[[], bytes] = bytes
        self._current: JournalFile | None = None
        """The newest file with writes, while it is open for appends."""
        self._next: JournalFile | None = None
        """The file that was begun behind it, until the first write to it succeeds."""

    def open(self) -> JournalContent:
        """Everything that counts. What a crash has torn is left out.

        Locks the folder until `close`, and raises `BlockingIOError` where another process has locked it. Nothing is
        changed before `settle`: an owner that finds its part damaged leaves everything as it is.
        """
        try:
            self._folder.lock()
        except FileNotFoundError:
            if self._is_writer:
                raise
            self._unsettled = OpenedFiles(begun=(), unused=(), content=JournalContent(), number_highest=-1)
            return self._unsettled.content
        try:
            self._unsettled = self._journal_files.read_all()
        except BaseException:
            self._folder.unlock()
            raise
        self._folder.number_highest = self._unsettled.number_highest
        self._write_next = self._unsettled.content.write_next
        self._begun = {begun.file for begun in self._unsettled.begun}
        return self._unsettled.content

    @property
    def content(self) -> JournalContent:
        """The result of `open`, until it is settled: with locations of all that was there, it is not kept."""
        assert self._unsettled is not None, "a journal has contents to settle from `open` until `settle`"
        return self._unsettled.content

    def settle(
        self, content: JournalContent, *, released_write: int, current_state: Callable[[], bytes] = bytes
    ) -> None:
        """Leave the folder as if no crash had been, now that its owner knows what `open` found.

        `released_write`: entries of this write and of earlier ones are not needed. `current_state` gives the owner's
        state, with which each new file begins; empty where there is none.
        """
        opened = self._unsettled
        assert opened is not None, "a journal is opened before it is settled, once"
        assert content is opened.content, "what `open` found"
        self._current_state, self._released_write = current_state, released_write
        self._state_file = content.states[-1].file if content.states else None
        if self._is_writer:
            self._make_durable(opened.begun)
            for number in opened.unused:
                with suppress(OSError):  # the next start finds it again
                    self._folder.take_back(number)
            self.take_back_unneeded()
            self._folder.sync()
        self._unsettled = None

    def append(
        self, objects: Sequence[ObjectToPut] = (), *, entries: Sequence[JournalEntry] = (), state: bytes | None = None
    ) -> Written:
        """Write and sync everything by one call each: the objects, then the entries, then the new state.

        After an `OSError` nothing of it counts, unless the process ends before the next append: then it may.
        """
        assert self._unsettled is None, "a journal is settled before it is written"
        self._check_writer()
        file = self._file_for_append()
        first_state = self._current_state() if file is self._next and state is None else b""
        records = [NewRecord(RecordKind.STATE, [first_state])] if first_state else []
        objects_first, entries_first = len(records), len(records) + len(objects)
        records += [NewRecord(RecordKind.OBJECT, new.parts, name=new.key, stamp=new.modified_ms) for new in objects]
        records += [NewRecord(RecordKind.ENTRY, entry.parts, stamp=entry.stamp) for entry in entries]
        if state is not None:
            records.append(NewRecord(RecordKind.STATE, [state]))
        parts, locations = encode_write(file, self._write_next, records)
        end = locations[-1].end
        self._write(file, parts, end)
        if file is self._next:
            # It is durable, so a start will notice if it is missing.
            if self._current is None:
                self._name_successor(file.number)
            self._end_current(file.number)
            self._current, self._next = file, None
        written = Written(
            write=self._write_next,
            objects=locations[objects_first:entries_first],
            entries=locations[entries_first : entries_first + len(entries)],
        )
        with self._lock:
            # Here, and not by the caller: else the file might be taken back before the caller has counted.
            file.end, file.write_end = end, self._write_next + 1
            file.objects_live += len(objects)
            if entries:
                file.entry_write_last = self._write_next
            self._begun.add(file)
            self._state_file = None
        self._write_next += 1
        return written

    def make_durable(self) -> None:
        """Make everything durable that counts, whatever `is_durable` says: the owner is about to remove another copy.

        Called by the thread that appends, while nothing is marked. Raises `OSError`.
        """
        if self._is_durable:
            return  # a start and each append have done so
        with self._lock:
            files = list(self._begun)
        for file in files:
            self._sync(file, range(RECORDS_FIRST, file.end))
        self._folder.sync()

    def mark_dead(self, locations: Sequence[RecordLocation]) -> None:
        """Let later starts forget these objects, after a loss of power too: the garbage collector does not look for
        them again. Objects of one file are marked together, or an `OSError` says that some may be."""
        self._check_writer()
        by_file: dict[JournalFile, list[RecordLocation]] = {}
        for location in locations:
            by_file.setdefault(location.file, []).append(location)
        for file, marked in by_file.items():
            with self.records.opened(file, is_writing=True) as descriptor:
                self.records.check_nonce(descriptor, file)
                try:
                    self._write_states(descriptor, marked, DEAD)
                    if self._is_durable:
                        self._files.sync_data(descriptor)
                except OSError:
                    with suppress(OSError):  # the sync may have dropped the marks, and a start would still read them
                        self._write_states(descriptor, marked, LIVE)
                    raise
            with self._lock:
                file.objects_live -= len(marked)

    def _write_states(self, descriptor: int, locations: Sequence[RecordLocation], state: bytes) -> None:
        for location in locations:
            self._files.write_at(descriptor, [state], location.record_first + STATE_POSITION)

    def release(self, write: int) -> None:
        """Entries of this write and of earlier ones are not needed any more, and a state that says so is durable."""
        self._released_write = max(self._released_write, write)

    def take_back_unneeded(self) -> None:
        """Use files again, or remove them, of which nothing is needed any more. What fails is tried again another time.

        The newest one stays: it has the newest state.
        """
        with self._giving_back:
            with self._lock:
                files = sorted(self._begun, key=attrgetter("own_number"))
                state_file = self._state_file
            newest = next((file for file in reversed(files) if file.has_writes), None)
            is_pinned = False
            for file in files:
                is_kept = is_pinned or file in (newest, state_file) or file.fate is FileFate.KEEP
                is_unneeded = not (is_kept or self._is_needed(file))
                if is_unneeded and self._give_back(file):
                    with self._lock:
                        self._begun.remove(file)
                elif file.is_open_ended:
                    is_pinned = True  # the file behind says where this one ends
                elif file.has_writes:
                    is_pinned = False

    def leave_unneeded(self) -> None:
        """Begin another file where nothing in the newest one is needed but the state, and give that one back.

        Called in the writing thread while the disk is full: a file has many times the blocks that a new one has.
        Raises `OSError` where there is no room for another file either; the newest one goes on then.
        """
        current, state = self._current, self._current_state()
        if current is None or not state or self._is_needed(current):
            return
        if current.end < 2 * self._allocated_bytes_step:
            return
        if self._next is None:
            self._next = self._begin()
        self.append(state=state)
        self.take_back_unneeded()
        self.drop_spares()

    def drop_spares(self) -> None:
        """Remove the files that wait to be used again: the disk is full."""
        self._folder.drop_spares()

    def close(self) -> None:
        """Mark the newest file as ended, and unlock the folder."""
        try:
            if self._next is not None:
                file, self._next = self._next, None
                self._close(file)  # the next start finds that it has no writes
            self._end_current()
        finally:
            self._folder.unlock()

    @property
    def used_bytes(self) -> int:
        """The bytes of all files that were begun, up to where they end."""
        with self._lock:
            return sum(file.end for file in self._begun)

    def _check_writer(self) -> None:
        if not self._is_writer:
            raise OSError(errno.EROFS, "the journal was opened for reading only")

    def _is_needed(self, file: JournalFile) -> bool:
        return file.objects_live > 0 or file.entry_write_last > self._released_write

    def _give_back(self, file: JournalFile) -> bool:
        """Give back a file of which nothing is needed; false where that failed, and is to be tried again."""
        is_own = True
        try:
            try:
                with self.records.opened(file) as descriptor:
                    self.records.check_nonce(descriptor, file)
            except FileNotFoundError:  # somebody has removed it, or put another one in its place
                is_own = False
            if is_own and file.fate is FileFate.REUSE:
                self._folder.take_back(file.number)
            elif is_own:
                self._folder.remove(file.number)
            if file.fate is FileFate.REMOVE:
                self._folder.sync()  # before the file goes that says that something in this one does not count
        except OSError:
            return False
        if is_own:
            self._on_removed(self.path(file.number))
        return True

    # Settling.

    def _make_durable(self, begun: Sequence[OpenedFile]) -> None:
        """Make what a start has found durable, and mark where files end: then nothing in them can be torn any more.

        What a process that was killed has written may be in the page cache alone. A sync of its that failed may even
        have left it there as if it were on the disk: so writes that nothing vouches for are written again. Raises
        `OSError`.
        """
        for opened in begun:
            file = opened.file
            # This program renames a file once nothing in it is needed. So somebody else has renamed it.
            if file.number != file.own_number and self._is_needed(file):
                file.raise_fate(FileFate.KEEP)
                self._on_damage(StoreDamage(file=self.path(file.number), detail="it is another file by its header"))
            if self._is_durable:
                self._sync(file, range(opened.unsynced_first, file.end), opened.ending)
        for opened, behind in zip_longest(begun, begun[1:]):
            file = opened.file
            if file.is_open_ended and self._may_mark_end(file):
                successor = behind.file.own_number if behind and behind.file.has_writes else NO_SUCCESSOR
                with suppress(OSError), self.records.opened(file, is_writing=True) as descriptor:
                    self._mark_end(descriptor, file, successor)

    def _sync(self, file: JournalFile, *written_again: range) -> None:
        """Make a file durable; what it has in these ranges is written again. Raises `OSError`."""
        with self.records.opened(file, is_writing=True) as descriptor:
            for part in written_again:
                for first in part[::_COPY_BYTES]:
                    content = self._files.read_at(descriptor, min(_COPY_BYTES, part.stop - first), first)
                    self._files.write_at(descriptor, [content], first)
            self._files.sync_data(descriptor)

    # Appending.

    def _file_for_append(self) -> JournalFile:
        is_full = self._current is None or self._current.end >= self._file_bytes_target
        if is_full and self._next is None:
            try:
                self._next = self._begin()
            except OSError:
                if self._current is None:
                    raise
        file = self._next or self._current  # one that cannot be followed goes on, as it may have blocks left
        assert file is not None
        return file

    def _begin(self) -> JournalFile:
        header, descriptor = self._folder.begin_file(self._write_next, is_synced=self._is_durable)
        file = JournalFile(
            number=header.number,
            own_number=header.number,
            nonce=header.nonce,
            is_synced=header.is_synced,
            end=RECORDS_FIRST,
            write_end=self._write_next,
            descriptor=descriptor,
            allocated_bytes=os.fstat(descriptor).st_size,
        )
        try:
            self._allocate(file, self._step_end(RECORDS_FIRST + 1))
        except OSError:
            if self._current is not None:
                self._discard(file)
                raise
        return file

    def _write(self, file: JournalFile, parts: Sequence[Buffer], end: int) -> None:
        """Write and sync. A full disk rejects a write before any of it is written: the file gets blocks ahead of use.
        What blocks there are stays for smaller writes."""
        try:
            self._allocate(file, self._step_end(end))
        except OSError:
            self._allocate(file, end)
        is_written = False
        try:
            self._files.write_at(file.descriptor, parts, file.end)
            is_written = True
            if self._is_durable:
                self._files.sync_data(file.descriptor)
        except OSError:
            self._take_away(file, is_sync_failed=is_written)
            raise

    def _allocate(self, file: JournalFile, end: int) -> None:
        if end > file.allocated_bytes:
            self._files.allocate(file.descriptor, file.allocated_bytes, end)
            file.allocated_bytes = end

    def _step_end(self, position: int) -> int:
        """Where the blocks end that a file has at once, with those before the position."""
        return -(-position // self._allocated_bytes_step) * self._allocated_bytes_step

    def _take_away(self, file: JournalFile, *, is_sync_failed: bool) -> None:
        """Take away what a failed write has left. After a failed sync, or where that fails too, the file is over."""
        if file is self._next:
            self._next = None
            self._discard(file)
            return
        try:
            self._files.truncate(file.descriptor, file.end)
            file.allocated_bytes = file.end
        except OSError:
            is_sync_failed = True
        if is_sync_failed:
            self._end_current()

    def _discard(self, file: JournalFile) -> None:
        """Remove a file that has no writes. Where that fails, and one is in it all the same, the header of a later file
        must say that it does not count: so the one before is over."""
        self._close(file)
        file.is_open_ended = True
        file.raise_fate(FileFate.REMOVE)
        if not self._give_back(file):
            with self._lock:
                self._begun.add(file)
            self._end_current()

    def _end_current(self, successor: int = NO_SUCCESSOR) -> None:
        """Append nothing more to the file that is open: mark where it ends, and give back the blocks behind."""
        if self._current is not None:
            file, self._current = self._current, None
            self._mark_end(file.descriptor, file, successor)
            with suppress(OSError):
                self._files.truncate(file.descriptor, file.end + RECORD_HEADER_BYTES)
            self._close(file)

    def _name_successor(self, successor: int) -> None:
        """Let the end of the newest file with writes, which is over or an earlier start's, say which one follows it."""
        with self._lock:
            newest = max((file for file in self._begun if file.has_writes), key=attrgetter("own_number"), default=None)
        if newest is not None and newest.successor == NO_SUCCESSOR and self._may_mark_end(newest):
            with suppress(OSError), self.records.opened(newest, is_writing=True) as descriptor:
                self.records.check_nonce(descriptor, newest)
                self._mark_end(descriptor, newest, successor)

    def _close(self, file: JournalFile) -> None:
        descriptor, file.descriptor = file.descriptor, -1
        with suppress(OSError):  # what was to be durable was synced
            self._files.close(descriptor)

    def _may_mark_end(self, file: JournalFile) -> bool:
        """Whether it has no damage; and what is written without syncs must not vouch for what was written with them."""
        return file.fate is not FileFate.KEEP and (self._is_durable or not file.is_synced)

    def _mark_end(self, descriptor: int, file: JournalFile, successor: int) -> None:
        """Mark where a file ends. Where that fails, only the next file says that what is behind does not count."""
        try:
            end = encode_end(file.nonce, file.write_end, successor=successor, is_synced=self._is_durable)
            self._files.write_at(descriptor, [end], file.end)
            if self._is_durable:
                self._files.sync_data(descriptor)
        except OSError:
            file.is_open_ended = True
            file.raise_fate(FileFate.REMOVE)
        else:
            file.successor, file.is_open_ended = successor, False
