"""Selects the small files of a topic that become one. Pure.

Files are in the order of their offsets, and only neighbours are merged, so that each partition's rows stay together.
Files form tiers by size, as in a log-structured merge tree. Each tier is `COMPACTION_TIER_GROWTH` times as large as the
one below. Neighbours of a tier, or of the tiers below it, are merged when together they reach the tier above. So a byte
is written about once in each tier, and few files of each tier wait. In the lowest tier a file is hardly more than its
footer, so a count of files is enough for a merge.

A file of half the target is final. Small files between two final files get no more neighbours, so they are merged at
once.

Files whose newest records are far apart in time are not merged: a file is deleted as a whole, and new records in it
would keep old ones beyond the topic's retention.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.limits import COMPACTION_FILES_MAX, COMPACTION_TIER_BYTES_MIN, COMPACTION_TIER_GROWTH
from protocol.types import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedFile:
    """The properties of a data file that the plan depends on.

    `chunk_count`: the count of its rows in the index. `newest_ms`: the greatest timestamp of its records, -1 where
    none has one.
    """

    object_bytes: int
    chunk_count: int
    newest_ms: Milliseconds


class _Threshold(NamedTuple):
    """The size or the count of neighbours that is worth a merge: one of the two is enough."""

    bytes: int
    files: int


def plan_merge(
    files: Sequence[SizedFile], *, bytes_target: int, span_ms_max: int | None, chunks_max: int
) -> range | None:
    """The neighbours among `files` to merge next, as a range of indexes; None where no merge is worth it.

    `span_ms_max`: how far apart the newest records of the files may be; None: no limit. `chunks_max`: the limit of
    index rows in one merge. The smallest files come first: their merge costs least, and there are most of them.
    """
    # A file of half the target is final: see the module's description.
    tiers = [bytes_target // 2]
    while tiers[-1] // COMPACTION_TIER_GROWTH >= COMPACTION_TIER_BYTES_MIN:
        tiers.append(tiers[-1] // COMPACTION_TIER_GROWTH)
    for below in reversed(tiers):
        for run in _runs(files, below):
            files_enough = COMPACTION_TIER_GROWTH if below == tiers[-1] else COMPACTION_FILES_MAX
            neighbours = _window(files, run, _Threshold(below, files_enough), bytes_target, span_ms_max, chunks_max)
            if neighbours is not None:
                return neighbours
    return None


def _runs(files: Sequence[SizedFile], below: int) -> Iterator[range]:
    """The longest runs of neighbours that are smaller than `below` bytes, oldest first."""
    first: int | None = None
    for index, file in enumerate(files):
        if file.object_bytes < below:
            first = index if first is None else first
        elif first is not None:
            yield range(first, index)
            first = None
    if first is not None:
        yield range(first, len(files))


def _window(
    files: Sequence[SizedFile],
    run: range,
    threshold: _Threshold,
    bytes_target: int,
    span_ms_max: int | None,
    chunks_max: int,
) -> range | None:
    """The oldest neighbours of a run that are worth a merge; None where there are none.

    They reach the threshold, or are as much as one merge may read, or end a run that will get no more files.
    """
    is_closed = run.stop < len(files) and files[run.stop].object_bytes * 2 >= bytes_target
    for first in run:
        end, is_full = longest_merge(files, range(first, run.stop), bytes_target, span_ms_max, chunks_max)
        byte_count = sum(file.object_bytes for file in files[first:end])
        is_enough = byte_count >= threshold.bytes or end - first >= threshold.files
        # A merge that can read no more files will never reach the threshold. It is worth it where the result has twice
        # the size of its largest file: a smaller factor would write that file again for little.
        is_enough |= is_full and byte_count >= 2 * max(file.object_bytes for file in files[first:end])
        if end - first > 1 and (is_enough or (is_closed and end == run.stop)):
            return range(first, end)
        if end == run.stop:
            return None  # a merge that begins later ends at the same file, and is smaller
    return None


def longest_merge(
    files: Sequence[SizedFile], run: range, bytes_target: int, span_ms_max: int | None, chunks_max: int
) -> tuple[int, bool]:
    """The end of the longest merge that begins with the first file of `run`, and whether a limit of size ended it.

    Limits of size are `bytes_target`, `chunks_max` and `COMPACTION_FILES_MAX`. A merge has at least one file.
    """
    byte_count = chunk_count = 0
    first_ms = newest_ms = -1
    for index in run:
        file = files[index]
        byte_count += file.object_bytes
        chunk_count += file.chunk_count
        # Old records that arrive late are merged with the files before them: only time that advances counts.
        newest_ms = max(newest_ms, file.newest_ms)
        first_ms = newest_ms if first_ms < 0 else first_ms
        is_too_mixed = span_ms_max is not None and newest_ms - first_ms > span_ms_max
        if index > run.start and (
            byte_count > bytes_target
            or chunk_count > chunks_max
            or is_too_mixed
            or index - run.start == COMPACTION_FILES_MAX
        ):
            return index, not is_too_mixed
    return run.stop, False
