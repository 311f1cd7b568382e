"""Which of a topic's small files become one.

Rule: pure. Files stand in the order of their offsets, and neighbours alone are merged, so that each partition's rows
stay together. Files are tiers by size, each `COMPACTION_TIER_GROWTH` times as large as the one below, as in a
log-structured merge tree. Neighbours of a tier, or of those below it, are merged when together they reach the tier
above: so a byte is written about once a tier, and few files of each wait. Of the lowest tier, where a file is hardly
more than its footer, a number of files is enough. A file of half the target is done, and is read no more; what lies
between two of those, and can get no more neighbours, becomes one file at once.

What would become too old a mixture stays apart: a file goes as a whole, so it should not keep records for long that
retention wants to drop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.limits import COMPACTION_FILES_MAX, COMPACTION_TIER_BYTES_MIN, COMPACTION_TIER_GROWTH
from protocol.types import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedFile:
    """A data file as the plan sees it.

    `chunk_count`: how many rows of the index it stands for. `newest_ms`: the greatest timestamp of its records, -1
    where none has one.
    """

    object_bytes: int
    chunk_count: int
    newest_ms: Milliseconds


class _Enough(NamedTuple):
    """What neighbours have to come to, either of the two, to be worth a merge."""

    bytes: int
    files: int


def plan_merge(
    files: Sequence[SizedFile], *, bytes_target: int, span_ms_max: int | None, chunks_max: int
) -> range | None:
    """Which neighbours among `files` become one next; None where nothing is worth it.

    `span_ms_max`: how far apart their newest records may be; None for no bound. `chunks_max`: of one merge.
    Small ones come first: they are cheap, and there are most of them.
    """
    tiers = [bytes_target // 2]
    while tiers[-1] // COMPACTION_TIER_GROWTH >= COMPACTION_TIER_BYTES_MIN:
        tiers.append(tiers[-1] // COMPACTION_TIER_GROWTH)
    for below in reversed(tiers):
        for run in _runs(files, below):
            files_enough = COMPACTION_TIER_GROWTH if below == tiers[-1] else COMPACTION_FILES_MAX
            found = _window(files, run, _Enough(below, files_enough), bytes_target, span_ms_max, chunks_max)
            if found is not None:
                return found
    return None


def _runs(files: Sequence[SizedFile], below: int) -> Iterator[range]:
    """Neighbours that are all smaller than `below`, as many together as there are; oldest first."""
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
    enough: _Enough,
    bytes_target: int,
    span_ms_max: int | None,
    chunks_max: int,
) -> range | None:
    """The oldest neighbours of a run that are enough for a merge, or as much as one merge may read, or after which no
    more will come."""
    is_closed = run.stop < len(files) and files[run.stop].object_bytes * 2 >= bytes_target
    for first in run:
        end, is_full = longest_merge(files, range(first, run.stop), bytes_target, span_ms_max, chunks_max)
        byte_count = sum(file.object_bytes for file in files[first:end])
        is_enough = byte_count >= enough.bytes or end - first >= enough.files
        # A merge that can read no more is worth it where it makes something much larger than the largest of its files.
        is_enough |= is_full and byte_count >= 2 * max(file.object_bytes for file in files[first:end])
        if end - first > 1 and (is_enough or (is_closed and end == run.stop)):
            return range(first, end)
        if end == run.stop:
            return None  # what begins later is no longer
    return None


def longest_merge(
    files: Sequence[SizedFile], run: range, bytes_target: int, span_ms_max: int | None, chunks_max: int
) -> tuple[int, bool]:
    """Where the longest merge ends that begins with the first file of `run`, and whether it can read no more."""
    byte_count = chunk_count = 0
    first_ms = newest_ms = -1
    for index in run:
        file = files[index]
        byte_count += file.object_bytes
        chunk_count += file.chunk_count
        # Old records that come late go with those that came before them: times count as far as they run on.
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
