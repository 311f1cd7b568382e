"""The bytes of files of a journal, made by hand."""

from collections.abc import Sequence

from storage.embedded.journal.format import RECORDS_FIRST, FileHeader, RecordKind, file_beginning
from storage.embedded.journal.records import JournalFile
from storage.embedded.journal.writes import NewRecord, encode_end, encode_write

NONCE = bytes(range(1, 17))
NUMBER = 3

Part = tuple[RecordKind, str, bytes]


def an_object(key: str, payload: bytes = b"payload") -> Part:
    return RecordKind.OBJECT, key, payload


def an_entry(payload: bytes) -> Part:
    return RecordKind.ENTRY, "", payload


def a_state(payload: bytes) -> Part:
    return RecordKind.STATE, "", payload


def header(write_first: int = 0, *, number: int = NUMBER, nonce: bytes = NONCE, is_synced: bool = True) -> bytes:
    """What a file begins with."""
    return file_beginning(FileHeader(number=number, nonce=nonce, write_first=write_first, is_synced=is_synced))


def a_write(number: int, *records: Part, nonce: bytes = NONCE) -> bytes:
    return b"".join(records_of(number, *records, nonce=nonce))


def records_of(number: int, *records: Part, nonce: bytes = NONCE) -> Sequence[bytes]:
    """The records of a write, each with its padding."""
    file = JournalFile(
        number=NUMBER, own_number=NUMBER, nonce=nonce, is_synced=True, end=RECORDS_FIRST, write_end=number
    )
    new = [NewRecord(kind, [payload], name=name, stamp=1) for kind, name, payload in records]
    parts, locations = encode_write(file, number, new)
    content = b"".join(parts)
    return [content[location.record_first - file.end : location.end - file.end] for location in locations]


def an_end(write_next: int, *, nonce: bytes = NONCE, successor: int = -1, is_synced: bool = True) -> bytes:
    return encode_end(nonce, write_next, successor=successor, is_synced=is_synced)


def flipped(content: bytes, bit: int) -> bytes:
    """The bytes with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
