"""Reads objects out of the journal of an agent that goes on writing to it: for jobs beside an embedded broker.

Rule: blocking, by one thread at a time; nothing is created, locked or changed. The locations of objects are remembered,
and the files are looked through again only for a key that is not known. An object that is torn or not yet written is
never read, since the ledger names only what was acknowledged. A file that was used again has another nonce.
"""

import os

from protocol.limits import JOURNAL_SCANS_MAX
from storage.embedded.journal.opening import JournalFiles
from storage.embedded.journal.reading import RecordReader
from storage.embedded.journal.records import JournalContent, RecordLocation
from storage.embedded.local_files import Files, errors_of
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable, cut_short


class JournalReader:
    """The objects in the journal of `folder`, which need not be there yet."""

    def __init__(self, folder: str, *, files: Files | None = None) -> None:
        self._folder = folder
        self._files = Files() if files is None else files
        self._records = RecordReader(self._files, JournalFiles(folder, self._files).path)
        self._objects: dict[str, RecordLocation] = {}
        self._has_gaps = False

    def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectMissing`, `ObjectDamaged`, and `StoreUnavailable` where the folder cannot be
        read.
        """
        return self._find(key, 0, None)

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        """Exactly `byte_count` bytes from `byte_first`. Raises as `get`."""
        return self._find(key, byte_first, byte_count)

    def knows(self, key: str) -> bool:
        """Whether the object was there when the files were looked through."""
        return key in self._objects

    def _find(self, key: str, byte_first: int, byte_count: int | None) -> bytes:
        with errors_of(key):
            for is_first in (True, False):
                if not is_first:
                    self._look()
                location = self._objects.get(key)
                content = None if location is None else self._read(key, location, byte_first, byte_count)
                if content is not None:
                    return content
        if self._has_gaps:
            raise ObjectDamaged(f"{key} is not found, and not all of the journal can be read: run penstock doctor")
        raise ObjectMissing(f"{key} does not exist")

    def _look(self) -> None:
        """Find out where the objects are now."""
        for _ in range(JOURNAL_SCANS_MAX):
            try:
                content = JournalFiles(self._folder, self._files).read_all().content
            except FileNotFoundError:
                if os.path.isdir(self._folder):
                    continue
                content = JournalContent()  # nothing was put yet
            self._objects, self._has_gaps = content.objects, content.has_gaps
            return
        raise StoreUnavailable(f"{self._folder} changes while it is read: the read can be repeated")

    def _read(self, key: str, location: RecordLocation, byte_first: int, byte_count: int | None) -> bytes | None:
        """None where the object is there no more: its file was taken back."""
        expected_bytes = location.payload_bytes - byte_first if byte_count is None else byte_count
        within = min(expected_bytes, max(location.payload_bytes - byte_first, 0))
        try:
            content = self._records.read(key, location, byte_first, within)
        except FileNotFoundError:
            return None
        if within != expected_bytes:
            raise cut_short(key, within, byte_first, expected_bytes)
        return content
