"""Writes one Parquet file of the lake, for an archive pass or for a merge of files.

The caller passes rows in the order of (partition, offset), about a chunk at a time. What is passed together is a row
group; with `sizes` rows of one partition are gathered to large ones (`iceberg_export.parquet.row_group`). The result is
the file and the entries of the chunk index that serve its rows. Memory is bounded by one row group and
`ARCHIVE_FILE_MEMORY_BYTES_MAX` of the file; the rest of the file is in a temporary file. CPU work for a thread.
"""

import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from coordinator.commands.commands import ArchivedChunk
from iceberg_export.parquet.arrow_writer import FileWriter, HeaderKeysFound
from iceberg_export.parquet.pages import page_cuts
from iceberg_export.parquet.row_group import SMALL_ROW_GROUPS, PendingRowGroup, RowGroupSizes
from iceberg_export.rows.checksums import sealed
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.footer import RowGroupLocation
from iceberg_export.rows.schema import (
    CHECKSUMS_METADATA_KEY,
    CHECKSUMS_VERSION,
    FILE_FORMAT_VERSION,
    FILE_FORMAT_VERSION_HEADER_KEYS,
    FILE_FORMAT_VERSION_LEFT_OUT,
    FILE_METADATA_KEY,
    MICROSECONDS_PER_MILLISECOND,
    PAGE_ROWS_METADATA_KEY,
)
from iceberg_export.tables.column_counts import ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from protocol.limits import ARCHIVE_FILE_MEMORY_BYTES_MAX, ROW_GROUP_ROWS_MAX, TYPED_CELLS_MAX
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, PartitionIndex, TopicId
from storage.object_store import Buffer

if TYPE_CHECKING:
    from iceberg_export.typed.file_columns import FileColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowRun:
    """Consecutive rows of one partition in one row group. `offset_first`: the offset of the first record."""

    row_group: int
    row_first: int
    row_count: int
    offset_first: Offset
    max_timestamp: Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A finished file. Its bytes are valid as long as `parts` is referenced: they may be a mapped temporary file."""

    parts: tuple[Buffer, ...]
    object_bytes: int
    row_count: int
    bounds: RowBounds | None
    """None where the file has no rows."""
    counts: ColumnCounts
    """Counts of the table's columns: a value that the file leaves out counts as a null of `value`."""
    split_offsets: tuple[int, ...]
    """The first byte of each row group."""
    partitions: tuple[tuple[PartitionIndex, tuple[ArchivedChunk, ...]], ...]
    """For each partition, in order, the index rows that replace its chunks. They cover the same range of offsets."""

    def data_file(self, key: str) -> DataFile:
        """The file as the table's manifest lists it, stored under `key`."""
        return DataFile(
            key=key,
            object_bytes=self.object_bytes,
            record_count=self.row_count,
            bounds=self.bounds,
            counts=self.counts,
            split_offsets=self.split_offsets,
        )


class WriteFile(Protocol):
    """Writes a whole file. Raises `HeaderKeysFound` where it has to be called again with `has_header_keys`."""

    def __call__(self, *, has_header_keys: bool) -> ArchiveFile: ...


def write_whole_file(write: WriteFile) -> ArchiveFile:
    """The file of `write`, which is called again where header keys have to be kept as bytes.

    Nearly always the first row group shows whether they have to, so a second call is rare.
    """
    try:
        return write(has_header_keys=False)
    except HeaderKeysFound:
        pass  # outside the handler: its traceback refers to what was unpacked
    return write(has_header_keys=True)


class ArchiveFileWriter:
    """Takes ranges of offsets, and the rows in them, in the order of (partition, offset).

    The ranges of a partition are contiguous. As a context manager it discards an unfinished file at its exit.
    """

    def __init__(
        self,
        *,
        topic_id: TopicId,
        typed: "FileColumns | None" = None,
        has_header_keys: bool = False,
        key: str | None = None,
        sizes: RowGroupSizes = SMALL_ROW_GROUPS,
    ) -> None:
        """`has_header_keys`: keep header keys as bytes, whatever the first rows have. `key`: the object key of the
        file, which its checksums cover (safety rule S20). None: no checksums, for tests alone. `sizes`: of row groups
        and their pages."""
        self._sizes = sizes
        self._topic_id = topic_id
        self._key = key
        self._sink: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(max_size=ARCHIVE_FILE_MEMORY_BYTES_MAX)  # noqa: SIM115
        self._typed, self._has_header_keys = typed, has_header_keys
        self._page_rows = 0
        """The rows of each page, once the file has rows."""
        self._has_pages = False
        """Whether a row group has several pages."""
        self._begun: FileWriter | None = None
        self._pending: PendingRowGroup | None = None
        self._version = FILE_FORMAT_VERSION
        if typed is not None and typed.plans is not None:
            self._version = FILE_FORMAT_VERSION_LEFT_OUT
        typed_count = 0 if typed is None else len(typed.columns.columns)
        self._rows_max = min(ROW_GROUP_ROWS_MAX, TYPED_CELLS_MAX // max(typed_count, 1))
        """The limit of rows in a row group. Rows without bytes would never reach the target in bytes, yet each one
        has a value in every typed column."""
        self._runs: dict[PartitionIndex, list[_RowRun]] = {}
        self._row_groups_count = 0
        self._bounds: RowBounds | None = None
        self._ranges: dict[PartitionIndex, tuple[Offset, Offset]] = {}
        self._partition_last = PartitionIndex(-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._sink.closed:
            if self._begun is not None:
                self._begun.abandon()
            self._sink.close()

    def enter(self, partition: PartitionIndex, offset_first: Offset, offset_end: Offset) -> bool:
        """Add a range of offsets that the file answers for, with or without rows. True for a partition's first one."""
        assert partition >= self._partition_last, "partitions come in order"
        is_new = partition != self._partition_last
        range_first, range_end = (offset_first, offset_first) if is_new else self._ranges[partition]
        assert offset_first == range_end, "a partition's chunks come without holes"
        self._partition_last = partition
        self._ranges[partition] = (range_first, offset_end)
        return is_new

    def write_rows(self, rows: RecordRows) -> None:
        """Append at least one row: to a row group of its partition, or as one that several partitions share.

        Rows beyond the limit of a row group become several. Raises `HeaderKeysFound`.
        """
        for first in range(0, len(rows), self._rows_max):
            self._add(rows.part(first, min(first + self._rows_max, len(rows))))

    def _add(self, rows: RecordRows) -> None:
        if not self._page_rows:
            self._page_rows = self._sizes.page_rows(rows)
        if self._pending is not None and not self._pending.takes(rows):
            self._write_pending()
        if self._pending is None:
            self._pending = PendingRowGroup(self._sizes, self._page_rows, self._rows_max)
        if self._pending.takes(rows):
            self._pending.add(rows)
            if self._pending.is_full:
                self._write_pending()
        else:
            self._pending = None
            self._write_shared(rows)

    def _write_pending(self) -> None:
        """Write the row group of one partition that waits, if there is one."""
        pending, self._pending = self._pending, None
        if pending is None or not pending.parts:
            return
        parts = pending.parts
        offsets = np.concatenate([part.offset for part in parts])
        timestamps = np.concatenate([part.timestamp_ms for part in parts])
        ends = pending.chunk_ends()
        runs = [(pending.partition, first, end) for first, end in pairwise((0, *ends))]
        self._write_row_group(parts, offsets, timestamps, runs)

    def _write_shared(self, rows: RecordRows) -> None:
        starts = np.flatnonzero(np.diff(rows.partition, prepend=-1))
        runs = [
            (PartitionIndex(int(rows.partition[first])), first, end)
            for first, end in pairwise((*starts.tolist(), len(rows)))
        ]
        self._write_row_group([rows], rows.offset, rows.timestamp_ms, runs)

    def _write_row_group(
        self,
        parts: Sequence[RecordRows],
        offsets: NDArray[np.int64],
        timestamps: NDArray[np.int64],
        runs: Sequence[tuple[PartitionIndex, int, int]],
    ) -> None:
        """`runs`: for each chunk its partition, its first row and the row after its last."""
        self._file().write_row_group(parts)
        self._has_pages |= self._sizes.group_bytes_max > 0 and len(offsets) > self._page_rows
        for part in parts:
            self._bounds = _bounds(part) if self._bounds is None else self._bounds.with_also(_bounds(part))
        for partition, first, end in runs:
            self._runs.setdefault(partition, []).append(
                _RowRun(
                    row_group=self._row_groups_count,
                    row_first=first,
                    row_count=end - first,
                    offset_first=Offset(int(offsets[first])),
                    max_timestamp=Milliseconds(int(timestamps[first:end].max())),
                )
            )
        self._row_groups_count += 1

    def _file(self) -> FileWriter:
        if self._begun is None:
            self._begun = FileWriter(
                self._sink,
                self._typed,
                has_header_keys=self._has_header_keys,
                page_rows=self._page_rows if self._sizes.group_bytes_max else 0,
            )
        return self._begun

    def finish(self) -> ArchiveFile:
        """Write the pending rows and the footer. Nothing may be added after it. Raises `HeaderKeysFound`."""
        self._write_pending()
        file = self._file()
        checksums = {} if self._key is None else {CHECKSUMS_METADATA_KEY: CHECKSUMS_VERSION}
        pages = {PAGE_ROWS_METADATA_KEY: str(self._page_rows)} if self._has_pages and self._key is not None else {}
        places = file.close({FILE_METADATA_KEY: self._describe(file), **checksums, **pages})
        contents = _contents(self._sink, self._sink.tell())
        self._sink.close()
        view = memoryview(contents)
        parts: tuple[Buffer, ...] = (view,)
        if self._key is not None:
            cuts = page_cuts(view, self._page_rows) if pages else ()
            parts = sealed(view, self._key, chain(file.chunk_bounds(), cuts))
            _leave_pages(contents)
        return ArchiveFile(
            parts=parts,
            object_bytes=sum(map(len, parts)),
            row_count=sum(place.row_count for place in places),
            bounds=self._bounds,
            counts=file.counts(),
            split_offsets=tuple(place.byte_first for place in places),
            partitions=tuple(
                (partition, _archived(offset_first, offset_end, self._runs.get(partition, []), places))
                for partition, (offset_first, offset_end) in self._ranges.items()
            ),
        )

    def _describe(self, file: FileWriter) -> str:
        """The JSON of the file's format, topic and ranges of offsets: a recovery reads it without the ledger."""
        version = FILE_FORMAT_VERSION_HEADER_KEYS if file.has_header_keys else self._version
        return json.dumps(
            {
                "version": version,
                "topic_id": self._topic_id.hex(),
                "partitions": [[partition, *offsets] for partition, offsets in self._ranges.items()],
            },
            separators=(",", ":"),
        )


def _bounds(rows: RecordRows) -> RowBounds:
    """The lowest and the highest values of at least one row."""
    return RowBounds(
        partition_min=int(rows.partition.min()),
        partition_max=int(rows.partition.max()),
        offset_min=int(rows.offset.min()),
        offset_max=int(rows.offset.max()),
        timestamp_us_min=int(rows.timestamp_ms.min()) * MICROSECONDS_PER_MILLISECOND,
        timestamp_us_max=int(rows.timestamp_ms.max()) * MICROSECONDS_PER_MILLISECOND,
    )


def _archived(
    offset_first: Offset, offset_end: Offset, runs: list[_RowRun], places: tuple[RowGroupLocation, ...]
) -> tuple[ArchivedChunk, ...]:
    """A partition's runs as rows of the index. Each answers for the offsets up to the next one's first record."""
    # Only markers and aborted records: the index keeps the range, without rows, because a fetch may ask for it.
    if not runs:
        return (
            ArchivedChunk(
                offset_first=offset_first,
                offset_end=offset_end,
                row_group=0,
                row_first=0,
                row_count=0,
                byte_first=0,
                byte_count=0,
                max_timestamp=NO_TIMESTAMP,
            ),
        )
    bounds = [offset_first, *(run.offset_first for run in runs[1:]), offset_end]
    return tuple(
        ArchivedChunk(
            offset_first=first,
            offset_end=end,
            row_group=run.row_group,
            row_first=run.row_first,
            row_count=run.row_count,
            byte_first=places[run.row_group].byte_first,
            byte_count=places[run.row_group].byte_count,
            max_timestamp=run.max_timestamp,
        )
        for run, (first, end) in zip(runs, pairwise(bounds), strict=True)
    )


def _contents(sink: SpooledTemporaryFile[bytes], object_bytes: int) -> bytes | mmap.mmap:
    """The file's bytes. A large file is mapped; its unlinked temporary file is freed with the mapping."""
    if object_bytes <= ARCHIVE_FILE_MEMORY_BYTES_MAX:
        sink.seek(0)
        return sink.read()
    sink.flush()
    return mmap.mmap(sink.fileno(), object_bytes, access=mmap.ACCESS_READ)


def _leave_pages(contents: bytes | mmap.mmap) -> None:
    """Take a mapped file out of the page table again; its bytes stay in the page cache.

    The checksums have touched each page. Linux was seen to need three times as long to copy mapped pages into the
    store's file as others: 0.09 s instead of 0.03 s for 85 MB, a fifth of an archive pass.
    """
    if isinstance(contents, mmap.mmap):
        contents.madvise(mmap.MADV_DONTNEED)
