"""One write to a journal: records that are appended together, and count together or not at all."""

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from storage.embedded.journal.format import (
    NO_SUCCESSOR,
    RECORD_HEADER_BYTES,
    RECORDS_PER_WRITE_MAX,
    JournalRecord,
    RecordKind,
    encode_record_header,
    padding,
)
from storage.embedded.journal.records import JournalFile, RecordLocation, location_of
from storage.embedded.journal.scan import LocatedRecord
from storage.object_store import Buffer


class NewRecord(NamedTuple):
    """The record to write. `parts`, its payload, must not change until it is written."""

    kind: RecordKind
    parts: Sequence[Buffer]
    name: str = ""
    stamp: int = 0


def encode_write(
    file: JournalFile, number: int, records: Sequence[NewRecord]
) -> tuple[list[Buffer], list[RecordLocation]]:
    """The bytes of the write `number`, which go to the end of `file`, in parts that are not joined, and where each
    record will lie."""
    assert 0 < len(records) <= RECORDS_PER_WRITE_MAX, f"{len(records)} records in a write"
    position = file.end
    parts: list[Buffer] = []
    locations: list[RecordLocation] = []
    for index, new in enumerate(records):
        record = _record(new, number, index, len(records))
        header = encode_record_header(record, file.nonce)
        parts += [header, *new.parts, padding(len(header) + record.payload_bytes)]
        locations.append(location_of(LocatedRecord(position=position, record=record), file))
        position = locations[-1].end
    return parts, locations


def encode_end(nonce: bytes, write_next: int, *, is_synced: bool, successor: int = NO_SUCCESSOR) -> bytes:
    """The record that ends a file behind the write before `write_next`. `successor`: the number of the file behind.
    `is_synced`: whether that file's first write was synced before, and everything else."""
    end = _record(NewRecord(RecordKind.END, [], stamp=successor), write_next, int(is_synced), 1)
    return encode_record_header(end, nonce)


def _record(new: NewRecord, write: int, index: int, count: int) -> JournalRecord:
    payload_bytes = crc = 0
    for part in new.parts:
        payload_bytes += len(part)
        crc = crc32c(part, crc)
    return JournalRecord(
        kind=new.kind,
        name=new.name,
        stamp=new.stamp,
        write=write,
        index=index,
        count=count,
        payload_first=RECORD_HEADER_BYTES + len(new.name.encode()),
        payload_bytes=payload_bytes,
        payload_crc=crc,
    )
