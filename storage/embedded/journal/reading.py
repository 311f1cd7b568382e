"""Reads payloads of records whose location is known, from files that may have been used again, or renamed, since.

Rule: blocking. Stored bytes are checked before they are believed (safety rule S20).
"""

import errno
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter

from crc32c import crc32c

from storage.embedded.journal.format import read_record
from storage.embedded.journal.records import FileFate, JournalFile, RecordLocation
from storage.embedded.journal.scan import file_header
from storage.embedded.local_files import Files
from storage.embedded.readable_bytes import ReadableBytes
from storage.object_store import ObjectDamaged, ObjectUnreadable


class RecordReader:
    """`path` gives the path of a number's file."""

    def __init__(self, files: Files, path: Callable[[int], str]) -> None:
        self._files = files
        self._path = path

    def read(self, name: str, location: RecordLocation, byte_first: int, byte_count: int) -> bytes:
        """Bytes of an object. `FileNotFoundError` where its file has been taken back since.

        Of a whole object the checksum is checked (safety rule S20): `ObjectDamaged` where it is wrong. A caller that
        reads a part checks the record batches in it. `name`: the object's key.
        """
        with self.opened(location.file) as descriptor:
            held = self._files.readable(descriptor)
            content = held.read(byte_count, location.payload_first + byte_first)
            # Asked after the payload: a file is written from its beginning, so a header that stands vouches for it.
            header = held.read(location.payload_first - location.record_first, location.record_first)
            record = read_record(header, location.file.nonce)
            if record is None or (record.name, record.write) != (name, location.write):
                self.check_nonce(descriptor, location.file)
                raise ObjectDamaged(f"{name}: its header in {self._path(location.file.number)} cannot be read")
        return self._checked(name, location, held, content, byte_count)

    def payloads(self, locations: Iterable[RecordLocation]) -> Iterator[bytes]:
        """The payloads of entries or states that are needed. Raises `ObjectDamaged` where one is not as it was written.

        Neighbours in one file are read with one descriptor.
        """
        for file, together in groupby(locations, key=attrgetter("file")):
            with self.opened(file) as descriptor:
                held = self._files.readable(descriptor)
                for location in together:
                    content = held.read(location.payload_bytes, location.payload_first)
                    name = f"the record at byte {location.record_first}"
                    yield self._checked(name, location, held, content, location.payload_bytes)

    def _checked(
        self, name: str, location: RecordLocation, held: ReadableBytes, content: bytes, byte_count: int
    ) -> bytes:
        """The bytes that were read of a payload, if they are all there, and right where they are the whole of it."""
        path = self._path(location.file.number)
        unreadable = next(iter(held.stretches), None)
        if unreadable is not None:
            location.file.raise_fate(FileFate.KEEP)
            first, end, reason = unreadable
            raise ObjectUnreadable(f"{name}: bytes {first} to {end} of {path} cannot be read: {reason}")
        if len(content) != byte_count:
            raise ObjectDamaged(f"{name}: {path} ends within it")
        if byte_count == location.payload_bytes and crc32c(content) != location.payload_crc:
            raise ObjectDamaged(f"{name}: its checksum in {path} is wrong")
        return content

    @contextmanager
    def opened(self, file: JournalFile, *, is_writing: bool = False) -> Generator[int]:
        """A descriptor of the file that has its name now, for a block."""
        descriptor = self._files.open_existing(self._path(file.number), is_writing=is_writing)
        try:
            yield descriptor
        finally:
            self._files.close(descriptor)

    def check_nonce(self, descriptor: int, file: JournalFile) -> None:
        """Raise `FileNotFoundError` where the file is another one by now: it was used again, or renamed."""
        header = file_header(self._files.readable(descriptor).read, file.number)
        if header is not None and header.nonce != file.nonce:
            path = self._path(file.number)
            raise FileNotFoundError(errno.ENOENT, "its file has the name of another one", path)
