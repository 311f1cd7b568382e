"""Kafka's compression codecs, over whole byte strings.

Rule: decompression is bounded: it stops at the bytes the caller allows, and takes no more memory than a small multiple
of what it has unpacked so far. What comes out is exactly what the bytes say, or `InvalidBatch`.
Differs from Kafka: what does not unpack is INVALID_RECORD (Kafka: UNKNOWN_SERVER_ERROR), which is as final, and true.

The codecs (cramjam) release the interpreter's lock while they work; snappy does so block by block.

Framings: snappy is written as the blocks of snappy-java (org.xerial), like Kafka's Java; a raw block is read too.
lz4 is the frame format with independent blocks. Source: org.apache.kafka.common.compress (Kafka 4.3).
"""

from enum import IntEnum
from typing import Final, assert_never

import cramjam
import numpy as np

from protocol.errors import ErrorCode, InvalidBatch
from protocol.wire import INT32, Buffer


class Compression(IntEnum):
    """A batch's codec: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_OUTPUT_BYTES_FIRST: Final = 64 * 1024
_EXPANSION_USUAL: Final = 8
_EXPANSION_STEP: Final = 8
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + INT32.pack(1) + INT32.pack(1)
"""Magic, version, lowest version that can read it."""
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAG_INDEPENDENT: Final = 0x20
_LZ4_LEVEL: Final = 1
"""The fast mode; from 3 on it is several times slower."""
_ZSTD_LEVEL: Final = 3
"""Kafka's default, compression.zstd.level."""


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
            # Blocks that refer to each other are refused by Java's KafkaLZ4BlockInputStream.
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return memoryview(compressor.finish())
        case Compression.ZSTD:
            return memoryview(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
        case _:
            assert_never(kind)


def decompress(kind: Compression, data: Buffer, bytes_max: int) -> memoryview:
    """What `data` unpacks to. Raises `InvalidBatch` for malformed input, and for more than `bytes_max` bytes."""
    match kind:
        case Compression.NONE:
            if len(data) > bytes_max:
                raise _too_large(bytes_max)
            return memoryview(data)
        case Compression.SNAPPY:
            return _decompress_snappy(data, bytes_max)
        case Compression.LZ4:
            if bytes(data[:4]) != _LZ4_MAGIC or len(data) < 7 or not data[4] & _LZ4_FLAG_INDEPENDENT:
                raise _malformed("lz4", "not a frame of independent blocks")
            return _decompress_bounded(kind, data, bytes_max)
        case Compression.GZIP | Compression.ZSTD:
            return _decompress_bounded(kind, data, bytes_max)
        case _:
            assert_never(kind)


def _decompress_bounded(kind: Compression, data: Buffer, bytes_max: int) -> memoryview:
    """Unpack into a buffer that grows when it is too small: the frames do not tell their size reliably.

    Steps are wide, so all attempts together cost little more than the last one.
    """
    capacity = min(bytes_max, max(_OUTPUT_BYTES_FIRST, _EXPANSION_USUAL * len(data)))
    while True:
        output = np.empty(capacity, dtype=np.uint8).data  # memory is only taken as it is written
        try:
            return output[: _decompress_into(kind, data, output)]
        except cramjam.DecompressionError as error:
            if capacity == bytes_max:
                raise _malformed(kind.name.lower(), f"{error} (at most {bytes_max} bytes are unpacked)") from error
        capacity = min(bytes_max, capacity * _EXPANSION_STEP)


def _decompress_into(kind: Compression, data: Buffer, output: memoryview) -> int:
    if kind is Compression.GZIP:
        return cramjam.gzip.decompress_into(data, output)
    if kind is Compression.LZ4:
        return cramjam.lz4.decompress_into(data, output)
    return cramjam.zstd.decompress_into(data, output)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for first in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[first : first + _XERIAL_BLOCK_BYTES]))
        parts += (INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bytes_max: int) -> memoryview:
    blocks = _snappy_blocks(memoryview(data))
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > bytes_max:
            raise _too_large(bytes_max)
        output = np.empty(sum(sizes), dtype=np.uint8).data
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
            raise _malformed("snappy", "cut within a block's length")
        (block_bytes,) = INT32.unpack_from(view, position)
        position += 4
        if not 0 <= block_bytes <= len(view) - position:
            raise _malformed("snappy", f"a block of {block_bytes} bytes where {len(view) - position} remain")
        blocks.append(view[position : position + block_bytes])
        position += block_bytes
    return blocks


def _malformed(codec: str, reason: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.invalid_record, f"records do not unpack as {codec}: {reason}")


def _too_large(bytes_max: int) -> InvalidBatch:
    return InvalidBatch(ErrorCode.invalid_record, f"records unpack to more than {bytes_max} bytes")
