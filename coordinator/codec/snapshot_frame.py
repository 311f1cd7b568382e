"""The outermost layer of a snapshot object: format version, checksum, compressed state.

Layout: format version (1 byte); a skippable frame of zstd with BLAKE2b of all that follows, 32 bytes; a zstd frame.
Rule (safety rule S20): nothing is decompressed before the checksum was compared. Objects of before have no checksum:
the zstd frame stands first. Programs of before read both, for a decoder of zstd passes over skippable frames; so this
is no new format. No single damaged byte makes an object of one kind look like one of the other.

Specification: RFC 8878, sections 3.1.1 and 3.1.2.
"""

import hashlib
import struct
from typing import Final

from coordinator.codec.snapshot_wire import FORMAT_VERSION
from coordinator.ledger.port import LedgerCorrupt

CHECKSUM_BYTES: Final = 32
_ZSTD_MAGIC: Final = struct.pack("<I", 0xFD2FB528)
_CHECKSUM_HEADER: Final = struct.pack("<II", 0x184D2A50, CHECKSUM_BYTES)
_CHECKSUM_FIRST: Final = 1 + len(_CHECKSUM_HEADER)
_CHECKED_FIRST: Final = _CHECKSUM_FIRST + CHECKSUM_BYTES


def framed(compressed: bytes) -> bytes:
    """A snapshot object of a state in one zstd frame."""
    return b"".join((bytes([FORMAT_VERSION]), _CHECKSUM_HEADER, _checksum_of(compressed), compressed))


def unframed(data: bytes) -> memoryview:
    """The zstd frame of a snapshot object. Raises `LedgerCorrupt` where its checksum does not match, or it has another
    layout.
    """
    if not data or data[0] != FORMAT_VERSION:
        raise LedgerCorrupt(f"a snapshot in format {data[:1].hex() or 'none'}; this program reads {FORMAT_VERSION}")
    if not has_checksum(data):
        return memoryview(data)[1:]
    compressed = memoryview(data)[_CHECKED_FIRST:]
    if not data.startswith(_CHECKSUM_HEADER, 1) or data[_CHECKSUM_FIRST:_CHECKED_FIRST] != _checksum_of(compressed):
        raise LedgerCorrupt("a snapshot's checksum does not match")
    return compressed


def has_checksum(data: bytes) -> bool:
    """Whether a snapshot object is to have one: all but those of before are."""
    return not data.startswith(_ZSTD_MAGIC, 1)


def _checksum_of(compressed: bytes | memoryview) -> bytes:
    return hashlib.blake2b(compressed, digest_size=CHECKSUM_BYTES).digest()
