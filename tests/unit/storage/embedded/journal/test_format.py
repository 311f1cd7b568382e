"""The bytes of a journal: literal headers, and what no changed bit turns into something else."""

import pytest
from crc32c import crc32c

from storage.embedded.journal.format import (
    DEAD,
    FILE_HEADER_BYTES,
    FILE_HEADER_POSITIONS,
    LIVE,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    RECORDS_FIRST,
    STATE_POSITION,
    FileHeader,
    JournalRecord,
    RecordKind,
    aligned,
    encode_file_header,
    encode_record_header,
    file_beginning,
    file_number,
    next_record,
    padding,
    read_file_header,
    read_record,
    resembles_record,
)
from storage.embedded.readable_bytes import SECTOR_BYTES
from tests.support.journal.journal_bytes import NONCE, a_write, an_entry, flipped

RECORD = JournalRecord(
    kind=RecordKind.OBJECT,
    name="intake/1",
    stamp=1_700_000_000_000,
    write=5,
    index=1,
    count=3,
    payload_first=RECORD_HEADER_BYTES + 8,
    payload_bytes=7,
    payload_crc=crc32c(b"payload"),
)
HEADER = FileHeader(number=0x1_0203_0405, nonce=NONCE, write_first=9, is_synced=True)


class TestFileHeader:
    def test_it_has_64_literal_bytes(self) -> None:
        encoded = encode_file_header(HEADER)
        fields = (
            "02000000"  # format
            "0504030201000000"  # number
            "0102030405060708090a0b0c0d0e0f10"  # nonce
            "0900000000000000"  # first write
            "01"  # flags
        )
        checked = bytes.fromhex(fields) + bytes(15)
        assert encoded == b"PNSTJRNL" + crc32c(checked).to_bytes(4, "little") + checked
        assert len(encoded) == FILE_HEADER_BYTES == 64
        assert read_file_header(encoded + b"more") == HEADER

    def test_a_file_begins_with_it_twice_and_no_sector_has_both(self) -> None:
        encoded = encode_file_header(HEADER)
        assert file_beginning(HEADER) == encoded + bytes(4096 - 64) + encoded
        assert RECORDS_FIRST == 4096 + 64
        assert FILE_HEADER_POSITIONS[1] - FILE_HEADER_POSITIONS[0] >= SECTOR_BYTES

    def test_a_header_with_a_changed_bit_or_that_is_cut_is_none(self) -> None:
        encoded = encode_file_header(HEADER)
        assert read_file_header(encoded[:-1]) is None
        for bit in range(len(encoded) * 8):
            assert read_file_header(flipped(encoded, bit)) is None

    def test_the_format_of_a_newer_program_is_read(self) -> None:
        newer = FileHeader(number=1, nonce=NONCE, write_first=0, is_synced=False, format=3)
        assert read_file_header(encode_file_header(newer)) == newer


class TestNumbers:
    def test_a_number_counts_in_its_upper_half_and_is_random_in_its_lower_one(self) -> None:
        first = file_number(-1, NONCE)
        assert first == 0x0102_0304
        assert file_number(first, bytes(16)) == 1 << 32


class TestRecord:
    def test_it_has_64_literal_bytes_and_its_name(self) -> None:
        encoded = encode_record_header(RECORD, NONCE)
        assert encoded[:4] == b"JREC"
        assert encoded[8:] == (
            NONCE
            + (5).to_bytes(8, "little")
            + (7).to_bytes(8, "little")
            + (1_700_000_000_000).to_bytes(8, "little")
            + crc32c(b"payload").to_bytes(4, "little")
            + b"\x08\0\x01\0\x03\0"  # bytes of the name, index, count
            + b"\x01L\0\0\0\0"  # kind, state
            + b"intake/1"
        )
        assert encoded[4:8] == crc32c(encoded[8:STATE_POSITION] + b"intake/1").to_bytes(4, "little")
        assert read_record(encoded + b"payload", NONCE) == RECORD
        assert RECORD.record_bytes == aligned(len(encoded) + 7) == 80

    def test_a_changed_bit_makes_it_unreadable_or_changes_nothing(self) -> None:
        encoded = encode_record_header(RECORD, NONCE)
        for bit in range(len(encoded) * 8):
            assert read_record(flipped(encoded, bit), NONCE) in (None, RECORD)

    def test_one_that_is_cut_or_of_another_file_is_none(self) -> None:
        encoded = encode_record_header(RECORD, NONCE)
        assert read_record(encoded[:-1], NONCE) is None
        assert read_record(encoded[: RECORD_HEADER_BYTES - 1], NONCE) is None
        assert read_record(encoded, bytes(16)) is None

    def test_a_kind_that_is_not_known_is_none(self) -> None:
        encoded = bytearray(encode_record_header(RECORD, NONCE))
        encoded[58] = 9
        encoded[4:8] = crc32c(encoded[8:STATE_POSITION] + b"intake/1").to_bytes(4, "little")
        assert read_record(bytes(encoded), NONCE) is None

    @pytest.mark.parametrize(("state", "is_live"), [(LIVE, True), (DEAD, False)])
    def test_no_bit_changes_the_state(self, state: bytes, is_live: bool) -> None:
        encoded = bytearray(encode_record_header(RECORD, NONCE))
        for bit in range(8):
            encoded[STATE_POSITION] = state[0] ^ 1 << bit
            read = read_record(bytes(encoded), NONCE)
            assert read is not None
            assert read.is_live is is_live

    def test_one_that_is_deleted_is_written_so(self) -> None:
        dead = JournalRecord(
            kind=RecordKind.ENTRY,
            name="",
            stamp=-1,
            write=0,
            index=0,
            count=1,
            payload_first=RECORD_HEADER_BYTES,
            payload_bytes=0,
            payload_crc=0,
            is_live=False,
        )
        assert read_record(encode_record_header(dead, NONCE), NONCE) == dead
        assert dead.is_last_of_write
        assert not RECORD.is_last_of_write

    def test_the_header_is_64_bytes(self) -> None:
        assert RECORD_HEADER.size == RECORD_HEADER_BYTES == 64
        assert padding(61) == bytes(3)
        assert padding(64) == b""


class TestSearch:
    def test_records_begin_at_multiples_of_eight_and_nowhere_else(self) -> None:
        stored = a_write(0, an_entry(b"1"))
        assert next_record(b"1234" + stored + b"1234" + stored, NONCE) == 4 + len(stored) + 4
        assert next_record(b"1234" + stored, NONCE) is None
        assert next_record(stored + stored, NONCE, first=1) == len(stored)

    def test_what_a_few_bits_tell_from_a_record_resembles_one(self) -> None:
        stored = a_write(0, an_entry(b"1"))
        assert resembles_record(flipped(stored, 100), NONCE)
        assert not resembles_record(bytes(100), NONCE)
        assert not resembles_record(stored[:20], NONCE)
