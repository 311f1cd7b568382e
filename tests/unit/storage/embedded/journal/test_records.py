"""Locations of records as columns."""

from storage.embedded.journal.format import RECORD_HEADER_BYTES, RECORDS_FIRST
from storage.embedded.journal.records import FileFate, JournalFile, LocationColumns, RecordLocation
from tests.support.journal.journal_bytes import NONCE

FILE = JournalFile(number=3, own_number=3, nonce=NONCE, is_synced=True, end=0, write_end=0)


def location(number: int) -> RecordLocation:
    return RecordLocation(
        file=FILE,
        record_first=number * 100,
        payload_first=number * 100 + RECORD_HEADER_BYTES,
        payload_bytes=number,
        payload_crc=0xFFFF_FFFF - number,
        stamp=number * 10,
        write=number,
    )


def test_columns_give_back_the_locations_that_were_not_dropped() -> None:
    columns = LocationColumns()
    for number in range(5):
        columns.append(location(number))
    columns.drop(2)
    assert [columns[row] for row in range(len(columns))] == [location(number) for number in (2, 3, 4)]
    assert list(columns.stamps) == [20, 30, 40]
    columns.drop(0)
    assert columns[1:] == [location(3), location(4)]
    assert columns[-1] == location(4)


def test_columns_are_joined_in_their_order() -> None:
    first, second = LocationColumns(), LocationColumns()
    first.append(location(1))
    second.append(location(2))
    first.extend(second)
    assert list(first) == [location(1), location(2)]


def test_a_fate_only_rises() -> None:
    file = JournalFile(number=3, own_number=3, nonce=NONCE, is_synced=True, end=RECORDS_FIRST, write_end=0)
    file.raise_fate(FileFate.KEEP)
    file.raise_fate(FileFate.REMOVE)
    assert file.fate is FileFate.KEEP
    assert not file.has_writes


def test_the_next_record_begins_at_a_multiple_of_eight() -> None:
    assert location(1).end == 100 + RECORD_HEADER_BYTES + 4
