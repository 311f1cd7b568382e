"""What a table's snapshots say that their commits brought: how far rows can be counted where no agent tells the index.

Rule: pure. A snapshot tells the offsets of its archive pass and how many records they came to, so only all of them
together can be counted, and only while none was dropped by the log, or by the same commit. What is not counted is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_export.jobs.coverage import LogBounds
from iceberg_export.jobs.examine import OffsetSpan
from iceberg_export.jobs.findings import TableFinding
from iceberg_export.tables.metadata import Snapshot
from iceberg_export.tables.snapshots import DROPPED_FILES, OFFSETS, OFFSETS_OMITTED
from protocol.decoding import JsonDecoder

_offsets_decoder = JsonDecoder(dict[str, tuple[int, int]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """By one snapshot."""

    snapshot_id: int
    spans: tuple[OffsetSpan, ...]
    row_count: int


def brought(snapshots: Sequence[Snapshot], log: Mapping[int, LogBounds]) -> tuple[list[Brought], list[str]]:
    """What can be counted, and in words what cannot."""
    found: list[Brought] = []
    dropping = omitted = 0
    counted: dict[int, list[tuple[int, int]]] = {}
    for snapshot in snapshots:
        omitted += OFFSETS_OMITTED in snapshot.summary
        if OFFSETS not in snapshot.summary:
            continue
        try:
            spans_by_partition = _offsets_decoder.decode(snapshot.summary[OFFSETS])
            spans = tuple(
                OffsetSpan(int(partition), first, end) for partition, (first, end) in spans_by_partition.items()
            )
        except ValueError:  # damaged, and then as good as not there
            omitted += 1
            continue
        if DROPPED_FILES in snapshot.summary or any(
            span.partition not in log or span.first < log[span.partition].log_start for span in spans
        ):
            dropping += 1
            continue
        rows = int(snapshot.summary.get("added-records", "0"))
        found.append(Brought(snapshot_id=snapshot.snapshot_id, spans=spans, row_count=rows))
        for span in spans:
            counted.setdefault(span.partition, []).append((span.first, span.end))
    return found, [*_not_counted(log, counted), *_not_countable(dropping, omitted)]


def _not_counted(log: Mapping[int, LogBounds], counted: Mapping[int, Sequence[tuple[int, int]]]) -> Iterator[str]:
    """Archived offsets of which no snapshot that is kept tells the number."""
    count, partitions = 0, 0
    for partition, bounds in log.items():
        left = max(0, bounds.archived_end - bounds.log_start) - sum(
            end - first for first, end in counted.get(partition, ())
        )
        count += max(0, left)
        partitions += left > 0
    if count:
        yield (
            f"whether every record of {count:,} archived offsets of {partitions:,} partitions is there: no snapshot "
            "that is kept tells their number; the log's index does: name an agent"
        )


def _not_countable(dropping: int, omitted: int) -> Iterator[str]:
    if dropping:
        yield f"the number of records of {dropping:,} snapshots, of which some were dropped, or files with them"
    if omitted:
        yield f"the number of records of {omitted:,} snapshots of too many partitions to be named"


def wrong_counts(snapshots: Sequence[Brought], counts: Sequence[int]) -> Iterator[TableFinding]:
    """`counts`: of rows in each span of all snapshots, in their order."""
    held = iter(counts)
    for snapshot in snapshots:
        rows = sum(next(held) for _ in snapshot.spans)
        if rows != snapshot.row_count:
            one = snapshot.spans[0] if len(snapshot.spans) == 1 else None
            yield TableFinding(
                partition=None if one is None else one.partition,
                offset=None if one is None else one.first,
                what=f"snapshot {snapshot.snapshot_id} brought {snapshot.row_count:,} records of offsets that are "
                f"{rows:,} rows now",
            )
