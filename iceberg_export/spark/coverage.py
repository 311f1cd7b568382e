"""Whether the files of a table answer for all offsets that are archived, each once.

Rule: pure. Bounds are those of rows: between two files, and at both ends of a log, offsets without rows are missing in
them, which are aborted or transactions' markers. What a file answers for stands in its footer, and is asked there only
beside such a gap. Offsets of which no file has a row may be in none: the tail manifest names them (safety rule S20).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from iceberg_export.tables.data_file import DataFile


class AnsweredSpan(Protocol):
    """Offsets `[first, end)` of a partition for which a file answers."""

    @property
    def partition(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...


class FileSpan(NamedTuple):
    """A `AnsweredSpan`."""

    partition: int
    first: int
    end: int


def span_of_rows(file: DataFile) -> FileSpan | None:
    """The span of a file with rows of one partition, from its first to its last row; None where there are several."""
    bounds = file.bounds
    if bounds is None or bounds.partition_min != bounds.partition_max:
        return None
    return FileSpan(bounds.partition_min, bounds.offset_min, bounds.offset_max + 1)


def uncovered(wanted: Iterable[AnsweredSpan], spans: Iterable[AnsweredSpan]) -> list[FileSpan]:
    """The parts of `wanted` that are in no span, ascending."""
    by_partition: dict[int, list[AnsweredSpan]] = {}
    for span in spans:
        by_partition.setdefault(span.partition, []).append(span)
    for held in by_partition.values():
        held.sort(key=attrgetter("first"))
    missing: list[FileSpan] = []
    for each in wanted:
        reached = each.first
        for span in by_partition.get(each.partition, ()):
            if span.first >= each.end:
                break
            if span.first > reached:
                missing.append(FileSpan(each.partition, reached, span.first))
            reached = max(reached, span.end)
        if reached < each.end:
            missing.append(FileSpan(each.partition, reached, each.end))
    return sorted(missing)


def doubled(spans: Iterable[tuple[str, AnsweredSpan]]) -> tuple[FileSpan, str, str] | None:
    """Offsets for which two files answer, with the keys of these; None where there are none."""
    reached: dict[int, tuple[int, str]] = {}
    for key, span in sorted(spans, key=lambda each: (each[1].partition, each[1].first)):
        end, before = reached.get(span.partition, (-1, ""))
        if span.first < end and key != before:
            return FileSpan(span.partition, span.first, min(end, span.end)), before, key
        if span.end > end:
            reached[span.partition] = span.end, key
    return None


def beside(files: Sequence[DataFile], gaps: Iterable[AnsweredSpan]) -> list[DataFile]:
    """Files that may answer for `gaps`, though no row of theirs is in them: of one partition those before and behind,
    of several all that may hold rows of the partition."""
    several: list[DataFile] = []
    by_partition: dict[int, list[tuple[int, int, DataFile]]] = {}
    for file in files:
        span = span_of_rows(file)
        if span is not None:
            by_partition.setdefault(span.partition, []).append((span.first, span.end, file))
        elif file.bounds is not None:
            several.append(file)
    for held in by_partition.values():
        held.sort(key=lambda each: each[:2])
    found: dict[str, DataFile] = {}
    for gap in gaps:
        held = by_partition.get(gap.partition, [])
        behind = bisect_left(held, gap.end, key=lambda each: each[0])
        before = bisect_right(held, gap.first, key=lambda each: each[0]) - 1
        found.update((file.key, file) for _, _, file in (*held[max(before, 0) : behind], *held[behind : behind + 1]))
        found.update((file.key, file) for file in several if _may_answer(file, gap.partition))
    return list(found.values())


def _may_answer(file: DataFile, partition: int) -> bool:
    """A file may answer for a partition beyond those of which it has rows, as these were all aborted; then the log's
    index says that there are none."""
    assert file.bounds is not None, "a file with rows has bounds"
    return file.bounds.partition_min <= partition <= file.bounds.partition_max
