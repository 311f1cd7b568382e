"""A journal: appends objects and entries to its newest file, finds them again after a crash, and uses files again.

Rule: blocking. `append` is called by one thread at a time, the rest by any. A write counts once its file is synced, and
a file once the folder is; to a file whose sync failed nothing is added, because the failed sync may have dropped its
pages. A start never appends to a file of an earlier one. What the names of files say is not believed. Bytes:
`storage.embedded.journal.format`. What a start finds: `storage.embedded.journal.opening`.

A file is needed while one of its objects is not marked as deleted, or one of its entries is not released.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock

from protocol.limits import JOURNAL_ALLOCATED_BYTES_STEP, JOURNAL_FILE_BYTES_TARGET
from storage.embedded.journal.folder import JournalFolder
from storage.embedded.journal.format import (
    DEAD,
    FILE_HEADER_BYTES,
    NO_SUCCESSOR,
    STATE_POSITION,
    FileHeader,
    RecordKind,
    encode_file_header,
)
from storage.embedded.journal.opening import JournalFiles, OpenedFile, OpenedFiles
from storage.embedded.journal.reading import RecordReader
from storage.embedded.journal.records import JournalContent, JournalEntry, JournalFile, RecordLocation, Written
from storage.embedded.journal.writes import JournalWrite, encode_end
from storage.embedded.local_files import Files
from storage.object_store import Buffer, ObjectToPut
from storage.store_damage import OnDamage, OnRemoved, StoreDamage, ignore_damage, ignore_removed


class Journal:
    """The files of `folder`, which exists, and to which no other process writes.

    `new_nonce` gives 16 unguessable bytes. A file that has reached `file_bytes_target` is followed by another one, and
    gets its blocks `allocated_bytes_step` at a time. `is_durable=False` leaves out every sync: a crash of the machine
    (not of the process) may lose the newest writes. With `is_writer=False` nothing is changed, and nothing may be
    appended or marked; a folder that is not there is empty.
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
        self._folder = JournalFolder(folder, self.path, new_nonce=new_nonce, is_durable=is_durable, files=files)
        self._lock = Lock()
        """Held while files are added or removed here, and while what of them is needed changes."""
        self._begun: dict[int, JournalFile] = {}
        """By number, in order: every file that was begun and not taken back."""
        self._renamed: set[JournalFile] = set()
        self._unsettled: OpenedFiles | None = None
        """The result of the start, until it is settled."""
        self._released_write = -1
        self._write_next = 0
        self._current_state: Callable[[], bytes] = bytes
        self._file: JournalFile | None = None
        """The file that is open for appends, and its descriptor."""
        self._descriptor = -1

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
        self._begun = {begun.file.number: begun.file for begun in self._unsettled.begun}
        return self._unsettled.content

    def settle(
        self, content: JournalContent, *, released_write: int, current_state: Callable[[], bytes] = bytes
    ) -> None:
        """Leave the folder as if no crash had been, now that its owner knows what `open` found.

        `released_write`: entries of this write and of earlier ones are not needed. `current_state` gives the owner's
        state, with which each new file begins; empty where there is none.
        """
        assert self._unsettled is not None, "a journal is opened before it is settled, once"
        opened, self._unsettled = self._unsettled, None
        self._current_state, self._released_write = current_state, released_write
        if not self._is_writer:
            return
        self._renamed = {begun.file for begun in opened.begun if begun.is_renamed}
        self._end_files(opened.begun)
        for number in opened.unused:
            self._folder.take_back(number)
        try:
            self.mark_dead(content.replaced)
        except OSError:  # an object that is deleted could only have to be deleted again
            for location in content.replaced:
                location.file.is_damaged = True  # used again, it would bring back what could not be marked
        for file in self._renamed:
            # This program renames a file once nothing in it is needed. So somebody else has renamed it.
            if self._is_needed(file):
                file.is_damaged = file.is_set_aside = True
                self._on_damage(StoreDamage(file=self.path(file.number), detail="it is another file by its header"))
        self.take_back_unneeded()
        self._folder.sync()

    def append(
        self, objects: Sequence[ObjectToPut] = (), *, entries: Sequence[JournalEntry] = (), state: bytes | None = None
    ) -> Written:
        """Write and sync everything by one call each: the objects, then the entries, then the new state.

        After an `OSError` nothing of it counts, unless the process ends before the next append: then it may.
        """
        assert self._unsettled is None, "a journal is settled before it is written"
        self._check_writer()
        file = self._file_for_append()
        is_new = not file.end
        write = JournalWrite(file, self._write_next, is_synced_before=self._is_durable)
        first_state = self._current_state() if is_new and state is None else b""
        if first_state:
            write.add(RecordKind.STATE, [first_state])
        objects_first = write.count
        for stored in objects:
            write.add(RecordKind.OBJECT, stored.parts, name=stored.key, stamp=stored.modified_ms)
        for entry in entries:
            write.add(RecordKind.ENTRY, entry.parts, stamp=entry.stamp)
        if state is not None:
            write.add(RecordKind.STATE, [state])
        parts, locations = write.encode()
        end = locations[-1].end
        self._write(file, parts, end)
        entries_first = objects_first + len(objects)
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
        self._write_next += 1
        if is_new:
            self._end_predecessor(file)
        return written

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
                for location in marked:
                    self._files.write_at(descriptor, [DEAD], location.record_first + STATE_POSITION)
                if self._is_durable:
                    self._files.sync_data(descriptor)
            with self._lock:
                file.objects_live -= len(marked)

    def release(self, write: int) -> None:
        """Entries of this write and of earlier ones are not needed any more, and a state that says so is durable."""
        self._released_write = max(self._released_write, write)

    def take_back_unneeded(self) -> None:
        """Use files again, or remove them, of which nothing is needed any more."""
        with self._lock:
            begun = list(self._begun.values())
        for file in begun:
            with self._lock:
                is_gone = self._begun.get(file.number) is not file  # another thread was first
                if is_gone or self._is_needed(file) or self._is_kept(file):
                    continue
                del self._begun[file.number]
            if not self.records.is_own(file):
                continue
            if file.is_damaged:
                self._folder.remove(file.number)
            else:
                self._folder.take_back(file.number)
            self._on_removed(self.path(file.number))

    def leave_unneeded(self) -> None:
        """Begin another file where nothing in the newest one is needed but the state, and give that one back.

        Called in the writing thread while the disk is full: a file has many times the blocks that a new one has.
        """
        file, state = self._file, self._current_state()
        if file is None or not state or self._is_needed(file) or file.end < 2 * self._allocated_bytes_step:
            return
        self._files.close(self._descriptor)
        self._file = None
        self.append(state=state)
        self.take_back_unneeded()
        self.drop_spares()

    def drop_spares(self) -> None:
        """Remove the files that wait to be used again: the disk is full."""
        self._folder.drop_spares()

    def close(self) -> None:
        """Mark the newest file as ended, and unlock the folder."""
        if self._file is not None:
            self._end_file(self._file)
        self._folder.unlock()

    @property
    def used_bytes(self) -> int:
        """The bytes of all files that were begun, up to where they end."""
        with self._lock:
            return sum(file.end for file in self._begun.values())

    def _check_writer(self) -> None:
        if not self._is_writer:
            raise OSError(errno.EROFS, "the journal was opened for reading only")

    def _is_needed(self, file: JournalFile) -> bool:
        return file.objects_live > 0 or file.entry_write_last > self._released_write

    def _is_kept(self, file: JournalFile) -> bool:
        """Whether a file stays although nothing in it is needed.

        The newest one has the newest state. One behind a file that does not say where it ends says it.
        """
        others = self._begun.values()
        is_newest = not any(other.own_number > file.own_number and other.end > FILE_HEADER_BYTES for other in others)
        is_pinned = any(other.own_number < file.own_number and other.is_open_ended for other in others)
        return is_newest or is_pinned or file.is_set_aside

    # Appending.

    def _file_for_append(self) -> JournalFile:
        if self._file is not None and self._file.end < self._file_bytes_target:
            return self._file
        if self._file is not None:
            self._files.close(self._descriptor)
            self._file = None  # where it ends is marked once the next file is durable: `_end_predecessor`
        number, nonce, descriptor = self._folder.begin_file()
        allocated_bytes = os.fstat(descriptor).st_size
        file = JournalFile(
            number=number,
            own_number=number,
            nonce=nonce,
            write_first=self._write_next,
            end=0,
            write_end=self._write_next,
            allocated_bytes=allocated_bytes,
        )
        with self._lock:
            self._begun[number] = file
        self._file, self._descriptor = file, descriptor
        return file

    def _write(self, file: JournalFile, parts: Sequence[Buffer], end: int) -> None:
        try:
            self._allocate(file, end)
        except OSError:
            if not file.end:
                self._discard(file)
            raise
        is_written = False
        try:
            self._files.write_at(self._descriptor, parts, file.end)
            is_written = True
            if self._is_durable:
                self._files.sync_data(self._descriptor)
        except OSError:
            self._take_away(file, is_sync_failed=is_written)
            raise

    def _allocate(self, file: JournalFile, end: int) -> None:
        """Give the file blocks ahead of use: a full disk rejects a write before any of it is written, and what blocks
        there are stays for smaller writes."""
        if end <= file.allocated_bytes:
            return
        step = self._allocated_bytes_step
        allocated_bytes = -(-end // step) * step
        try:
            self._files.allocate(self._descriptor, file.allocated_bytes, allocated_bytes)
        except OSError:
            allocated_bytes = end
            self._files.allocate(self._descriptor, file.allocated_bytes, allocated_bytes)
        file.allocated_bytes = allocated_bytes

    def _take_away(self, file: JournalFile, *, is_sync_failed: bool) -> None:
        """Take away what a failed write has left. After a failed sync, or where that fails too, the file is over.

        A file that has nothing else is removed.
        """
        is_over = is_sync_failed
        try:
            self._files.truncate(self._descriptor, file.end)
            file.allocated_bytes = file.end
        except OSError:
            is_over = file.is_damaged = True
        if not file.end:
            self._discard(file)
        elif is_over:
            self._end_file(file)

    def _discard(self, file: JournalFile) -> None:
        """Remove the file that is open for appends: nothing in it counts."""
        self._files.close(self._descriptor)
        self._file = None
        with self._lock:
            del self._begun[file.number]
        self._folder.remove(file.number)

    def _end_file(self, file: JournalFile) -> None:
        """Append nothing more to the open file: mark where it ends, and give back the blocks behind."""
        with suppress(OSError):
            self._files.truncate(self._descriptor, file.end)
        self._write_end(self._descriptor, file, NO_SUCCESSOR, is_synced=True)
        self._files.close(self._descriptor)
        self._file = None

    def _end_files(self, begun: Sequence[OpenedFile]) -> None:
        """Mark where the files of earlier starts end that do not say it: then nothing in them can be torn any more.

        It makes them durable, too. What was written by a process that was killed may be in the page cache alone.
        """
        successors = [*(opened.file.own_number for opened in begun[1:]), NO_SUCCESSOR]
        for opened, successor in zip(begun, successors, strict=False):
            file = opened.file
            if file.is_open_ended and not file.is_set_aside and not opened.is_renamed:
                self._mark_end(file, successor, is_synced=True)

    def _end_predecessor(self, file: JournalFile) -> None:
        """Mark where the file before ends, and by which one it is followed: so that a missing one is noticed.

        It is not synced. Where the mark is lost, the next file says from which write on the one before does not count.
        """
        with self._lock:
            earlier = [other for other in self._begun.values() if other.own_number < file.own_number]
        predecessor = max(earlier, key=lambda other: other.own_number, default=None)
        if predecessor is not None and not predecessor.is_set_aside and predecessor not in self._renamed:
            self._mark_end(predecessor, file.number, is_synced=predecessor.is_open_ended)

    def _mark_end(self, file: JournalFile, successor: int, *, is_synced: bool) -> None:
        """Mark where a file ends that is not open for appends."""
        file.is_open_ended = True
        with suppress(OSError), self.records.opened(file, is_writing=True) as descriptor:
            self.records.check_nonce(descriptor, file)
            self._write_end(descriptor, file, successor, is_synced=is_synced)

    def _write_end(self, descriptor: int, file: JournalFile, successor: int, *, is_synced: bool) -> None:
        ending = encode_end(file.nonce, file.write_end, successor=successor, is_synced_before=self._is_durable)
        file.is_open_ended = True
        with suppress(OSError):
            if file.is_headless:  # else a later start, with later writes, would take its torn header for damage
                header = FileHeader(number=file.number, nonce=file.nonce, write_first=file.write_first)
                self._files.write_at(descriptor, [encode_file_header(header)], 0)
                file.is_headless = False
            self._files.write_at(descriptor, [ending], file.end)
            if is_synced and self._is_durable:
                self._files.sync_data(descriptor)
            file.is_open_ended = False
        # Only the next file says then that what a failed write has left behind the end does not count.
        file.is_damaged |= file.is_open_ended
