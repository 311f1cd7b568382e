"""CRC-32C of bytes, and of a concatenation whose parts are only known by their CRC.

Rule: a producer's checksum is carried on, never computed again from stored bytes: a new one would hide any damage that
happened to them in between. So a changed header is worked into the old checksum (safety rule S14).

A CRC is the remainder of a polynomial over GF(2), so appending n bytes multiplies it by x^(8n) modulo the CRC's
polynomial. Source: RFC 3720 appendix B.4 for the polynomial; R. Williams, "A painless guide to CRC error detection".
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import pack, unpack

from crc32c import crc32c

from protocol.wire import Buffer

__all__ = ["CRC_BYTES", "changed_prefix_crc", "concatenated_crc", "crc32c", "crc_of_crcs", "pack_crcs", "unpack_crcs"]

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, bit-reversed: bit 31 is the coefficient of x^0."""
_ONE = 0x80000000
_POWERS_CACHED = 4096
CRC_BYTES = 4


def concatenated_crc(first_crc: int, second_crc: int, second_bytes: int) -> int:
    """The CRC-32C of two parts in a row, from each part's own and the second part's length in bytes."""
    return _times(first_crc, _power(second_bytes)) ^ second_crc


def changed_prefix_crc(crc: int, old_prefix: Buffer, new_prefix: Buffer, tail_bytes: int) -> int:
    """The CRC-32C of `new_prefix` and a tail, from `crc`, that of `old_prefix` (as long) and the same tail.

    The tail is not read: an error in it is still an error afterwards.
    """
    return concatenated_crc(crc32c(old_prefix) ^ crc32c(new_prefix), crc, tail_bytes)


def pack_crcs(crcs: Sequence[int]) -> bytes:
    """CRCs as they stand in headers of record batches: 4 bytes each, big-endian."""
    return pack(f">{len(crcs)}I", *crcs)


def unpack_crcs(packed: Buffer) -> tuple[int, ...]:
    """The checksums that `pack_crcs` was given. Raises `struct.error` where `packed` ends inside a CRC."""
    return unpack(f">{len(packed) // CRC_BYTES}I", packed)


def crc_of_crcs(packed: Buffer) -> int:
    """The checksum of consecutive record batches, by the CRCs of all of them: at least one, as `pack_crcs` gives them.

    One batch has its own CRC. Every further one is taken in as CRC-32C takes in bytes, so `crc32c(packed, checksum)` is
    the checksum of what has `checksum` and the batches behind it.
    """
    return crc32c(packed[CRC_BYTES:], int.from_bytes(packed[:CRC_BYTES], "big"))


def _times(a: int, b: int) -> int:
    """The product of two polynomials modulo the CRC's."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=_POWERS_CACHED)
def _power(byte_count: int) -> int:
    """x^(8 * byte_count) modulo the CRC's polynomial."""
    power, square = _ONE, 0x00800000  # x^0 and x^8
    while byte_count:
        if byte_count & 1:
            power = _times(power, square)
        square = _times(square, square)
        byte_count >>= 1
    return power
