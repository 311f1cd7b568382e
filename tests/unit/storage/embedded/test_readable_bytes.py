"""A file with bad sectors: what can be read is, and what cannot is told and counts as zeros."""

import errno
import os

import pytest

from storage.embedded.readable_bytes import SECTOR_BYTES, ReadableBytes, Stretch

CONTENT = os.urandom(10 * SECTOR_BYTES + 100)
REASON = os.strerror(errno.EIO)


class BadFile:
    """`bad`: numbers of sectors, and the error of each."""

    def __init__(self, bad: dict[int, int]) -> None:
        self.content = CONTENT
        self.bad = bad
        self.asked: list[tuple[int, int]] = []

    def read(self, byte_count: int, position: int) -> bytes:
        self.asked.append((byte_count, position))
        for sector, code in self.bad.items():
            if sector * SECTOR_BYTES < position + byte_count and position < (sector + 1) * SECTOR_BYTES:
                raise OSError(code, os.strerror(code))
        return self.content[position : position + byte_count]

    def readable(self) -> ReadableBytes:
        return ReadableBytes(self.read, lambda: len(self.content))


def with_zeros(*sectors: int) -> bytes:
    content = bytearray(CONTENT)
    for sector in sectors:
        size = len(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
        content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(size)
    return bytes(content)


def test_a_file_without_bad_sectors_is_read_as_it_is() -> None:
    file = BadFile({})
    held = file.readable()
    assert held.read(500, 300) == CONTENT[300:800]
    assert held.read(500, len(CONTENT) - 7) == CONTENT[-7:]
    assert held.read(500, len(CONTENT)) == b""
    assert (held.stretches, held.unreadable(0, len(CONTENT))) == ([], None)
    assert len(file.asked) == 3


@pytest.mark.parametrize("code", [errno.EIO, errno.EBADMSG, errno.EUCLEAN])
def test_bad_sectors_are_zeros_and_are_reported(code: int) -> None:
    file = BadFile({2: code, 3: code, 7: code, 10: code})
    held = file.readable()
    assert held.read(SECTOR_BYTES, 4 * SECTOR_BYTES) == CONTENT[4 * SECTOR_BYTES : 5 * SECTOR_BYTES]
    assert held.stretches == []
    assert held.read(len(CONTENT) + 1_000, 0) == with_zeros(2, 3, 7, 10)
    reason = os.strerror(code)
    assert held.stretches == [
        Stretch(2 * SECTOR_BYTES, 4 * SECTOR_BYTES, reason),
        Stretch(7 * SECTOR_BYTES, 8 * SECTOR_BYTES, reason),
        Stretch(10 * SECTOR_BYTES, len(CONTENT), reason),
    ]


def test_a_bad_sector_is_asked_for_once() -> None:
    file = BadFile({2: errno.EIO})
    held = file.readable()
    for _ in range(3):
        assert held.read(3 * SECTOR_BYTES, SECTOR_BYTES - 9) == with_zeros(2)[SECTOR_BYTES - 9 : 4 * SECTOR_BYTES - 9]
    asked = [each for each in file.asked if each[1] <= 2 * SECTOR_BYTES < each[0] + each[1]]
    assert asked == [(3 * SECTOR_BYTES, SECTOR_BYTES - 9), (SECTOR_BYTES, 2 * SECTOR_BYTES)]
    file.asked.clear()
    assert held.read(100, 5 * SECTOR_BYTES) == CONTENT[5 * SECTOR_BYTES : 5 * SECTOR_BYTES + 100]
    assert len(file.asked) == 1, "elsewhere it is read at once"


def test_whether_bytes_could_be_read_is_told_to_the_byte() -> None:
    held = BadFile({2: errno.EIO}).readable()
    held.read(len(CONTENT), 0)
    first, end = 2 * SECTOR_BYTES, 3 * SECTOR_BYTES
    assert held.unreadable(0, first) is None
    assert held.unreadable(end, len(CONTENT)) is None
    assert held.unreadable(first - 1, first + 1) == held.unreadable(end - 1, end) == Stretch(first, end, REASON)


def test_an_error_that_went_away_is_none() -> None:
    file = BadFile({2: errno.EIO})
    held = file.readable()
    read = file.read

    def once(byte_count: int, position: int) -> bytes:
        try:
            return read(byte_count, position)
        finally:
            file.bad.clear()

    held = ReadableBytes(once, lambda: len(CONTENT))
    assert held.read(len(CONTENT), 0) == CONTENT
    assert held.stretches == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EBADF, errno.ENXIO])
def test_other_errors_pass_wherever_they_come(code: int) -> None:
    held = BadFile({2: code}).readable()
    with pytest.raises(OSError, match=os.strerror(code)):
        held.read(len(CONTENT), 0)
    held = BadFile({1: errno.EIO, 2: code}).readable()
    with pytest.raises(OSError, match=os.strerror(code)):
        held.read(len(CONTENT), 0)


def test_a_file_that_becomes_shorter_meanwhile_ends_there() -> None:
    file = BadFile({1: errno.EIO})
    held = ReadableBytes(file.read, lambda: len(CONTENT))
    file.content = CONTENT[: 3 * SECTOR_BYTES + 50]
    assert held.read(len(CONTENT), 0) == with_zeros(1)[: 3 * SECTOR_BYTES + 50]
