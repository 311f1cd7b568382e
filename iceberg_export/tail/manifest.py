"""The tail manifest: the locations of the records that are not archived yet, for readers without a broker. Pure.

It is one object (`storage.refs.TAIL_KEY`), which the maintenance leader overwrites. For each topic it has the key of
the table metadata; for each partition it has the chunks from the end of the archive to the last stable offset. With
their aborted transactions a reader leaves out the same records as the archive.

    version u8 | crc32c u32 of all following bytes | zstd frame of MessagePack

Integers are little-endian. A partition's chunks and its aborted transactions are columns of int64. Each object key is
in the manifest once, because an intake object has chunks of many partitions.

A reader compares manifests by incarnation, then by position: the greater one is newer. Golden file: tests/golden/tail.
"""

import hashlib
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, overload

import cramjam
import msgspec
from crc32c import crc32c
from msgspec import Struct, structs

from protocol.decoding import DAMAGE, MsgpackDecoder
from protocol.types import Milliseconds, Offset, PartitionIndex, Position, ProducerId, TopicId
from txn.isolation import AbortedBatches, AbortedExtent

FORMAT_VERSION: Final = 1
NO_KEY: Final = ""
"""Replaces the object key of a transaction marker, which has an offset but no bytes. Replaces the key of a table's
metadata where the table has no commit yet."""
NO_ROWS: Final = "-"
"""Replaces the key of a table's metadata where the table has no commit and needs none: no archived record is committed.
"""
ZSTD_LEVEL: Final = 1
_OFFSET_FIRST: Final = Offset(0)
_DIGEST_BYTES: Final = 32
_HEADER: Final = struct.Struct("<BI")
_COLUMNS: Final = 6
"""The columns of `TailChunks`."""


class TailUnreadable(Exception):
    """The bytes are no tail manifest that this program can read: it is damaged, or newer than the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailChunk:
    """The record batches of offsets `[offset_first, offset_end)`: `byte_count` bytes of an object from `byte_first`."""

    offset_first: Offset
    offset_end: Offset
    object_key: str
    """`NO_KEY` for a transaction marker, which has nothing to read; the next two fields are 0 then."""
    byte_first: int
    byte_count: int
    append_time_ms: Milliseconds
    """-1 where timestamps are the producer's (CreateTime); else the timestamp of every record (safety rule S14)."""
    checksum: int = 0
    """The checksum of the record batches' CRCs (`protocol.records.crc.crc_of_crcs`); 0 where it is unknown."""

    @property
    def is_marker(self) -> bool:
        return self.object_key == NO_KEY


class TailChunks(Sequence[TailChunk]):
    """Contiguous chunks of one partition.

    They are stored as columns, so that a manifest with very many chunks is fast to encode and to decode.
    """

    __slots__ = ("_byte_count", "_byte_first", "_checksums", "_ends", "_first", "_key_rows", "_keys", "_times")

    def __init__(
        self,
        *,
        offset_first: Offset = _OFFSET_FIRST,
        keys: Sequence[str] = (),
        columns: Sequence["array[int]"] | None = None,
    ) -> None:
        """`columns`: offset ends, indexes into `keys` (-1: `NO_KEY`), first bytes, byte counts, append times and
        checksums. `keys`: may be shared with other partitions, and grow.

        Raises `ValueError` where the columns have different lengths.
        """
        self._first, self._keys = offset_first, keys
        if columns is None:
            columns = [array("q") for _ in range(_COLUMNS)]
        self._ends, self._key_rows, self._byte_first, self._byte_count, self._times, self._checksums = columns
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise ValueError(f"the columns of chunks have different lengths: {sorted(lengths)}")

    @classmethod
    def of(cls, chunks: Iterable[TailChunk]) -> "TailChunks":
        """The columns of `chunks`. Raises `ValueError` where they are not contiguous, or one has no offset."""
        keys: dict[str, int] = {}
        columns = [array("q") for _ in range(_COLUMNS)]
        first = end = None
        for chunk in chunks:
            first = chunk.offset_first if first is None else first
            if (end is not None and chunk.offset_first != end) or chunk.offset_end <= chunk.offset_first:
                raise ValueError(f"the chunk [{chunk.offset_first}, {chunk.offset_end}) does not begin at {end}")
            end = chunk.offset_end
            row = -1 if chunk.is_marker else keys.setdefault(chunk.object_key, len(keys))
            values = (end, row, chunk.byte_first, chunk.byte_count, chunk.append_time_ms, chunk.checksum)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return cls(offset_first=_OFFSET_FIRST if first is None else first, keys=tuple(keys), columns=columns)

    @property
    def offset_first(self) -> Offset:
        """The first offset of the first chunk."""
        return self._first

    @property
    def offset_end(self) -> Offset:
        """The end of the last chunk; `offset_first` where there is none."""
        return Offset(self._ends[-1]) if self._ends else self._first

    @property
    def byte_count(self) -> int:
        """The bytes of all chunks together."""
        return sum(self._byte_count)

    def between(self, offset_first: Offset, offset_end: Offset) -> "tuple[TailChunk, ...]":
        """The chunks with offsets in `[offset_first, offset_end)`. The first and the last may reach beyond it."""
        row_first = bisect_right(self._ends, offset_first)
        row_end = row_first
        while row_end < len(self) and self._row_first(row_end) < offset_end:
            row_end += 1
        return tuple(self[row_first:row_end])

    def with_key_prefix(self, prefix: str) -> "TailChunks":
        """The same chunks, with `prefix` before the keys of their objects."""
        keys: dict[str, int] = {}
        columns = self.columns(keys)
        return TailChunks(offset_first=self._first, keys=[prefix + key for key in keys], columns=columns)

    def columns(self, keys: dict[str, int]) -> "list[array[int]]":
        """The columns for the constructor, with indexes into `keys`. Missing keys are added to `keys`."""
        indexes = [-1] * (len(self._keys) + 1)  # the last item is for -1, `NO_KEY`
        rows = array("q")
        for row in self._key_rows:
            if row >= 0 and indexes[row] < 0:
                indexes[row] = keys.setdefault(self._keys[row], len(keys))
            rows.append(indexes[row])
        return [self._ends, rows, self._byte_first, self._byte_count, self._times, self._checksums]

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, row: int) -> TailChunk: ...
    @overload
    def __getitem__(self, row: slice) -> list[TailChunk]: ...
    def __getitem__(self, row: int | slice) -> TailChunk | list[TailChunk]:
        if isinstance(row, slice):
            return [self._chunk(each) for each in range(*row.indices(len(self)))]
        return self._chunk(range(len(self))[row])

    def __iter__(self) -> Iterator[TailChunk]:
        return map(self._chunk, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TailChunks) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal by value, so not hashable by identity

    def __repr__(self) -> str:
        return f"TailChunks.of({list(self)!r})"

    def _row_first(self, row: int) -> Offset:
        return Offset(self._ends[row - 1]) if row else self._first

    def _chunk(self, row: int) -> TailChunk:
        key_row = self._key_rows[row]
        return TailChunk(
            offset_first=self._row_first(row),
            offset_end=Offset(self._ends[row]),
            object_key=NO_KEY if key_row < 0 else self._keys[key_row],
            byte_first=self._byte_first[row],
            byte_count=self._byte_count[row],
            append_time_ms=Milliseconds(self._times[row]),
            checksum=self._checksums[row],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPartition:
    """A partition of the tail manifest."""

    log_start: Offset
    archived_end: Offset
    """The first offset that is not archived; the topic's table has the rows of lower offsets. It may be below
    `log_start`, where the log has dropped records before they were archived."""
    last_stable: Offset
    """The end of read_committed: the first offset of an open transaction, or the log's end. Never below `log_start`.
    The last chunk may reach beyond it."""
    chunks: TailChunks = field(default_factory=TailChunks)
    """The chunks from `archived_end` up to `last_stable`, or up to the limit of a manifest."""
    aborted: tuple[AbortedExtent, ...] = ()
    """The aborted transactions in `chunks`, in the order of their markers, for `txn.isolation.AbortedBatches`."""
    without_rows: tuple[tuple[int, int], ...] | None = None
    """Archived offsets `[first, end)` without rows: all of them were aborted, or are markers, and no file of the table
    has to answer for them. Ascending; None in a manifest from before this field."""

    @property
    def readable_end(self) -> Offset:
        """The end for a reader of table and tail: `last_stable`, or less where the manifest cannot list all chunks.
        Never below `log_start`."""
        return max(self.log_start, min(self.last_stable, self.chunks.offset_end if self.chunks else self.archived_end))

    @property
    def aborted_batches(self) -> AbortedBatches:
        return AbortedBatches(self.aborted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTopic:
    """A topic of the tail manifest."""

    name: str
    topic_id: TopicId
    metadata_key: str
    """The key of the topic's Iceberg metadata at the same ledger position as the partitions; `NO_KEY` or `NO_ROWS`
    where the table has no commit."""
    partitions: tuple[TailPartition, ...]

    @property
    def byte_count(self) -> int:
        """The bytes of all chunks in the manifest."""
        return sum(partition.chunks.byte_count for partition in self.partitions)

    def partition(self, index: PartitionIndex) -> TailPartition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TailManifest:
    """All topics of a cluster. Each topic is consistent in itself, at `position` or at a later one."""

    cluster_id: str
    incarnation: int
    position: Position
    """The ledger position whose entries, and all before it, are reflected in the manifest."""
    written_ms: Milliseconds
    """The time by the clock of the agent that wrote it."""
    topics: tuple[TailTopic, ...]
    """The topics in the order of their ids."""

    def topic(self, name: str) -> TailTopic | None:
        """The topic of that name; None where there is none."""
        return next((topic for topic in self.topics if topic.name == name), None)

    def is_newer_than(self, other: "TailManifest") -> bool:
        """True where `other`, of the same cluster, is older."""
        return (self.incarnation, self.position) > (other.incarnation, other.position)


class _Partition(Struct, array_like=True):
    log_start: int
    archived_end: int
    last_stable: int
    chunks: list[memoryview] = []
    """The columns without checksums; empty where there are no chunks."""
    aborted: list[memoryview] = []
    """The columns of producer ids, first offsets and markers; empty where nothing is aborted."""
    checksums: memoryview = memoryview(b"")
    """The checksums of `chunks`, as u32; empty where none is known. Older readers ignore the field."""
    without_rows: list[memoryview] | None = None
    """The columns of first offsets and ends. Older readers ignore the field."""


class _ManifestTopic(Struct, array_like=True):
    name: str
    topic_id: bytes
    metadata_key: str
    partitions: list[_Partition]


class _Manifest(Struct, array_like=True):
    cluster_id: str
    incarnation: int
    position: int
    written_ms: int
    topics: list[_ManifestTopic]
    keys: list[str]
    """The keys of the objects of all chunks."""


_encoder = msgspec.msgpack.Encoder()
_decoder = MsgpackDecoder(_Manifest)


def encode_manifest(manifest: TailManifest) -> bytes:
    """The bytes of the object. Equal manifests give equal bytes."""
    return _seal(_to_wire(manifest))


def encode_changed(manifest: TailManifest, digest_before: bytes) -> tuple[bytes | None, bytes]:
    """The bytes of the object, and a digest of the manifest without its position and time.

    The bytes are None where the digest equals `digest_before`: nothing has changed, so no put is needed. CPU work for a
    thread.
    """
    wire = _to_wire(manifest)
    content = structs.replace(wire, position=0, written_ms=0)
    digest = hashlib.blake2b(_encoder.encode(content), digest_size=_DIGEST_BYTES).digest()
    return None if digest == digest_before else _seal(wire), digest


def _to_wire(manifest: TailManifest) -> _Manifest:
    keys: dict[str, int] = {}
    topics = [
        _ManifestTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            metadata_key=topic.metadata_key,
            partitions=[_from_partition(partition, keys) for partition in topic.partitions],
        )
        for topic in manifest.topics
    ]
    return _Manifest(
        cluster_id=manifest.cluster_id,
        incarnation=manifest.incarnation,
        position=manifest.position,
        written_ms=manifest.written_ms,
        topics=topics,
        keys=list(keys),
    )


def _seal(wire: _Manifest) -> bytes:
    frame = bytes(cramjam.zstd.compress(_encoder.encode(wire), level=ZSTD_LEVEL))
    return _HEADER.pack(FORMAT_VERSION, crc32c(frame)) + frame


def decode_manifest(data: bytes) -> TailManifest:
    """The manifest of the object's bytes. Raises `TailUnreadable`."""
    if not data or data[0] != FORMAT_VERSION:
        raise TailUnreadable(
            f"the tail manifest has format {data[:1].hex() or 'none'}, this program reads {FORMAT_VERSION}: "
            "the reader's version of Penstock must not be older than the broker's"
        )
    frame = memoryview(data)[_HEADER.size :]
    # A store may return an object that is half overwritten. Stored bytes are checked before they are decoded (safety
    # rule S20).
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[1] != crc32c(frame):
        raise TailUnreadable("the tail manifest is damaged, its checksum is wrong: read it again")
    try:
        wire = _decoder.decode(memoryview(cramjam.zstd.decompress(frame)))
        return TailManifest(
            cluster_id=wire.cluster_id,
            incarnation=wire.incarnation,
            position=Position(wire.position),
            written_ms=Milliseconds(wire.written_ms),
            topics=tuple(_to_topic(topic, wire.keys) for topic in wire.topics),
        )
    except (cramjam.DecompressionError, AssertionError, *DAMAGE) as error:  # safety rule S20
        raise TailUnreadable(f"the tail manifest cannot be read: {error!r}") from error


def _from_partition(partition: TailPartition, keys: dict[str, int]) -> _Partition:
    assert not partition.chunks or partition.chunks.offset_first == partition.archived_end, "no gap after the archive"
    *columns, checksums = partition.chunks.columns(keys)
    return _Partition(
        log_start=partition.log_start,
        archived_end=partition.archived_end,
        last_stable=partition.last_stable,
        chunks=[memoryview(column.tobytes()) for column in columns] if partition.chunks else [],
        aborted=_columns(partition.aborted) or [],
        checksums=memoryview(array("I", checksums).tobytes() if any(checksums) else b""),
        without_rows=_columns(partition.without_rows),
    )


def _to_topic(wire: _ManifestTopic, keys: Sequence[str]) -> TailTopic:
    return TailTopic(
        name=wire.name,
        topic_id=TopicId(wire.topic_id),
        metadata_key=wire.metadata_key,
        partitions=tuple(_to_partition(partition, keys) for partition in wire.partitions),
    )


def _to_partition(wire: _Partition, keys: Sequence[str]) -> TailPartition:
    archived_end = Offset(wire.archived_end)
    columns = [_integers(column) for column in wire.chunks]
    if columns:
        checksums = array("I")
        checksums.frombytes(wire.checksums)
        columns.append(array("q", checksums or [0] * len(columns[0])))
    aborted = [_integers(column) for column in wire.aborted]
    return TailPartition(
        log_start=Offset(wire.log_start),
        archived_end=archived_end,
        last_stable=Offset(wire.last_stable),
        chunks=TailChunks(offset_first=archived_end, keys=keys, columns=columns) if columns else TailChunks(),
        aborted=tuple(
            AbortedExtent(ProducerId(producer_id), Offset(first), Offset(marker))
            for producer_id, first, marker in zip(*aborted, strict=True)
        ),
        without_rows=None if wire.without_rows is None else _pairs(wire.without_rows),
    )


def _columns(rows: Sequence[tuple[int, ...]] | None) -> list[memoryview] | None:
    return None if rows is None else [memoryview(array("q", column).tobytes()) for column in zip(*rows, strict=True)]


def _pairs(columns: Sequence[memoryview]) -> tuple[tuple[int, int], ...]:
    return tuple((first, end) for first, end in zip(*map(_integers, columns), strict=True))


def _integers(column: memoryview) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(column)
    return numbers
