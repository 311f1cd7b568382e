"""A bucket of many small objects that share files: the intake of the embedded store.

Rule: puts that come while others are written wait, and are then written and synced together. What is where is known in
memory and belongs to the event loop; files are touched by threads. Why not a file for each object: docs/adr/0007.

One process opens a folder at a time: it holds a lock on it.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from protocol.limits import PACK_BYTES_TARGET, PACK_GROUP_BYTES_MAX
from storage.embedded.local_files import Files, errors_of
from storage.embedded.one_thread import OneThread
from storage.embedded.pack_opening import folder_fault
from storage.embedded.packs import Pack, PackFolder, PackLocation, PackObject
from storage.keys import check_key, check_prefix
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectsNotDeleted,
    StoreError,
    StoreMisconfigured,
    cut_short,
)
from storage.store_damage import OnDamage, OnRemoved, StoreDamage, ignore_damage, ignore_removed

READ_THREADS = 8


class PackStore:
    """An `ObjectStore` in the directory `folder`, whose parent exists.

    `now_ms` is the time since 1970; `new_nonce` gives 16 unguessable bytes. `is_durable=False` leaves out every sync:
    a crash of the machine (not of the process) may lose objects. `is_writer=False` changes nothing, and rejects puts
    and deletes. `on_damage` is called with each unreadable part of a pack, at the start and when a read
    finds it; `on_removed` with each pack that is given up since all of it is deleted, by any thread. Raises
    `StoreMisconfigured` or `StoreUnavailable` where the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        now_ms: Callable[[], int],
        new_nonce: Callable[[], bytes],
        is_durable: bool = True,
        is_writer: bool = True,
        files: Files | None = None,
        pack_bytes_target: int = PACK_BYTES_TARGET,
        on_damage: OnDamage = ignore_damage,
        on_removed: OnRemoved = ignore_removed,
    ) -> None:
        files = Files() if files is None else files
        self._folder = folder
        self._is_writer = is_writer
        self._on_damage = on_damage
        self._packs = PackFolder(
            str(folder),
            new_nonce=new_nonce,
            is_durable=is_durable,
            is_writer=is_writer,
            files=files,
            pack_bytes_target=pack_bytes_target,
            on_damage=on_damage,
            on_removed=on_removed,
        )
        self._now_ms = now_ms
        self._writer = OneThread("pack-write")
        self._readers = ThreadPoolExecutor(READ_THREADS, "pack-read")
        self._waiting: deque[PackObject] = deque()
        self._under_way: dict[str, asyncio.Future[None]] = {}
        self._marking: set[asyncio.Future[None]] = set()
        self._is_writing = False
        self._is_closed = False
        self._newest: Pack | None = None
        """Where the last group went: the only pack that is kept without objects."""
        fault = folder_fault(str(folder))
        if fault:
            raise StoreMisconfigured(fault)
        with errors_of(str(folder)):
            if is_writer:
                files.make_directory(str(folder))
            if is_writer and is_durable:
                files.sync_directory(os.path.dirname(folder))
            self._index = self._packs.open()

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """A cancelled put goes on in its thread: `parts` must not change until the store is closed."""
        check_key(key)
        while (earlier := self._under_way.get(key)) is not None:
            await asyncio.wait([earlier])
        self._check_writer()
        if if_absent and key in self._index:
            raise ObjectExists(f"{key} exists")
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[key] = outcome
        self._waiting.append(PackObject(key=key, parts=parts, modified_ms=self._now_ms()))
        if not self._is_writing:
            self._write_waiting()
        await asyncio.shield(outcome)

    async def get(self, key: str) -> bytes:
        check_key(key)
        place = self._place(key)
        return await self._read(key, place, 0, place.payload_bytes)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        check_key(key)
        place = self._place(key)
        within = min(byte_count, max(place.payload_bytes - byte_first, 0))
        if within != byte_count:
            raise cut_short(key, within, byte_first, byte_count)
        return await self._read(key, place, byte_first, byte_count)

    async def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return _meta(key, self._place(key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects that are put or deleted meanwhile may be missing."""
        check_prefix(prefix)
        for key in sorted(key for key in self._index if key.startswith(prefix) and key > after):
            place = self._index.get(key)
            if place is not None:
                yield _meta(key, place)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        self._check_writer()
        doomed = {key: self._index.pop(key) for key in dict.fromkeys(keys) if key in self._index}
        by_pack: dict[int, dict[str, PackLocation]] = {}
        for key, place in doomed.items():
            by_pack.setdefault(place.pack.number, {})[key] = place
        # One pack that cannot be written holds up none of the others.
        marking = [(part, self._begin_marking(part)) for part in by_pack.values()]
        reasons: dict[str, StoreError] = {}
        for part, marked in marking:
            try:
                await asyncio.shield(marked)
            except StoreError as error:
                reasons |= dict.fromkeys(part, error)
        if reasons:
            raise ObjectsNotDeleted(reasons)

    def release_room(self) -> None:
        """Give back to the disk what can be made again: spare files, and the newest pack where all of it is deleted.

        Called from the event loop, again and again while the disk is full.
        """
        if self._is_closed:
            return
        self._readers.submit(self._packs.drop_spares)
        newest = self._newest
        if newest is not None and newest.live_count == 0 and not self._is_writing:
            ended = self._writer.submit(partial(self._packs.end_pack, newest))
            ended.add_done_callback(partial(self._let_newest_go, newest))

    def _let_newest_go(self, pack: Pack, ended: "asyncio.Future[None]") -> None:
        """Nothing is appended to the pack any more; a put that came in between has made an object of its own there."""
        if ended.exception() is None and self._newest is pack and pack.live_count == 0 and not self._is_closed:
            self._newest = None
            self._readers.submit(self._packs.take_back, pack)

    def remove_if_empty(self) -> bool:
        """Remove the folder where nothing is in it, and nothing may be in it that cannot be read; the store is closed
        then. Called by a writer before anything else."""
        is_removed = not self._index and not self._packs.has_gaps and self._packs.remove()
        self._is_closed |= is_removed
        return is_removed

    async def server_time_ms(self) -> int | None:
        """None: a directory has no clock but this machine's."""
        return None

    async def close(self) -> None:
        """Carry out what was begun, cancelled puts included, and give the threads back. Nothing can be asked then."""
        self._is_closed = True
        while self._under_way or self._marking:
            await asyncio.wait([*self._under_way.values(), *self._marking])
        await asyncio.to_thread(self._shut_down)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreMisconfigured(f"{self._folder} was closed")

    def _check_writer(self) -> None:
        self._check_open()
        if not self._is_writer:
            raise StoreMisconfigured(f"{self._folder} was opened for reading only")

    def _place(self, key: str) -> PackLocation:
        place = self._index.get(key)
        if place is None and self._packs.has_gaps:
            # Not missing for certain: it may be what cannot be read, and then planning again would not find it.
            raise ObjectDamaged(f"{key} is in no pack, and not all of the packs can be read: run penstock doctor")
        if place is None:
            raise ObjectMissing(f"{key} does not exist")
        return place

    async def _read(self, key: str, place: PackLocation, byte_first: int, byte_count: int) -> bytes:
        self._check_open()
        reading = partial(self._read_place, key, place, byte_first, byte_count)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, reading)
        except ObjectDamaged as error:
            self._on_damage(StoreDamage(file=self._packs.path(place.pack.number), key=key, detail=str(error)))
            raise

    def _write_waiting(self) -> None:
        """Hand what waits to the writer's thread, as much as goes together."""
        group = [self._waiting.popleft()]
        group_bytes = 0
        while self._waiting and group_bytes < PACK_GROUP_BYTES_MAX:
            group_bytes += sum(map(len, group[-1].parts))
            group.append(self._waiting.popleft())
        self._is_writing = True
        written = self._writer.submit(partial(self._append, group))
        written.add_done_callback(partial(self._settle, group))

    def _settle(self, group: Sequence[PackObject], written: "asyncio.Future[Sequence[PackLocation]]") -> None:
        outcomes = [self._under_way.pop(stored.key) for stored in group]
        failure = written.exception()
        if failure is None:
            self._keep(group, written.result())
        for outcome in outcomes:
            if failure is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(failure)
                outcome.exception()  # a cancelled put never asks for it, and asyncio would log it as not retrieved
        self._is_writing = False
        if self._waiting:
            self._write_waiting()

    def _keep(self, group: Sequence[PackObject], places: Sequence[PackLocation]) -> None:
        replaced: dict[str, PackLocation] = {}
        for stored, place in zip(group, places, strict=True):
            place.pack.live_count += 1
            earlier = self._index.get(stored.key)
            if earlier is not None:
                replaced[stored.key] = earlier
            self._index[stored.key] = place
        before, self._newest = self._newest, places[0].pack
        if before is not None:
            self._take_back_empty(before)
        if replaced:
            self._begin_marking(replaced)

    def _begin_marking(self, doomed: Mapping[str, PackLocation]) -> "asyncio.Future[None]":
        marked = asyncio.get_running_loop().run_in_executor(self._readers, self._mark_dead, doomed)
        self._marking.add(marked)
        marked.add_done_callback(partial(self._forget, doomed))
        return marked

    def _forget(self, doomed: Mapping[str, PackLocation], marked: "asyncio.Future[None]") -> None:
        """Objects are marked dead; where that failed they are there as before, to be deleted another time."""
        self._marking.discard(marked)
        if marked.exception() is not None:
            for key, place in doomed.items():
                self._index.setdefault(key, place)
            return
        for place in doomed.values():
            self._count_out(place.pack)

    def _count_out(self, pack: Pack) -> None:
        pack.live_count -= 1
        self._take_back_empty(pack)

    def _take_back_empty(self, pack: Pack) -> None:
        if pack.live_count == 0 and pack is not self._newest:
            self._readers.submit(self._packs.take_back, pack)

    # From here on: blocking, in a thread.

    def _append(self, group: Sequence[PackObject]) -> Sequence[PackLocation]:
        with errors_of(group[0].key):
            return self._packs.append(group)

    def _read_place(self, key: str, place: PackLocation, byte_first: int, byte_count: int) -> bytes:
        with errors_of(key, is_read=True):
            return self._packs.read(key, place, byte_first, byte_count)

    def _mark_dead(self, doomed: Mapping[str, PackLocation]) -> None:
        with errors_of(next(iter(doomed))):
            self._packs.mark_dead(list(doomed.values()))

    def _shut_down(self) -> None:
        self._writer.join()
        self._readers.shutdown()
        self._packs.close()


def _meta(key: str, place: PackLocation) -> ObjectMeta:
    return ObjectMeta(key=key, size_bytes=place.payload_bytes, modified_ms=place.modified_ms)
