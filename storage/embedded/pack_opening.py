"""Looks through the files of a folder of packs: at a start, which may cut the newest, and beside its owner.

Rule: blocking. Nothing that is damaged is cut or used again: only behind the last readable record of the newest pack is
something taken away, where a crash has torn a write. What is unreadable is reported (safety rule S20). A pack that
somebody has renamed is found by its header: its objects are served, and its file stays as it is.
"""

import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from storage.embedded.local_files import Files
from storage.embedded.pack_objects import Pack, PackLocation, place_of
from storage.embedded.pack_scan import PackScan, ScannedRecord, damages_of, own_number_of, scan_pack
from storage.embedded.readable_bytes import ReadableBytes
from storage.object_store import ObjectDamaged
from storage.store_damage import OnDamage, StoreDamage, ignore_damage

_FILE_NAME = re.compile(r"([0-9a-f]{16})\.pack")
_NO_PACK = Pack(number=-1, nonce=b"")


def folder_fault(folder: str) -> str:
    """The fault of a folder of packs as a whole, for people; empty where nothing is, or it is not there."""
    if os.path.isdir(folder) or not os.path.lexists(folder):
        return ""
    return f"{folder} is no folder: the records that wait for the archive lie in it; move away what has its name"


class PackFile(NamedTuple):
    """A pack, and the number that its file is called by."""

    own_number: int
    number: int

    @property
    def is_renamed(self) -> bool:
        return self.own_number != self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPack:
    """A pack as a start found it."""

    pack: Pack
    objects: list[tuple[str, PackLocation]]
    """The records that are not deleted, in their order. Of two with one key the later counts."""
    has_gaps: bool
    """Whether it may hold objects that were not found."""


class PackFiles:
    """The files of `folder`."""

    def __init__(self, folder: str, files: Files, *, on_damage: OnDamage = ignore_damage) -> None:
        self._folder = folder
        self._files = files
        self._on_damage = on_damage

    def path(self, number: int) -> str:
        return f"{self._folder}/{number:016x}.pack"

    def numbers(self) -> list[int]:
        """The numbers of the files. An entry that has the name of one and is none is left out: a pipe would keep its
        reader waiting."""
        return sorted(int(entry.name[:16], 16) for entry in self._entries() if entry.is_file())

    def strays(self) -> Sequence[StoreDamage]:
        """The entries that have the name of a pack and are no file: what was in a pack of that name cannot be read."""
        strays = [entry for entry in self._entries() if not entry.is_file() and os.path.lexists(entry.path)]
        return [
            StoreDamage(
                file=self.path(int(entry.name[:16], 16)),
                detail=f"it is {'a directory' if entry.is_dir() else 'no regular file'}, and has the name of a pack",
            )
            for entry in sorted(strays, key=lambda entry: entry.name)
        ]

    def _entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._folder) as entries:
            return [entry for entry in entries if _FILE_NAME.fullmatch(entry.name)]

    def in_order(self) -> list[PackFile]:
        """The files in the order in which their packs were begun; of two of one pack the rightly named one first."""
        files: list[PackFile] = []
        for number in self.numbers():
            with suppress(FileNotFoundError):  # taken back meanwhile
                descriptor = self._files.open_existing(self.path(number))
                try:
                    own_number = own_number_of(self._files.readable(descriptor).read, number)
                finally:
                    self._files.close(descriptor)
                files.append(PackFile(own_number, number))
        return sorted(files, key=lambda file: (file.own_number, file.is_renamed))

    def open_pack(
        self, number: int, *, is_newest: bool, is_writer: bool, is_durable: bool, doubted: Container[str]
    ) -> OpenedPack:
        """The pack `number`. A writer cuts the newest where a crash has torn it, and makes it durable as it stands.

        The payload of every object is read in the newest; elsewhere only that of `doubted` keys, and of those that come
        twice: a put that failed must not replace one that was acknowledged.
        """
        path = self.path(number)
        descriptor = self._files.open_existing(path, is_writing=is_writer)
        try:
            held = self._files.readable(descriptor)
            scan = scan_pack(held.read, number)
            is_whole = _Whole(partial(_is_whole, held))
            damages = list(damages_of(scan, path, is_newest=is_newest))
            is_set_aside = any(damage.is_certain for damage in damages)
            pack = Pack(number=number, nonce=scan.nonce or b"", is_damaged=is_set_aside, is_set_aside=is_set_aside)
            end = self._end(scan, held, is_whole) if is_newest else scan.end
            if is_newest and (end < scan.end or scan.has_tail):
                detail = f"its last write is not whole: it ends at byte {end}"
                damages.append(StoreDamage(file=path, detail=detail, is_certain=False))
            for damage in damages:
                self._on_damage(damage)
            objects = self._live(scan, pack, is_whole, end=end, doubted=doubted, is_checked=is_newest)
            for damage in _unreadable(held, path):
                pack.is_damaged = pack.is_set_aside = True
                self._on_damage(damage)
            if is_newest and is_writer:
                if not pack.is_set_aside and not scan.is_ended:
                    self._files.truncate(descriptor, end)
                if is_durable:
                    self._files.sync_file(descriptor)
        finally:
            self._files.close(descriptor)
        return OpenedPack(pack=pack, objects=objects, has_gaps=bool(scan.gaps) or pack.is_set_aside)

    @staticmethod
    def _end(scan: PackScan, held: ReadableBytes, is_whole: Callable[[ScannedRecord], bool]) -> int:
        """Where the newest pack ends. Where something of it cannot be read, it is not known what a crash has torn."""
        end = scan.whole_end(is_whole)
        for scanned in scan.records:
            if scanned.record.is_live:
                is_whole(scanned)
        return scan.end if held.stretches else end

    def find(self, key: str) -> PackLocation | None:
        """Where an object lies of a folder that another process may have open. None where it is not there.

        One whose checksum is wrong is found where there is no other. Raises `ObjectDamaged` where it may be what cannot
        be read.
        """
        has_gaps = bool(self.strays())
        damaged: PackLocation | None = None
        for _, number in reversed(self.in_order()):
            with suppress(FileNotFoundError):  # taken back meanwhile
                descriptor = self._files.open_existing(self.path(number))
                try:
                    held = self._files.readable(descriptor)
                    scan = scan_pack(held.read, number)
                    pack = Pack(number=number, nonce=scan.nonce or b"")
                    is_whole = partial(_is_whole, held)
                    place = dict(self._live(scan, pack, is_whole, end=scan.end, doubted=(), is_checked=False)).get(key)
                    if place is not None and _is_right(held, place):
                        return place
                finally:
                    self._files.close(descriptor)
                damaged = damaged or place
                has_gaps |= bool(scan.gaps) or scan.is_header_damaged or bool(held.stretches)
        if damaged is None and has_gaps:
            raise ObjectDamaged(f"{key} is in no pack, and not all of the packs can be read: run penstock doctor")
        return damaged

    def damages(self) -> Sequence[StoreDamage]:
        """The certain damages; payloads are not looked at. Nothing is changed, and another process may have the
        folder open: what it writes at this moment is looked at twice before it is called damaged.
        """
        before = self._look_for_damage()
        return [damage for damage in self._look_for_damage() if damage in before] if before else ()

    def _look_for_damage(self) -> Sequence[StoreDamage]:
        damages = list(self.strays())
        in_order = self.in_order()
        for own_number, number in in_order:
            with suppress(FileNotFoundError):  # taken back meanwhile
                descriptor = self._files.open_existing(self.path(number))
                try:
                    held = self._files.readable(descriptor)
                    scan = scan_pack(held.read, number)
                finally:
                    self._files.close(descriptor)
                damages += damages_of(scan, self.path(number), is_newest=own_number == in_order[-1].own_number)
                damages += _unreadable(held, self.path(number))
        return [damage for damage in damages if damage.is_certain]

    def _live(
        self,
        scan: PackScan,
        pack: Pack,
        is_whole: Callable[[ScannedRecord], bool],
        *,
        end: int,
        doubted: Container[str],
        is_checked: bool,
    ) -> list[tuple[str, PackLocation]]:
        """The live objects of a pack before `end`, in their order; what is found to be damaged is reported."""
        objects: list[tuple[str, PackLocation]] = []
        seen: set[str] = set()
        for scanned in scan.records:
            record = scanned.record
            if not record.is_live or scanned.position >= end:
                continue
            is_doubted = record.key in doubted or record.key in seen
            if (is_doubted or is_checked) and not is_whole(scanned):
                if is_doubted:
                    pack.is_damaged = True
                    continue
                pack.is_damaged = True
                self._on_damage(
                    StoreDamage(
                        file=self.path(pack.number),
                        key=record.key,
                        detail=f"the checksum of the object at byte {scanned.position} is wrong",
                        is_certain=scanned.position < scan.durable_end,
                    )
                )
            objects.append((record.key, place_of(record, pack, scanned.position)))
            seen.add(record.key)
        return objects


def _unreadable(held: ReadableBytes, path: str) -> Iterator[StoreDamage]:
    """The bytes that the disk did not give back: damage, for what was there may have been acknowledged."""
    for first, end, reason in held.stretches:
        yield StoreDamage(file=path, detail=f"bytes {first} to {end} cannot be read: {reason}")


def _is_whole(held: ReadableBytes, scanned: ScannedRecord) -> bool:
    return _is_right(held, place_of(scanned.record, _NO_PACK, scanned.position))


def _is_right(held: ReadableBytes, place: PackLocation) -> bool:
    """Whether the payload is as it was written."""
    payload = held.read(place.payload_bytes, place.payload_first)
    if held.unreadable(place.payload_first, place.payload_first + place.payload_bytes) is not None:
        return False
    return len(payload) == place.payload_bytes and crc32c(payload) == place.payload_crc


class _Whole:
    """Whether a record's payload is as it was written; read once."""

    def __init__(self, is_whole: Callable[[ScannedRecord], bool]) -> None:
        self._is_whole = is_whole
        self._known: dict[int, bool] = {}

    def __call__(self, scanned: ScannedRecord) -> bool:
        if scanned.position not in self._known:
            self._known[scanned.position] = self._is_whole(scanned)
        return self._known[scanned.position]
