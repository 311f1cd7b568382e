"""A bucket of many small objects in a journal: the intake of the embedded broker.

Rule: puts that come while others are written wait, and are then written and synced together. Decision:
docs/adr/0048-a-journal-for-the-embedded-broker.md.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial

from protocol.limits import JOURNAL_GROUP_BYTES_MAX
from storage.embedded.journal.format import RECORDS_PER_WRITE_MAX
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.records import JournalFile, RecordLocation, Written
from storage.embedded.local_files import errors_of
from storage.keys import check_key, check_prefix
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectsNotDeleted,
    ObjectToPut,
    StoreError,
    StoreMisconfigured,
    cut_short,
)
from storage.store_damage import StoreDamage


class JournalStore:
    """An `ObjectStore` over an open journal, which its owner closes. `now_ms` is the time since 1970."""

    def __init__(self, opened: OpenJournal, *, now_ms: Callable[[], int]) -> None:
        self._opened = opened
        self._journal = opened.journal
        self._now_ms = now_ms
        self._waiting: deque[ObjectToPut] = deque()
        self._pending_puts: dict[str, asyncio.Future[None]] = {}
        self._marking: set[asyncio.Future[None]] = set()
        self._is_writing = False
        self._is_closed = False

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """A cancelled put goes on in its thread: `parts` must not change until the store is closed."""
        check_key(key)
        while (earlier := self._pending_puts.get(key)) is not None:
            await asyncio.wait([earlier])
        self._check_open()
        if if_absent and key in self._opened.objects:
            raise ObjectExists(f"{key} exists")
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending_puts[key] = outcome
        self._waiting.append(ObjectToPut(key=key, parts=parts, modified_ms=self._now_ms()))
        if not self._is_writing:
            self._write_waiting()
        await asyncio.shield(outcome)

    async def get(self, key: str) -> bytes:
        check_key(key)
        location = self._location(key)
        return await self._read(key, location, 0, location.payload_bytes)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        check_key(key)
        location = self._location(key)
        within = min(byte_count, max(location.payload_bytes - byte_first, 0))
        if within != byte_count:
            raise cut_short(key, within, byte_first, byte_count)
        return await self._read(key, location, byte_first, byte_count)

    async def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return _meta(key, self._location(key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects that are put or deleted meanwhile may be missing."""
        check_prefix(prefix)
        objects = self._opened.objects
        for key in sorted(key for key in objects if key.startswith(prefix) and key > after):
            location = objects.get(key)
            if location is not None:
                yield _meta(key, location)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        self._check_open()
        opened, reasons = self._opened, dict[str, StoreError]()
        # Earlier objects with these keys go first: with the mark of the newest one alone, a start would find them.
        while replaced := [(key, each) for key in keys if key not in reasons for each in opened.replaced.pop(key, ())]:
            reasons |= await self._mark(replaced)
        newest = [(key, opened.objects.pop(key)) for key in keys if key in opened.objects and key not in reasons]
        reasons |= await self._mark(newest)
        if reasons:
            raise ObjectsNotDeleted(reasons)

    def has(self, key: str) -> bool:
        """Whether the object is there, as far as the journal can be read."""
        return key in self._opened.objects

    def release_room(self) -> None:
        """Give back to the disk what is not needed: spare files, and the newest one where all of it is deleted.

        Called from the event loop, again and again while the disk is full.
        """
        if not self._is_closed:
            self._opened.read(self._journal.drop_spares)
            self._opened.write(self._leave_unneeded)

    async def server_time_ms(self) -> int | None:
        """None: a directory has no clock but this machine's."""
        return None

    async def close(self) -> None:
        """Carry out what was begun, cancelled puts included. Nothing can be asked then."""
        self._is_closed = True
        while self._pending_puts or self._marking:
            await asyncio.wait([*self._pending_puts.values(), *self._marking])

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreMisconfigured("the store was closed")

    def _location(self, key: str) -> RecordLocation:
        location = self._opened.objects.get(key)
        if location is None and self._opened.has_gaps:
            # Not missing for certain: it may be what cannot be read, and then planning again would not find it.
            raise ObjectDamaged(f"{key} is not found, and not all of the journal can be read: run penstock doctor")
        if location is None:
            raise ObjectMissing(f"{key} does not exist")
        return location

    async def _read(self, key: str, location: RecordLocation, byte_first: int, byte_count: int) -> bytes:
        self._check_open()
        try:
            return await self._opened.read(partial(self._read_location, key, location, byte_first, byte_count))
        except ObjectDamaged as error:
            path = self._journal.path(location.file.number)
            self._opened.on_damage(StoreDamage(file=path, key=key, detail=str(error)))
            raise

    def _write_waiting(self) -> None:
        """Hand what waits to the writing thread, as much as goes together."""
        group = [self._waiting.popleft()]
        group_bytes = 0
        # One record is left for the state that the first write of a file has, too.
        while self._waiting and group_bytes < JOURNAL_GROUP_BYTES_MAX and len(group) < RECORDS_PER_WRITE_MAX - 1:
            group_bytes += sum(map(len, group[-1].parts))
            group.append(self._waiting.popleft())
        self._is_writing = True
        written = self._opened.write(partial(self._append, group))
        written.add_done_callback(partial(self._settle, group))

    def _settle(self, group: Sequence[ObjectToPut], written: "asyncio.Future[Written]") -> None:
        outcomes = [self._pending_puts.pop(stored.key) for stored in group]
        failure = written.exception()
        if failure is None:
            self._opened.keep(group, written.result().objects)
        for outcome in outcomes:
            if failure is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(failure)
                outcome.exception()  # a cancelled put never asks for it, and asyncio would log it as not retrieved
        self._is_writing = False
        if self._waiting:
            self._write_waiting()

    async def _mark(self, doomed: Sequence[tuple[str, RecordLocation]]) -> dict[str, StoreError]:
        """Mark objects as deleted; returns the reasons where that failed. They are there as before then, to be deleted
        another time. It is carried out, even if this is cancelled."""
        by_file: dict[JournalFile, list[tuple[str, RecordLocation]]] = {}
        for key, location in doomed:
            by_file.setdefault(location.file, []).append((key, location))
        # One file that cannot be written holds up none of the others.
        marking = [(part, self._begin_marking(part)) for part in by_file.values()]
        reasons: dict[str, StoreError] = {}
        for part, marked in marking:
            try:
                await asyncio.shield(marked)
            except StoreError as error:
                reasons |= {key: error for key, _ in part}
        return reasons

    def _begin_marking(self, doomed: Sequence[tuple[str, RecordLocation]]) -> "asyncio.Future[None]":
        marked = self._opened.read(partial(self._mark_dead, doomed))
        self._marking.add(marked)
        marked.add_done_callback(partial(self._end_marking, doomed))
        return marked

    def _end_marking(self, doomed: Sequence[tuple[str, RecordLocation]], marked: "asyncio.Future[None]") -> None:
        self._marking.discard(marked)
        if marked.exception() is not None:
            for key, location in doomed:
                if self._opened.objects.setdefault(key, location) is not location:
                    self._opened.replaced.setdefault(key, []).append(location)

    # From here on: blocking, in a thread.

    def _leave_unneeded(self) -> None:
        with suppress(OSError):  # there is no room for another file either: again in a second
            self._journal.leave_unneeded()

    def _append(self, group: Sequence[ObjectToPut]) -> Written:
        with errors_of(group[0].key):
            return self._journal.append(group)

    def _read_location(self, key: str, location: RecordLocation, byte_first: int, byte_count: int) -> bytes:
        with errors_of(key, is_read=True):
            return self._journal.records.read(key, location, byte_first, byte_count)

    def _mark_dead(self, doomed: Sequence[tuple[str, RecordLocation]]) -> None:
        key, location = doomed[0]  # of the same file as the others
        with errors_of(key):
            try:
                self._journal.mark_dead([location for _, location in doomed])
            except FileNotFoundError as error:  # somebody has removed it, or put another one in its place
                path = self._journal.path(location.file.number)
                self._opened.on_damage(StoreDamage(file=path, detail=f"it is gone, with what it held: {error}"))
        self._journal.take_back_unneeded()


def _meta(key: str, location: RecordLocation) -> ObjectMeta:
    return ObjectMeta(key=key, size_bytes=location.payload_bytes, modified_ms=location.stamp)
