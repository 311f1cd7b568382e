"""The CRC of a concatenation, against the CRC of the whole."""

import pytest

from protocol.crc import changed_prefix_crc, concatenated_crc, crc32c

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
