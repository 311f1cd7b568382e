"""The bytes of a pack: many objects, one after the other, in one file of the embedded store.

Rule: pure. A pack begins with its number and a nonce; every record repeats the nonce, which nobody who sends records
can guess, so that what an earlier use of the file left behind is never taken for a record. Integers are little-endian.

    pack    magic 8 | number u64 | nonce 16 | crc32c u32 of these | padding 4
    record  magic 4 | crc32c u32 of the fields after it but the state, and of the key | nonce 16 | payload bytes u64 |
            modified ms i64 | payload crc32c u32 | key bytes u16 | state u8 | padding 1 | key | payload | padding to 8

The state alone is ever changed in place: an object that is deleted is marked, not cut out. No single bit makes a live
object a dead one.
"""

import struct
from dataclasses import dataclass

from crc32c import crc32c

PACK_HEADER = struct.Struct("<8sQ16sI4x")
RECORD_HEADER = struct.Struct("<4sI16sQqIHBx")
PACK_HEADER_BYTES = PACK_HEADER.size
RECORD_HEADER_BYTES = RECORD_HEADER.size
STATE_POSITION = RECORD_HEADER_BYTES - 2
"""Of the state, within a record."""
LIVE, DEAD = b"L", b"\xb3"

_PACK_MAGIC = b"PNSTPACK"
_RECORD_MAGIC = b"PREC"
_CRC_FIRST = 8
"""Where the bytes under a record's checksum begin."""
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRecord:
    """Where a record's payload lies, counted from the record's first byte, and what is known of it."""

    key: str
    payload_first: int
    payload_bytes: int
    payload_crc: int
    modified_ms: int
    is_live: bool

    @property
    def record_bytes(self) -> int:
        """Up to the next record."""
        return _aligned(self.payload_first + self.payload_bytes)


def encode_pack_header(number: int, nonce: bytes) -> bytes:
    fields = PACK_HEADER.pack(_PACK_MAGIC, number, nonce, 0)
    return PACK_HEADER.pack(_PACK_MAGIC, number, nonce, crc32c(fields[: PACK_HEADER_BYTES - 8]))


def read_nonce(header: bytes, number: int) -> bytes | None:
    """The nonce of the pack `number`; None where these are not its first bytes: it was never begun, or the file is an
    older pack's under a new name."""
    if len(header) < PACK_HEADER_BYTES:
        return None
    nonce: bytes = PACK_HEADER.unpack_from(header)[2]
    return nonce if header[:PACK_HEADER_BYTES] == encode_pack_header(number, nonce) else None


def encode_record_header(key: str, nonce: bytes, payload_bytes: int, payload_crc: int, modified_ms: int) -> bytes:
    """What precedes the payload: header and key."""
    name = key.encode()
    fields = RECORD_HEADER.pack(_RECORD_MAGIC, 0, nonce, payload_bytes, modified_ms, payload_crc, len(name), LIVE[0])
    return (
        RECORD_HEADER.pack(
            _RECORD_MAGIC, _crc(fields, name), nonce, payload_bytes, modified_ms, payload_crc, len(name), LIVE[0]
        )
        + name
    )


def padding(record_bytes: int) -> bytes:
    """What follows header, key and payload of `record_bytes` together."""
    return bytes(_aligned(record_bytes) - record_bytes)


def read_record(buffer: bytes, nonce: bytes) -> PackRecord | None:
    """The record whose header and key `buffer` begins with; None where there is none of this pack's."""
    if len(buffer) < RECORD_HEADER_BYTES:
        return None
    magic, crc, found_nonce, payload_bytes, modified_ms, payload_crc, key_bytes, state = RECORD_HEADER.unpack_from(
        buffer
    )
    payload_first = RECORD_HEADER_BYTES + key_bytes
    if magic != _RECORD_MAGIC or found_nonce != nonce or len(buffer) < payload_first:
        return None
    name = buffer[RECORD_HEADER_BYTES:payload_first]
    if crc != _crc(buffer, name):
        return None
    return PackRecord(
        key=name.decode(),
        payload_first=payload_first,
        payload_bytes=payload_bytes,
        payload_crc=payload_crc,
        modified_ms=modified_ms,
        is_live=state != DEAD[0],
    )


def _crc(header: bytes, name: bytes) -> int:
    return crc32c(name, crc32c(header[_CRC_FIRST:STATE_POSITION]))


def _aligned(count: int) -> int:
    return -count % _ALIGNMENT + count
