"""Reads chunks for consumers: from memory, from intake objects, from the archive's Parquet files.

In: rows of the index. Out: chunks as they are served, up to the first that cannot be read; an error where that is the
first. A chunk that several requests need at once is read once, and neighbouring ranges of an object by one request.

A read of a chunk is a flight. It begins in `begin`, is completed by `_complete` or `_complete_with_error` with a chunk
or an error, and goes on when the requests that wait for it are cancelled.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from agent.cache.chunk_cache import ChunkCache, ChunkKey, ServedChunk, chunk_key
from agent.fetch.chunk_plan import has_every_record
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.object_demand import ObjectDemand
from agent.fetch.read_budget import ReadBudget, Reservation
from agent.fetch.served_chunks import serve_intake, serve_marker
from agent.ledger.apply_loop import PartitionKey
from agent.runtime.threads import run_in_thread
from coordinator.state.chunk_index import NO_OBJECT, ChunkIndex, ChunkRef
from coordinator.state.state import ClusterState, ObjectState
from protocol.errors import InvalidBatch
from protocol.limits import OBJECT_BYTES_READ_WHOLE_MAX
from protocol.records.compression import Compression
from protocol.types import ObjectId, Offset
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore, StoreError, StoreUnavailable
from storage.read_plan import plan_reads
from storage.refs import ByteRange, ObjectKind

INLINE_BYTES_MAX = 256 * 1024
"""Chunks up to this size are checked and patched on the event loop; larger ones in a thread."""
WHOLE_OBJECTS_MIN = 4
"""An object is read whole only where the cache could hold this many of its size: one must not evict all others."""


class ArchiveReader(Protocol):
    """Reads archived records back as record batches; `iceberg_export.parquet.reader` by the agent's wiring."""

    async def read(self, object_key: str, chunk: ChunkRef, compression: Compression) -> bytes:
        """The chunk's batches with their real offsets, covering exactly its range of offsets."""
        ...

    def is_checked(self, object_key: str) -> bool:
        """Whether the object is known to have checksums, so that rows read without an error are right."""
        ...

    def forget(self, object_key: str) -> None:
        """Drop everything that is cached of the object, so that it is read from the store again."""
        ...


@dataclass(frozen=True, slots=True)
class _Flight:
    """One chunk that is being read, and the future that every request for it awaits."""

    chunk: ChunkRef
    compression: Compression
    stored: ObjectState
    served: "asyncio.Future[ServedChunk]"

    @property
    def key(self) -> ChunkKey:
        return chunk_key(self.chunk, self.compression)


@dataclass(slots=True)
class _WholeRead:
    """An intake object that is being read whole, and the chunks that will be copied out of it."""

    flights: list[_Flight]
    task: "asyncio.Task[None] | None" = field(default=None)


class ChunkReader:
    """Returns chunks as they are served. With `is_store_cheap` requests cost little, and no object is read whole."""

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
        """The chunks that are being read now."""
        self._whole_reads: dict[ObjectId, _WholeRead] = {}
        self._demand = ObjectDemand()

    async def read(
        self,
        state: ClusterState,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        reservation: Reservation | None = None,
        *,
        within: AbstractAsyncContextManager[object] | None = None,
    ) -> list[ServedChunk]:
        """The chunks in order, up to the first that cannot be read, or not before `within` raises `TimeoutError`.

        At least one chunk is returned for a plan that is not empty. `compressions` says how to re-encode each archived
        chunk. `reservation` is kept until all reads that this begins have ended. A cancellation does not end them, as
        other requests may wait for the same chunks. Raises, where the first chunk cannot be read: `ObjectMissing` (plan
        again from a barrier, safety rule S6), `ObjectDamaged`, `StoreUnavailable` or another `StoreError`.
        """
        served: list[ServedChunk] = []
        try:
            async with within or nullcontext():
                for chunk in self.begin(state, chunks, compressions, reservation):
                    if isinstance(chunk, asyncio.Future):
                        # Shielded, as other requests may wait for the same future.
                        served.append(await asyncio.shield(chunk))
                    else:
                        served.append(chunk)
        except StoreError:
            if not served:
                raise
        except TimeoutError:
            if not served:
                raise StoreUnavailable("the store did not answer in time") from None
        return served

    def holds(self, chunk: ChunkRef, compression: Compression) -> bool:
        """Whether the chunk is in memory, or a marker, which is made without a read."""
        return chunk.object_id == NO_OBJECT or self._cache.holds(chunk, compression)

    def from_memory(self, chunk: ChunkRef, compression: Compression) -> ServedChunk:
        """The chunk, without a read: only where `holds` says so."""
        served = self._get(chunk, compression)
        assert served is not None
        return served

    def _get(self, chunk: ChunkRef, compression: Compression) -> ServedChunk | None:
        return serve_marker(chunk) if chunk.object_id == NO_OBJECT else self._cache.get(chunk, compression)

    def has_produced(self, key: PartitionKey, index: ChunkIndex, chunk: ChunkRef, offset: int) -> bool:
        """Whether what was produced from `offset` to the end of an archived chunk is in memory, and may be served."""
        if not chunk.is_archived:
            return False
        produced = self._cache.produced_range(key, offset, chunk.offset_end)
        return produced is not None and has_every_record(index, *produced)

    def produced(self, key: PartitionKey, chunk: ChunkRef, offset: int) -> Iterator[tuple[ChunkRef, ServedChunk]]:
        """Parts of an archived chunk from `offset` on, as they were produced: only where `has_produced` says so."""
        for part, served in self._cache.produced_from(key, offset, chunk.offset_end):
            offsets = Offset(part.offset_first), Offset(part.offset_end)
            yield chunk._replace(offset_first=offsets[0], offset_end=offsets[1]), served

    def is_missing(self, chunk: ChunkRef, compression: Compression) -> bool:
        """Whether the chunk is neither in memory nor being read."""
        return not self.holds(chunk, compression) and chunk_key(chunk, compression) not in self._flights

    def begin(
        self,
        state: ClusterState,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        reservation: Reservation | None,
    ) -> list[ServedChunk | asyncio.Future[ServedChunk]]:
        """Begin to read the missing chunks, up to the first whose object is not in the state.

        A chunk goes into the cache whether its future is awaited or not. Raises `ObjectMissing` where the first chunk's
        object is not in the state.
        """
        begun: list[ServedChunk | asyncio.Future[ServedChunk]] = []
        intake: list[_Flight] = []
        for chunk, compression in zip(chunks, compressions, strict=True):
            served = self._get(chunk, compression)
            if served is not None:
                begun.append(served)
                continue
            flight = self._flights.get(chunk_key(chunk, compression))
            if flight is None:
                stored = state.objects.get(chunk.object_id)
                if stored is None:
                    if not begun:
                        raise ObjectMissing(f"object {chunk.object_id} is not in the state any more")
                    break  # chunks before it are read all the same: the caller answers with them
                flight = self._new_flight(chunk, compression, stored)
                if flight.served.done():
                    pass  # it was damaged a short while ago, and is not read again yet
                elif stored.kind is ObjectKind.INTAKE:
                    intake.append(flight)
                else:
                    self._start(self._read_archived(flight), reservation)
            begun.append(flight.served)
        if intake:
            self._begin_intake(intake, reservation)
        return begun

    def _new_flight(self, chunk: ChunkRef, compression: Compression, stored: ObjectState) -> _Flight:
        """A flight for a chunk without one; completed at once, with its error, where the chunk was lately damaged."""
        flight = _Flight(chunk, compression, stored, asyncio.get_running_loop().create_future())
        self._flights[flight.key] = flight
        damage = self.damaged.recent(flight.key)
        if damage is not None:
            self._complete_with_error(flight, damage)
        return flight

    def _begin_intake(self, flights: Sequence[_Flight], reservation: Reservation | None) -> None:
        """Read each object whole where several consumers need parts of it and the budget allows, else its ranges.

        Each object is read by a task of its own: one that does not answer delays no chunk of another.
        """
        by_object: dict[ObjectId, list[_Flight]] = {}
        for flight in flights:
            by_object.setdefault(flight.chunk.object_id, []).append(flight)
            if flight.stored.object_bytes <= self._whole_bytes_max:
                self._demand.note(flight.chunk, flight.stored.object_bytes)
        for object_id, flights_of_object in by_object.items():
            whole, cached = self._whole_reads.get(object_id), self._cache.object(object_id)
            if whole is not None:
                whole.flights += flights_of_object
                if reservation is not None and whole.task is not None:
                    reservation.hold_for(whole.task)
            elif cached is not None:
                self._start(self._copy_out(flights_of_object, cached), reservation)
            elif not self._begin_whole(flights_of_object, reservation):
                self._start(self._read_ranges(flights_of_object), reservation)

    def _begin_whole(self, flights: list[_Flight], reservation: Reservation | None) -> bool:
        """Begin to read a whole object. False where its ranges should be read, or the budget has no bytes for it."""
        object_id, object_bytes = flights[0].chunk.object_id, flights[0].stored.object_bytes
        if object_bytes > self._whole_bytes_max or not self._demand.is_shared(object_id):
            return False
        # The object's bytes count beside those that the request has reserved for its own chunks.
        object_reservation = self._budget.take_now(object_bytes)
        if object_reservation is None:
            return False
        whole = self._whole_reads[object_id] = _WholeRead(flights)
        with object_reservation:
            whole.task = self._start(self._read_whole(object_id, flights[0].stored, whole), reservation)
            object_reservation.hold_for(whole.task)
        return True

    def _start(self, read: Coroutine[None, None, None], reservation: Reservation | None) -> asyncio.Task[None]:
        task = self._tasks.create_task(read)
        if reservation is not None:
            reservation.hold_for(task)
        return task

    async def _read_whole(self, object_id: ObjectId, stored: ObjectState, whole: _WholeRead) -> None:
        """Complete the flights of `whole`, also those that come while the object is being read."""
        try:
            data = memoryview(await self._store.get_range(stored.key, 0, stored.object_bytes))
        except StoreError as error:
            del self._whole_reads[object_id]
            if isinstance(error, ObjectDamaged):
                await self._read_ranges(whole.flights)  # chunks before the damage, or before its end, may be intact
                return
            for flight in whole.flights:
                self._complete_with_error(flight, error)
            return
        # Without an await between the two: a request that comes later finds the object in the cache.
        del self._whole_reads[object_id]
        self._cache.put_object(object_id, data, chunks_count=stored.references)
        await self._copy_out(whole.flights, data)

    async def _copy_out(self, flights: Sequence[_Flight], data: memoryview) -> None:
        """Complete chunks of an object whose bytes are in memory."""
        for flight in flights:
            await self._serve_intake(flight, data[flight.chunk.byte_first :])
            self._cache.note_copied(flight.chunk)

    async def _read_ranges(self, flights: Sequence[_Flight]) -> None:
        """Complete chunks of one object, by a read for each run of neighbours."""
        ranges = [
            ByteRange(key=flight.stored.key, byte_first=flight.chunk.byte_first, byte_count=flight.chunk.byte_count)
            for flight in flights
        ]
        for planned in plan_reads(ranges):
            read = planned.read
            try:
                data = memoryview(await self._store.get_range(read.key, read.byte_first, read.byte_count))
            except StoreUnavailable as error:
                # An object that does not answer fails all chunks, also of later ranges: each further read would take
                # the store's full time-out again.
                for flight in flights:
                    self._fail(flight, error)
                return
            except StoreError as error:
                await self._range_failed([flights[piece.range_index] for piece in planned.pieces], error)
                continue
            for piece in planned.pieces:
                await self._serve_intake(flights[piece.range_index], data[piece.byte_first :])

    async def _range_failed(self, flights: Sequence[_Flight], error: StoreError) -> None:
        """Complete the chunks of a range that could not be read; of a damaged range each is read alone."""
        for flight in flights:
            if isinstance(error, ObjectDamaged) and len(flights) > 1:
                await self._read_ranges([flight])  # only one of them may be damaged, or behind the object's end
            else:
                self._fail(flight, error)

    async def _serve_intake(self, flight: _Flight, data: memoryview) -> None:
        """Complete the chunk that `data` begins with; a damaged one fails alone."""
        # A copy: real offsets are written into it, and the rest of the range is freed.
        copied = bytearray(data[: flight.chunk.byte_count])
        try:
            if len(copied) <= INLINE_BYTES_MAX:
                served = serve_intake(copied, flight.chunk)
            else:
                served = await run_in_thread(serve_intake, copied, flight.chunk)
        except InvalidBatch as error:
            self._cache.drop_object(flight.chunk.object_id)  # the next request reads it from the store again
            self._fail(flight, ObjectDamaged(f"{flight.stored.key} does not hold what the ledger says: {error}"))
        else:
            self._complete(flight, served)

    async def _read_archived(self, flight: _Flight) -> None:
        # The archive reader may have the damaged bytes in its cache: it reads a small file with one request.
        if self.damaged.is_chunk_known(flight.key) or self._is_in_doubt(flight.stored.key):
            self._archive.forget(flight.stored.key)
        try:
            batches = await self._archive.read(flight.stored.key, flight.chunk, flight.compression)
        except StoreError as error:
            if isinstance(error, ObjectDamaged) and not self.damaged.is_known(flight.stored.key):
                # In a file without checksums, chunks that were read without an error may be wrong, too (S20).
                self._cache.drop_chunks(flight.chunk.object_id)
            self._fail(flight, error)
        else:
            self._complete(flight, ServedChunk(batches))

    def _complete(self, flight: _Flight, served: ServedChunk) -> None:
        """Complete a flight with its chunk, which goes into the cache unless it may be wrong."""
        self.damaged.was_read(flight.key)
        if flight.stored.kind is ObjectKind.INTAKE or not self._is_in_doubt(flight.stored.key):
            self._cache.put(flight.chunk, served, flight.compression)
        del self._flights[flight.key]
        flight.served.set_result(served)

    def _is_in_doubt(self, file_key: str) -> bool:
        """Whether chunks of an archive file may be wrong although they were read without an error."""
        return self.damaged.is_known(file_key) and not self._archive.is_checked(file_key)

    def _fail(self, flight: _Flight, error: StoreError) -> None:
        """Complete a flight with the error of its own read: a damaged chunk is not read again for a while."""
        if isinstance(error, ObjectDamaged):
            self.damaged.add(flight.stored.key, flight.key, error)
        self._complete_with_error(flight, error)

    def _complete_with_error(self, flight: _Flight, error: StoreError) -> None:
        """Complete a flight with an error, where it is not completed yet."""
        if not flight.served.done():
            del self._flights[flight.key]
            flight.served.set_exception(error)
            flight.served.exception()  # mark it as retrieved: every caller may have been cancelled
