"""Chunks as consumers get them, in memory: real offsets, real append times, batches found by offset.

Rule: what is cached is what is sent. A chunk's bytes never change once it is in the index, so nothing is invalidated
but what came of an object that turned out to be damaged; the least recently used go first when the bound is reached.
Whole intake objects are held under the same bound until all their chunks have been cut out of them; those are copies,
so whoever is slow to send one holds no more than that. What an entry takes beside its payload counts too: of small
chunks that is most of their memory.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from coordinator.state.chunk_index import ChunkRef
from protocol.limits import READ_CACHE_ENTRY_BYTES
from protocol.records.batch import read_header
from protocol.records.compression import Compression
from protocol.types import ObjectId
from protocol.wire import Buffer

ChunkKey = Hashable


class ChunkPart(NamedTuple):
    """The part of a chunk that a consumer gets: whole batches, the offset after them, and whether they reach its
    end."""

    records: memoryview
    offset_end: int
    is_rest: bool


class _Batches(NamedTuple):
    """Where each of a chunk's batches ends."""

    byte_ends: "array[int]"
    offset_ends: "array[int]"


class ServedChunk:
    """One chunk's batches with their real offsets. Where each of them ends is worked out when somebody reads.

    Of small chunks there are many, and hardly any is ever read: until then one is two objects, of which the collector
    looks at one.
    """

    __slots__ = ("_batches", "buffer")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        """Never changed from now on."""
        self._batches: _Batches | None = None

    def _find_batches(self) -> _Batches:
        batches = _Batches(array("q"), array("q"))
        position = 0
        while position < len(self.buffer):
            header = read_header(self.buffer, position)
            position += header.batch_bytes
            batches.byte_ends.append(position)
            batches.offset_ends.append(header.base_offset + header.last_offset_delta + 1)
        return batches

    def from_offset(
        self, offset: int, bytes_max: int, *, at_least_one: bool, offset_end: int | None = None
    ) -> ChunkPart:
        """Whole batches from the one that holds `offset`, at most `bytes_max` bytes.

        With `at_least_one` the first batch is returned however large it is. With `offset_end` none that ends behind it.
        """
        if self._batches is None:
            self._batches = self._find_batches()
        byte_ends, offset_ends = self._batches
        buffer = memoryview(self.buffer)
        first = bisect_right(offset_ends, offset)
        if first == len(byte_ends):
            return ChunkPart(buffer[:0], offset, is_rest=True)
        byte_first = byte_ends[first - 1] if first else 0
        end = bisect_right(byte_ends, byte_first + bytes_max)
        if end <= first and at_least_one:
            end = first + 1
        if offset_end is not None:
            end = min(end, bisect_right(offset_ends, offset_end))
        if end <= first:
            return ChunkPart(buffer[:0], offset, is_rest=False)
        records = buffer[byte_first : byte_ends[end - 1]]
        return ChunkPart(records, offset_ends[end - 1], is_rest=end == len(byte_ends))


def chunk_key(chunk: ChunkRef, compression: Compression) -> ChunkKey:
    """The cache key of a chunk as it is served: object ids never come twice, archived rows are encoded as asked.

    Several partitions may have no rows at all in one file: those chunks are their offsets and no more.
    """
    if not chunk.is_archived:
        return (chunk.object_id, chunk.byte_first)
    if chunk.row_count == 0:
        return (chunk.object_id, chunk.offset_first, chunk.offset_end)
    return (chunk.object_id, chunk.row_group, chunk.row_first, compression)


class _WholeObject:
    """An intake object's bytes as they are stored, and how many of its chunks nobody cut out yet."""

    __slots__ = ("buffer", "chunks_count", "chunks_cut")

    def __init__(self, buffer: memoryview, chunks_count: int) -> None:
        self.buffer = buffer
        self.chunks_count = chunks_count
        self.chunks_cut: set[int] = set()
        """By their first bytes."""


class ChunkCache:
    """A bounded map of served chunks and whole intake objects, least recently used first out."""

    def __init__(self, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._chunks: OrderedDict[ChunkKey, ServedChunk | _WholeObject] = OrderedDict()
        self.bytes_held = 0
        self.hits_count = 0
        self.misses_count = 0

    def get(self, chunk: ChunkRef, compression: Compression = Compression.NONE) -> ServedChunk | None:
        key = chunk_key(chunk, compression)
        served = self._chunks.get(key)
        if served is None:
            self.misses_count += 1
            return None
        assert isinstance(served, ServedChunk)
        self.hits_count += 1
        self._chunks.move_to_end(key)
        return served

    def holds(self, chunk: ChunkRef, compression: Compression = Compression.NONE) -> bool:
        """Whether `get` would find the chunk now; this is no use of it."""
        return chunk_key(chunk, compression) in self._chunks

    def put(self, chunk: ChunkRef, served: ServedChunk, compression: Compression = Compression.NONE) -> None:
        """Keep a chunk; one that takes more than the bound is not kept."""
        self._keep(chunk_key(chunk, compression), served)

    def object(self, object_id: ObjectId) -> memoryview | None:
        """A whole object's bytes, where they are held."""
        found = self._chunks.get(object_id)
        if found is None:
            return None
        assert isinstance(found, _WholeObject)
        self._chunks.move_to_end(object_id)
        return found.buffer

    def put_object(self, object_id: ObjectId, buffer: memoryview, *, chunks_count: int) -> None:
        """Keep a whole object until `chunks_count` chunks were cut out of it."""
        self._keep(object_id, _WholeObject(buffer, chunks_count))

    def drop_chunks(self, object_id: ObjectId) -> None:
        """Let all chunks of an object go. Takes as long as to look at every key: for damage, not for each read."""
        for key in [key for key in self._chunks if isinstance(key, tuple) and key[0] == object_id]:
            self.bytes_held -= _entry_bytes(self._chunks.pop(key))

    def drop_object(self, object_id: ObjectId) -> None:
        """Let a whole object go, where it is held."""
        found = self._chunks.pop(object_id, None)
        if found is not None:
            self.bytes_held -= _entry_bytes(found)

    def was_cut(self, chunk: ChunkRef) -> None:
        """The chunk was cut out of its whole object; the last one lets the object go."""
        found = self._chunks.get(chunk.object_id)
        if isinstance(found, _WholeObject):
            found.chunks_cut.add(chunk.byte_first)
            if len(found.chunks_cut) >= found.chunks_count:
                self.drop_object(chunk.object_id)

    def _keep(self, key: ChunkKey, held: ServedChunk | _WholeObject) -> None:
        if key in self._chunks or _entry_bytes(held) > self.bytes_max:
            return
        self._chunks[key] = held
        self.bytes_held += _entry_bytes(held)
        while self.bytes_held > self.bytes_max:
            _, dropped = self._chunks.popitem(last=False)
            self.bytes_held -= _entry_bytes(dropped)


def _entry_bytes(held: ServedChunk | _WholeObject) -> int:
    """The bytes that an entry counts towards the bound."""
    return len(held.buffer) + READ_CACHE_ENTRY_BYTES
