"""Whether the files of a table fit each other, and the log: every archived offset is in one of them, and in one only.

Rule: pure, over spans and rows of the index. What is wrong is a finding, in words.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from iceberg_export.jobs.examine import IndexRow, Span


class LogBounds(NamedTuple):
    """Where a partition's log begins, and up to where it is archived."""

    log_start: int
    archived_end: int


def overlaps(spans: Mapping[str, Sequence[Span]]) -> Iterator[str]:
    """Offsets for which two files answer. `spans`: of each file, by its key."""
    by_partition: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for key, of_file in spans.items():
        for span in of_file:
            by_partition[span.partition].append((span.first, span.end, key))
    for partition, found in sorted(by_partition.items()):
        for (_, end, key), (first, _, other) in pairwise(sorted(found)):
            if first < end:
                yield f"offsets {first} to {end - 1} of partition {partition} are in two files: {key} and {other}"


def not_covered(
    spans: Mapping[str, Sequence[Span]], log: Mapping[int, LogBounds], without_rows: Sequence[Span]
) -> Iterator[str]:
    """Archived offsets of the log for which no file answers. `without_rows`: what the index knows to be void, which is
    in no file of a table."""
    by_partition: defaultdict[int, list[Span]] = defaultdict(list)
    for span in (*without_rows, *(span for of_file in spans.values() for span in of_file)):
        by_partition[span.partition].append(span)
    for partition, bounds in sorted(log.items()):
        reached = bounds.log_start
        for span in sorted(by_partition[partition], key=lambda span: span.first):
            if span.first > reached and span.first < bounds.archived_end:
                yield f"offsets {reached} to {span.first - 1} of partition {partition} are in no file"
            reached = max(reached, span.end)
        if reached < bounds.archived_end:
            yield f"offsets {reached} to {bounds.archived_end - 1} of partition {partition} are in no file"
        elif reached > max(bounds.archived_end, bounds.log_start):
            last = max(bounds.archived_end, bounds.log_start)
            yield f"offsets {last} to {reached - 1} of partition {partition} are in a file, and not archived"


def not_in_table(index: Mapping[str, Sequence[IndexRow]], keys: Collection[str]) -> list[str]:
    """Files of the log's index whose rows no file of the table has; `index`: by the keys of files."""
    return sorted(key for key, rows in index.items() if key not in keys and any(row.row_count for row in rows))
