"""The folder of a journal: its lock, the beginnings of files, and files that wait to be used again.

Rule: blocking, called by any thread. A file gets its header, and is synced, before it gets its name: so whatever has
the name of a file is that file, and nothing of an earlier use is taken for a part of it. Blocks that a file has are
quicker to write than new ones, so a file that is not needed is kept for the next one, under its old name until then.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from protocol.limits import JOURNAL_FILES_SPARE_MAX
from storage.embedded.journal.format import FileHeader, file_beginning, file_number
from storage.embedded.local_files import Files


class JournalFolder:
    """The folder `folder`; `path` gives the path of a number's file, and `new_nonce` 16 unguessable bytes."""

    def __init__(
        self, folder: str, path: Callable[[int], str], *, new_nonce: Callable[[], bytes], files: Files
    ) -> None:
        self._folder = folder
        self._path = path
        self._new_nonce = new_nonce
        self._files = files
        self._held = -1
        self._spare: deque[int] = deque()
        self.number_highest = -1
        """Every number that is in use is at most this; the next file gets a higher one."""

    def lock(self) -> None:
        """Lock the folder until `unlock`. Raises `BlockingIOError` where another process has locked it."""
        self._held = self._files.lock_directory(self._folder)

    def unlock(self) -> None:
        if self._held >= 0:
            held, self._held = self._held, -1
            self._files.close(held)

    def sync(self) -> None:
        """Make the names durable."""
        self._files.sync_directory(self._folder)

    def begin_file(self, write_first: int, *, is_synced: bool) -> tuple[FileHeader, int]:
        """The header of a new file, and a descriptor to write it, which the caller closes. Both are durable.

        It is a spare file where there is one that can be used: its content is the old one. For the arguments:
        `FileHeader`.
        """
        new_header = partial(self._new_header, write_first, is_synced=is_synced)
        header, descriptor = self._use_again(new_header) or self._create(new_header())
        try:
            self.sync()
        except OSError:
            self._files.close(descriptor)
            self._spare.append(header.number)
            raise
        return header, descriptor

    def take_back(self, number: int) -> None:
        """Keep a file that is not needed for the next one, or remove it. Raises `OSError` where that fails."""
        if len(self._spare) < JOURNAL_FILES_SPARE_MAX:
            self._spare.append(number)
        else:
            self.remove(number)

    def remove(self, number: int) -> None:
        """Remove a file that is not needed; it may be gone. Raises `OSError` where it stays."""
        with suppress(FileNotFoundError):
            self._files.unlink(self._path(number))

    def drop_spares(self) -> None:
        """Remove the files that wait to be used again: the disk is full."""
        for spare in self._spares():
            try:
                self.remove(spare)
            except OSError:
                self._spare.append(spare)

    def _new_header(self, write_first: int, *, is_synced: bool) -> FileHeader:
        nonce = self._new_nonce()
        number = file_number(self.number_highest, nonce)
        while os.path.lexists(self._path(number)):  # another process has put it there since the start
            number = file_number(number, nonce)
        self.number_highest = number
        return FileHeader(number=number, nonce=nonce, write_first=write_first, is_synced=is_synced)

    def _use_again(self, new_header: Callable[[], FileHeader]) -> tuple[FileHeader, int] | None:
        """A spare file that has become another one; None where there is none. One that somebody has removed is
        forgotten, and one that cannot be used waits on: with a header that no other file has."""
        for spare in self._spares():
            header, descriptor = new_header(), -1
            try:
                descriptor = self._files.open_existing(self._path(spare), is_writing=True)
                self._write_header(descriptor, header)
                self._files.rename(self._path(spare), self._path(header.number))
            except OSError as error:
                if descriptor >= 0:
                    self._files.close(descriptor)
                if not isinstance(error, FileNotFoundError):
                    self._spare.append(spare)
            else:
                return header, descriptor
        return None

    def _create(self, header: FileHeader) -> tuple[FileHeader, int]:
        path = self._path(header.number)
        descriptor = self._files.create(path)
        try:
            self._write_header(descriptor, header)
        except OSError:
            self._files.close(descriptor)
            with suppress(OSError):  # the next start finds that it was not begun
                self._files.unlink(path)
            raise
        return header, descriptor

    def _write_header(self, descriptor: int, header: FileHeader) -> None:
        self._files.write_at(descriptor, [file_beginning(header)], 0)
        self._files.sync_data(descriptor)

    def _spares(self) -> Iterator[int]:
        """Take each of the files that wait now, once."""
        for _ in range(len(self._spare)):
            try:
                spare = self._spare.popleft()
            except IndexError:  # another thread has taken it
                return
            yield spare
