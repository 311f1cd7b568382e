"""Whether a data file's rows are those that manifest, footer and the log's index say.

Rule: what is wrong is a finding, and no exception: a verification goes on to its end. Nothing of what writes files, or
serves records of them, is used to read them, but pyarrow; but for values that a file leaves out, of which it is checked
that consumers can be given them. Runs on executors, a file at a time.
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
"""The columns whose values are compared; of all others it is checked that they can be decoded."""


class OffsetSpan(NamedTuple):
    """Offsets `[first, end)` of a partition."""

    partition: int
    first: int
    end: int


class IndexRow(NamedTuple):
    """An archived chunk as the log's index has it: rows `[row_first, row_first + row_count)` of a row group are all
    records with these offsets. What of the offsets is aborted, or a marker, is no row."""

    partition: int
    offset_first: int
    offset_end: int
    row_group: int
    row_first: int
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """What is said of a file that is to be read, by its manifest and by the index."""

    file: DataFile
    index: tuple[IndexRow, ...] | None
    """None where no index was asked; empty where the log has let go of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What is said of all files of a table."""

    log_starts: tuple[int, ...]
    """Of each partition: where its log begins."""
    counted: tuple[OffsetSpan, ...] = ()
    """Whose rows are to be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What a file turned out to hold, and what is wrong with it."""

    key: str
    byte_count: int = 0
    row_count: int = 0
    dropped_count: int = 0
    """Of its rows those that the log has dropped: a file leaves the table as a whole."""
    hulls: tuple[OffsetSpan, ...] = ()
    """Of each partition, from its lowest offset to its highest."""
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """How many rows each of `TableFacts.counted` has here, by its number; without zeros."""
    findings: tuple[TableFinding, ...] = ()
    is_missing: bool = False
    problem: str = ""
    """Why it could not be read just now, which says nothing of the file."""


class _Rows(NamedTuple):
    """Where all rows of a file belong, in the order in which they stand, and the first row of each row group."""

    partition: Numbers
    offset: Numbers
    timestamp_us: Numbers
    group_first: Sequence[int]
    footer_spans: tuple[OffsetSpan, ...] | None
    statistics: tuple[str, ...]
    """What row groups say of themselves that is not so."""


class _Sorted(NamedTuple):
    """The same rows by (partition, offset). `is_as_written`: they stand like that in the file."""

    partition: Numbers
    offset: Numbers
    is_as_written: bool


def examine(data: bytes, task: FileTask, facts: TableFacts) -> FileReport:
    """Decode every value, and compare every row with what is said of it."""
    key = task.file.key
    findings: list[TableFinding] = []
    if len(data) != task.file.object_bytes:
        what = f"it has {len(data):,} bytes, its manifest says {task.file.object_bytes:,}"
        findings.append(TableFinding(file=key, what=what, do=DAMAGED_SECTION))
    try:
        with damage_contained("it"):
            # Before pyarrow sees the bytes (safety rule S20).
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
    found = partial(TableFinding, file=task.file.key)
    if len(rows.offset) != task.file.record_count:
        yield found(what=f"it has {len(rows.offset):,} rows, its manifest says {task.file.record_count:,}")
    if _bounds(rows) != task.file.bounds:
        yield found(
            what=f"its manifest's bounds are not those of its rows: {task.file.bounds}, and not {_bounds(rows)}"
        )
    yield from (found(what=what) for what in rows.statistics)
    yield from _misplaced(rows, task.file.key)
    yield from _outside_footer(ordered, rows.footer_spans, task.file.key)
    if task.index:
        yield from _not_as_indexed(rows, ordered, task.index, task.file.key)


# Reading.


def _read(data: bytes) -> _Rows:
    """Raises what pyarrow raises, `KeyError` where a column is missing, `FileUnreadable` where a place is null."""
    file = pq.ParquetFile(pa.BufferReader(data))
    columns: dict[str, list[Numbers]] = {name: [] for name in PLACES}
    group_first, statistics = [0], list[str]()
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        table.validate(full=True)
        if KEPT_VALUE in table.column_names:
            _give_back(data, table)
        for name, found in columns.items():
            column = table[name]
            if column.null_count:
                raise FileUnreadable(f"it cannot be read: row group {group} has rows without {name}")
            found.append(column.cast(pa.int64()).to_numpy())
        group_first.append(group_first[-1] + table.num_rows)
        statistics += _wrong_statistics(file.metadata.row_group(group), group, columns)
    partition, offset, timestamp_us = (
        np.concatenate(found) if found else np.empty(0, dtype=np.int64) for found in columns.values()
    )
    return _Rows(partition, offset, timestamp_us, group_first, _footer_spans(file), tuple(statistics))


def _give_back(data: bytes, table: pa.Table) -> None:
    """Make the values that a row group leaves out. Raises `ValueError` where one cannot be made."""
    from iceberg_export.parquet.arrow_files import read_footer, with_values

    try:
        footer = read_footer(data)
        if footer.value_decoder is None:
            raise ValueError("it leaves values out, and does not say how they are made")
        with_values(footer, table.combine_chunks(), COLUMNS)
    except FileUnreadable as error:
        raise ValueError(str(error)) from error


def _footer_spans(file: pq.ParquetFile) -> tuple[OffsetSpan, ...] | None:
    """Which offsets the file says that it answers for; None where it does not."""
    facts = (file.metadata.metadata or {}).get(FILE_METADATA_KEY.encode())
    return None if facts is None else tuple(OffsetSpan(*span) for span in read_footer_text(facts).partitions)


def _wrong_statistics(said: pq.RowGroupMetaData, group: int, columns: dict[str, list[Numbers]]) -> Iterator[str]:
    """By these engines pass over row groups."""
    for number in range(said.num_columns):
        column = said.column(number)
        name, statistics = column.path_in_schema, column.statistics
        if name not in (PARTITION, OFFSET) or statistics is None or not statistics.has_min_max:
            continue
        values = columns[name][-1]
        bounds = (int(values.min()), int(values.max())) if len(values) else None
        if bounds != (statistics.min, statistics.max):
            yield (
                f"row group {group} says that its {name}s are from {statistics.min} to {statistics.max}, and they are "
                f"{'none' if bounds is None else 'from {} to {}'.format(*bounds)}"
            )


def _ordered(rows: _Rows) -> _Sorted:
    same = np.diff(rows.partition) == 0
    if not bool(((np.diff(rows.partition) < 0) | (same & (np.diff(rows.offset) < 0))).any()):
        return _Sorted(rows.partition, rows.offset, is_as_written=True)
    order = np.lexsort((rows.offset, rows.partition))
    return _Sorted(rows.partition[order], rows.offset[order], is_as_written=False)


def _within(ordered: _Sorted, spans: Sequence[OffsetSpan]) -> tuple[Numbers, Numbers]:
    """Of each span, the rows `[first, end)` of `ordered` that are in it."""
    asked = np.array(spans, dtype=np.int64).reshape(-1, 3)
    first, end = np.empty(len(asked), dtype=np.int64), np.empty(len(asked), dtype=np.int64)
    for partition in np.unique(asked[:, 0]).tolist():
        begin, stop = np.searchsorted(ordered.partition, [partition, partition + 1])
        here = asked[:, 0] == partition
        first[here] = begin + np.searchsorted(ordered.offset[begin:stop], asked[here, 1])
        end[here] = begin + np.searchsorted(ordered.offset[begin:stop], asked[here, 2])
    return first, end


def _in_none(ordered: _Sorted, spans: Sequence[OffsetSpan]) -> Numbers:
    """The rows that are in none of the spans."""
    first, end = _within(ordered, spans)
    steps = np.zeros(len(ordered.offset) + 1, dtype=np.int64)
    np.add.at(steps, first, 1)
    np.add.at(steps, end, -1)
    return np.flatnonzero(np.cumsum(steps[:-1]) == 0)


# What is wrong.


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
    """Rows that do not follow the one before them; each place once in the order of (partition, offset)."""
    same = np.diff(rows.partition) == 0
    twice = same & (np.diff(rows.offset) == 0)
    back = (np.diff(rows.partition) < 0) | (same & (np.diff(rows.offset) < 0))
    for what, where in (("stands twice", twice), ("stands behind a later one", back)):
        for row in (np.flatnonzero(where) + 1).tolist():
            yield _at(rows, row, key, f"the record {what}, in row {row:,}")


def _outside_footer(ordered: _Sorted, spans: tuple[OffsetSpan, ...] | None, key: str) -> Iterator[TableFinding]:
    """Rows for which the file does not answer, by its own words."""
    if spans is None:
        yield TableFinding(
            file=key, what="it does not say which offsets it answers for: it was not written by Penstock"
        )
        return
    for row in _in_none(ordered, spans).tolist():
        yield _at(ordered, row, key, "it is none of the offsets for which the file's footer answers")


def _not_as_indexed(rows: _Rows, ordered: _Sorted, index: Sequence[IndexRow], key: str) -> Iterator[TableFinding]:
    firsts, ends = _within(ordered, [OffsetSpan(*row[:3]) for row in index])
    for row, first, end in zip(index, firsts.tolist(), ends.tolist(), strict=True):
        found = partial(TableFinding, file=key, partition=row.partition, offset=row.offset_first)
        facts = f"offsets {row.offset_first} to {row.offset_end - 1}"
        if end - first != row.row_count:
            what = f"{facts} are {row.row_count:,} records by the log's index, and {end - first:,} rows"
            yield found(what=what)
        elif row.row_count and ordered.is_as_written and not _is_at(rows, row, first, end):
            what = f"{facts} are in row group {row.row_group} from row {row.row_first:,} on by the log's index, and not"
            yield found(what=f"{what} there")


def _is_at(rows: _Rows, row: IndexRow, first: int, end: int) -> bool:
    if not 0 <= row.row_group < len(rows.group_first) - 1:
        return False
    group_first, group_end = rows.group_first[row.row_group : row.row_group + 2]
    return group_first + row.row_first == first and end <= group_end


def _uncovered(ordered: _Sorted, index: Sequence[IndexRow] | None) -> Numbers:
    """The rows that are in no chunk of the index; none where nobody was asked."""
    if index is None:
        return np.empty(0, dtype=np.int64)
    return _in_none(ordered, [OffsetSpan(*row[:3]) for row in index])


def _is_dropped(ordered: _Sorted, rows: Numbers, log_starts: Sequence[int]) -> NDArray[np.bool_]:
    """Whether the log of its partition begins behind each of the rows."""
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
