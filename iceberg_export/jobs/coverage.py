"""Checks that every archived offset of a log is in exactly one file of its table. Pure.

The input are the offsets that each file turned out to have, and the rows of the log's index.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from iceberg_export.jobs.examine import IndexRow, OffsetSpan
from iceberg_export.jobs.findings import TableFinding


class LogBounds(NamedTuple):
    """The first offset of a partition's log, and the end of its archived offsets."""

    log_start: int
    archived_end: int


def overlaps(hulls: Mapping[str, Sequence[OffsetSpan]]) -> Iterator[TableFinding]:
    """A finding for each range of offsets of which two files have rows.

    `hulls`: by the key of each file, its lowest and highest offset in each partition. A file's offsets of a partition
    are contiguous in the log, so no other file may have an offset between them.
    """
    by_partition: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for key, of_file in hulls.items():
        for span in of_file:
            by_partition[span.partition].append((span.first, span.end, key))
    for partition, spans in sorted(by_partition.items()):
        reached, before = -1, ""
        for first, end, key in sorted(spans):
            if first < reached:
                what = f"offsets {first} to {min(end, reached) - 1} are in another file, too: {before}"
                yield TableFinding(file=key, partition=partition, offset=first, what=what)
            if end > reached:
                reached, before = end, key


def gaps(index: Mapping[str, Sequence[IndexRow]], log: Mapping[int, LogBounds]) -> Iterator[TableFinding]:
    """A finding for each range of archived offsets that is in no chunk of the log's index, or in two."""
    by_partition: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for key, rows in index.items():
        for row in rows:
            by_partition[row.partition].append((row.offset_first, row.offset_end, key))
    for partition, bounds in sorted(log.items()):
        chunks = sorted(by_partition[partition])
        reached = chunks[0][0] if chunks and chunks[0][0] < bounds.log_start else bounds.log_start
        for first, end, key in [*chunks, (bounds.archived_end, bounds.archived_end, "")]:
            if first > reached:
                what = f"offsets {reached} to {first - 1} are archived, and in no chunk of the log's index"
                yield TableFinding(partition=partition, offset=reached, what=what)
            elif first < reached and end > first:
                what = f"offsets {first} to {min(end, reached) - 1} are in two chunks of the log's index"
                yield TableFinding(file=key, partition=partition, offset=first, what=what)
            reached = max(reached, end)
        if reached > max(bounds):
            what = f"offsets up to {reached - 1} are in the log's index, which says that {max(bounds)} is the end"
            yield TableFinding(partition=partition, offset=max(bounds), what=what)


def not_in_table(index: Mapping[str, Sequence[IndexRow]], keys: Collection[str]) -> Iterator[TableFinding]:
    """A finding for each file of the log's index that has rows and is not in the table. `index`: by file key."""
    for key in sorted(index.keys() - set(keys)):
        rows = [row for row in index[key] if row.row_count]
        if rows:
            what = f"the log reads {sum(row.row_count for row in rows):,} records in it, and it is not in the table"
            yield TableFinding(file=key, partition=rows[0].partition, offset=rows[0].offset_first, what=what)


def beyond(hulls: Mapping[str, Sequence[OffsetSpan]], log: Mapping[int, LogBounds]) -> Iterator[TableFinding]:
    """A finding for each file with rows at or after the end of the archived offsets."""
    for key, span in chain.from_iterable([(key, span) for span in of_file] for key, of_file in sorted(hulls.items())):
        archived_end = log[span.partition].archived_end if span.partition in log else 0
        if span.end > archived_end:
            what = f"its rows reach offset {span.end - 1}, and the log is archived up to {archived_end}"
            yield TableFinding(file=key, partition=span.partition, offset=max(span.first, archived_end), what=what)
