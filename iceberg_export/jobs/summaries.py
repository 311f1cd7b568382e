"""Reads the counts of records from the summaries of a table's snapshots, for a verification without an agent. Pure.

A summary has the offsets of its archive pass and their count of records. Only all offsets of a pass together can be
compared, and only while neither the log nor the same commit has dropped any of them. The report lists what cannot be
counted.
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
class SnapshotRecords:
    """The offsets that a snapshot's commit added, and their count of records."""

    snapshot_id: int
    spans: tuple[OffsetSpan, ...]
    row_count: int


def snapshot_records(
    snapshots: Sequence[Snapshot], log: Mapping[int, LogBounds]
) -> tuple[list[SnapshotRecords], list[str]]:
    """The records that can be counted, and a text for each part of the log that cannot."""
    countable: list[SnapshotRecords] = []
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
        except ValueError:  # a damaged summary counts as one without offsets
            omitted += 1
            continue
        if DROPPED_FILES in snapshot.summary or any(
            span.partition not in log or span.first < log[span.partition].log_start for span in spans
        ):
            dropping += 1
            continue
        rows = int(snapshot.summary.get("added-records", "0"))
        countable.append(SnapshotRecords(snapshot_id=snapshot.snapshot_id, spans=spans, row_count=rows))
        for span in spans:
            counted.setdefault(span.partition, []).append((span.first, span.end))
    return countable, [*_not_counted(log, counted), *_not_countable(dropping, omitted)]


def _not_counted(log: Mapping[int, LogBounds], counted: Mapping[int, Sequence[tuple[int, int]]]) -> Iterator[str]:
    """A text where no retained snapshot has the count of some archived offsets."""
    count, partitions = 0, 0
    for partition, bounds in log.items():
        uncounted = max(0, bounds.archived_end - bounds.log_start) - sum(
            end - first for first, end in counted.get(partition, ())
        )
        count += max(0, uncounted)
        partitions += uncounted > 0
    if count:
        yield (
            f"whether all records of {count:,} archived offsets in {partitions:,} partitions exist: no retained "
            "snapshot has their count, but the log's index has it: give --agent"
        )


def _not_countable(dropping: int, omitted: int) -> Iterator[str]:
    if dropping:
        yield f"the counts of {dropping:,} snapshots: some of their records, or files with them, were dropped since"
    if omitted:
        yield f"the counts of {omitted:,} snapshots: they have too many partitions to list their offsets"


def wrong_counts(snapshots: Sequence[SnapshotRecords], counts: Sequence[int]) -> Iterator[TableFinding]:
    """A finding for each snapshot whose records are another count of rows.

    `counts`: the count of rows in each span of all snapshots, in their order.
    """
    span_counts = iter(counts)
    for snapshot in snapshots:
        rows = sum(next(span_counts) for _ in snapshot.spans)
        if rows != snapshot.row_count:
            span = snapshot.spans[0] if len(snapshot.spans) == 1 else None
            yield TableFinding(
                partition=None if span is None else span.partition,
                offset=None if span is None else span.first,
                what=f"snapshot {snapshot.snapshot_id} brought {snapshot.row_count:,} records of offsets that are "
                f"{rows:,} rows now",
            )
