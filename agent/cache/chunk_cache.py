"""The read cache: chunks as consumers get them, with real offsets and append times, and whole intake objects.

A chunk's bytes never change once it is in the index, so no entry becomes stale; entries of a damaged object are dropped
(`drop_chunks`, `drop_object`). The least recently used entry is dropped first when the bound is reached.

A chunk that an archive pass has replaced stays until it is dropped. Some chunks of `put_produced` are found by their
offsets then, and all others are not found any more.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from agent.cache.produced_chunks import PartitionChunks, ProducedChunk, may_outlive_pass
from coordinator.state.chunk_index import ChunkRef
from protocol.limits import READ_CACHE_ENTRY_BYTES
from protocol.records.batch import read_header
from protocol.records.compression import Compression
from protocol.types import ObjectId, PartitionIndex, TopicId
from protocol.wire import Buffer

ChunkKey = Hashable
"""The key of a chunk, a tuple that begins with the id of its object (`chunk_key`). A whole object's key is its id."""


class ChunkPart(NamedTuple):
    """Whole batches of a chunk, for one answer; maybe none."""

    records: memoryview
    offset_end: int
    """The offset after the batches; without any, the offset that was asked for."""
    reaches_end: bool
    """Whether no batches of the chunk follow."""


class _Batches(NamedTuple):
    """The end of each batch of a chunk: its byte position and its offset."""

    byte_ends: "array[int]"
    offset_ends: "array[int]"


class ServedChunk:
    """One chunk's batches with their real offsets. The ends of the batches are computed at the first read.

    There are many small chunks, and most are never read. Until its first read a chunk is two Python objects, one of
    which the cyclic garbage collector tracks.
    """

    __slots__ = ("_batches", "buffer", "produced_from", "produced_with")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        """Never changed after it is set: answers in flight refer to it."""
        self._batches: _Batches | None = None
        self.produced_from = 0
        """Its first offset there."""
        self.produced_with: PartitionChunks | None = None
        """The chunks of its partition among which the cache finds it by its offsets, if it does."""

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

        With `at_least_one` the first batch is returned however large it is: a consumer with a small limit would never
        get past it (KIP-74). With `offset_end` no batch that ends behind it is returned.
        """
        if self._batches is None:
            self._batches = self._find_batches()
        byte_ends, offset_ends = self._batches
        buffer = memoryview(self.buffer)
        # Batches [first, end) are returned.
        first = bisect_right(offset_ends, offset)
        if first == len(byte_ends):
            return ChunkPart(buffer[:0], offset, reaches_end=True)
        byte_first = byte_ends[first - 1] if first else 0
        end = bisect_right(byte_ends, byte_first + bytes_max)
        if end <= first and at_least_one:
            end = first + 1
        if offset_end is not None:
            end = min(end, bisect_right(offset_ends, offset_end))
        if end <= first:
            return ChunkPart(buffer[:0], offset, reaches_end=False)
        records = buffer[byte_first : byte_ends[end - 1]]
        return ChunkPart(records, offset_ends[end - 1], reaches_end=end == len(byte_ends))


def chunk_key(chunk: ChunkRef, compression: Compression) -> ChunkKey:
    """The cache key of a chunk as it is served. Object ids are never used twice.

    The key of an archived chunk has the compression, as its rows are encoded by the topic's setting. An intake chunk is
    the producer's batches, whatever that setting is.
    """
    if not chunk.is_archived:
        return (chunk.object_id, chunk.byte_first)
    if chunk.row_count == 0:  # such chunks of several partitions have the same row group and row: only offsets differ
        return (chunk.object_id, chunk.offset_first, chunk.offset_end)
    return (chunk.object_id, chunk.row_group, chunk.row_first, compression)


class _WholeObject:
    """An intake object's stored bytes, and the chunks that were copied out of them."""

    __slots__ = ("buffer", "chunks_count", "copied_chunks")

    def __init__(self, buffer: memoryview, chunks_count: int) -> None:
        self.buffer = buffer
        self.chunks_count = chunks_count
        self.copied_chunks: set[int] = set()
        """The first byte of each chunk that was copied out."""


class ChunkCache:
    """A bounded map of served chunks and whole intake objects, least recently used first out."""

    def __init__(self, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._entries: OrderedDict[ChunkKey, ServedChunk | _WholeObject] = OrderedDict()
        """Chunks and whole objects, the least recently used first."""
        self._produced: dict[tuple[TopicId, PartitionIndex], PartitionChunks] = {}
        """Chunks by their offsets; a partition without any has no item."""
        self.bytes_held = 0
        """The bytes that all entries count towards the bound."""
        self.hits_count = 0
        self.misses_count = 0

    def get(self, chunk: ChunkRef, compression: Compression = Compression.NONE) -> ServedChunk | None:
        """The chunk, which counts as used now; None where it is not in the cache."""
        key = chunk_key(chunk, compression)
        served = self._entries.get(key)
        if served is None:
            self.misses_count += 1
            return None
        assert isinstance(served, ServedChunk)
        self.hits_count += 1
        self._entries.move_to_end(key)
        return served

    def holds(self, chunk: ChunkRef, compression: Compression = Compression.NONE) -> bool:
        """Whether `get` would find the chunk now. Does not count as a use of it."""
        return chunk_key(chunk, compression) in self._entries

    def intake_bytes(self, object_id: ObjectId, byte_first: int) -> Buffer | None:
        """The bytes of an intake chunk, where they are in the cache. Does not count as a use of it."""
        served = self._entries.get((object_id, byte_first))
        return served.buffer if isinstance(served, ServedChunk) else None

    def put(self, chunk: ChunkRef, served: ServedChunk, compression: Compression = Compression.NONE) -> None:
        """Add a chunk, unless it takes more than the bound. Others are dropped for it."""
        self._add(chunk_key(chunk, compression), served)

    def put_produced(
        self,
        partition: tuple[TopicId, PartitionIndex],
        chunk: ChunkRef,
        served: ServedChunk,
        batch_is_transactional: Sequence[int],
    ) -> None:
        """Add an intake chunk as `put` does. If it `may_outlive_pass`, it is found by its offsets, too."""
        key = chunk_key(chunk, Compression.NONE)
        if not self._add(key, served) or not may_outlive_pass(len(served.buffer), batch_is_transactional):
            return
        chunks = self._produced.get(partition)
        if chunks is None:
            chunks = self._produced[partition] = PartitionChunks(partition)
        chunks.add(ProducedChunk(key, chunk.offset_first, chunk.offset_end))
        served.produced_from, served.produced_with = chunk.offset_first, chunks

    def produced_range(
        self, partition: tuple[TopicId, PartitionIndex], offset: int, offset_end: int
    ) -> tuple[int, int] | None:
        """The first offset and the end of the produced chunks that hold `[offset, offset_end)`.

        None where some of them are not in the cache. Does not count as a use of them.
        """
        chunks = self._produced.get(partition)
        return None if chunks is None else chunks.range_around(offset, offset_end)

    def produced_from(
        self, partition: tuple[TopicId, PartitionIndex], offset: int, offset_end: int
    ) -> Iterator[tuple[ProducedChunk, ServedChunk]]:
        """The produced chunks that hold `[offset, offset_end)`, each of which counts as used when it is returned.

        The cache must not change until the iteration ends.
        """
        chunks = self._produced.get(partition)
        if chunks is None:
            return
        for chunk in chunks.chunks_from(offset, offset_end):
            served = self._entries[chunk.key]
            assert isinstance(served, ServedChunk)
            self.hits_count += 1
            self._entries.move_to_end(chunk.key)
            yield chunk, served

    def object(self, object_id: ObjectId) -> memoryview | None:
        """A whole object's bytes; None where they are not in the cache."""
        whole = self._entries.get(object_id)
        if whole is None:
            return None
        assert isinstance(whole, _WholeObject)
        self._entries.move_to_end(object_id)
        return whole.buffer

    def put_object(self, object_id: ObjectId, buffer: memoryview, *, chunks_count: int) -> None:
        """Add a whole object, until `chunks_count` chunks were copied out of it. The same bounds hold as in `put`."""
        self._add(object_id, _WholeObject(buffer, chunks_count))

    def drop_chunks(self, object_id: ObjectId) -> None:
        """Drop all chunks of an object. Walks over every key: for damaged objects, not for each read."""
        for key in [key for key in self._entries if isinstance(key, tuple) and key[0] == object_id]:
            self._drop(key)

    def drop_object(self, object_id: ObjectId) -> None:
        """Drop a whole object, where it is in the cache."""
        if object_id in self._entries:
            self._drop(object_id)

    def note_copied(self, chunk: ChunkRef) -> None:
        """Note that the chunk was copied out of its whole object. The object is dropped with its last chunk."""
        whole = self._entries.get(chunk.object_id)
        if isinstance(whole, _WholeObject):
            whole.copied_chunks.add(chunk.byte_first)
            if len(whole.copied_chunks) >= whole.chunks_count:
                self.drop_object(chunk.object_id)

    def _add(self, key: ChunkKey, entry: ServedChunk | _WholeObject) -> bool:
        """Whether the entry is in the cache because of this call."""
        # An entry under the same key has the same bytes.
        if key in self._entries or _entry_bytes(entry) > self.bytes_max:
            return False
        self._entries[key] = entry
        self.bytes_held += _entry_bytes(entry)
        while self.bytes_held > self.bytes_max:
            self._drop(next(iter(self._entries)))
        return True

    def _drop(self, key: ChunkKey) -> None:
        dropped = self._entries.pop(key)
        self.bytes_held -= _entry_bytes(dropped)
        if isinstance(dropped, ServedChunk) and dropped.produced_with is not None:
            chunks, dropped.produced_with = dropped.produced_with, None
            chunks.remove(dropped.produced_from)
            if not chunks:
                del self._produced[chunks.partition]


def _entry_bytes(entry: ServedChunk | _WholeObject) -> int:
    """The bytes that an entry counts towards the bound: for small chunks most of them are not payload."""
    return len(entry.buffer) + READ_CACHE_ENTRY_BYTES
