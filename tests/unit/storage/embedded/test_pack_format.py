"""The bytes of a pack: literal ones, what is read back, and what is not taken for a record."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.embedded.pack_format import (
    DEAD,
    PACK_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    STATE_POSITION,
    PackRecord,
    encode_pack_header,
    encode_record_header,
    padding,
    read_nonce,
    read_record,
)
from storage.keys import KEY_BYTES_MAX

NONCE = bytes(range(16))
OTHER_NONCE = bytes(range(1, 17))
PACK_HEADER = bytes.fromhex(
    "504e53545041434b"  # PNSTPACK
    "0300000000000000"  # number
    "000102030405060708090a0b0c0d0e0f"  # nonce
    "2e3c6574"  # checksum
    "00000000"
)
KEY = "intake/é"
RECORD_HEADER = bytes.fromhex(
    "50524543"  # PREC
    "3c84a35a"  # checksum of what follows, but the state
    "000102030405060708090a0b0c0d0e0f"  # nonce
    "0500000000000000"  # payload bytes
    "0068e5cf8b010000"  # time
    "04030201"  # the payload's checksum
    "0900"  # key bytes
    "4c07"  # state L, not the first record of its write
    "696e74616b652fc3a9"
)
UNMARKED_RECORD_HEADER = RECORD_HEADER.replace(b"L\x07", b"L\0")
"""As it was written before writes were marked."""
RECORD = PackRecord(
    key=KEY,
    payload_first=57,
    payload_bytes=5,
    payload_crc=0x01020304,
    modified_ms=1_700_000_000_000,
    is_live=True,
)

keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=KEY_BYTES_MAX // 4)
nonces = st.binary(min_size=16, max_size=16)
u64 = st.integers(0, 2**64 - 1)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class TestPackHeader:
    def test_it_is_these_bytes(self) -> None:
        assert encode_pack_header(3, NONCE) == PACK_HEADER
        assert len(PACK_HEADER) == PACK_HEADER_BYTES

    def test_the_nonce_is_read_back_from_what_begins_with_it(self) -> None:
        assert read_nonce(PACK_HEADER, 3) == NONCE
        assert read_nonce(PACK_HEADER + RECORD_HEADER, 3) == NONCE

    def test_a_file_under_another_name_has_none(self) -> None:
        assert read_nonce(PACK_HEADER, 4) is None

    @pytest.mark.parametrize("byte_count", range(PACK_HEADER_BYTES))
    def test_a_part_of_it_is_none(self, byte_count: int) -> None:
        assert read_nonce(PACK_HEADER[:byte_count], 3) is None

    def test_with_any_bit_changed_it_is_none(self) -> None:
        found = [read_nonce(flipped(PACK_HEADER, bit), 3) for bit in range(8 * PACK_HEADER_BYTES)]
        assert found == [None] * len(found)

    @given(number=u64, nonce=nonces)
    def test_every_number_and_nonce_is_read_back(self, number: int, nonce: bytes) -> None:
        header = encode_pack_header(number, nonce)
        assert read_nonce(header, number) == nonce
        assert read_nonce(header, number ^ 1) is None


class TestRecordHeader:
    def test_it_is_these_bytes(self) -> None:
        assert encode_record_header(KEY, NONCE, 5, 0x01020304, 1_700_000_000_000) == RECORD_HEADER

    def test_it_is_read_back(self) -> None:
        assert read_record(RECORD_HEADER, NONCE) == RECORD
        assert read_record(RECORD_HEADER + b"hello and what follows", NONCE) == RECORD
        assert read_record(UNMARKED_RECORD_HEADER, NONCE) == replace(RECORD, is_marked=False)

    def test_the_state_alone_can_be_changed_in_place(self) -> None:
        marked = RECORD_HEADER[:STATE_POSITION] + DEAD + RECORD_HEADER[STATE_POSITION + 1 :]
        found = read_record(marked, NONCE)
        assert found is not None
        assert not found.is_live
        assert (found.key, found.record_bytes) == (RECORD.key, RECORD.record_bytes)

    def test_another_packs_record_is_none(self) -> None:
        assert read_record(RECORD_HEADER, OTHER_NONCE) is None

    @pytest.mark.parametrize("byte_count", range(len(RECORD_HEADER)))
    def test_a_part_of_it_is_none(self, byte_count: int) -> None:
        assert read_record(RECORD_HEADER[:byte_count], NONCE) is None

    def test_with_any_bit_changed_but_the_states_and_the_paddings_it_is_none(self) -> None:
        bits = range(8 * len(RECORD_HEADER))
        under_checksum = [bit for bit in bits if not STATE_POSITION <= bit // 8 < RECORD_HEADER_BYTES]
        assert len(under_checksum) == 8 * (len(RECORD_HEADER) - 2)
        assert {read_record(flipped(RECORD_HEADER, bit), NONCE) for bit in under_checksum} == {None}

    def test_no_changed_bit_of_the_state_makes_a_live_record_dead(self) -> None:
        for bit in range(8 * STATE_POSITION, 8 * RECORD_HEADER_BYTES):
            assert read_record(flipped(RECORD_HEADER, bit), NONCE) == RECORD

    @pytest.mark.parametrize("content", [b"", bytes(4096), b"\xff" * 4096], ids=["nothing", "zeros", "ones"])
    def test_what_a_disk_has_before_it_is_written_is_none(self, content: bytes) -> None:
        assert read_record(content, NONCE) is None
        assert read_record(content, bytes(16)) is None

    @given(
        key=keys,
        nonce=nonces,
        payload=st.binary(max_size=64),
        crc=st.integers(0, 2**32 - 1),
        modified_ms=st.integers(-(2**63), 2**63 - 1),
    )
    def test_every_record_is_read_back_and_ends_where_the_next_may_begin(
        self, key: str, nonce: bytes, payload: bytes, crc: int, modified_ms: int
    ) -> None:
        header = encode_record_header(key, nonce, len(payload), crc, modified_ms)
        content = header + payload + padding(len(header) + len(payload))
        found = read_record(content, nonce)
        assert found == PackRecord(
            key=key,
            payload_first=len(header),
            payload_bytes=len(payload),
            payload_crc=crc,
            modified_ms=modified_ms,
            is_live=True,
        )
        assert found.record_bytes == len(content)
        assert content[found.payload_first :][: found.payload_bytes] == payload


@pytest.mark.parametrize(("record_bytes", "left"), [(0, 0), (1, 7), (7, 1), (8, 0), (9, 7), (57 + 5, 2)])
def test_records_begin_at_multiples_of_eight(record_bytes: int, left: int) -> None:
    assert padding(record_bytes) == bytes(left)
