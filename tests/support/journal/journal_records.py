"""The records of a file of a journal, found by the description of the format alone (`storage.embedded.journal.format`).

Rule: nothing is imported that reads or writes journals, so that an error there does not agree with itself here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

OBJECT = 1
"""The kind of a record that is an object of the store."""
_FILE = struct.Struct("<8sIIQ16sQB15x")
_RECORD = struct.Struct("<4sI16sQQqIHHHBB4x")
_RECORDS_FIRST = 4096 + _FILE.size


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record; positions are the file's."""

    kind: int
    record_first: int
    payload_first: int
    payload_end: int


def stored_records(content: bytes) -> Iterator[StoredRecord]:
    """The records of a file that is whole, in their order."""
    magic, _, _, _, nonce, _, _ = _FILE.unpack_from(content)
    assert magic == b"PNSTJRNL"
    position = _RECORDS_FIRST
    while position + _RECORD.size <= len(content):
        fields = _RECORD.unpack_from(content, position)
        magic, _, record_nonce, _, payload_bytes, _, _, name_bytes, _, _, kind, _ = fields
        if (magic, record_nonce) != (b"JREC", nonce):
            return
        payload_first = position + _RECORD.size + name_bytes
        payload_end = payload_first + payload_bytes
        yield StoredRecord(kind=kind, record_first=position, payload_first=payload_first, payload_end=payload_end)
        position = payload_end + -payload_end % 8
