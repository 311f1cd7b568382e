"""The bytes of a journal: records of four kinds, one after the other, in files that are used again.

Rule: pure. A file begins with its number, a nonce, and the number of its first write; every record repeats the nonce.
No producer can guess it, so bytes that an earlier use of the file left behind are never taken for a record. Integers
are little-endian. Decision: docs/adr/0048-a-journal-for-the-embedded-broker.md.

    file    header 64 | zeros | the header again, at byte 4096 | records
    header  magic 8 | crc32c u32 of the fields after it | format u32 | number u64 | nonce 16 | first write u64 |
            flags u8 | zeros 15
    record  magic 4 | crc32c u32 of the fields after it but the state, and of the name | nonce 16 | write u64 |
            payload bytes u64 | stamp i64 | payload crc32c u32 | name bytes u16 | index u16 | count u16 | kind u8 |
            state u8 | zeros 4 | name | payload | padding to 8

The header is there twice, as nothing else in the file says what its nonce is: no sector has both. Flag 1 of a header
says that every write before the file's first one was synced before the file was begun, and each of its own before the
next one. All records that were handed over together are one *write*: they have its number, their index in it, and
their count. A write is whole or does not count. The state alone is ever changed in place: an object that is deleted is
marked. It is under no checksum, and read as what most of its bits say, so that no single bit changes it.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from crc32c import crc32c

from storage.keys import KEY_BYTES_MAX

FILE_HEADER: Final = struct.Struct("<8sIIQ16sQB15x")
RECORD_HEADER: Final = struct.Struct("<4sI16sQQqIHHHBB4x")
FORMAT: Final = 2
"""Format 1 was never released: its files had one header, and their records behind it."""
FILE_HEADER_BYTES: Final = FILE_HEADER.size
FILE_HEADER_POSITIONS: Final = (0, 4096)
RECORDS_FIRST: Final = FILE_HEADER_POSITIONS[-1] + FILE_HEADER_BYTES
"""Where the first record of a file begins."""
RECORD_HEADER_BYTES: Final = RECORD_HEADER.size
NONCE_BYTES: Final = 16
RECORD_BYTES_READ: Final = RECORD_HEADER_BYTES + KEY_BYTES_MAX
"""The bytes that are read to find out what a record is."""
STATE_POSITION: Final = 59
"""The offset of the state, within a record."""
LIVE, DEAD = b"L", b"\xb3"
NUMBERS_END: Final = 0x7FFF_FFFF_0000_0000
"""Files with this number, or a higher one, were given it by hand: no file could follow them."""
RECORDS_PER_WRITE_MAX: Final = 0xFFFF
NO_SUCCESSOR: Final = -1
"""The stamp of a record that ends a file behind which no other one was begun."""

_FILE_MAGIC: Final = b"PNSTJRNL"
_RECORD_MAGIC: Final = b"JREC"
_CHECKED: Final = struct.Struct("<16sQQqIHHHB")
"""The fields of a record under its checksum."""
_CRC: Final = struct.Struct("<I")
_LIVE_BYTES, _DEAD_BYTES = LIVE + bytes(4), DEAD + bytes(4)
"""State and zeros."""
_FILE_CRC_FIRST: Final = 12
"""Where the bytes under a file header's checksum begin."""
_NONCE_FIRST = _CRC_FIRST = 8
"""Where the bytes under a record's checksum begin."""
_ALIGNMENT: Final = 8
_RANDOM_BITS: Final = 32
_SYNCED: Final = 1
_MAJORITY_BITS: Final = 4
_DAMAGED_BITS: Final = 16
"""Nonces of two files differ in about 64 bits of 128."""


class RecordKind(IntEnum):
    """The kind of a record's payload."""

    OBJECT = 1
    """An object of the store, which is needed until it is marked as deleted. Name: its key; stamp: when it was put."""
    ENTRY = 2
    """An entry of the journal's owner, which is needed until the owner releases it. Stamp: the owner's."""
    STATE = 3
    """A state of the journal's owner: the newest one counts, and each file begins with it."""
    END = 4
    """The end of a file: nothing behind it counts. Its write is the next one. Stamp: the number of the file that has
    that write, or NO_SUCCESSOR. Index: 1 where that write was synced before; 0 where it was not, or where an older
    program has written it: then the headers of the two files say so."""


_KINDS: Final = frozenset(RecordKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """The header of a file."""

    number: int
    nonce: bytes
    write_first: int
    """Whatever earlier files have from this write on does not count, once this file has a write: its sync failed, or a
    crash has torn it."""
    is_synced: bool
    """Whether every earlier write was synced before the file was begun, and each of its own before the next one."""
    format: int = FORMAT
    """The format of the file's records: a program that does not know it must not judge them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """The header of a record; `payload_first` counts from the record's first byte."""

    kind: RecordKind
    name: str
    stamp: int
    write: int
    index: int
    count: int
    payload_first: int
    payload_bytes: int
    payload_crc: int
    is_live: bool = True

    @property
    def record_bytes(self) -> int:
        """The bytes up to the next record."""
        return aligned(self.payload_first + self.payload_bytes)

    @property
    def is_last_of_write(self) -> bool:
        return self.index == self.count - 1


def file_number(highest: int, nonce: bytes) -> int:
    """The number of the file that follows the one of the number `highest`, -1 where there is none.

    Its lower half is random, so that a file gets the number of one that was moved away once in four thousand million
    cases (ADR 30).
    """
    random_part = int.from_bytes(nonce[: _RANDOM_BITS // 8], "big")
    return ((highest >> _RANDOM_BITS) + 1) << _RANDOM_BITS | random_part


def encode_file_header(header: FileHeader) -> bytes:
    values = (header.format, header.number, header.nonce, header.write_first, _SYNCED if header.is_synced else 0)
    fields = FILE_HEADER.pack(_FILE_MAGIC, 0, *values)
    return FILE_HEADER.pack(_FILE_MAGIC, crc32c(fields[_FILE_CRC_FIRST:]), *values)


def file_beginning(header: FileHeader) -> bytes:
    """The bytes before the first record: the header, twice."""
    encoded = encode_file_header(header)
    return encoded.ljust(FILE_HEADER_POSITIONS[-1], b"\0") + encoded


def read_file_header(content: bytes) -> FileHeader | None:
    """The header in these bytes; None where they are not that of a journal's file, or unreadable."""
    if len(content) < FILE_HEADER_BYTES:
        return None
    _, _, version, number, nonce, write_first, flags = FILE_HEADER.unpack_from(content)
    header = FileHeader(
        number=number, nonce=nonce, write_first=write_first, is_synced=bool(flags & _SYNCED), format=version
    )
    return header if content[:FILE_HEADER_BYTES] == encode_file_header(header) else None


def encode_record_header(record: JournalRecord, nonce: bytes) -> bytes:
    """The bytes before the payload: header and name."""
    name = record.name.encode()
    checked = _CHECKED.pack(
        nonce,
        record.write,
        record.payload_bytes,
        record.stamp,
        record.payload_crc,
        len(name),
        record.index,
        record.count,
        record.kind,
    )
    crc = crc32c(name, crc32c(checked))
    return b"".join((_RECORD_MAGIC, _CRC.pack(crc), checked, _LIVE_BYTES if record.is_live else _DEAD_BYTES, name))


def padding(record_bytes: int) -> bytes:
    """The padding after header, name and payload of `record_bytes` together."""
    return bytes(aligned(record_bytes) - record_bytes)


def aligned(count: int) -> int:
    """The multiple of eight that is at least `count`: records begin at such positions."""
    return -count % _ALIGNMENT + count


def read_record(buffer: bytes, nonce: bytes) -> JournalRecord | None:
    """The record whose header and name `buffer` begins with; None where there is none of this file's."""
    if len(buffer) < RECORD_HEADER_BYTES:
        return None
    fields = RECORD_HEADER.unpack_from(buffer)
    magic, crc, record_nonce, write, payload_bytes, stamp, payload_crc, name_bytes, index, count, kind, state = fields
    payload_first = RECORD_HEADER_BYTES + name_bytes
    if magic != _RECORD_MAGIC or record_nonce != nonce or len(buffer) < payload_first:
        return None
    name = buffer[RECORD_HEADER_BYTES:payload_first]
    if crc != _crc(buffer, name) or kind not in _KINDS:
        return None
    return JournalRecord(
        kind=RecordKind(kind),
        name=name.decode(),
        stamp=stamp,
        write=write,
        index=index,
        count=count,
        payload_first=payload_first,
        payload_bytes=payload_bytes,
        payload_crc=payload_crc,
        is_live=_is_live(state),
    )


def next_record(buffer: bytes, nonce: bytes, first: int = 0) -> int | None:
    """Where the next record of this file begins, at `first` or behind it; None where `buffer` has none.

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
    """Whether `buffer` begins with what may have been a record of this file, a few bits of which have changed."""
    candidate = buffer[_NONCE_FIRST : _NONCE_FIRST + NONCE_BYTES]
    differing = int.from_bytes(candidate, "little") ^ int.from_bytes(nonce, "little")
    return len(candidate) == NONCE_BYTES and differing.bit_count() <= _DAMAGED_BITS


def _is_live(state: int) -> bool:
    return (state ^ DEAD[0]).bit_count() >= _MAJORITY_BITS


def _crc(header: bytes, name: bytes) -> int:
    return crc32c(name, crc32c(header[_CRC_FIRST:STATE_POSITION]))
