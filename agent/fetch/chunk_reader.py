"""Reads chunks for consumers: from memory, from intake objects, from the archive's Parquet files.

Rule: a chunk that several requests want at once is read once. Neighbouring ranges of one object are read together; an
intake object that several want parts of is read whole, once, and kept until they have them. A transaction's marker is
made, and nothing read for it. What can be read is served up to what cannot, and that is told to whoever asks for it
first of all. What is missing in the bucket raises `ObjectMissing`: whoever planned the read plans again from a barrier
(safety rule S6).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from agent.cache.chunk_cache import ChunkCache, ChunkKey, ServedChunk, chunk_key
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.object_demand import ObjectDemand
from agent.fetch.read_budget import ReadBudget, Share
from agent.runtime.threads import run_in_thread
from coordinator.state.chunk_index import NO_CHECKSUM, NO_OBJECT, ChunkRef
from coordinator.state.state import ClusterState, ObjectState
from protocol.errors import ErrorCode, InvalidBatch
from protocol.limits import OBJECT_BYTES_READ_WHOLE_MAX
from protocol.records.batch import check_crcs, patch_offsets, set_log_append_time
from protocol.records.compression import Compression
from protocol.records.control_batches import marker_batch
from protocol.types import NO_TIMESTAMP, ObjectId
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore, StoreError, StoreUnavailable
from storage.read_plan import plan_reads
from storage.refs import ByteRange, ObjectKind

INLINE_BYTES_MAX = 256 * 1024
"""Chunks up to this size are made ready on the loop; larger ones in a thread."""
WHOLE_OBJECTS_MIN = 4
"""No object is read whole of which so many do not fit into the cache."""


class ArchiveReader(Protocol):
    """Reads archived records back as record batches; `iceberg_export.parquet.reader` by the agent's wiring."""

    async def read(self, object_key: str, chunk: ChunkRef, compression: Compression) -> bytes:
        """The chunk's batches with their real offsets, covering exactly its range of offsets."""
        ...

    def is_checked(self, object_key: str) -> bool:
        """Whether the object is known to have checksums, so that what could be read of it is right."""
        ...

    def forget(self, object_key: str) -> None:
        """Read everything of the object from the store again."""
        ...


@dataclass(frozen=True, slots=True)
class _Flight:
    """One chunk on its way to whoever wants it."""

    chunk: ChunkRef
    compression: Compression
    stored: ObjectState
    served: "asyncio.Future[ServedChunk]"

    @property
    def key(self) -> ChunkKey:
        return chunk_key(self.chunk, self.compression)


@dataclass(slots=True)
class _WholeRead:
    """An intake object on its way as a whole, and the chunks that are to be cut out of it."""

    flights: list[_Flight]
    task: "asyncio.Task[None] | None" = field(default=None)


class ChunkReader:
    """Gives chunks as they are served. `is_store_cheap`: requests cost next to nothing, so no object is read whole."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        archive: ArchiveReader,
        cache: ChunkCache,
        budget: ReadBudget,
        damaged: DamagedObjects,
        tasks: asyncio.TaskGroup,
        is_store_cheap: bool,
    ) -> None:
        self._store = store
        self._archive = archive
        self._cache = cache
        self._budget = budget
        self.damaged = damaged
        self._tasks = tasks
        self._whole_bytes_max = min(OBJECT_BYTES_READ_WHOLE_MAX, cache.bytes_max // WHOLE_OBJECTS_MIN)
        if is_store_cheap:
            self._whole_bytes_max = 0
        self._flights: dict[ChunkKey, _Flight] = {}
        self._whole: dict[ObjectId, _WholeRead] = {}
        self._demand = ObjectDemand()

    async def read(
        self,
        state: ClusterState,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        share: Share | None = None,
        *,
        within: AbstractAsyncContextManager[object] | None = None,
    ) -> list[ServedChunk]:
        """The chunks, in order, up to the first that cannot be read, or not before `within` raises `TimeoutError`; at
        least one.

        `compressions` says how to re-encode each of those that are archived. `share` is held until the reads that this
        begins are over: to cancel the caller leaves them to the others. Where the very first cannot be read this raises
        `ObjectMissing` (plan again from a barrier), `ObjectDamaged`, `StoreUnavailable` or another `StoreError`; none
        for no chunks.
        """
        served: list[ServedChunk] = []
        try:
            async with within or nullcontext():
                for waiting in self.begin(state, chunks, compressions, share):
                    if isinstance(waiting, asyncio.Future):
                        waiting = await asyncio.shield(waiting)
                    served.append(waiting)
        except StoreError:
            if not served:
                raise
        except TimeoutError:
            if not served:
                raise StoreUnavailable("the store has not answered in the time that there was") from None
        return served

    def holds(self, chunk: ChunkRef, compression: Compression) -> bool:
        """Whether the chunk is in memory, or a marker, so that serving it takes no more."""
        return chunk.object_id == NO_OBJECT or self._cache.holds(chunk, compression)

    def is_missing(self, chunk: ChunkRef, compression: Compression) -> bool:
        """Whether the chunk is neither in memory nor on its way there."""
        return not self.holds(chunk, compression) and chunk_key(chunk, compression) not in self._flights

    def begin(
        self,
        state: ClusterState,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        share: Share | None,
    ) -> list[ServedChunk | asyncio.Future[ServedChunk]]:
        """Begin to read what is neither held nor on its way, up to the first whose object is gone from the state.

        What is not waited for goes into the cache. Raises `ObjectMissing` where the first one's object is gone.
        """
        waiting: list[ServedChunk | asyncio.Future[ServedChunk]] = []
        intake: list[_Flight] = []
        for chunk, compression in zip(chunks, compressions, strict=True):
            if chunk.object_id == NO_OBJECT:
                waiting.append(serve_marker(chunk))
                continue
            held = self._cache.get(chunk, compression)
            if held is not None:
                waiting.append(held)
                continue
            key = chunk_key(chunk, compression)
            flight = self._flights.get(key)
            if flight is None:
                stored = state.objects.get(chunk.object_id)
                if stored is None:
                    if not waiting:
                        raise ObjectMissing(f"object {chunk.object_id} is not in the state any more")
                    break  # what was begun is read all the same: others may wait for it already
                flight = _Flight(chunk, compression, stored, asyncio.get_running_loop().create_future())
                self._flights[key] = flight
                damage = self.damaged.recent(key)
                if damage is not None:
                    self._crash(flight, damage)
                elif stored.kind is ObjectKind.INTAKE:
                    intake.append(flight)
                else:
                    self._start(self._read_archived(flight), share)
            waiting.append(flight.served)
        if intake:
            self._begin_intake(intake, share)
        return waiting

    def _begin_intake(self, flights: Sequence[_Flight], share: Share | None) -> None:
        """Each object whole where others want parts of it too and there is room for it, else the ranges alone.

        One object that does not answer holds up nobody who waits for another one.
        """
        by_object: dict[ObjectId, list[_Flight]] = {}
        for flight in flights:
            by_object.setdefault(flight.chunk.object_id, []).append(flight)
            if flight.stored.object_bytes <= self._whole_bytes_max:
                self._demand.note(flight.chunk, flight.stored.object_bytes)
        for object_id, wanted in by_object.items():
            whole, held = self._whole.get(object_id), self._cache.object(object_id)
            if whole is not None:
                whole.flights += wanted
                if share is not None and whole.task is not None:
                    share.hold_for(whole.task)
            elif held is not None:
                self._start(self._cut(wanted, held), share)
            elif not self._begin_whole(wanted, share):
                self._start(self._read_ranges(wanted), share)

    def _begin_whole(self, flights: list[_Flight], share: Share | None) -> bool:
        """Begin to read a whole object. False where it should not be, or there is no room for it."""
        object_id, object_bytes = flights[0].chunk.object_id, flights[0].stored.object_bytes
        if object_bytes > self._whole_bytes_max or not self._demand.is_shared(object_id):
            return False
        room = self._budget.take_now(object_bytes)
        if room is None:
            return False
        whole = self._whole[object_id] = _WholeRead(flights)
        with room:
            whole.task = self._start(self._read_whole(object_id, flights[0].stored, whole), share)
            room.hold_for(whole.task)
        return True

    def _start(self, read: Coroutine[None, None, None], share: Share | None) -> asyncio.Task[None]:
        task = self._tasks.create_task(read)
        if share is not None:
            share.hold_for(task)
        return task

    async def _read_whole(self, object_id: ObjectId, stored: ObjectState, whole: _WholeRead) -> None:
        try:
            data = memoryview(await self._store.get_range(stored.key, 0, stored.object_bytes))
        except StoreError as error:
            del self._whole[object_id]
            if isinstance(error, ObjectDamaged):
                await self._read_ranges(whole.flights)  # chunks before its damage, or its end, may be whole
                return
            for flight in whole.flights:
                self._crash(flight, error)
            return
        # Who comes from now on finds it in the cache.
        del self._whole[object_id]
        self._cache.put_object(object_id, data, chunks_count=stored.references)
        await self._cut(whole.flights, data)

    async def _cut(self, flights: Sequence[_Flight], data: memoryview) -> None:
        """Land chunks out of their whole object's bytes."""
        for flight in flights:
            await self._serve_intake(flight, data[flight.chunk.byte_first :])
            self._cache.was_cut(flight.chunk)

    async def _read_ranges(self, flights: Sequence[_Flight]) -> None:
        """Parts of one object."""
        ranges = [
            ByteRange(key=f.stored.key, byte_first=f.chunk.byte_first, byte_count=f.chunk.byte_count) for f in flights
        ]
        for planned in plan_reads(ranges):
            read = planned.read
            try:
                data = memoryview(await self._store.get_range(read.key, read.byte_first, read.byte_count))
            except StoreError as error:
                # An object that does not answer is not asked again for the rest: whoever waits asks again.
                is_away = isinstance(error, StoreUnavailable)
                struck = flights if is_away else [flights[piece.wanted] for piece in planned.pieces]
                if isinstance(error, ObjectDamaged) and len(struck) > 1:
                    for flight in struck:
                        await self._read_ranges([flight])  # one of them alone may be damaged, or behind the end
                    continue
                for flight in struck:
                    self._fail(flight, error)
                if is_away:
                    return
                continue
            for piece in planned.pieces:
                await self._serve_intake(flights[piece.wanted], data[piece.byte_first :])

    async def _serve_intake(self, flight: _Flight, data: memoryview) -> None:
        """Land the chunk that `data` begins with; a damaged one fails alone."""
        # A copy: real offsets are written into it, and the rest of the range is let go.
        copied = bytearray(data[: flight.chunk.byte_count])
        try:
            if len(copied) <= INLINE_BYTES_MAX:
                served = serve_intake(copied, flight.chunk)
            else:
                served = await run_in_thread(serve_intake, copied, flight.chunk)
        except InvalidBatch as error:
            self._cache.drop_object(flight.chunk.object_id)  # it is read again for whoever asks again
            self._fail(flight, ObjectDamaged(f"{flight.stored.key} does not hold what the ledger says: {error}"))
        else:
            self._land(flight, served)

    async def _read_archived(self, flight: _Flight) -> None:
        # The damaged chunk's own bytes may have come back with an intact chunk of a small file.
        if self.damaged.is_chunk_known(flight.key) or self._is_in_doubt(flight.stored.key):
            self._archive.forget(flight.stored.key)
        try:
            batches = await self._archive.read(flight.stored.key, flight.chunk, flight.compression)
        except StoreError as error:
            if isinstance(error, ObjectDamaged) and not self.damaged.is_known(flight.stored.key):
                # Without checksums other chunks of the file may have been read without an error, and be wrong.
                self._cache.drop_chunks(flight.chunk.object_id)
            self._fail(flight, error)
        else:
            self._land(flight, ServedChunk(batches))

    def _land(self, flight: _Flight, served: ServedChunk) -> None:
        self.damaged.was_read(flight.key)
        if flight.stored.kind is ObjectKind.INTAKE or not self._is_in_doubt(flight.stored.key):
            self._cache.put(flight.chunk, served, flight.compression)
        del self._flights[flight.key]
        flight.served.set_result(served)

    def _is_in_doubt(self, file_key: str) -> bool:
        """Whether chunks of an archive file may be wrong although they were read without an error."""
        return self.damaged.is_known(file_key) and not self._archive.is_checked(file_key)

    def _fail(self, flight: _Flight, error: StoreError) -> None:
        """A read just now gave an error: damage is remembered, so that it is not read again for a while."""
        if isinstance(error, ObjectDamaged):
            self.damaged.found(flight.stored.key, flight.key, error)
        self._crash(flight, error)

    def _crash(self, flight: _Flight, error: StoreError) -> None:
        if not flight.served.done():
            del self._flights[flight.key]
            flight.served.set_exception(error)
            flight.served.exception()  # seen, even where every caller was cancelled


def serve_intake(batches: bytearray, chunk: ChunkRef) -> ServedChunk:
    """The chunk as consumers get it: `batches` with real offsets and, by the topic's setting, append times (S14).

    Raises `InvalidBatch` where the bytes are not what the index says, or not those that were produced.
    """
    # Before the offsets are believed (safety rule S20), and no damage is blessed by S14 below.
    checksum = check_crcs(batches)
    if chunk.checksum not in (NO_CHECKSUM, checksum):
        raise InvalidBatch(
            ErrorCode.corrupt_message,
            f"batches with the checksum {checksum:#010x} at byte {chunk.byte_first}, not {chunk.checksum:#010x}",
        )
    offset_end = patch_offsets(batches, chunk.offset_first)
    if offset_end != chunk.offset_end:
        raise InvalidBatch(
            ErrorCode.corrupt_message, f"offsets {chunk.offset_first} to {offset_end}, not to {chunk.offset_end}"
        )
    if chunk.append_time_ms != NO_TIMESTAMP:
        set_log_append_time(batches, chunk.append_time_ms)
    return ServedChunk(batches)


def serve_marker(chunk: ChunkRef) -> ServedChunk:
    """A transaction's end as consumers get it: nothing of it is stored."""
    marker = chunk.marker
    assert marker is not None
    batch = marker_batch(
        offset=chunk.offset_first,
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        is_commit=marker.is_commit,
        timestamp_ms=marker.timestamp_ms,
    )
    return ServedChunk(batch)
