"""The CRC of a concatenation, against the CRC of the whole."""

import struct

import pytest

from protocol.records.crc import changed_prefix_crc, concatenated_crc, crc32c, crc_of_crcs, pack_crcs, unpack_crcs

PARTS = [(b"", b""), (b"a", b""), (b"", b"b"), (b"1234", b"56789"), (bytes(range(256)), bytes(70_001))]


def test_the_check_value_of_the_algorithm() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("first", "second"), PARTS)
def test_two_parts_in_a_row(first: bytes, second: bytes) -> None:
    assert concatenated_crc(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("tail_bytes", [0, 1, 7, 4096, 1_000_003])
def test_a_changed_prefix(tail_bytes: int) -> None:
    tail = b"tail" * (tail_bytes // 4) + b"t" * (tail_bytes % 4)
    changed = changed_prefix_crc(crc32c(b"old prefix" + tail), b"old prefix", b"NEW PREFIX", tail_bytes)
    assert changed == crc32c(b"NEW PREFIX" + tail)


def test_the_checksum_of_batches_is_the_crc_of_one_and_goes_on_over_more() -> None:
    assert crc_of_crcs(pack_crcs([0xE3069283])) == 0xE3069283
    packed = pack_crcs([1, 2, 0xFFFFFFFF])
    assert packed == bytes([0, 0, 0, 1, 0, 0, 0, 2, 255, 255, 255, 255])
    assert unpack_crcs(packed) == (1, 2, 0xFFFFFFFF)
    assert crc_of_crcs(packed) == crc32c(packed[4:], 1) == crc32c(packed[8:], crc_of_crcs(packed[:8]))
    assert len({crc_of_crcs(pack_crcs(crcs)) for crcs in ([1, 2], [2, 1], [1], [1, 2, 0], [0, 1, 2])}) == 5


def test_part_of_a_crc_is_none() -> None:
    with pytest.raises(struct.error):
        unpack_crcs(bytes(7))
