"""One write as bytes, and where its records lie."""

import pytest

from storage.embedded.journal.format import (
    RECORD_HEADER_BYTES,
    RECORDS_FIRST,
    RecordKind,
    read_record,
)
from storage.embedded.journal.records import JournalFile
from storage.embedded.journal.writes import NewRecord, encode_end, encode_write
from tests.support.journal.journal_bytes import NONCE


def file_at(end: int) -> JournalFile:
    return JournalFile(number=3, own_number=3, nonce=NONCE, is_synced=True, end=end, write_end=5)


def test_records_follow_each_other() -> None:
    new = [
        NewRecord(RecordKind.OBJECT, [b"pay", memoryview(b"load")], name="a", stamp=7),
        NewRecord(RecordKind.ENTRY, [], stamp=8),
    ]
    parts, (stored, entry) = encode_write(file_at(RECORDS_FIRST), 5, new)
    content = b"".join(parts)
    assert (stored.record_first, stored.payload_first) == (RECORDS_FIRST, RECORDS_FIRST + RECORD_HEADER_BYTES + 1)
    payload_first = stored.payload_first - RECORDS_FIRST
    assert content[payload_first : payload_first + stored.payload_bytes] == b"payload"
    assert (entry.record_first, entry.end) == (stored.end, RECORDS_FIRST + len(content))
    records = [read_record(content[location.record_first - RECORDS_FIRST :], NONCE) for location in (stored, entry)]
    assert [(record.kind, record.index, record.count, record.write) for record in records if record is not None] == [
        (RecordKind.OBJECT, 0, 2, 5),
        (RecordKind.ENTRY, 1, 2, 5),
    ]
    assert [(location.stamp, location.write) for location in (stored, entry)] == [(7, 5), (8, 5)]


def test_another_write_follows_the_one_before() -> None:
    parts, (location,) = encode_write(file_at(640), 6, [NewRecord(RecordKind.STATE, [b"state"])])
    assert location.record_first == 640
    record = read_record(b"".join(parts), NONCE)
    assert record is not None
    assert record.write == 6


def test_a_write_without_records_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="0 records"):
        encode_write(file_at(RECORDS_FIRST), 5, [])


def test_an_end_names_the_next_write_and_the_next_file() -> None:
    record = read_record(encode_end(NONCE, 6, successor=12, is_synced=True), NONCE)
    assert record is not None
    assert (record.kind, record.write, record.stamp, record.payload_bytes) == (RecordKind.END, 6, 12, 0)
