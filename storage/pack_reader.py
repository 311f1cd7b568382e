"""Reads objects out of the packs of an agent that goes on writing to them: for jobs beside an embedded broker.

Rule: blocking, by one thread at a time; nothing is created, locked or changed. What is where is remembered, and packs
are looked at again only for a key that is not known: where the last look ended, and then from their beginnings, because
a failed append is cut off and its place written anew. A record counts by its header; what is torn or not yet written
behind it nobody asks for, since the ledger names only what was acknowledged. A file that was taken back has another
nonce. Bytes: `storage.pack_format`.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from storage.keys import KEY_BYTES_MAX
from storage.local_files import Files, errors_of
from storage.object_store import ObjectMissing, StoreUnavailable
from storage.pack_format import PACK_HEADER_BYTES, RECORD_HEADER_BYTES, PackRecord, read_nonce, read_record

_FILE_NAME = re.compile(r"([0-9a-f]{16})\.pack")


@dataclass(slots=True, kw_only=True)
class _Pack:
    """How far a pack was looked through."""

    nonce: bytes
    end: int = PACK_HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    number: int
    nonce: bytes
    record_first: int
    record: PackRecord


class PackReader:
    """The objects in the packs of `folder`, which need not be there yet."""

    def __init__(self, folder: str, *, files: Files | None = None) -> None:
        self._folder = folder
        self._files = Files() if files is None else files
        self._packs: dict[int, _Pack] = {}
        self._places: dict[str, _Place] = {}

    def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectMissing`, and `StoreUnavailable` where the folder cannot be read."""
        return self._find(key, 0, None)

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        """Exactly `byte_count` bytes from `byte_first`. Raises as `get`."""
        return self._find(key, byte_first, byte_count)

    def _find(self, key: str, byte_first: int, byte_count: int | None) -> bytes:
        with errors_of(key, is_read=True):
            for look in (None, self._look_on, self._look_anew):
                if look is not None:
                    look()
                place = self._places.get(key)
                found = None if place is None else self._read(place, byte_first, byte_count)
                if found is not None:
                    return found
        raise ObjectMissing(f"{key} does not exist")

    def _look_on(self) -> None:
        for number in self._numbers():
            with suppress(FileNotFoundError):  # taken back meanwhile
                descriptor = self._files.open_existing(self._path(number))
                try:
                    self._look_through(descriptor, number)
                finally:
                    self._files.close(descriptor)

    def _look_anew(self) -> None:
        self._packs.clear()
        self._places.clear()
        self._look_on()

    def _look_through(self, descriptor: int, number: int) -> None:
        nonce = read_nonce(self._files.read_at(descriptor, PACK_HEADER_BYTES, 0), number)
        if nonce is None:
            return
        pack = self._packs.get(number)
        if pack is None or pack.nonce != nonce:
            pack = self._packs[number] = _Pack(nonce=nonce)
        while (record := self._record_at(descriptor, pack.end, nonce)) is not None:
            if record.is_live and (record.key not in self._places or self._is_whole(descriptor, pack.end, record)):
                self._places[record.key] = _Place(number=number, nonce=nonce, record_first=pack.end, record=record)
            pack.end += record.record_bytes

    def _record_at(self, descriptor: int, position: int, nonce: bytes) -> PackRecord | None:
        return read_record(self._files.read_at(descriptor, RECORD_HEADER_BYTES + KEY_BYTES_MAX, position), nonce)

    def _is_whole(self, descriptor: int, position: int, record: PackRecord) -> bool:
        """A put that failed must not replace one that was acknowledged."""
        payload = self._files.read_at(descriptor, record.payload_bytes, position + record.payload_first)
        return len(payload) == record.payload_bytes and crc32c(payload) == record.payload_crc

    def _read(self, place: _Place, byte_first: int, byte_count: int | None) -> bytes | None:
        """None where the object is there no more: its pack was taken back, or its place written anew."""
        record = place.record
        wanted = record.payload_bytes - byte_first if byte_count is None else byte_count
        try:
            descriptor = self._files.open_existing(self._path(place.number))
        except FileNotFoundError:
            return None
        try:
            within = min(wanted, max(record.payload_bytes - byte_first, 0))
            found = self._files.read_at(descriptor, within, place.record_first + record.payload_first + byte_first)
            # Asked after the payload: a pack is written from its beginning, so a header that stands vouches for it.
            now = self._record_at(descriptor, place.record_first, place.nonce)
        finally:
            self._files.close(descriptor)
        if now is None or now.key != record.key or now.payload_crc != record.payload_crc:
            return None
        if len(found) != wanted:
            raise StoreUnavailable(f"{record.key} has {len(found)} instead of {wanted} bytes from byte {byte_first}")
        return found

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:016x}.pack"

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(int(match[1], 16) for match in map(_FILE_NAME.fullmatch, names) if match is not None)
