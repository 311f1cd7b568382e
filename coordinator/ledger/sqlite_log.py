"""Finds damage in the write-ahead log of a SQLite file, before SQLite opens it and silently ends it there (S20).

SQLite takes the first frame whose checksum is wrong for the end of the log, as a loss of power may have torn it, and
drops all that follow. But a commit is synced before the next one begins: a power cut tears frames of the last commit
alone. What else is wrong in the log is damage, and acknowledged appends lie behind it.

Rule: a log that a loss of power can leave is never called damaged; one with a flipped bit is, wherever it lies, unless
it may be both: in the last commit, in a frame through whose header a border of two sectors runs.
Nothing is written. Format: sqlite.org/fileformat2.html#walformat.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

LOG_SUFFIX: Final = "-wal"
LOG_HEADER_BYTES: Final = 32
"""A log that is no longer has no frames."""

_FRAME_HEADER_BYTES: Final = 24
_HEADER_CHECKED_BYTES: Final = 24
_FRAME_HEADER_CHECKED_BYTES: Final = 8
_WORD_BYTES: Final = 4
_MAGIC: Final = 0x377F0682
"""The magic number of a log with words in little-endian order; plus one: in big-endian order."""
_VERSION: Final = 3_007_000
_PAGE_BYTES_MIN, _PAGE_BYTES_MAX = 512, 65_536
_SECTOR_BYTES: Final = 512
"""The least that a disk writes as a whole; what a larger one writes ends at these borders, too."""
_SIZE_GROWTH: Final = 2
"""A commit makes a file of so many pages, and of as many as the log has frames, at most so many times as large. It
never becomes smaller: nothing is vacuumed."""
_MASK: Final = 0xFFFF_FFFF

Words = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDamage:
    """`frame` counts from 1 and lies at byte `place` of the log, which has `frames` of them; 0: the log's header."""

    frame: int
    frames: int
    place: int
    reason: str

    def __str__(self) -> str:
        where = f"frame {self.frame} of {self.frames}" if self.frame else "the header"
        return f"{where}, at byte {self.place}: {self.reason}"


def log_of(path: Path) -> Path:
    """Where the write-ahead log of the SQLite file `path` lies."""
    return path.with_name(path.name + LOG_SUFFIX)


def find_damage(log: bytes, *, is_each_commit_synced: bool) -> LogDamage | None:
    """The first damage in a log, if there is any that no loss of power explains.

    Where commits are not synced one by one, a loss of power may tear all of them since the last checkpoint: then only
    a flipped bit is called damage.
    """
    if len(log) <= LOG_HEADER_BYTES:
        return None  # no frames: SQLite looks no further either
    header = np.frombuffer(log, ">u4", LOG_HEADER_BYTES // _WORD_BYTES).astype(np.uint32)
    magic, version, page_bytes = (int(word) for word in header[:3])
    order = ">u4" if magic & 1 else "<u4"
    words = np.frombuffer(log, order, _HEADER_CHECKED_BYTES // _WORD_BYTES).astype(np.uint32)[np.newaxis]
    checksum = _Checksum(words.shape[1]).of(words, np.zeros((1, 2), np.uint32))
    is_known = (
        magic | 1 == _MAGIC | 1
        and version == _VERSION
        and _PAGE_BYTES_MIN <= page_bytes <= _PAGE_BYTES_MAX
        and page_bytes & (page_bytes - 1) == 0
    )
    if not is_known or (checksum[0] != header[6:]).any():
        # It is synced before the first frame is written, and SQLite would read none of them.
        return LogDamage(frame=0, frames=0, place=0, reason="its checksum is wrong, and frames follow it")
    return _Frames(log, header, page_bytes, order).find_damage(is_each_commit_synced=is_each_commit_synced)


class _Checksum:
    """SQLite's checksum of an even number of words, which is linear: a sum of the words times their weights."""

    def __init__(self, words_count: int) -> None:
        # A pair of words (x0, x1) makes (s0, s1) into (s0 + s1 + x0, s0 + 2 s1 + x0 + x1). The weights of a pair's
        # words are what the pairs behind it make of (1, 1) and (0, 1).
        rows: list[tuple[int, int]] = []
        first, second = (1, 1), (0, 1)
        for _ in range(words_count // 2):
            rows += [second, first]
            first, second = _next(first), _next(second)
        self.weights: Words = np.array(rows[::-1], dtype=np.uint32)
        ones, zeros = (1, 0), (0, 1)
        for _ in range(words_count // 2):
            ones, zeros = _next(ones), _next(zeros)
        self._start: Words = np.array([ones, zeros], dtype=np.uint32)

    def of(self, words: Words, before: Words) -> Words:
        """The checksum of each row of `words`, shape (frames, words); it begins with its row of `before`."""
        return self.of_words(words) + self.of_start(before)

    def of_words(self, words: Words) -> Words:
        """The part of the checksum that the words of each row add, shape (frames, 2)."""
        return words @ self.weights

    def of_start(self, before: Words) -> Words:
        """The part of the checksum that comes from `before`, shape (frames, 2)."""
        return before @ self._start


def _next(sums: tuple[int, int]) -> tuple[int, int]:
    s0 = (sums[0] + sums[1]) & _MASK
    return s0, (s0 + sums[1]) & _MASK


class _Frames:
    """The whole frames of a log; what a write that broke off left behind the last of them is none."""

    def __init__(self, log: bytes, header: Words, page_bytes: int, order: str) -> None:
        self._frame_bytes = _FRAME_HEADER_BYTES + page_bytes
        self._count = (len(log) - LOG_HEADER_BYTES) // self._frame_bytes
        size = self._count * self._frame_bytes
        frames = np.frombuffer(log, np.uint8, size, LOG_HEADER_BYTES).reshape(self._count, self._frame_bytes)
        fields = np.ascontiguousarray(frames[:, :_FRAME_HEADER_BYTES]).view(">u4").astype(np.uint32)
        checked = np.hstack([frames[:, :_FRAME_HEADER_CHECKED_BYTES], frames[:, _FRAME_HEADER_BYTES:]])
        self._words: Words = checked.view(order).astype(np.uint32)
        self._order = order
        self._checksum = _Checksum(self._words.shape[1])
        self._stored: Words = fields[:, 4:6]
        before = np.vstack([header[np.newaxis, 6:8], self._stored])[:-1]
        added = self._checksum.of_words(self._words)
        self._computed: Words = added + self._checksum.of_start(before)
        self._is_salted: Flags = (fields[:, 2:4] == header[4:6]).all(axis=1)
        self._is_linked: Flags = (self._computed == self._stored).all(axis=1)
        """Its checksum follows from that of the frame before, as it is stored."""
        before_computed = np.vstack([header[np.newaxis, 6:8], self._computed])[:-1]
        is_linked_anyhow = (added + self._checksum.of_start(before_computed) == self._stored).all(axis=1)
        """Or from what that of the frame before should be: its stored one may be what has changed."""
        self._is_whole: Flags = self._is_salted & (self._is_linked | is_linked_anyhow)
        first_bytes = LOG_HEADER_BYTES + self._frame_bytes * np.arange(self._count)
        self._is_split: Flags = first_bytes % _SECTOR_BYTES > _SECTOR_BYTES - _FRAME_HEADER_BYTES
        """Two sectors hold its header: after a loss of power its page number, size and perhaps salts may be those of
        the frame that was there before, and its checksum a new one; or the other way round. Frames of 4,120 bytes: the
        42nd and the 63rd of each 64."""
        self._fields = fields
        self._salts: Words = header[4:6]
        is_next_linked = np.append(is_linked_anyhow[1:], False)  # the size is in that checksum
        is_size_right = ~self._is_split | self._is_whole | is_next_linked
        self._is_commit: Flags = self._is_salted & (fields[:, 1] != 0) & is_size_right

    def find_damage(self, *, is_each_commit_synced: bool) -> LogDamage | None:
        ends = np.flatnonzero(~(self._is_salted & self._is_linked))
        if not len(ends):
            return None
        first_bad = int(ends[0])  # where SQLite ends the log
        if self._is_linked[first_bad] and self._is_salt_damaged(first_bad):
            return self._damage(first_bad, "its salt has changed")
        if self._is_salted[first_bad] and not self._is_header_torn(first_bad) and self._is_bit_flipped(first_bad):
            return self._damage(first_bad, "one bit of it has changed")
        if is_each_commit_synced and (behind := self._commit_behind(first_bad)) is not None:
            return self._damage(first_bad, f"its checksum is wrong, and a later commit is whole (frame {behind + 1})")
        return None

    def _is_salt_damaged(self, frame: int) -> bool:
        """Whether the other salts of a frame with the right checksum are none that were written.

        The checksum leaves them out. Where one sector holds both, frames of an earlier log have both from there, and
        such a checksum is right by chance 1 in 2**64. Where the salts are in the sector before, they may be older than
        the checksum: then both differ, the second one being a random number of each log, and not in one byte alone.
        """
        return not self._is_split[frame] or _is_one_byte(self._fields[frame, 2:4] ^ self._salts)

    def _is_header_torn(self, frame: int) -> bool:
        """Whether another page number and size make the frame right, where they may be older or newer than the rest.

        Whatever the checksum is, exactly one pair of them does. It has to be one that a commit can have here.
        """
        if not self._is_split[frame]:
            return False
        stored = self._words[frame, :2]
        missing = self._stored[frame] - self._computed[frame]
        (a, b), (c, d) = (tuple(map(int, row)) for row in self._checksum.weights[:2])
        inverse = [[d, -b], [-c, a]] if a * d - b * c & _MASK == 1 else [[-d, b], [c, -a]]  # the determinant is 1 or -1
        right = stored + missing @ (np.array(inverse) & _MASK).astype(np.uint32)
        sizes = self._fields[:frame, 1]
        size_before = int(sizes[np.flatnonzero(sizes)[-1]]) if sizes.any() else 0
        size_max = _SIZE_GROWTH * (size_before + self._count) if size_before else _MASK
        page, size = (int(word) for word in right.astype(self._order).view(">u4"))
        return (
            1 <= page <= size_max
            and (size == 0 or max(size_before, page) <= size <= size_max)
            and int(self._fields[frame, :2].max()) <= size_max
        )

    def _is_bit_flipped(self, frame: int) -> bool:
        """Whether another value of one bit makes the frame right, where all frames before it are.

        Not what is left of a torn frame: that would have to be the same but for this bit, checksum included. (But for
        one byte it sometimes is: the page was in this place of an earlier log, too.) Which bit it is stays unknown:
        the highest ones of all words count alike.
        """
        stored, computed = self._stored[frame], self._computed[frame]
        if _is_one_bit(stored ^ computed):
            return True
        # The word w, times its weights, has to add `missing` to the checksum. One of its two weights is odd, as they
        # are neighbours in Fibonacci's sequence, and so has an inverse: that gives w, and the other one confirms it.
        missing = stored - computed
        weights = self._checksum.weights
        odd = np.where(weights[:, 0] & 1, 0, 1)
        rows = np.arange(len(weights))
        change = missing[odd] * _inverses(weights[rows, odd])
        is_right = change * weights[rows, 1 - odd] == missing[1 - odd]
        words = self._words[frame]
        return any(
            _is_one_bit(words[row : row + 1] ^ (words[row : row + 1] + change[row : row + 1]))
            for row in np.flatnonzero(is_right)
        )

    def _commit_behind(self, first_bad: int) -> int | None:
        """The last frame of a whole commit that begins behind the bad frame's own commit, if there is one.

        Each commit is synced before the next one is written. So the bad frame's commit was synced, thus acknowledged,
        if another one follows it. Its frames are checked from the stored checksum of the last frame before them. One
        that was written over the frames of a torn commit leaves the end of that one behind itself, with the same
        salts: these frames do not follow from its last frame, and they have one commit's end, their own.
        """
        is_behind_commit = False
        for frame in range(first_bad + 1, self._count):
            is_behind_commit = bool(self._is_whole[frame]) and (is_behind_commit or bool(self._is_commit[frame - 1]))
            if is_behind_commit and self._is_commit[frame]:
                return frame
        return None

    def _damage(self, frame: int, reason: str) -> LogDamage:
        place = LOG_HEADER_BYTES + frame * self._frame_bytes
        return LogDamage(frame=frame + 1, frames=self._count, place=place, reason=reason)


def _is_one_byte(difference: Words) -> bool:
    return int(np.count_nonzero(difference.view(np.uint8))) == 1


def _is_one_bit(difference: Words) -> bool:
    return int(np.bitwise_count(difference).sum()) == 1


def _inverses(odd: Words) -> Words:
    """Modulo 2**32, by Newton's method: each step doubles the right bits, of which an odd number has three."""
    inverses = odd.copy()
    for _ in range(4):
        inverses = inverses * (np.uint32(2) - odd * inverses)
    return inverses
