"""The bytes of a pack: many objects, one after the other, in one file of the embedded store.

Rule: pure. A pack begins with its number and a nonce; every record repeats the nonce. No producer can guess it, so
bytes that an earlier use of the file left behind are never taken for a record. Integers are little-endian.
The file is called by the number in hexadecimal digits: a count of packs in its upper half, and in its lower half the
first bytes of the nonce, so that no pack is called as one that was moved away.

    pack    magic 8 | number u64 | nonce 16 | crc32c u32 of these | padding 4
    record  magic 4 | crc32c u32 of the fields after it but the state, and of the key | nonce 16 | payload bytes u64 |
            modified ms i64 | payload crc32c u32 | key bytes u16 | state u8 | group u8 | key | payload | padding to 8

The state alone is ever changed in place: an object that is deleted is marked, not cut out. The group byte is 0xff in
the first record of each write: everything before that record was synced before it was written. It is 0x07 in the
others, and 0 in all records of packs of before there were marks. A record without a key and payload ends the pack:
nothing was written behind it. State and group are under no checksum, and read as what most of their bits say, so that
no single bit changes one. Programs that know no 0x07 take it for 0.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from storage.keys import KEY_BYTES_MAX

PACK_HEADER = struct.Struct("<8sQ16sI4x")
RECORD_HEADER = struct.Struct("<4sI16sQqIHBB")
PACK_HEADER_BYTES = PACK_HEADER.size
RECORD_HEADER_BYTES = RECORD_HEADER.size
NONCE_BYTES = 16
RECORD_BYTES_READ = RECORD_HEADER_BYTES + KEY_BYTES_MAX
"""The bytes that are read to find out what a record is."""
STATE_POSITION = RECORD_HEADER_BYTES - 2
"""The offset of the state, within a record."""
LIVE, DEAD = b"L", b"\xb3"
NUMBERS_END = 0xFFFF_FFFF_0000_0000
"""Files with this number, or a higher one, were given it by hand: no pack could follow them."""

_PACK_MAGIC = b"PNSTPACK"
_RECORD_MAGIC = b"PREC"
_NONCE_FIRST = _CRC_FIRST = 8
"""Where the bytes under a record's checksum begin."""
_ALIGNMENT = 8
_RANDOM_BITS = 32
_COUNTED_NUMBERS_END = 1 << 24
"""Packs of before names were random were counted from 0, and have any nonce (ADR 30)."""
_GROUP_FIRST, _GROUP_NEXT, _GROUP_UNMARKED = 0xFF, 0x07, 0x00
_MAJORITY_BITS = 4
_DAMAGED_BITS = 16
"""Nonces of two packs differ in about 64 bits of 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRecord:
    """Where a record's payload lies, counted from the record's first byte, and what is known of it."""

    key: str
    payload_first: int
    payload_bytes: int
    payload_crc: int
    modified_ms: int
    is_live: bool
    is_group_first: bool = False
    """Whether everything before it was synced before it was written."""
    is_marked: bool = True
    """Whether the first record of each write of its pack is marked as such."""

    @property
    def is_end(self) -> bool:
        """Whether this is no object, and the pack ends with it."""
        return not self.key

    @property
    def record_bytes(self) -> int:
        """Up to the next record."""
        return _aligned(self.payload_first + self.payload_bytes)


class PackHeader(NamedTuple):
    """The header of a pack."""

    number: int
    nonce: bytes


def pack_number(highest: int, nonce: bytes) -> int:
    """The number of the pack that follows the one of the number `highest`, -1 where there is none."""
    return ((highest >> _RANDOM_BITS) + 1) << _RANDOM_BITS | _random_part(nonce)


def is_named_after(number: int, nonce: bytes) -> bool:
    """Whether `number` was given to the pack of `nonce`, at random."""
    return number % (1 << _RANDOM_BITS) == _random_part(nonce)


def encode_pack_header(number: int, nonce: bytes) -> bytes:
    fields = PACK_HEADER.pack(_PACK_MAGIC, number, nonce, 0)
    return PACK_HEADER.pack(_PACK_MAGIC, number, nonce, crc32c(fields[: PACK_HEADER_BYTES - 8]))


def read_pack_header(header: bytes) -> PackHeader | None:
    """The header in the first bytes of a file; None where they are not those of a pack, or unreadable."""
    if len(header) < PACK_HEADER_BYTES:
        return None
    _, number, nonce, _ = PACK_HEADER.unpack_from(header)
    return PackHeader(number, nonce) if header[:PACK_HEADER_BYTES] == encode_pack_header(number, nonce) else None


def read_nonce(header: bytes, number: int) -> bytes | None:
    """The nonce of the pack `number`; None where these are not its first bytes."""
    pack_header = read_pack_header(header)
    return pack_header.nonce if pack_header is not None and pack_header.number == number else None


def encode_record_header(
    key: str,
    nonce: bytes,
    payload_bytes: int,
    payload_crc: int,
    modified_ms: int,
    *,
    is_live: bool = True,
    is_group_first: bool = False,
) -> bytes:
    """The bytes before the payload: header and key."""
    name = key.encode()
    state = LIVE[0] if is_live else DEAD[0]
    group = _GROUP_FIRST if is_group_first else _GROUP_NEXT
    values = (nonce, payload_bytes, modified_ms, payload_crc, len(name), state, group)
    crc = _crc(RECORD_HEADER.pack(_RECORD_MAGIC, 0, *values), name)
    return RECORD_HEADER.pack(_RECORD_MAGIC, crc, *values) + name


def encode_end(nonce: bytes) -> bytes:
    """The record that ends a pack. Programs that do not know it take it for a deleted object."""
    return encode_record_header("", nonce, 0, crc32c(b""), 0, is_live=False, is_group_first=True)


def padding(record_bytes: int) -> bytes:
    """The padding after header, key and payload of `record_bytes` together."""
    return bytes(_aligned(record_bytes) - record_bytes)


def read_record(buffer: bytes, nonce: bytes) -> PackRecord | None:
    """The record whose header and key `buffer` begins with; None where there is none of this pack's."""
    if len(buffer) < RECORD_HEADER_BYTES:
        return None
    fields = RECORD_HEADER.unpack_from(buffer)
    magic, crc, record_nonce, payload_bytes, modified_ms, payload_crc, key_bytes, state, group = fields
    payload_first = RECORD_HEADER_BYTES + key_bytes
    if magic != _RECORD_MAGIC or record_nonce != nonce or len(buffer) < payload_first:
        return None
    name = buffer[RECORD_HEADER_BYTES:payload_first]
    group_meant = _GROUPS[int(group)]
    if crc != _crc(buffer, name):
        return None
    return PackRecord(
        key=name.decode(errors="replace"),  # of a pack without a header, bytes of a producer may have the checksum
        payload_first=payload_first,
        payload_bytes=payload_bytes,
        payload_crc=payload_crc,
        modified_ms=modified_ms,
        is_live=_differing_bits(state, DEAD[0]) >= _MAJORITY_BITS,
        is_group_first=group_meant == _GROUP_FIRST,
        is_marked=group_meant != _GROUP_UNMARKED,
    )


def next_record(buffer: bytes, nonce: bytes, first: int = 0) -> int | None:
    """Where the next record of this pack begins, at `first` or behind it; None where `buffer` has none.

    `buffer` begins where a record could begin.
    """
    at = buffer.find(nonce, first + _NONCE_FIRST)
    while at >= 0:
        position = at - _NONCE_FIRST
        if position % _ALIGNMENT == 0 and read_record(buffer[position : position + RECORD_BYTES_READ], nonce):
            return position
        at = buffer.find(nonce, at + 1)
    return None


def resembles_record(buffer: bytes, nonce: bytes) -> bool:
    """Whether `buffer` begins with what may have been a record of this pack, a few bits of which have changed."""
    candidate = buffer[_NONCE_FIRST : _NONCE_FIRST + NONCE_BYTES]
    return len(candidate) == NONCE_BYTES and _differing_bits(_number(candidate), _number(nonce)) <= _DAMAGED_BITS


def is_marked_dead(buffer: bytes) -> bool:
    """Whether the record header that `buffer` begins with, readable or not, says that the object is deleted."""
    return buffer[STATE_POSITION : STATE_POSITION + 1] == DEAD


def nonces_in(buffer: bytes, number: int) -> Iterator[bytes]:
    """The nonces of the records in `buffer` that may be those of the pack `number`, in their order.

    A producer may have written what looks like a record: a nonce is believed only if it fits the number.
    """
    position = buffer.find(_RECORD_MAGIC)
    while position >= 0:
        nonce = buffer[position + _NONCE_FIRST : position + _NONCE_FIRST + NONCE_BYTES]
        is_own = position % _ALIGNMENT == 0 and (is_named_after(number, nonce) or number < _COUNTED_NUMBERS_END)
        if is_own and read_record(buffer[position : position + RECORD_BYTES_READ], nonce) is not None:
            yield nonce
        position = buffer.find(_RECORD_MAGIC, position + 1)


def _random_part(nonce: bytes) -> int:
    return int.from_bytes(nonce[: _RANDOM_BITS // 8], "big")


def _number(nonce: bytes) -> int:
    return int.from_bytes(nonce, "little")


def _differing_bits(one: int, other: int) -> int:
    return (one ^ other).bit_count()


def _nearest_group(byte: int) -> int:
    return min((_GROUP_FIRST, _GROUP_NEXT, _GROUP_UNMARKED), key=lambda group: _differing_bits(group, byte))


_GROUPS = tuple(map(_nearest_group, range(256)))
"""The meaning of each group byte: any two of the three differ in three bits at least."""


def _crc(header: bytes, name: bytes) -> int:
    return crc32c(name, crc32c(header[_CRC_FIRST:STATE_POSITION]))


def _aligned(count: int) -> int:
    return -count % _ALIGNMENT + count
