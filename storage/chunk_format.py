"""The bytes of an intake object: chunks back to back between a header and a footer that describes them.

Rule: an object is readable without the ledger, and old versions stay readable indefinitely (golden files in
`tests/unit/storage/golden/`). Payloads are never joined: encoding returns buffers to be written one by one.

Layout, every number big-endian:

    header    magic (8), version u32
    chunks    record batches as the producers sent them, one run per (topic, partition)
    footer    session i64, number i64, chunk count u32,
              then per chunk: topic id (16), partition i32, byte_first u64, byte_count u64, crc32c u32
    trailer   footer bytes u32, version u32, crc32c u32 of all of footer and trailer before it, magic (8)

A reader starts at the end: the last `TAIL_BYTES_HINT` bytes hold the whole footer of nearly every object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.object_store import Buffer

FORMAT_VERSION = 1
"""The version that is written."""
MAGIC = b"PNSTKOBJ"
TAIL_BYTES_HINT = 64 * 1024

_HEADER = Struct(">8sI")
_FOOTER_START = Struct(">qqI")
_CHUNK = Struct(">16siQQI")
_TRAILER = Struct(">III8s")
_TRAILER_CHECKED_BYTES = 8

HEADER_BYTES = _HEADER.size
TRAILER_BYTES = _TRAILER.size
FOOTER_BYTES_PER_CHUNK = _CHUNK.size


class ChunkFormatError(Exception):
    """The bytes are not an intake object, or are damaged. The message says what was wrong, with the value."""


class TailTooShort(ChunkFormatError):
    """The footer begins before the given tail: read the last `bytes_needed` bytes of the object and ask again."""

    def __init__(self, bytes_needed: int) -> None:
        super().__init__(f"the footer needs the last {bytes_needed} bytes of the object")
        self.bytes_needed = bytes_needed


class ChunkParts(NamedTuple):
    """A chunk to be written: the concatenation of `parts` is one partition's run of whole record batches."""

    topic_id: TopicId
    partition: PartitionIndex
    parts: Sequence[Buffer]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedObject:
    """The object to put: the concatenation of `parts`. `byte_firsts` says where each chunk begins, in the order
    given."""

    parts: list[Buffer]
    byte_firsts: list[int]
    object_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterChunk:
    """A chunk as the footer describes it: bytes `[byte_first, byte_first + byte_count)` of the object."""

    topic_id: TopicId
    partition: PartitionIndex
    byte_first: int
    byte_count: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDescription:
    """All that a footer says: who wrote the object as its n-th, in which version, and the chunks in order of bytes."""

    version: int
    session: SessionId
    number: ObjectNumber
    chunks: list[FooterChunk]


def encode_object(session: SessionId, number: ObjectNumber, chunks: Sequence[ChunkParts]) -> EncodedObject:
    """The object of `chunks`, in their order. No payload is copied."""
    parts: list[Buffer] = [_HEADER.pack(MAGIC, FORMAT_VERSION)]
    byte_firsts: list[int] = []
    footer = bytearray(_FOOTER_START.pack(session, number, len(chunks)))
    position = HEADER_BYTES
    for chunk in chunks:
        checksum = 0
        byte_first = position
        for part in chunk.parts:
            checksum = crc32c(part, checksum)
            position += len(part)
        parts.extend(chunk.parts)
        byte_firsts.append(byte_first)
        footer += _CHUNK.pack(chunk.topic_id, chunk.partition, byte_first, position - byte_first, checksum)
    footer_bytes = len(footer)
    footer += _TRAILER.pack(footer_bytes, FORMAT_VERSION, 0, MAGIC)
    checksum = crc32c(memoryview(footer)[: footer_bytes + _TRAILER_CHECKED_BYTES])
    _TRAILER.pack_into(footer, footer_bytes, footer_bytes, FORMAT_VERSION, checksum, MAGIC)
    parts.append(bytes(footer))
    return EncodedObject(parts=parts, byte_firsts=byte_firsts, object_bytes=position + len(footer))


def describe_object(tail: Buffer, object_bytes: int) -> ObjectDescription:
    """The chunks by the footer. `tail` is the end of the object, or all of it; `object_bytes` is the object's whole
    size.

    Raises `TailTooShort` where the tail does not hold the footer, else `ChunkFormatError`.
    """
    view = memoryview(tail)
    if object_bytes < HEADER_BYTES + _FOOTER_START.size + TRAILER_BYTES:
        raise ChunkFormatError(f"an object of {object_bytes} bytes is too small to be an intake object")
    if len(view) > object_bytes:
        raise ChunkFormatError(f"a tail of {len(view)} bytes is longer than its object of {object_bytes}")
    if len(view) < TRAILER_BYTES:
        raise TailTooShort(min(object_bytes, TAIL_BYTES_HINT))
    footer_bytes, version, checksum, magic = _read_trailer(view)
    if magic != MAGIC:
        raise ChunkFormatError(f"the object ends with {magic!r} instead of {MAGIC!r}")
    if version != FORMAT_VERSION:
        raise ChunkFormatError(f"version {version} of the object format is not known here: use a newer Penstock")
    rest_bytes = footer_bytes - _FOOTER_START.size
    if rest_bytes < 0 or rest_bytes % _CHUNK.size or HEADER_BYTES + footer_bytes + TRAILER_BYTES > object_bytes:
        raise ChunkFormatError(f"a footer of {footer_bytes} bytes is impossible in an object of {object_bytes}")
    if len(view) < footer_bytes + TRAILER_BYTES:
        raise TailTooShort(footer_bytes + TRAILER_BYTES)
    footer = view[len(view) - footer_bytes - TRAILER_BYTES : len(view) - TRAILER_BYTES + _TRAILER_CHECKED_BYTES]
    actual = crc32c(footer)
    if actual != checksum:
        raise ChunkFormatError(f"the footer's checksum is {actual:#010x} instead of {checksum:#010x}")
    return _read_footer_v1(footer[:footer_bytes], object_bytes - footer_bytes - TRAILER_BYTES)


def read_footer(tail: Buffer, object_bytes: int) -> list[FooterChunk]:
    """The chunks of an object, in order of bytes. Arguments and errors as for `describe_object`."""
    return describe_object(tail, object_bytes).chunks


def check_header(head: Buffer) -> int:
    """The version that an object's first `HEADER_BYTES` bytes announce. Raises `ChunkFormatError`."""
    if len(head) < HEADER_BYTES:
        raise ChunkFormatError(f"{len(head)} bytes are too few for a header of {HEADER_BYTES}")
    magic, version = _read_header(head)
    if magic != MAGIC:
        raise ChunkFormatError(f"the object begins with {magic!r} instead of {MAGIC!r}")
    return version


def check_chunk(run: Buffer, chunk: FooterChunk) -> None:
    """Pass if `run` holds exactly the bytes that were written as `chunk`. Raises `ChunkFormatError`."""
    if len(run) != chunk.byte_count:
        raise ChunkFormatError(f"the chunk at byte {chunk.byte_first} has {len(run)} bytes, not {chunk.byte_count}")
    actual = crc32c(run)
    if actual != chunk.crc32c:
        raise ChunkFormatError(
            f"the chunk at byte {chunk.byte_first} has the checksum {actual:#010x}, not {chunk.crc32c:#010x}"
        )


def _read_header(head: Buffer) -> tuple[bytes, int]:
    magic: bytes
    version: int
    magic, version = _HEADER.unpack_from(head)
    return magic, version


def _read_trailer(view: memoryview) -> tuple[int, int, int, bytes]:
    footer_bytes: int
    version: int
    checksum: int
    magic: bytes
    footer_bytes, version, checksum, magic = _TRAILER.unpack_from(view, len(view) - TRAILER_BYTES)
    return footer_bytes, version, checksum, magic


def _read_footer_v1(footer: memoryview, chunks_end: int) -> ObjectDescription:
    """Version 1 below its checksum: chunks must lie back to back, from the header to the footer."""
    session: int
    number: int
    count: int
    session, number, count = _FOOTER_START.unpack_from(footer)
    rows = footer[_FOOTER_START.size :]
    if count * _CHUNK.size != len(rows):
        raise ChunkFormatError(f"{count} chunks do not fill {len(rows)} bytes of footer")
    chunks: list[FooterChunk] = []
    position = HEADER_BYTES
    for topic_id, partition, byte_first, byte_count, checksum in _CHUNK.iter_unpack(rows):
        if byte_first != position:
            raise ChunkFormatError(f"chunk {len(chunks)} begins at byte {byte_first}, not at {position}")
        chunks.append(
            FooterChunk(
                topic_id=TopicId(topic_id),
                partition=PartitionIndex(partition),
                byte_first=byte_first,
                byte_count=byte_count,
                crc32c=checksum,
            )
        )
        position += byte_count
    if position != chunks_end:
        raise ChunkFormatError(f"the chunks end at byte {position}, the footer begins at {chunks_end}")
    return ObjectDescription(version=1, session=SessionId(session), number=ObjectNumber(number), chunks=chunks)
