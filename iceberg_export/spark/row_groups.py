"""Reads rows of a data file with ranged reads: only the selected row groups and columns.

Statistics exclude row groups. Requests are one run of row groups ahead of decoding. The order of rows by (partition,
offset) is checked, because the unread part of a piece is computed from the last row.
Specification: Apache Parquet's format; Iceberg's table specification, "Sort Orders".
"""
# pyright: reportAttributeAccessIssue=false

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iceberg_export.parquet.arrow_footer import read_footer
from iceberg_export.parquet.arrow_reader import columns_in_file, with_values
from iceberg_export.parquet.file_window import BytesInMemory
from iceberg_export.rows import schema
from iceberg_export.rows.checksums import tail_bytes
from iceberg_export.rows.footer import FileUnreadable, Footer, damage_contained, tail_bytes_first
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.columns import TIME_US_FIRST, Arrow
from iceberg_export.spark.planning import FilePiece, OffsetRange
from protocol.limits import READ_GAP_BYTES_MAX, SPARK_FILE_RUN_BYTES
from storage.read_plan import PlannedRead, plan_reads
from storage.refs import ByteRange

_FILTER_COLUMNS: Final = (schema.PARTITION, schema.OFFSET, schema.TIMESTAMP)


class ValueRange(NamedTuple):
    """The lowest and the highest value of a column in a row group, both inclusive."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBounds:
    """The bounds of a row group by its statistics."""

    partition: ValueRange
    offset: ValueRange
    time_us: ValueRange


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedGroup:
    """A row group that may have selected rows."""

    number: int
    bounds: GroupBounds
    is_whole: bool
    """True where all its rows are selected, so that no row has to be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRows:
    """The selected rows of a row group, and the place of its last row."""

    table: Arrow
    """The selected columns."""
    partition_last: int
    offset_last: int
    """The offset of the row group's last row, selected or not."""


def begin_end(bucket: Bucket, piece: FilePiece) -> "Future[bytes]":
    """A request for the end of the file, most likely with its footer.

    It is for the whole file where that costs less than a second request.
    """
    size = piece.object_bytes
    count = size if size <= READ_GAP_BYTES_MAX else tail_bytes_first(size)
    return bucket.begin_range(piece.key, size - count, count)


def read_footer_of(bucket: Bucket, piece: FilePiece, tail: bytes) -> Footer:
    """The footer of the piece's file. `tail`: the end of the file. Raises `StoreError`."""
    return footer_of(bucket, piece.key, piece.object_bytes, tail)


def footer_of(bucket: Bucket, key: str, object_bytes: int, tail: bytes) -> Footer:
    """The footer of an object of `object_bytes` bytes. `tail`: the end of the object. Raises `StoreError`."""
    try:
        while (needed := tail_bytes(tail, object_bytes)) > len(tail):
            tail = bucket.get_range(key, object_bytes - needed, needed)
        return read_footer(tail, key=key, file_bytes=object_bytes)
    except FileUnreadable as error:
        raise FileUnreadable(f"{key}: {error}") from error


def selected_groups(footer: Footer, ranges: Sequence[OffsetRange], since_us: int) -> list[SelectedGroup]:
    """The row groups that may have rows of `ranges` that are not earlier than `since_us`. Raises `FileUnreadable`."""
    groups: list[SelectedGroup] = []
    for number in range(len(footer.row_groups)):
        with damage_contained(f"the footer's entry of row group {number}"):
            bounds = _group_bounds(footer.parsed, number)
        partition, offset, time_us = bounds.partition, bounds.offset, bounds.time_us
        overlapping = [
            each
            for each in ranges
            if partition.low <= each.partition <= partition.high and each.first <= offset.high and each.end > offset.low
        ]
        if not overlapping or time_us.high < since_us:
            continue
        is_whole = (
            partition.low == partition.high
            and any(each.first <= offset.low and offset.high < each.end for each in overlapping)
            and time_us.low >= since_us
        )
        groups.append(SelectedGroup(number=number, bounds=bounds, is_whole=is_whole))
    return groups


def read_groups(
    bucket: Bucket,
    piece: FilePiece,
    footer: Footer,
    groups: Sequence[SelectedGroup],
    *,
    columns: Sequence[str],
    tail: bytes = b"",
) -> Iterator[tuple[SelectedGroup, Arrow]]:
    """The groups, each as an Arrow table with the columns. One that is not whole also has the columns to filter by.

    Values that the file leaves out are decoded from its typed columns. `tail`: the end of the file, where it was read
    already. Raises `StoreError`.
    """
    tail_first = piece.object_bytes - len(tail)
    with damage_contained(f"the footer of {piece.key}"):
        runs = list(_runs(footer, groups, columns))
    in_flight = [_begin(bucket, piece.key, run, tail_first) for run in runs[:1]]
    for row, run in enumerate(runs):
        if row + 1 < len(runs):
            in_flight.append(_begin(bucket, piece.key, runs[row + 1], tail_first))
        window = _Window()
        requests = in_flight.pop(0)
        for planned, future in requests:
            window.add(planned.read.byte_first, future.result())
        if not requests:
            window.add(tail_first, tail)
        with damage_contained(piece.key):
            file = pq.ParquetFile(pa.PythonFile(window, mode="r"), metadata=footer.parsed, pre_buffer=False)
        for group in run.groups:
            # Checksums are compared before pyarrow sees the bytes (safety rule S20).
            _check(footer, piece.key, window, group, columns)
            yield group, _decode(file, piece.key, footer, group, columns)


def choose_rows(
    group: SelectedGroup, table: Arrow, ranges: Sequence[OffsetRange], since_us: int, columns: Sequence[str]
) -> ChosenRows:
    """The selected rows of a group that was read. Raises `FileUnreadable` where the rows are out of order."""
    if group.is_whole:
        return ChosenRows(table=table, partition_last=group.bounds.partition.high, offset_last=group.bounds.offset.high)
    partition = _numbers(table, schema.PARTITION)
    offset = _numbers(table, schema.OFFSET)
    is_later = (partition[1:] > partition[:-1]) | ((partition[1:] == partition[:-1]) & (offset[1:] > offset[:-1]))
    if not bool(is_later.all()):
        raise FileUnreadable(f"row group {group.number} is not in the order of partitions and offsets")
    is_selected = np.zeros(len(offset), dtype=np.bool_)
    for each in ranges:
        # Rows are in order, so those of a range are contiguous.
        first, end = np.searchsorted(partition, [each.partition, each.partition + 1])
        low, high = np.searchsorted(offset[first:end], [each.first, each.end])
        is_selected[first + low : first + high] = True
    if since_us != TIME_US_FIRST:
        is_selected &= _numbers(table, schema.TIMESTAMP) >= since_us
    chosen = table.select(list(columns))
    if not bool(is_selected.all()):
        chosen = chosen.filter(pa.array(is_selected))
    return ChosenRows(table=chosen, partition_last=int(partition[-1]), offset_last=int(offset[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Row groups that are read together."""

    groups: tuple[SelectedGroup, ...]
    column_chunks: tuple[tuple[int, int], ...]
    """First byte and byte count of each column chunk."""


def _columns_of(group: SelectedGroup, columns: Sequence[str]) -> list[str]:
    needed = columns if group.is_whole else (*columns, *_FILTER_COLUMNS)
    return [name for name in schema.COLUMNS if name in needed]


def _runs(footer: Footer, groups: Sequence[SelectedGroup], columns: Sequence[str]) -> Iterator[_Run]:
    """The groups in runs of at most `SPARK_FILE_RUN_BYTES`; a larger group is a run of its own."""
    run: list[SelectedGroup] = []
    column_chunks: list[tuple[int, int]] = []
    byte_count = 0
    for group in groups:
        names = columns_in_file(footer, _columns_of(group, columns))
        locations = _column_chunks(footer.parsed, group.number, names)
        size = sum(count for _, count in locations)
        if run and byte_count + size > SPARK_FILE_RUN_BYTES:
            yield _Run(groups=tuple(run), column_chunks=tuple(column_chunks))
            run, column_chunks, byte_count = [], [], 0
        run.append(group)
        column_chunks.extend(locations)
        byte_count += size
    if run:
        yield _Run(groups=tuple(run), column_chunks=tuple(column_chunks))


def _begin(bucket: Bucket, key: str, run: _Run, tail_first: int) -> "list[tuple[PlannedRead, Future[bytes]]]":
    """The requests for a run; none where all its bytes are at or after `tail_first`, which is in memory."""
    if all(first >= tail_first for first, _ in run.column_chunks):
        return []
    ranges = [ByteRange(key=key, byte_first=first, byte_count=count) for first, count in run.column_chunks]
    return [
        (planned, bucket.begin_range(key, planned.read.byte_first, planned.read.byte_count))
        for planned in plan_reads(ranges)
    ]


def _check(footer: Footer, key: str, window: "_Window", group: SelectedGroup, columns: Sequence[str]) -> None:
    """Compare the checksums of the group's column chunks. Raises `FileUnreadable`."""
    if footer.checksums is None:
        return
    names = columns_in_file(footer, _columns_of(group, columns))
    with damage_contained(f"row group {group.number} of {key}"):
        try:
            for byte_first, byte_count in _column_chunks(footer.parsed, group.number, names):
                footer.checksums.check(byte_first, window.stretch(byte_first, byte_count))
        except FileUnreadable as error:
            raise FileUnreadable(f"row group {group.number} of {key}: {error}") from error


def _decode(file: Arrow, key: str, footer: Footer, group: SelectedGroup, columns: Sequence[str]) -> Arrow:
    names = _columns_of(group, columns)
    with damage_contained(f"row group {group.number} of {key}"):
        table = file.read_row_group(group.number, columns=columns_in_file(footer, names), use_threads=False)
        return with_values(footer, table, names)


def _numbers(table: Arrow, name: str) -> NDArray[np.int64]:
    column = table.column(name).combine_chunks()
    if name == schema.TIMESTAMP:
        column = column.view(pa.int64()) if not isinstance(column, pa.ChunkedArray) else column.cast(pa.int64())
    numbers: NDArray[np.int64] = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
    return numbers


def _group_bounds(file_metadata: Arrow, number: int) -> GroupBounds:
    row_group = file_metadata.row_group(number)
    spans: list[ValueRange] = []
    for name in _FILTER_COLUMNS:
        statistics = row_group.column(schema.COLUMNS.index(name)).statistics
        if statistics is None or not statistics.has_min_max:
            raise FileUnreadable(f"row group {number} has no statistics of {name}: Penstock did not write the file")
        spans.append(ValueRange(int(statistics.min_raw), int(statistics.max_raw)))
    return GroupBounds(partition=spans[0], offset=spans[1], time_us=spans[2])


def _column_chunks(file_metadata: Arrow, number: int, columns: Sequence[str]) -> list[tuple[int, int]]:
    """First byte and byte count of the columns' chunks in a row group; a column of lists has several chunks."""
    row_group = file_metadata.row_group(number)
    locations: list[tuple[int, int]] = []
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        if column.path_in_schema.partition(".")[0] in columns:
            first = column.data_page_offset
            if column.dictionary_page_offset is not None:
                first = min(first, column.dictionary_page_offset)
            locations.append((first, column.total_compressed_size))
    return locations


class _Window(BytesInMemory):
    """A file of which some ranges of bytes are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._firsts: list[int] = []
        self._stretches: list[Arrow] = []

    def add(self, byte_first: int, data: bytes) -> None:
        """Add a range of bytes. Ranges are added in ascending order."""
        self._firsts.append(byte_first)
        self._stretches.append(pa.py_buffer(data))

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0:
            end = self._firsts[-1] + len(self._stretches[-1]) if self._firsts else 0
            offset += self._position if whence == 1 else end
        self._position = offset
        return offset

    def read_buffer(self, size: int) -> Arrow:
        data = self.stretch(self._position, size)
        self._position += size
        return data

    def stretch(self, byte_first: int, byte_count: int) -> Arrow:
        """The bytes of the file from `byte_first`. Raises `OSError` where they are not in memory."""
        row = bisect_right(self._firsts, byte_first) - 1
        start = byte_first - self._firsts[row] if row >= 0 else -1
        if start < 0 or start + byte_count > len(self._stretches[row]):
            raise OSError(f"bytes {byte_first}+{byte_count} were not fetched")
        return self._stretches[row].slice(start, byte_count)
