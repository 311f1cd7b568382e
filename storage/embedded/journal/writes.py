"""One write to a journal: records that are appended together, and count together or not at all."""

from collections.abc import Sequence

from crc32c import crc32c

from storage.embedded.journal.format import (
    FILE_HEADER_BYTES,
    NO_SUCCESSOR,
    RECORD_HEADER_BYTES,
    RECORDS_PER_WRITE_MAX,
    FileHeader,
    JournalRecord,
    RecordKind,
    aligned,
    encode_file_header,
    encode_record_header,
    padding,
)
from storage.embedded.journal.records import JournalFile, RecordLocation
from storage.object_store import Buffer


class JournalWrite:
    """The records of the write `number`, which go to the end of `file`; the first write begins it with its header."""

    def __init__(self, file: JournalFile, number: int, *, is_synced_before: bool) -> None:
        self._file = file
        self._number = number
        self._is_synced_before = is_synced_before
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
        if not position:
            header = FileHeader(number=file.number, nonce=file.nonce, write_first=file.write_first)
            parts.append(encode_file_header(header))
            position = FILE_HEADER_BYTES
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
            is_synced_before=self._is_synced_before,
        )


def encode_end(nonce: bytes, write_next: int, *, successor: int = NO_SUCCESSOR, is_synced_before: bool) -> bytes:
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
        is_synced_before=is_synced_before,
    )
    return encode_record_header(record, nonce)
