"""The folder of a journal: its lock, the names of new files, and files that wait to be used again.

Rule: blocking, called by any thread. A name counts once the folder is synced. Blocks that a file has are quicker to
write than new ones, so a file that is not needed is kept for the next one, under its old name until then.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from protocol.limits import JOURNAL_FILES_SPARE_MAX
from storage.embedded.journal.format import file_number
from storage.embedded.local_files import Files


class JournalFolder:
    """The folder `folder`; `path` gives the path of a number's file, and `new_nonce` 16 unguessable bytes."""

    def __init__(
        self,
        folder: str,
        path: Callable[[int], str],
        *,
        new_nonce: Callable[[], bytes],
        is_durable: bool,
        files: Files,
    ) -> None:
        self._folder = folder
        self._path = path
        self._new_nonce = new_nonce
        self._is_durable = is_durable
        self._files = files
        self._held = -1
        self._spare: deque[int] = deque()
        self._spare_lock = Lock()
        self.number_highest = -1
        """Every number that is in use is at most this; the next file gets a higher one."""

    def lock(self) -> None:
        """Lock the folder until `unlock`. Raises `BlockingIOError` where another process has locked it."""
        self._held = self._files.lock_directory(self._folder)

    def unlock(self) -> None:
        if self._held >= 0:
            self._files.close(self._held)
            self._held = -1

    def sync(self) -> None:
        """Make the names durable."""
        if self._is_durable:
            self._files.sync_directory(self._folder)

    def begin_file(self) -> tuple[int, bytes, int]:
        """The number and the nonce of a new file, and a descriptor to write it, which the caller closes.

        It is a spare file under a new name where there is one; its name is durable, and its content the old one.
        """
        nonce = self._new_nonce()
        number = file_number(self.number_highest, nonce)
        while os.path.lexists(self._path(number)):  # another process has put it there since the start
            number = file_number(number, nonce)
        self.number_highest = number
        descriptor = self._named_file(number)
        try:
            self.sync()
        except OSError:
            self._files.close(descriptor)
            self.take_back(number)
            raise
        return number, nonce, descriptor

    def take_back(self, number: int) -> None:
        """Keep a file that is not needed for the next one, or remove it."""
        with self._spare_lock:
            is_kept = len(self._spare) < JOURNAL_FILES_SPARE_MAX
            if is_kept:
                self._spare.append(number)
        if not is_kept:
            self.remove(number)

    def remove(self, number: int) -> None:
        with suppress(OSError):  # the next start finds that nothing in it is needed
            self._files.unlink(self._path(number))

    def drop_spares(self) -> None:
        """Remove the files that wait to be used again: the disk is full."""
        with self._spare_lock:
            dropped = list(self._spare)
            self._spare.clear()
        for number in dropped:
            self.remove(number)

    def _named_file(self, number: int) -> int:
        path = self._path(number)
        with self._spare_lock:
            spare = self._spare.popleft() if self._spare else None
        if spare is None:
            return self._files.create(path)
        try:
            self._files.rename(self._path(spare), path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # else somebody has removed it
                self.take_back(spare)
            raise
        try:
            return self._files.open_existing(path, is_writing=True)
        except OSError:
            self.take_back(number)
            raise
