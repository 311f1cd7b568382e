"""Whether a data file's rows are those that manifest, footer and the log's index say.

Rule: what is wrong is a finding, in words, and no exception: a verification goes on to its end. Nothing of what writes
files, or serves records of them, is used to read them, but pyarrow. Runs on executors, a file at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iceberg_export.tables.data_file import DataFile, RowBounds
from protocol.limits import VERIFY_FINDINGS_MAX

Numbers: TypeAlias = NDArray[np.int64]


class Span(NamedTuple):
    """Offsets `[first, end)` of a partition for which a file answers."""

    partition: int
    first: int
    end: int


class IndexRow(NamedTuple):
    """An archived chunk as the log's index has it: rows `[row_first, row_first + row_count)` of a row group are all
    records with these offsets."""

    partition: int
    offset_first: int
    offset_end: int
    row_group: int
    row_first: int
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """What is said of a file that is to be read: by its manifest, by its footer, and by the index."""

    file: DataFile
    spans: tuple[Span, ...]
    index: tuple[IndexRow, ...]
    """Empty where the log has let go of the file, or nobody was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What a file turned out to hold, and what is wrong with it."""

    key: str
    row_count: int
    byte_count: int
    findings: tuple[str, ...]


class _Rows(NamedTuple):
    """Where all rows of a file belong, in the order in which they stand, and the first row of each row group."""

    partition: Numbers
    offset: Numbers
    timestamp_us: Numbers
    group_first: Sequence[int]


def examine(data: bytes, task: FileTask) -> FileReport:
    """Decode every value, and compare every row with what is said of it."""
    file = task.file
    findings: list[str] = []
    row_count = 0
    if len(data) != file.object_bytes:
        findings.append(f"it has {len(data):,} bytes, its manifest says {file.object_bytes:,}")
    try:
        rows = _read(data)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        findings.append(f"it cannot be read: {error}")
    else:
        row_count = len(rows.offset)
        findings += _some(_faults(rows, task))
    return FileReport(key=file.key, row_count=row_count, byte_count=len(data), findings=tuple(findings))


def _faults(rows: _Rows, task: FileTask) -> Iterator[str]:
    if len(rows.offset) != task.file.record_count:
        yield f"it has {len(rows.offset):,} rows, its manifest says {task.file.record_count:,}"
    if _bounds(rows) != task.file.bounds:
        yield f"its manifest's bounds are not those of its rows: {task.file.bounds}, and not {_bounds(rows)}"
    yield from _misplaced(rows)
    yield from _outside(rows, task.spans)
    for row in task.index:
        yield from _not_as_indexed(rows, row)


def _read(data: bytes) -> _Rows:
    """Raises what pyarrow raises, `KeyError` for a column that is missing."""
    file = pq.ParquetFile(pa.BufferReader(data))
    columns: dict[str, list[Numbers]] = {"partition": [], "offset": [], "timestamp": []}
    group_first = [0]
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        table.validate(full=True)
        for name, found in columns.items():
            column = table[name]
            if column.null_count:
                raise ValueError(f"row group {group} has rows without {name}")
            found.append(column.cast(pa.int64()).to_numpy())
        group_first.append(group_first[-1] + table.num_rows)
    partition, offset, timestamp_us = (
        np.concatenate(found) if found else np.empty(0, dtype=np.int64) for found in columns.values()
    )
    return _Rows(partition, offset, timestamp_us, group_first)


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


def _misplaced(rows: _Rows) -> Iterator[str]:
    """Rows that do not follow the one before them; each place once in the order of (partition, offset)."""
    same = np.diff(rows.partition) == 0
    twice = same & (np.diff(rows.offset) == 0)
    back = (np.diff(rows.partition) < 0) | (same & (np.diff(rows.offset) < 0))
    for what, where in (("stands twice", twice), ("stands behind a later one", back)):
        for row in (np.flatnonzero(where) + 1).tolist():
            yield f"{_place(rows, row)} {what}, in row {row:,}"


def _outside(rows: _Rows, spans: Sequence[Span]) -> Iterator[str]:
    """Rows for which the file does not answer."""
    by_partition = {span.partition: span for span in spans}
    for partition in np.unique(rows.partition).tolist():
        span = by_partition.get(partition, Span(partition, 0, 0))
        of_partition = rows.partition == partition
        for row in np.flatnonzero(of_partition & ((rows.offset < span.first) | (rows.offset >= span.end))).tolist():
            yield f"{_place(rows, row)} is none of the offsets for which its footer answers"


def _not_as_indexed(rows: _Rows, row: IndexRow) -> Iterator[str]:
    told = f"offsets {row.offset_first} to {row.offset_end - 1} of partition {row.partition}"
    if not 0 <= row.row_group < len(rows.group_first) - 1:
        if row.row_count:
            yield f"{told} are in row group {row.row_group} by the log's index, and the file has no such"
        return
    first = rows.group_first[row.row_group] + row.row_first
    end = min(first + row.row_count, rows.group_first[row.row_group + 1])
    is_right = (
        (rows.partition[first:end] == row.partition)
        & (rows.offset[first:end] >= row.offset_first)
        & (rows.offset[first:end] < row.offset_end)
    )
    within = (
        (rows.partition == row.partition) & (rows.offset >= row.offset_first) & (rows.offset < row.offset_end)
    ).sum()
    if int(is_right.sum()) != row.row_count or int(within) != row.row_count:
        yield f"{told} are {row.row_count:,} records by the log's index, and {int(within):,} rows"


def _place(rows: _Rows, row: int) -> str:
    return f"offset {rows.offset[row]} of partition {rows.partition[row]}"


def _some(findings: Iterable[str]) -> Iterator[str]:
    """The first of them, and how many more there are."""
    more = 0
    for count, finding in enumerate(findings):
        if count < VERIFY_FINDINGS_MAX:
            yield finding
        else:
            more += 1
    if more:
        yield f"and {more:,} more findings like these"
