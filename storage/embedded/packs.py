"""The folder of packs: appends objects to the newest one, finds them again after a crash, and takes files back.

Rule: blocking. `append` is called by one thread at a time, the rest by any. An object counts once its pack is synced,
and a pack once the folder is; to a pack whose sync failed nothing is added, because the failed sync may have dropped
its pages. A start never writes to a pack of an earlier one. What the names of files say is not believed: nothing is
marked, used again or removed in a file that is another pack's. Bytes: `storage.embedded.pack_format`.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock

from crc32c import crc32c

from protocol.limits import PACK_BYTES_TARGET, PACKS_SPARE_MAX
from storage.embedded.local_files import Files
from storage.embedded.pack_format import (
    DEAD,
    NUMBERS_END,
    PACK_HEADER_BYTES,
    STATE_POSITION,
    encode_end,
    encode_pack_header,
    encode_record_header,
    pack_number,
    padding,
    read_pack_header,
    read_record,
)
from storage.embedded.pack_objects import Pack, PackLocation, PackObject
from storage.embedded.pack_opening import PackFiles
from storage.embedded.readable_bytes import ReadableBytes
from storage.object_store import Buffer, ObjectDamaged
from storage.store_damage import OnDamage, OnRemoved, ignore_damage, ignore_removed

__all__ = ["Pack", "PackFolder", "PackLocation", "PackObject"]


class PackFolder:
    """The packs of `folder`, to which no other process writes. `new_nonce` gives 16 unguessable bytes; a pack that has
    reached `pack_bytes_target` is followed by another. With `is_writer=False` nothing is changed, created or removed,
    and nothing may be appended or taken back."""

    def __init__(
        self,
        folder: str,
        *,
        new_nonce: Callable[[], bytes],
        is_durable: bool,
        files: Files,
        is_writer: bool = True,
        pack_bytes_target: int = PACK_BYTES_TARGET,
        on_damage: OnDamage = ignore_damage,
        on_removed: OnRemoved = ignore_removed,
    ) -> None:
        self._folder = folder
        self._on_removed = on_removed
        self._on_damage = on_damage
        self._pack_files = PackFiles(folder, files, on_damage=on_damage)
        self.path = self._pack_files.path
        self._gap_numbers: set[int] = set()
        self._has_strays = False
        self._new_nonce = new_nonce
        self._is_durable = is_durable
        self._is_writer = is_writer
        self._files = files
        self._pack_bytes_target = pack_bytes_target
        self._spare: deque[int] = deque()
        self._spare_lock = Lock()
        self._held = -1
        self._highest = -1
        """Every number that is in use is at most this; the next pack gets a higher one."""
        self._pack: Pack | None = None
        self._descriptor = -1
        self._end = 0

    def open(self) -> dict[str, PackLocation]:
        """Everything that is there. What a crash cut off goes, and packs without objects become spare ones.

        Where a pack could be neither written nor cut, objects may be there that no append acknowledged, even torn ones.
        A writer locks the folder until `close`, and raises `BlockingIOError` where another process has locked it. A
        reader finds the same objects, changes nothing, and needs no folder.
        """
        try:
            self._held = self._files.lock_directory(self._folder)
        except FileNotFoundError:
            if self._is_writer:
                raise
            return {}
        try:
            return self._scan_all()
        except OSError:
            self.close()
            raise

    @property
    def has_gaps(self) -> bool:
        """Whether an object that was not found may be there, unreadable."""
        return bool(self._gap_numbers) or self._has_strays

    def find(self, key: str) -> bytes | None:
        """An object of a folder that another process may have open: nothing is changed. None where it is not there.

        Raises `ObjectDamaged` where it cannot be read, or may be what cannot be read.
        """
        place = self._pack_files.find(key)
        return None if place is None else self.read(key, place, 0, place.payload_bytes)

    def append(self, objects: Sequence[PackObject]) -> list[PackLocation]:
        """Write and sync all of `objects` by one call each. After an `OSError` none of them counts."""
        if self._pack is None or self._pack.is_set_aside or self._end >= self._pack_bytes_target:
            self._begin_pack()
        pack = self._pack
        assert pack is not None
        parts: list[Buffer] = []
        position = self._end
        if not position:
            parts.append(encode_pack_header(pack.number, pack.nonce))
            position = PACK_HEADER_BYTES
        places: list[PackLocation] = []
        for stored in objects:
            place = _add_record(parts, stored, pack, position, is_group_first=not places)
            places.append(place)
            position = place.payload_first + place.payload_bytes + len(parts[-1])
        self._write(parts)
        self._end = position
        return places

    def read(self, key: str, place: PackLocation, byte_first: int, byte_count: int) -> bytes:
        """Bytes of the object at `place`. `FileNotFoundError` where its pack has been taken back since.

        Of a whole object the checksum is checked (safety rule S20): `ObjectDamaged` where it is wrong. Who reads a part
        checks the record batches in it.
        """
        descriptor = self._files.open_existing(self.path(place.pack.number))
        try:
            held = self._files.readable(descriptor)
            content = held.read(byte_count, place.payload_first + byte_first)
            unreadable = next(iter(held.stretches), None)
            # Asked after the payload: a pack is written from its beginning, so a header that stands vouches for it.
            header = held.read(place.payload_first - place.record_first, place.record_first)
            record = read_record(header, place.pack.nonce)
            if held.stretches:
                place.pack.is_damaged = place.pack.is_set_aside = True  # no records follow in its file
            if record is None or record.key != key:
                self._check_pack(held, key, place)
        finally:
            self._files.close(descriptor)
        if unreadable is not None:
            first, end, reason = unreadable
            path = self.path(place.pack.number)
            raise ObjectDamaged(f"{key}: bytes {first} to {end} of {path} cannot be read: {reason}")
        if len(content) != byte_count:
            raise ObjectDamaged(f"{key}: {self.path(place.pack.number)} ends within it")
        if byte_count == place.payload_bytes and crc32c(content) != place.payload_crc:
            raise ObjectDamaged(f"{key}: its checksum in {self.path(place.pack.number)} is wrong")
        return content

    def _check_pack(self, held: ReadableBytes, key: str, place: PackLocation) -> None:
        """The record's header is not there: its pack was taken back, or the header alone is damaged."""
        named = read_pack_header(held.read(PACK_HEADER_BYTES, 0))
        if named is not None and named.nonce == place.pack.nonce:
            return
        path = self.path(place.pack.number)
        self._files.close(self._files.open_existing(path))  # FileNotFoundError: it has another name, it was taken back
        if named is not None:
            raise ObjectDamaged(f"{key}: {path} is {named.number:016x}.pack by its header: it was renamed")
        raise ObjectDamaged(f"{key}: neither its header nor that of {path} can be read")

    def mark_dead(self, places: Sequence[PackLocation]) -> None:
        """Let later starts forget these objects, after a loss of power too: the garbage collector does not look for
        ever."""
        by_pack: dict[int, list[PackLocation]] = {}
        for place in places:
            by_pack.setdefault(place.pack.number, []).append(place)
        for number, marked in by_pack.items():
            descriptor = self._files.open_existing(self.path(number), is_writing=True)
            try:
                self._check_file(descriptor, marked[0].pack)
                for place in marked:
                    self._files.write_at(descriptor, [DEAD], place.record_first + STATE_POSITION)
                if self._is_durable:
                    self._files.sync_data(descriptor)
            finally:
                self._files.close(descriptor)

    def take_back(self, pack: Pack) -> None:
        """Use the file of a pack without objects again, or remove it. It must not be the one that is written.

        A damaged one is not used again, and where it is not known what it held, it stays as it is. So does a file that
        is another pack's by now.
        """
        if pack.is_set_aside or not self._has_file(pack):
            return
        self._gap_numbers.discard(pack.number)
        if pack.is_damaged:
            self._remove(pack.number)
        else:
            self._take_back(pack.number)
        self._on_removed(self.path(pack.number))

    def end_pack(self, pack: Pack) -> None:
        """Append nothing more to `pack`. Called as `append` is."""
        if self._pack is pack:
            self._end_pack(is_last=False)

    def drop_spares(self) -> None:
        """Remove the files that wait to be used again: the disk is full."""
        with self._spare_lock:
            dropped = list(self._spare)
            self._spare.clear()
        for number in dropped:
            self._remove(number)

    def remove(self) -> bool:
        """Remove the folder, which has no objects, instead of `close`. False where something else is in it."""
        self.drop_spares()
        try:
            os.rmdir(self._folder)
        except OSError:
            return False
        self.close()
        return True

    def close(self) -> None:
        self._end_pack(is_last=True)
        if self._held >= 0:
            self._files.close(self._held)
            self._held = -1

    def _scan_all(self) -> dict[str, PackLocation]:
        in_order = self._pack_files.in_order()
        for stray in self._pack_files.strays():
            self._has_strays = True
            self._on_damage(stray)
        locations: dict[str, PackLocation] = {}
        replaced: list[PackLocation] = []
        unmarked: list[PackLocation] = []
        packs: list[Pack] = []
        renamed: set[Pack] = set()
        for file in in_order:
            opened = self._pack_files.open_pack(
                file.number,
                is_newest=file.own_number == in_order[-1].own_number,
                is_writer=self._is_writer,
                is_durable=self._is_durable,
                doubted=locations.keys(),
            )
            packs.append(opened.pack)
            if file.is_renamed:
                renamed.add(opened.pack)
            if opened.has_gaps:
                self._gap_numbers.add(file.number)
            for key, place in opened.objects:
                earlier = locations.get(key)
                if earlier is not None and earlier.pack is not place.pack and earlier.pack.nonce == place.pack.nonce:
                    continue  # the same object, in a copy of its pack
                if earlier is not None:
                    (unmarked if renamed & {earlier.pack, place.pack} else replaced).append(earlier)
                    earlier.pack.live_count -= 1
                place.pack.live_count += 1
                locations[key] = place
        if self._is_writer:
            self._tidy(packs, replaced, unmarked)
        self._highest = max((number for file in in_order for number in file if number < NUMBERS_END), default=-1)
        return locations

    def _tidy(self, packs: Sequence[Pack], replaced: Sequence[PackLocation], unmarked: Sequence[PackLocation]) -> None:
        """Leave the folder as if no crash had been. `unmarked`: what a renamed pack has replaced, or had."""
        kept = {place.pack for place in unmarked}
        try:
            self.mark_dead(replaced)
        except OSError:  # an object that is deleted could only have to be deleted again
            kept.update(place.pack for place in replaced)
        for pack in packs:
            if pack in kept:
                pack.is_damaged = True  # used again it would look like a renamed pack
            elif pack.live_count == 0:
                self.take_back(pack)
        if self._is_durable:
            self._files.sync_directory(self._folder)

    def _begin_pack(self) -> None:
        """The file of a spare pack under a new name, else a new one: blocks that exist are quicker to write."""
        self._end_pack(is_last=False)
        nonce = self._new_nonce()
        number = pack_number(self._highest, nonce)
        while os.path.lexists(self.path(number)):  # another process has put it there since the start
            number = pack_number(number, nonce)
        self._highest = number
        descriptor = self._named_file(number)
        try:
            if self._is_durable:
                self._files.sync_directory(self._folder)
        except OSError:
            self._files.close(descriptor)
            self._take_back(number)
            raise
        self._pack = Pack(number=number, nonce=nonce)
        self._descriptor = descriptor
        self._end = 0

    def _named_file(self, number: int) -> int:
        path = self.path(number)
        try:
            spare = self._spare.popleft()
        except IndexError:
            return self._files.create(path)
        try:
            self._files.rename(self.path(spare), path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._take_back(spare)
            raise
        try:
            return self._files.open_existing(path, is_writing=True)
        except OSError:
            self._take_back(number)
            raise

    def _end_pack(self, *, is_last: bool) -> None:
        """Say in the pack that it ends here: then the next start takes nothing in it for torn."""
        if self._pack is None:
            return
        self._write_end(is_synced=is_last)
        self._let_go()

    def _write_end(self, *, is_synced: bool) -> None:
        assert self._pack is not None
        with suppress(OSError):  # without it, what is unreadable at the end is taken for a torn write
            if self._end:
                self._files.write_at(self._descriptor, [encode_end(self._pack.nonce)], self._end)
            if self._end and is_synced and self._is_durable:
                self._files.sync_data(self._descriptor)

    def _let_go(self) -> None:
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
            self._write_end(is_synced=True)  # what is left behind it is no damage
            if self._pack is not None:
                self._pack.is_damaged = True  # nor is it ever marked: the file is not used again
        if is_over:
            assert self._pack is not None
            number = self._pack.number
            self._let_go()
            if not self._end:
                self._remove(number)

    def _check_file(self, descriptor: int, pack: Pack) -> None:
        """Raise `FileNotFoundError` where the file is another pack's: it was renamed since."""
        named = read_pack_header(self._files.readable(descriptor).read(PACK_HEADER_BYTES, 0))
        if named is not None and pack.nonce and named.nonce != pack.nonce:
            raise FileNotFoundError(errno.ENOENT, "its file has the name of another one", self.path(pack.number))

    def _has_file(self, pack: Pack) -> bool:
        try:
            descriptor = self._files.open_existing(self.path(pack.number))
        except OSError:
            return False
        try:
            self._check_file(descriptor, pack)
        except OSError:
            return False
        finally:
            self._files.close(descriptor)
        return True

    def _take_back(self, number: int) -> None:
        with self._spare_lock:
            is_kept = len(self._spare) < PACKS_SPARE_MAX
            if is_kept:
                self._spare.append(number)
        if not is_kept:
            self._remove(number)

    def _remove(self, number: int) -> None:
        with suppress(OSError):  # the next start finds it without objects
            self._files.unlink(self.path(number))


def _add_record(
    parts: list[Buffer], stored: PackObject, pack: Pack, position: int, *, is_group_first: bool
) -> PackLocation:
    """Add an object to what is written next, to stand at `position`; padding comes last."""
    payload_bytes = crc = 0
    for part in stored.parts:
        payload_bytes += len(part)
        crc = crc32c(part, crc)
    header = encode_record_header(
        stored.key, pack.nonce, payload_bytes, crc, stored.modified_ms, is_group_first=is_group_first
    )
    parts.append(header)
    parts.extend(stored.parts)
    parts.append(padding(len(header) + payload_bytes))
    return PackLocation(
        pack=pack,
        record_first=position,
        payload_first=position + len(header),
        payload_bytes=payload_bytes,
        payload_crc=crc,
        modified_ms=stored.modified_ms,
    )
