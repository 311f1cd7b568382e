"""Compressed streams, written byte by byte as each format's specification says, so that they can be wrong in one way.

Rule: what is compressed stays as it is (stored, literal or raw blocks): framing is what counts here, and no library
decides it. Formats: RFC 1952 (gzip), snappy-java's SnappyOutputStream, LZ4 frame format 1.6, RFC 8878 (zstd).
"""

import struct
import zlib
from collections.abc import Callable, Mapping

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def gzip_stream(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def snappy_stream(data: bytes) -> bytes:
    """Header of snappy-java and one block: its length, then a raw block of one literal of at most 60 bytes each."""
    literals = b"".join(
        bytes([(len(part) - 1) << 2]) + part for part in (data[at : at + 60] for at in range(0, len(data), 60))
    )
    assert len(data) < 1 << 14
    size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    block = size + literals
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block


def lz4_stream(data: bytes) -> bytes:
    """Independent blocks of up to 64 KiB, no checksums; the highest bit says that the block is stored."""
    return b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", len(data) | 1 << 31) + data + b"\0\0\0\0"


def zstd_stream(data: bytes) -> bytes:
    """A single segment that tells its size, of one raw block."""
    assert len(data) < 256
    block_header = struct.pack("<I", len(data) << 3 | 1)[:3]
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(data)]) + block_header + data


Stream = Callable[[bytes], bytes]
STREAMS: Mapping[str, tuple[int, Stream]] = {
    "gzip": (GZIP, gzip_stream),
    "snappy": (SNAPPY, snappy_stream),
    "lz4": (LZ4, lz4_stream),
    "zstd": (ZSTD, zstd_stream),
}


def halves(stream: Stream) -> Stream:
    """Two streams behind each other, cut in the middle of the bytes."""
    return lambda data: stream(data[: len(data) // 2]) + stream(data[len(data) // 2 :])


def followed_by(stream: Stream, more: bytes) -> Stream:
    return lambda data: stream(data) + more


def preceded_by(stream: Stream, more: bytes) -> Stream:
    return lambda data: more + stream(data)


def cut(stream: Stream, count: int) -> Stream:
    return lambda data: stream(data)[:-count]
