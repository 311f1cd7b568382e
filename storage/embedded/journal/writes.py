"""One write to a journal: records that are appended together, and count together or not at all."""

from collections.abc import Sequence

from crc32c import crc32c

from storage.embedded.journal.format import (
    NO_SUCCESSOR,
    RECORD_HEADER_BYTES,
    RECORDS_PER_WRITE_MAX,
    JournalRecord,
    RecordKind,
    aligned,
    encode_record_header,
    padding,
)
from storage.embedded.journal.records import JournalFile, RecordLocation
from storage.object_store import Buffer


class JournalWrite:
    """The records of the write `number`, which go to the end of `file`."""

    def __init__(self, file: JournalFile, number: int) -> None:
        self._file = file
        self._number = number
        self._records: list[tuple[RecordKind, str, int, Sequence[Buffer]]] = []

    def add(self, kind: RecordKind, parts: Sequence[Buffer], *, name: str = "", stamp: int = 0) -> None:
        """Add a record behind the others. `parts` must not change until they are written."""
        self._records.append((kind, name, stamp, parts))

    @property
    def count(self) -> int:
        return len(self._records)

    def encode(self) -> tuple[list[Buffer], list[RecordLocation]]:
        """The bytes, in parts that are not joined, and where each record will lie."""
        assert 0 < len(self._records) <= RECORDS_PER_WRITE_MAX, f"{len(self._records)} records in a write"
        file, position = self._file, self._file.end
        parts: list[Buffer] = []
        locations: list[RecordLocation] = []
        for index, (kind, name, stamp, payload) in enumerate(self._records):
            record = self._record(index, kind, name, stamp, payload)
            header_bytes = encode_record_header(record, file.nonce)
            parts += [header_bytes, *payload, padding(len(header_bytes) + record.payload_bytes)]
            locations.append(
                RecordLocation(
                    file=file,
                    record_first=position,
                    payload_first=position + len(header_bytes),
                    payload_bytes=record.payload_bytes,
                    payload_crc=record.payload_crc,
                    stamp=stamp,
                    write=self._number,
                )
            )
            position += aligned(len(header_bytes) + record.payload_bytes)
        return parts, locations

    def _record(self, index: int, kind: RecordKind, name: str, stamp: int, payload: Sequence[Buffer]) -> JournalRecord:
        payload_bytes = crc = 0
        for part in payload:
            payload_bytes += len(part)
            crc = crc32c(part, crc)
        return JournalRecord(
            kind=kind,
            name=name,
            stamp=stamp,
            write=self._number,
            index=index,
            count=len(self._records),
            payload_first=RECORD_HEADER_BYTES,  # and the name: it is not stored
            payload_bytes=payload_bytes,
            payload_crc=crc,
        )


def encode_end(nonce: bytes, write_next: int, *, successor: int = NO_SUCCESSOR) -> bytes:
    """The record that ends a file behind the write before `write_next`. `successor`: the number of the file behind."""
    record = JournalRecord(
        kind=RecordKind.END,
        name="",
        stamp=successor,
        write=write_next,
        index=0,
        count=1,
        payload_first=RECORD_HEADER_BYTES,
        payload_bytes=0,
        payload_crc=crc32c(b""),
    )
    return encode_record_header(record, nonce)
