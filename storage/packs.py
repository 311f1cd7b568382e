"""The folder of packs: appends objects to the newest one, finds them again after a crash, and takes files back.

Rule: blocking. `append` is called by one thread at a time, the rest by any. An object counts once its pack is synced,
and a pack once the folder is; to a pack whose sync failed nothing is added, because the failed sync may have dropped
its pages. A start never writes to a pack of an earlier one. Bytes: `storage.pack_format`.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from crc32c import crc32c

from protocol.limits import PACK_BYTES_TARGET, PACKS_SPARE_MAX
from storage.keys import KEY_BYTES_MAX
from storage.local_files import Files
from storage.object_store import Buffer
from storage.pack_format import (
    DEAD,
    PACK_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    STATE_POSITION,
    PackRecord,
    encode_pack_header,
    encode_record_header,
    padding,
    read_nonce,
    read_record,
)

_FILE_NAME = re.compile(r"([0-9a-f]{16})\.pack")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackObject:
    """What is to be appended."""

    key: str
    parts: Sequence[Buffer]
    modified_ms: int


@dataclass(slots=True, kw_only=True, eq=False)
class Pack:
    """A file of the folder. `live_count` is its owner's: how many of its objects can be asked for."""

    number: int
    nonce: bytes
    live_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an object lies; positions are the file's."""

    pack: Pack
    record_first: int
    payload_first: int
    payload_bytes: int
    modified_ms: int


class PackFolder:
    """The packs of `folder`, to which nobody else writes. `new_nonce` gives 16 bytes that nobody can guess; a pack that
    has `pack_bytes_target` is followed by another."""

    def __init__(
        self,
        folder: str,
        *,
        new_nonce: Callable[[], bytes],
        is_durable: bool,
        files: Files,
        pack_bytes_target: int = PACK_BYTES_TARGET,
    ) -> None:
        self._folder = folder
        self._new_nonce = new_nonce
        self._is_durable = is_durable
        self._files = files
        self._pack_bytes_target = pack_bytes_target
        self._spare: deque[int] = deque()
        self._spare_lock = Lock()
        self._held = -1
        self._number_next = 0
        self._pack: Pack | None = None
        self._descriptor = -1
        self._end = 0

    def open(self) -> dict[str, Place]:
        """Everything that is there. What a crash cut off goes, and packs without objects become spare ones.

        Where a pack could be neither written nor cut, objects may be there that no append acknowledged, even torn ones.
        Nobody else may open the folder until `close`. Raises `BlockingIOError` where somebody has.
        """
        self._held = self._files.lock_directory(self._folder)
        try:
            return self._scan_all()
        except OSError:
            self.close()
            raise

    def find(self, key: str) -> bytes | None:
        """An object of a folder that another process may have open: nothing is changed. None where it is not there."""
        for number in reversed(self._numbers()):
            with suppress(FileNotFoundError):  # taken back meanwhile
                descriptor = self._files.open_existing(self._path(number))
                try:
                    found = dict(self._walk(descriptor, number, is_ended_by_torn=False, doubted={key})[0])
                finally:
                    self._files.close(descriptor)
                if key in found:
                    return self.read(key, found[key], 0, found[key].payload_bytes)
        return None

    def append(self, objects: Sequence[PackObject]) -> list[Place]:
        """Write and sync all of `objects` by one call each. After an `OSError` none of them counts."""
        if self._pack is None or self._end >= self._pack_bytes_target:
            self._begin_pack()
        pack = self._pack
        assert pack is not None
        parts: list[Buffer] = []
        position = self._end
        if not position:
            parts.append(encode_pack_header(pack.number, pack.nonce))
            position = PACK_HEADER_BYTES
        places: list[Place] = []
        for stored in objects:
            place = _add_record(parts, stored, pack, position)
            places.append(place)
            position = place.payload_first + place.payload_bytes + len(parts[-1])
        self._write(parts)
        self._end = position
        return places

    def read(self, key: str, place: Place, byte_first: int, byte_count: int) -> bytes:
        """Bytes of the object at `place`. `FileNotFoundError` where its pack has been taken back since."""
        descriptor = self._files.open_existing(self._path(place.pack.number))
        try:
            found = self._files.read_at(descriptor, byte_count, place.payload_first + byte_first)
            # Asked after the payload: a pack is written from its beginning, so a header that stands vouches for it.
            header = self._files.read_at(descriptor, place.payload_first - place.record_first, place.record_first)
        finally:
            self._files.close(descriptor)
        record = read_record(header, place.pack.nonce)
        if record is None or record.key != key:
            raise FileNotFoundError(errno.ENOENT, "its pack was taken back", key)
        return found

    def mark_dead(self, places: Sequence[Place]) -> None:
        """Let later starts forget these objects, after a loss of power too: the cleaner does not look for ever."""
        by_pack: dict[int, list[Place]] = {}
        for place in places:
            by_pack.setdefault(place.pack.number, []).append(place)
        for number, marked in by_pack.items():
            descriptor = self._files.open_existing(self._path(number), is_writing=True)
            try:
                for place in marked:
                    self._files.write_at(descriptor, [DEAD], place.record_first + STATE_POSITION)
                if self._is_durable:
                    self._files.sync_data(descriptor)
            finally:
                self._files.close(descriptor)

    def take_back(self, pack: Pack) -> None:
        """Use the file of a pack without objects again, or remove it. It must not be the one that is written."""
        self._take_back(pack.number)

    def close(self) -> None:
        self._end_pack()
        if self._held >= 0:
            self._files.close(self._held)
            self._held = -1

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:016x}.pack"

    def _numbers(self) -> list[int]:
        named = (_FILE_NAME.fullmatch(name) for name in os.listdir(self._folder))
        return sorted(int(name[1], 16) for name in named if name is not None)

    def _scan_all(self) -> dict[str, Place]:
        numbers = self._numbers()
        found: dict[str, Place] = {}
        replaced: list[Place] = []
        for number in numbers:
            for key, place in self._scan(number, is_newest=number == numbers[-1], doubted=found.keys()):
                if key in found:
                    replaced.append(found[key])
                    found[key].pack.live_count -= 1
                place.pack.live_count += 1
                found[key] = place
        with suppress(OSError):  # an object that is deleted could only have to be deleted again
            self.mark_dead(replaced)
        live = {place.pack.number for place in found.values()}
        for number in numbers:
            if number not in live:
                self._take_back(number)
        if self._is_durable:
            self._files.sync_directory(self._folder)
        self._number_next = numbers[-1] + 1 if numbers else 0
        return found

    def _begin_pack(self) -> None:
        """The file of a spare pack under a new name, else a new one: blocks that exist are quicker to write."""
        self._end_pack()
        number = self._number_next
        self._number_next += 1
        descriptor = self._named_file(number)
        try:
            if self._is_durable:
                self._files.sync_directory(self._folder)
        except OSError:
            self._files.close(descriptor)
            self._take_back(number)
            raise
        self._pack = Pack(number=number, nonce=self._new_nonce())
        self._descriptor = descriptor
        self._end = 0

    def _named_file(self, number: int) -> int:
        path = self._path(number)
        try:
            spare = self._spare.popleft()
        except IndexError:
            return self._files.create(path)
        try:
            self._files.rename(self._path(spare), path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._take_back(spare)
            raise
        try:
            return self._files.open_existing(path, is_writing=True)
        except OSError:
            self._take_back(number)
            raise

    def _end_pack(self) -> None:
        if self._pack is not None:
            self._files.close(self._descriptor)
            self._pack = None

    def _write(self, parts: Sequence[Buffer]) -> None:
        is_written = False
        try:
            self._files.write_at(self._descriptor, parts, self._end)
            is_written = True
            if self._is_durable:
                self._files.sync_data(self._descriptor)
        except OSError:
            self._cut(is_sync_failed=is_written)
            raise

    def _cut(self, *, is_sync_failed: bool) -> None:
        """Take away what a failed append has left. After a failed sync, or where that fails too, the pack is over.

        A pack that is over has no owner if nothing was appended before: its file goes here. Others go with their
        objects.
        """
        is_over = is_sync_failed
        try:
            self._files.truncate(self._descriptor, self._end)
            if is_over:
                self._files.sync_file(self._descriptor)  # later starts do not look for a torn end in it
        except OSError:
            is_over = True
        if is_over:
            assert self._pack is not None
            path = self._path(self._pack.number)
            self._end_pack()
            if not self._end:
                with suppress(OSError):
                    self._files.unlink(path)

    def _take_back(self, number: int) -> None:
        with self._spare_lock:
            is_kept = len(self._spare) < PACKS_SPARE_MAX
            if is_kept:
                self._spare.append(number)
        if not is_kept:
            with suppress(OSError):  # the next start finds it without objects
                self._files.unlink(self._path(number))

    def _scan(self, number: int, *, is_newest: bool, doubted: Container[str]) -> list[tuple[str, Place]]:
        """The live objects of a pack. The newest is cut where a crash has torn it, and made durable as it stands."""
        descriptor = self._files.open_existing(self._path(number), is_writing=True)
        try:
            found, end = self._walk(descriptor, number, is_ended_by_torn=is_newest, doubted=doubted)
            if is_newest:
                self._files.truncate(descriptor, end)
                if self._is_durable:
                    self._files.sync_file(descriptor)
        finally:
            self._files.close(descriptor)
        return found

    def _walk(
        self, descriptor: int, number: int, *, is_ended_by_torn: bool, doubted: Container[str]
    ) -> tuple[list[tuple[str, Place]], int]:
        """The live objects of a pack in their order, and where it ends.

        The payload of every object is read where a torn one ends the pack; elsewhere only that of `doubted` keys, and
        of those that come twice: a put that failed must not replace one that was acknowledged.
        """
        found: list[tuple[str, Place]] = []
        nonce = read_nonce(self._files.read_at(descriptor, PACK_HEADER_BYTES, 0), number)
        if nonce is None:
            return found, 0
        pack = Pack(number=number, nonce=nonce)
        position = PACK_HEADER_BYTES
        seen: set[str] = set()
        while (record := self._record_at(descriptor, position, nonce)) is not None:
            is_doubted = is_ended_by_torn or record.key in doubted or record.key in seen
            is_sound = not is_doubted or self._is_whole(descriptor, position, record)
            if is_ended_by_torn and not is_sound:
                break
            if record.is_live and is_sound:
                found.append((record.key, _place(record, pack, position)))
                seen.add(record.key)
            position += record.record_bytes
        return found, position

    def _record_at(self, descriptor: int, position: int, nonce: bytes) -> PackRecord | None:
        return read_record(self._files.read_at(descriptor, RECORD_HEADER_BYTES + KEY_BYTES_MAX, position), nonce)

    def _is_whole(self, descriptor: int, position: int, record: PackRecord) -> bool:
        payload = self._files.read_at(descriptor, record.payload_bytes, position + record.payload_first)
        return len(payload) == record.payload_bytes and crc32c(payload) == record.payload_crc


def _place(record: PackRecord, pack: Pack, position: int) -> Place:
    return Place(
        pack=pack,
        record_first=position,
        payload_first=position + record.payload_first,
        payload_bytes=record.payload_bytes,
        modified_ms=record.modified_ms,
    )


def _add_record(parts: list[Buffer], stored: PackObject, pack: Pack, position: int) -> Place:
    """Add an object to what is written next, to stand at `position`; padding comes last."""
    payload_bytes = crc = 0
    for part in stored.parts:
        payload_bytes += len(part)
        crc = crc32c(part, crc)
    header = encode_record_header(stored.key, pack.nonce, payload_bytes, crc, stored.modified_ms)
    parts.append(header)
    parts.extend(stored.parts)
    parts.append(padding(len(header) + payload_bytes))
    return Place(
        pack=pack,
        record_first=position,
        payload_first=position + len(header),
        payload_bytes=payload_bytes,
        modified_ms=stored.modified_ms,
    )
