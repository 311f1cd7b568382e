"""Checks that the files of a table answer for all archived offsets, and for each one once (safety rule S20). Pure.

Bounds are those of rows. They leave gaps between two files, and at both ends of a log, for offsets without rows:
aborted records and transaction markers. A file's footer has all offsets that it answers for. It is read only next to
such a gap. Offsets for which no file answers have no rows, and the tail manifest lists them.
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
    """Implements `AnsweredSpan`."""

    partition: int
    first: int
    end: int


def span_of_rows(file: DataFile) -> FileSpan | None:
    """The span from the first to the last row of a file of one partition; None for one of several partitions."""
    bounds = file.bounds
    if bounds is None or bounds.partition_min != bounds.partition_max:
        return None
    return FileSpan(bounds.partition_min, bounds.offset_min, bounds.offset_max + 1)


def uncovered(ranges: Iterable[AnsweredSpan], spans: Iterable[AnsweredSpan]) -> list[FileSpan]:
    """The parts of `ranges` that are in no span, ascending."""
    by_partition: dict[int, list[AnsweredSpan]] = {}
    for span in spans:
        by_partition.setdefault(span.partition, []).append(span)
    for of_partition in by_partition.values():
        of_partition.sort(key=attrgetter("first"))
    missing: list[FileSpan] = []
    for each in ranges:
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
    """The first offsets for which two files answer, with the keys of both; None where there are none."""
    reached: dict[int, tuple[int, str]] = {}
    for key, span in sorted(spans, key=lambda each: (each[1].partition, each[1].first)):
        end, before = reached.get(span.partition, (-1, ""))
        if span.first < end and key != before:
            return FileSpan(span.partition, span.first, min(end, span.end)), before, key
        if span.end > end:
            reached[span.partition] = span.end, key
    return None


def beside(files: Sequence[DataFile], gaps: Iterable[AnsweredSpan]) -> list[DataFile]:
    """The files that may answer for `gaps` although they have no row in them.

    These are the neighbours of each gap among the files of one partition, and all files of several partitions whose
    bounds include the gap's partition.
    """
    several: list[DataFile] = []
    by_partition: dict[int, list[tuple[int, int, DataFile]]] = {}
    for file in files:
        span = span_of_rows(file)
        if span is not None:
            by_partition.setdefault(span.partition, []).append((span.first, span.end, file))
        elif file.bounds is not None:
            several.append(file)
    for of_partition in by_partition.values():
        of_partition.sort(key=lambda each: each[:2])
    neighbours: dict[str, DataFile] = {}
    for gap in gaps:
        of_partition = by_partition.get(gap.partition, [])
        after = bisect_left(of_partition, gap.end, key=lambda each: each[0])
        before = bisect_right(of_partition, gap.first, key=lambda each: each[0]) - 1
        neighbours.update((file.key, file) for _, _, file in of_partition[max(before, 0) : after + 1])
        neighbours.update((file.key, file) for file in several if _may_answer(file, gap.partition))
    return list(neighbours.values())


def _may_answer(file: DataFile, partition: int) -> bool:
    """True where the partition is within the file's bounds.

    A file may also answer for a partition outside its bounds, whose records were all aborted. The log's index, and so
    the manifest, then has these offsets as ones without rows.
    """
    assert file.bounds is not None, "a file with rows has bounds"
    return file.bounds.partition_min <= partition <= file.bounds.partition_max
