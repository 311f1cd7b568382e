"""Kafka's compression codecs, over whole byte strings.

Rule: decompression is bounded: it stops at the bytes the caller allows, and takes no more memory than a small multiple
of what it has unpacked so far. What comes out is exactly what the bytes say, or `DoesNotUnpack`.
Differs from Kafka: what does not unpack is INVALID_RECORD (Kafka: UNKNOWN_SERVER_ERROR), which is as final, and true.

The codecs (cramjam) release the interpreter's lock while they work; snappy does so block by block.

Framings: snappy is written as the blocks of snappy-java (org.xerial), like Kafka's Java; a raw block is read too.
lz4 is the frame format with independent blocks. Source: org.apache.kafka.common.compress (Kafka 4.3).

What stands behind a stream is read as Java's clients read it, since they read the records in the end: gzip's members
(java.util.zip.GZIPInputStream), snappy's and zstd's streams are one; of lz4 the first frame alone counts
(Lz4BlockInputStream); bytes that begin no further stream are skipped behind gzip and lz4, up to three behind snappy.
"""

import contextlib
import struct
import zlib
from enum import IntEnum
from typing import Final, assert_never

import cramjam
import numpy as np

from protocol.errors import DoesNotUnpack, ErrorCode
from protocol.wire import INT32, Buffer


class Compression(IntEnum):
    """A batch's codec: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_OUTPUT_BYTES_FIRST: Final = 64 * 1024
EXPANSION_USUAL: Final = 8
"""Records seldom unpack to more than so many times their compressed bytes."""
_EXPANSION_STEP: Final = 8
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + INT32.pack(1) + INT32.pack(1)
"""Magic, version, lowest version that can read it."""
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAG_INDEPENDENT: Final = 0x20
_LZ4_FLAG_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_FLAG_CONTENT_SIZE: Final = 0x08
_LZ4_FLAG_CONTENT_CHECKSUM: Final = 0x04
_LZ4_FLAGS_RESERVED: Final = 0x03
"""One of them is the dictionary's in later versions of the format; Java rejects both."""
_LZ4_STORED: Final = 1 << 31
_LZ4_BLOCK_SIZE: Final = struct.Struct("<I")
_LZ4_LEVEL: Final = 1
"""The fast mode; from 3 on it is several times slower."""
_ZSTD_LEVEL: Final = 3
"""Kafka's default, compression.zstd.level."""
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
"""With the only method there is."""
_GZIP_BYTES_BEHIND_SKIPPED: Final = 18
"""Behind a member Java does not look at less than one more byte: no member is smaller."""
_GZIP_WBITS: Final = 31
_GZIP_PART_BYTES: Final = 8 * 1024
"""The bytes that are unpacked at a time: zlib copies what stands behind a member, and there may be many small ones."""


def compress(kind: Compression, data: Buffer) -> Buffer:
    """`data` in the codec's framing that every Kafka client reads."""
    match kind:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return memoryview(cramjam.gzip.compress(data))
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            # Blocks that refer to each other are rejected by Java's KafkaLZ4BlockInputStream.
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return memoryview(compressor.finish())
        case Compression.ZSTD:
            return memoryview(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
        case _:
            assert_never(kind)


def decompress(
    kind: Compression,
    data: Buffer,
    bytes_max: int,
    *,
    is_every_frame: bool = False,
    output: memoryview | None = None,
) -> memoryview:
    """The bytes that `data` unpacks to. Raises `DoesNotUnpack`: malformed, or more than `bytes_max` bytes.

    is_every_frame: of lz4, all frames, which must fill `data`; else the first one, as clients read it.
    output: at most `bytes_max` bytes, of which the result is the front where it fits; else it has memory of its own.
    """
    match kind:
        case Compression.NONE:
            if len(data) > bytes_max:
                raise _too_large(bytes_max)
            return memoryview(data)
        case Compression.SNAPPY:
            return _decompress_snappy(data, bytes_max, output)
        case Compression.LZ4:
            frame_bytes = lz4_frame_bytes(memoryview(data))
            return _decompress_bounded(kind, data if is_every_frame else data[:frame_bytes], bytes_max, output)
        case Compression.GZIP | Compression.ZSTD:
            return _decompress_bounded(kind, data, bytes_max, output)
        case _:
            assert_never(kind)


def _decompress_bounded(kind: Compression, data: Buffer, bytes_max: int, output: memoryview | None) -> memoryview:
    """Unpack into a buffer that grows when it is too small: the sizes in frames are not reliable.

    Steps are wide, so all attempts together cost little more than the last one.
    """
    if output is not None:
        with contextlib.suppress(cramjam.DecompressionError):
            return output[: _decompress_into(kind, data, output)]
    capacity = min(bytes_max, max(_OUTPUT_BYTES_FIRST, EXPANSION_USUAL * len(data)))
    while True:
        output = np.empty(capacity, dtype=np.uint8).data  # memory is only taken as it is written
        try:
            return output[: _decompress_into(kind, data, output)]
        except cramjam.DecompressionError as error:
            if capacity == bytes_max:
                del output  # full of what was unpacked: a second one beside it would take as much again
                if kind is Compression.GZIP and (members := _gunzip(memoryview(data), bytes_max)) is not None:
                    return members
                raise _malformed(kind.name.lower(), f"{error} (at most {bytes_max} bytes are unpacked)") from error
        capacity = min(bytes_max, capacity * _EXPANSION_STEP)


def _decompress_into(kind: Compression, data: Buffer, output: memoryview) -> int:
    if kind is Compression.GZIP:
        return cramjam.gzip.decompress_into(data, output)
    if kind is Compression.LZ4:
        return cramjam.lz4.decompress_into(data, output)
    return cramjam.zstd.decompress_into(data, output)


def _gunzip(data: memoryview, bytes_max: int) -> memoryview | None:
    """The members at the front, with what stands behind them skipped; None where a member is damaged, or where all of
    them unpack to more than `bytes_max` bytes."""
    output, position = bytearray(), 0
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            while not member.eof:
                part = data[position : position + _GZIP_PART_BYTES]
                # One byte more than allowed: it shows that the output is too large, and not just large enough.
                output += member.decompress(part, bytes_max - len(output) + 1)
                if len(output) > bytes_max or not part:
                    return None
                position += len(part) - len(member.unused_data)
        except zlib.error:
            return None
        behind = data[position:]
        if len(behind) <= _GZIP_BYTES_BEHIND_SKIPPED or bytes(behind[:3]) != _GZIP_MAGIC:
            return memoryview(output)


def lz4_frame_bytes(data: memoryview) -> int:
    """The size of the frame that `data` begins with. Raises `DoesNotUnpack`."""
    is_frame = len(data) >= 7 and bytes(data[:4]) == _LZ4_MAGIC
    flags = data[4] if is_frame else 0
    if not flags & _LZ4_FLAG_INDEPENDENT or flags & _LZ4_FLAGS_RESERVED:
        # Blocks that refer to each other are rejected by Java's Lz4BlockInputStream.
        raise _malformed("lz4", "not a frame of independent blocks")
    checksum_bytes = 4 if flags & _LZ4_FLAG_BLOCK_CHECKSUMS else 0
    position = 7 + (8 if flags & _LZ4_FLAG_CONTENT_SIZE else 0)
    while position + 4 <= len(data):
        (block,) = _LZ4_BLOCK_SIZE.unpack_from(data, position)
        position += 4
        if block == 0:  # the end mark
            return position + (4 if flags & _LZ4_FLAG_CONTENT_CHECKSUM else 0)
        position += (block & ~_LZ4_STORED) + checksum_bytes
    raise _malformed("lz4", f"a frame that does not end within {len(data)} bytes")


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for first in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[first : first + _XERIAL_BLOCK_BYTES]))
        parts += (INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bytes_max: int, output: memoryview | None) -> memoryview:
    blocks = _snappy_blocks(memoryview(data))
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > bytes_max:
            raise _too_large(bytes_max)
        if output is None or len(output) < sum(sizes):
            output = np.empty(sum(sizes), dtype=np.uint8).data
        output = output[: sum(sizes)]
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            # A block that ends before the size it declares is an error of the codec.
            cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise _malformed("snappy", str(error)) from error
    return output


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks: those of the xerial framing (several streams may follow each other), else the whole input."""
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [view]
    blocks: list[memoryview] = []
    position = 0
    while position < len(view):
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(view):
            break  # as SnappyInputStream.hasNextChunk does
        (block_bytes,) = INT32.unpack_from(view, position)
        position += 4
        if not 0 <= block_bytes <= len(view) - position:
            raise _malformed("snappy", f"a block of {block_bytes} bytes where {len(view) - position} remain")
        blocks.append(view[position : position + block_bytes])
        position += block_bytes
    return blocks


def _malformed(codec: str, reason: str) -> DoesNotUnpack:
    return DoesNotUnpack(ErrorCode.invalid_record, f"records do not unpack as {codec}: {reason}")


def _too_large(bytes_max: int) -> DoesNotUnpack:
    return DoesNotUnpack(ErrorCode.invalid_record, f"records unpack to more than {bytes_max} bytes")
