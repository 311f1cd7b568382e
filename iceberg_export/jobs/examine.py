"""Compares a data file's rows with its manifest, its footer, and the log's index.

An error in the file is a finding and no exception, so a verification continues to its end. The files are read with
pyarrow, independently of the code that writes them and serves records from them. One exception are left-out values: the
check is that consumers can get them. Runs on executors, a file at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iceberg_export.jobs.findings import DAMAGED_SECTION, TableFinding, some
from iceberg_export.rows.checksums import check_whole
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, damage_contained, footer_bytes
from iceberg_export.rows.footer_text import read_footer_text
from iceberg_export.rows.schema import COLUMNS, FILE_METADATA_KEY, KEPT_VALUE, OFFSET, PARTITION, TIMESTAMP
from iceberg_export.rows.thrift_footer import check_footer
from iceberg_export.tables.data_file import DataFile, RowBounds

Numbers: TypeAlias = NDArray[np.int64]
PLACES = (PARTITION, OFFSET, TIMESTAMP)
"""The columns whose values are compared. All other columns are decoded only."""


class OffsetSpan(NamedTuple):
    """Offsets `[first, end)` of a partition."""

    partition: int
    first: int
    end: int


class IndexRow(NamedTuple):
    """An archived chunk in the log's index.

    The rows `[row_first, row_first + row_count)` of the row group are all records with these offsets. Aborted records
    and markers have offsets, but no rows.
    """

    partition: int
    offset_first: int
    offset_end: int
    row_group: int
    row_first: int
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """A file to read, with its manifest's entry and its rows in the index."""

    file: DataFile
    index: tuple[IndexRow, ...] | None
    """None where no index is available; empty where the log no longer refers to the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The facts about a table that the check of each file needs."""

    log_starts: tuple[int, ...]
    """The first offset of each partition's log."""
    counted: tuple[OffsetSpan, ...] = ()
    """The spans whose rows to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The contents of a file, and its errors."""

    key: str
    byte_count: int = 0
    row_count: int = 0
    dropped_count: int = 0
    """The count of its rows that the log has dropped. They stay until the file leaves the table as a whole."""
    hulls: tuple[OffsetSpan, ...] = ()
    """The span from the lowest offset to the highest, for each partition."""
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """The file's count of rows in spans of `TableFacts.counted`, by the span's index; zeros are omitted."""
    findings: tuple[TableFinding, ...] = ()
    is_missing: bool = False
    problem: str = ""
    """The reason why the store did not return the file, which is no error of the file."""


class _Rows(NamedTuple):
    """The places of all rows of a file, in the file's order, and the first row of each row group."""

    partition: Numbers
    offset: Numbers
    timestamp_us: Numbers
    group_first: Sequence[int]
    footer_spans: tuple[OffsetSpan, ...] | None
    statistics: tuple[str, ...]
    """A text for each wrong statistic of a row group."""


class _Sorted(NamedTuple):
    """The same rows by (partition, offset). `is_as_written`: the file has them in this order."""

    partition: Numbers
    offset: Numbers
    is_as_written: bool


def examine(data: bytes, task: FileTask, facts: TableFacts) -> FileReport:
    """Decode every value of a file, and compare every row with manifest, footer and index.

    `data`: the whole file.
    """
    key = task.file.key
    findings: list[TableFinding] = []
    if len(data) != task.file.object_bytes:
        what = f"it has {len(data):,} bytes, its manifest says {task.file.object_bytes:,}"
        findings.append(TableFinding(file=key, what=what, do=DAMAGED_SECTION))
    try:
        with damage_contained("it"):
            # Checksums are compared before pyarrow sees the bytes. A file without them gets a check of its footer at
            # least: a damaged one can end the process (safety rule S20).
            if not check_whole(data, key):
                check_footer(memoryview(data)[-footer_bytes(data) : -FOOTER_TAIL_BYTES], len(data))
            rows = _read(data)
    except FileUnreadable as error:
        what = "it cannot be read: " + str(error).removeprefix("it cannot be read: ")
        findings.append(TableFinding(file=key, what=what, do=DAMAGED_SECTION))
        return FileReport(key=key, byte_count=len(data), findings=tuple(findings))
    ordered = _ordered(rows)
    uncovered = _uncovered(ordered, task.index)
    dropped = uncovered[_is_dropped(ordered, uncovered, facts.log_starts)]
    findings += some(_faults(rows, ordered, task))
    findings += some(_strangers(ordered, np.setdiff1d(uncovered, dropped), key))
    return FileReport(
        key=key,
        byte_count=len(data),
        row_count=len(rows.offset),
        dropped_count=len(dropped),
        hulls=_hulls(ordered),
        counts=_counts(ordered, facts.counted),
        findings=tuple(findings),
    )


def _faults(rows: _Rows, ordered: _Sorted, task: FileTask) -> Iterator[TableFinding]:
    finding = partial(TableFinding, file=task.file.key)
    if len(rows.offset) != task.file.record_count:
        yield finding(what=f"it has {len(rows.offset):,} rows, its manifest says {task.file.record_count:,}")
    if _bounds(rows) != task.file.bounds:
        yield finding(
            what=f"its manifest's bounds are not those of its rows: {task.file.bounds} instead of {_bounds(rows)}"
        )
    yield from (finding(what=what) for what in rows.statistics)
    yield from _misplaced(rows, task.file.key)
    yield from _outside_footer(ordered, rows.footer_spans, task.file.key)
    if task.index:
        yield from _not_as_indexed(rows, ordered, task.index, task.file.key)


# Reading.


def _read(data: bytes) -> _Rows:
    """The places of a file's rows; decodes all other columns, too.

    Raises what pyarrow raises, `KeyError` where a column is missing, `FileUnreadable` where a place has a null.
    """
    file = pq.ParquetFile(pa.BufferReader(data))
    columns: dict[str, list[Numbers]] = {name: [] for name in PLACES}
    group_first, statistics = [0], list[str]()
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        table.validate(full=True)
        if KEPT_VALUE in table.column_names:
            _decode_left_out(data, table)
        for name, chunks in columns.items():
            column = table[name]
            if column.null_count:
                raise FileUnreadable(f"it cannot be read: row group {group} has rows without {name}")
            chunks.append(column.cast(pa.int64()).to_numpy())
        group_first.append(group_first[-1] + table.num_rows)
        statistics += _wrong_statistics(file.metadata.row_group(group), group, columns)
    partition, offset, timestamp_us = (
        np.concatenate(chunks) if chunks else np.empty(0, dtype=np.int64) for chunks in columns.values()
    )
    return _Rows(partition, offset, timestamp_us, group_first, _footer_spans(file), tuple(statistics))


def _decode_left_out(data: bytes, table: pa.Table) -> None:
    """Decode the values that a row group leaves out. Raises `ValueError` where that fails for one."""
    from iceberg_export.parquet.arrow_footer import read_footer
    from iceberg_export.parquet.arrow_reader import with_values

    try:
        footer = read_footer(data)
        if footer.value_decoder is None:
            raise ValueError("it leaves values out, but its footer does not say how to decode them")
        with_values(footer, table.combine_chunks(), COLUMNS)
    except FileUnreadable as error:
        raise ValueError(str(error)) from error


def _footer_spans(file: pq.ParquetFile) -> tuple[OffsetSpan, ...] | None:
    """The offsets that the file answers for by its footer; None where the footer has none."""
    facts = (file.metadata.metadata or {}).get(FILE_METADATA_KEY.encode())
    return None if facts is None else tuple(OffsetSpan(*span) for span in read_footer_text(facts).partitions)


def _wrong_statistics(row_group: pq.RowGroupMetaData, group: int, columns: dict[str, list[Numbers]]) -> Iterator[str]:
    """A text for each wrong statistic of places, by which engines skip row groups."""
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        name, statistics = column.path_in_schema, column.statistics
        if name not in (PARTITION, OFFSET) or statistics is None or not statistics.has_min_max:
            continue
        values = columns[name][-1]
        bounds = (int(values.min()), int(values.max())) if len(values) else None
        if bounds != (statistics.min, statistics.max):
            yield (
                f"row group {group} says that its {name}s are from {statistics.min} to {statistics.max}, but they are "
                f"{'none' if bounds is None else 'from {} to {}'.format(*bounds)}"
            )


def _ordered(rows: _Rows) -> _Sorted:
    same = np.diff(rows.partition) == 0
    if not bool(((np.diff(rows.partition) < 0) | (same & (np.diff(rows.offset) < 0))).any()):
        return _Sorted(rows.partition, rows.offset, is_as_written=True)
    order = np.lexsort((rows.offset, rows.partition))
    return _Sorted(rows.partition[order], rows.offset[order], is_as_written=False)


def _within(ordered: _Sorted, spans: Sequence[OffsetSpan]) -> tuple[Numbers, Numbers]:
    """The rows `[first, end)` of `ordered` that are in each span."""
    limits = np.array(spans, dtype=np.int64).reshape(-1, 3)
    first, end = np.empty(len(limits), dtype=np.int64), np.empty(len(limits), dtype=np.int64)
    for partition in np.unique(limits[:, 0]).tolist():
        begin, stop = np.searchsorted(ordered.partition, [partition, partition + 1])
        here = limits[:, 0] == partition
        first[here] = begin + np.searchsorted(ordered.offset[begin:stop], limits[here, 1])
        end[here] = begin + np.searchsorted(ordered.offset[begin:stop], limits[here, 2])
    return first, end


def _in_none(ordered: _Sorted, spans: Sequence[OffsetSpan]) -> Numbers:
    """The rows that are in none of the spans."""
    first, end = _within(ordered, spans)
    steps = np.zeros(len(ordered.offset) + 1, dtype=np.int64)
    np.add.at(steps, first, 1)
    np.add.at(steps, end, -1)
    return np.flatnonzero(np.cumsum(steps[:-1]) == 0)


# Findings.


def _bounds(rows: _Rows) -> RowBounds | None:
    if not len(rows.offset):
        return None
    return RowBounds(
        partition_min=int(rows.partition.min()),
        partition_max=int(rows.partition.max()),
        offset_min=int(rows.offset.min()),
        offset_max=int(rows.offset.max()),
        timestamp_us_min=int(rows.timestamp_us.min()),
        timestamp_us_max=int(rows.timestamp_us.max()),
    )


def _misplaced(rows: _Rows, key: str) -> Iterator[TableFinding]:
    """A finding for each row that repeats a place, or is out of the order of (partition, offset)."""
    same = np.diff(rows.partition) == 0
    twice = same & (np.diff(rows.offset) == 0)
    back = (np.diff(rows.partition) < 0) | (same & (np.diff(rows.offset) < 0))
    for what, where in (("stands twice", twice), ("stands behind a later one", back)):
        for row in (np.flatnonzero(where) + 1).tolist():
            yield _at(rows, row, key, f"the record {what}, in row {row:,}")


def _outside_footer(ordered: _Sorted, spans: tuple[OffsetSpan, ...] | None, key: str) -> Iterator[TableFinding]:
    """A finding for each row that is outside the offsets in the file's footer."""
    if spans is None:
        yield TableFinding(
            file=key, what="its footer does not say which offsets it answers for: Penstock did not write it"
        )
        return
    for row in _in_none(ordered, spans).tolist():
        yield _at(ordered, row, key, "it is none of the offsets for which the file's footer answers")


def _not_as_indexed(rows: _Rows, ordered: _Sorted, index: Sequence[IndexRow], key: str) -> Iterator[TableFinding]:
    firsts, ends = _within(ordered, [OffsetSpan(*row[:3]) for row in index])
    for row, first, end in zip(index, firsts.tolist(), ends.tolist(), strict=True):
        finding = partial(TableFinding, file=key, partition=row.partition, offset=row.offset_first)
        facts = f"offsets {row.offset_first} to {row.offset_end - 1}"
        if end - first != row.row_count:
            what = f"{facts} are {row.row_count:,} records by the log's index, and {end - first:,} rows"
            yield finding(what=what)
        elif row.row_count and ordered.is_as_written and not _is_at(rows, row, first, end):
            what = f"{facts} are in row group {row.row_group} from row {row.row_first:,} on by the log's index, and not"
            yield finding(what=f"{what} there")


def _is_at(rows: _Rows, row: IndexRow, first: int, end: int) -> bool:
    if not 0 <= row.row_group < len(rows.group_first) - 1:
        return False
    group_first, group_end = rows.group_first[row.row_group : row.row_group + 2]
    return group_first + row.row_first == first and end <= group_end


def _uncovered(ordered: _Sorted, index: Sequence[IndexRow] | None) -> Numbers:
    """The rows that are in no chunk of the index; no rows where no index is available."""
    if index is None:
        return np.empty(0, dtype=np.int64)
    return _in_none(ordered, [OffsetSpan(*row[:3]) for row in index])


def _is_dropped(ordered: _Sorted, rows: Numbers, log_starts: Sequence[int]) -> NDArray[np.bool_]:
    """For each of the rows, whether its offset is below its partition's log start."""
    partition, offset = ordered.partition[rows], ordered.offset[rows]
    starts = np.array([*log_starts, 0], dtype=np.int64)
    is_known = (partition >= 0) & (partition < len(log_starts))
    return (offset >= 0) & (offset < starts[np.where(is_known, partition, len(log_starts))])


def _strangers(ordered: _Sorted, rows: Numbers, key: str) -> Iterator[TableFinding]:
    for row in rows.tolist():
        yield _at(ordered, row, key, "the log's index has no such record in this file")


def _at(rows: _Rows | _Sorted, row: int, key: str, what: str) -> TableFinding:
    return TableFinding(file=key, partition=int(rows.partition[row]), offset=int(rows.offset[row]), what=what)


def _hulls(ordered: _Sorted) -> tuple[OffsetSpan, ...]:
    partitions, first = np.unique(ordered.partition, return_index=True)
    last = np.append(first, len(ordered.offset))[1:] - 1
    return tuple(
        OffsetSpan(partition, int(ordered.offset[begin]), int(ordered.offset[stop]) + 1)
        for partition, begin, stop in zip(partitions.tolist(), first.tolist(), last.tolist(), strict=True)
    )


def _counts(ordered: _Sorted, spans: Sequence[OffsetSpan]) -> dict[int, int]:
    if not spans:
        return {}
    first, end = _within(ordered, spans)
    rows = (end - first).tolist()
    return {number: count for number, count in enumerate(rows) if count}
