"""Reads objects out of the packs of an agent that goes on writing to them: for jobs beside an embedded broker.

Rule: blocking, by one thread at a time; nothing is created, locked or changed. The locations of records are remembered,
and packs are scanned again only for a key that is not known: from the end of the last scan, and then from their
beginnings, because a failed append is cut off and its bytes are written again. A record counts by its header; a payload
that is torn or not yet written is never read, since the ledger names only what was acknowledged. A file that was taken
back has another nonce. What is unreadable in a pack is skipped once the key was not found before it; an object that is
in no pack may be there. Bytes: `storage.embedded.pack_format`.
"""

from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from storage.embedded.local_files import Files, errors_of
from storage.embedded.pack_format import PACK_HEADER_BYTES, RECORD_BYTES_READ, PackRecord, read_pack_header, read_record
from storage.embedded.pack_opening import PackFiles
from storage.embedded.pack_scan import pack_of, records_from
from storage.embedded.readable_bytes import ReadableBytes
from storage.object_store import ObjectDamaged, ObjectMissing, cut_short


@dataclass(slots=True, kw_only=True)
class _Pack:
    """How far a pack was looked through."""

    nonce: bytes
    end: int = PACK_HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordLocation:
    number: int
    nonce: bytes
    record_first: int
    record: PackRecord


class PackReader:
    """The objects in the packs of `folder`, which need not be there yet."""

    def __init__(self, folder: str, *, files: Files | None = None) -> None:
        self._files = Files() if files is None else files
        self._pack_files = PackFiles(folder, self._files)
        self._has_gaps = False
        self._packs: dict[int, _Pack] = {}
        self._places: dict[str, _RecordLocation] = {}

    def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectMissing`, `ObjectDamaged`, and `StoreUnavailable` where the folder cannot be
        read.
        """
        return self._find(key, 0, None)

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        """Exactly `byte_count` bytes from `byte_first`. Raises as `get`."""
        return self._find(key, byte_first, byte_count)

    def _find(self, key: str, byte_first: int, byte_count: int | None) -> bytes:
        with errors_of(key):  # maps errors of folder and files; `ReadableBytes` handles bytes that the disk lost
            for look in (None, self._look_on, self._read_again):
                if look is not None:
                    look()
                place = self._places.get(key)
                content = None if place is None else self._read(place, byte_first, byte_count)
                if content is not None:
                    return content
        if self._has_gaps:
            raise ObjectDamaged(f"{key} is in no pack, and not all of the packs can be read: run penstock doctor")
        raise ObjectMissing(f"{key} does not exist")

    def _look_on(self) -> None:
        self._look(is_from_start=False)

    def _read_again(self) -> None:
        """From the beginnings, and behind what cannot be read: to look for records there takes a read of every pack."""
        self._packs.clear()
        self._places.clear()
        self._has_gaps = self._has_strays()
        self._look(is_from_start=True)

    def _look(self, *, is_from_start: bool) -> None:
        for number in self._in_order() if is_from_start else self._numbers():
            with suppress(FileNotFoundError):  # taken back meanwhile
                descriptor = self._files.open_existing(self._pack_files.path(number))
                try:
                    held = self._files.readable(descriptor)
                    self._look_through(held, number, is_from_start=is_from_start)
                    self._has_gaps |= bool(held.stretches)
                finally:
                    self._files.close(descriptor)

    def _look_through(self, held: ReadableBytes, number: int, *, is_from_start: bool) -> None:
        read = held.read
        named = pack_of(read, number) if is_from_start else read_pack_header(read(PACK_HEADER_BYTES, 0))
        if named is None or (named.number != number and not is_from_start):
            return
        nonce = named.nonce
        pack = self._packs.get(number)
        if pack is None or pack.nonce != nonce:
            pack = self._packs[number] = _Pack(nonce=nonce)
        while is_from_start or _record_at(held, pack.end, nonce) is not None:
            scanned = next(records_from(read, nonce, pack.end), None)
            if scanned is None:
                return
            record, position = scanned.record, scanned.position
            self._has_gaps |= position > pack.end
            if record.is_live and (record.key not in self._places or _is_whole(held, position, record)):
                self._places[record.key] = _RecordLocation(
                    number=number, nonce=nonce, record_first=position, record=record
                )
            if record.is_end:
                return
            pack.end = scanned.end

    def _read(self, place: _RecordLocation, byte_first: int, byte_count: int | None) -> bytes | None:
        """None where the object is there no more: its pack was taken back, or its bytes were overwritten."""
        record = place.record
        expected_bytes = record.payload_bytes - byte_first if byte_count is None else byte_count
        try:
            descriptor = self._files.open_existing(self._pack_files.path(place.number))
        except FileNotFoundError:
            return None
        try:
            within = min(expected_bytes, max(record.payload_bytes - byte_first, 0))
            held = self._files.readable(descriptor)
            content = held.read(within, place.record_first + record.payload_first + byte_first)
            unreadable = next(iter(held.stretches), None)
            # Asked after the payload: a pack is written from its beginning, so a header that stands vouches for it.
            now = _record_at(held, place.record_first, place.nonce)
        finally:
            self._files.close(descriptor)
        if now is None or now.key != record.key or now.payload_crc != record.payload_crc:
            return None
        if within != expected_bytes:
            raise cut_short(record.key, within, byte_first, expected_bytes)
        if unreadable is not None:
            first, end, reason = unreadable
            path = self._pack_files.path(place.number)
            raise ObjectDamaged(f"{record.key}: bytes {first} to {end} of {path} cannot be read: {reason}")
        if len(content) != expected_bytes or (
            expected_bytes == record.payload_bytes and crc32c(content) != record.payload_crc
        ):
            raise ObjectDamaged(f"{record.key}: its checksum in {self._pack_files.path(place.number)} is wrong")
        return content

    def _has_strays(self) -> bool:
        try:
            return bool(self._pack_files.strays())
        except FileNotFoundError:
            return False

    def _in_order(self) -> list[int]:
        try:
            return [file.number for file in self._pack_files.in_order()]
        except FileNotFoundError:
            return []

    def _numbers(self) -> list[int]:
        try:
            return self._pack_files.numbers()
        except FileNotFoundError:
            return []


def _record_at(held: ReadableBytes, position: int, nonce: bytes) -> PackRecord | None:
    return read_record(held.read(RECORD_BYTES_READ, position), nonce)


def _is_whole(held: ReadableBytes, position: int, record: PackRecord) -> bool:
    """A put that failed must not replace one that was acknowledged."""
    payload = held.read(record.payload_bytes, position + record.payload_first)
    return len(payload) == record.payload_bytes and crc32c(payload) == record.payload_crc
