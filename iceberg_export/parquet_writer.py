"""Chunks in, one Parquet file out.

Rule: records are written in the order of (partition, offset), those of aborted transactions are not, and what the index
needs to serve them again comes out beside the file. Memory is bounded by one row group and one batch, and by
`ARCHIVE_FILE_MEMORY_BYTES_MAX` of the file: what is beyond lies in a temporary file. Everything here is CPU work for a
thread.

A partition that fills row groups has them to itself; small ones share, so that neither a Kafka fetch nor a Spark scan
meets thousands of tiny row groups.
"""

import json
import mmap
from dataclasses import dataclass, replace
from itertools import pairwise
from tempfile import SpooledTemporaryFile
from typing import Self

import numpy as np

from coordinator.commands import ArchivedChunk
from iceberg_export.arrow_files import FileWriter
from iceberg_export.columns import RecordRows
from iceberg_export.files import RowGroupPlace
from iceberg_export.kafka_rows import BatchRows, gather_rows
from iceberg_export.schema import FILE_FORMAT_VERSION, FILE_METADATA_KEY, MICROSECONDS_PER_MILLISECOND
from iceberg_export.source_chunks import SourceChunk, decode_chunk
from iceberg_export.tables.data_file import DataFile, RowBounds
from protocol.limits import ARCHIVE_FILE_MEMORY_BYTES_MAX, ROW_GROUP_BYTES_TARGET
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, PartitionIndex, TopicId
from storage.object_store import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Consecutive rows of one partition in one row group. `offset_first` is the first record's own."""

    row_group: int
    partition: PartitionIndex
    row_first: int
    row_count: int
    offset_first: Offset
    max_timestamp: Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A finished file, valid as long as its parts are referred to."""

    parts: tuple[Buffer, ...]
    object_bytes: int
    row_count: int
    bounds: RowBounds | None
    """None where it holds no rows."""
    null_keys: int
    null_values: int
    split_offsets: tuple[int, ...]
    """The first byte of each row group."""
    partitions: tuple[tuple[PartitionIndex, tuple[ArchivedChunk, ...]], ...]
    """For each partition, in order, what stands in the place of its chunks: exactly their range of offsets."""

    def data_file(self, key: str) -> DataFile:
        """The file as its table knows it, once it lies under `key`."""
        return DataFile(
            key=key,
            object_bytes=self.object_bytes,
            record_count=self.row_count,
            bounds=self.bounds,
            null_keys=self.null_keys,
            null_values=self.null_values,
            split_offsets=self.split_offsets,
        )


class ArchiveWriter:
    """Takes chunks in the order of (partition, offset), each partition's without holes between them.

    A context manager: leaving it gives up what was not finished.
    """

    def __init__(self, *, topic_id: TopicId, row_group_bytes_target: int = ROW_GROUP_BYTES_TARGET) -> None:
        self._topic_id = topic_id
        self._row_group_bytes_target = row_group_bytes_target
        self._sink: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(max_size=ARCHIVE_FILE_MEMORY_BYTES_MAX)  # noqa: SIM115
        self._file = FileWriter(self._sink)
        self._pending: list[BatchRows] = []
        self._pending_bytes = 0
        self._runs: list[_Run] = []
        self._row_groups_count = 0
        self._bounds: RowBounds | None = None
        self._null_keys = 0
        self._null_values = 0
        self._ranges: dict[PartitionIndex, tuple[Offset, Offset]] = {}
        self._partition_last = PartitionIndex(-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()

    def add(self, chunk: SourceChunk) -> None:
        """Append a chunk's records. Raises `InvalidBatch` or `ChunkMismatch` where its bytes are damaged."""
        self._enter(chunk.partition, chunk.offset_first, chunk.offset_end)
        for batch in decode_chunk(chunk):
            self._add_batch(batch)

    def leave_out(self, partition: PartitionIndex, offset_first: Offset, offset_end: Offset) -> None:
        """Append offsets without records, those of a transaction's marker: they become a gap."""
        self._enter(partition, offset_first, offset_end)

    def finish(self) -> ArchiveFile:
        """Write what is pending and the footer. Nothing may be added after it."""
        self._flush()
        places = self._file.close({FILE_METADATA_KEY: self._describe()})
        object_bytes = self._sink.tell()
        parts = _contents(self._sink, object_bytes)
        self._sink.close()
        return ArchiveFile(
            parts=parts,
            object_bytes=object_bytes,
            row_count=sum(place.row_count for place in places),
            bounds=self._bounds,
            null_keys=self._null_keys,
            null_values=self._null_values,
            split_offsets=tuple(place.byte_first for place in places),
            partitions=tuple(
                (partition, _archived(offset_first, offset_end, self._runs_of(partition), places))
                for partition, (offset_first, offset_end) in self._ranges.items()
            ),
        )

    def _enter(self, partition: PartitionIndex, offset_first: Offset, offset_end: Offset) -> None:
        """Check that the offsets come in order, and begin their partition where they are the first."""
        assert partition >= self._partition_last, "partitions come in order"
        if partition == self._partition_last:
            range_first, range_end = self._ranges[partition]
            assert offset_first == range_end, "a partition's chunks come without holes"
            self._ranges[partition] = (range_first, offset_end)
            return
        if self._pending_bytes * 2 >= self._row_group_bytes_target:
            self._flush()
        self._partition_last = partition
        self._ranges[partition] = (offset_first, offset_end)

    def _add_batch(self, batch: BatchRows) -> None:
        """Put a batch's rows into the pending row group, and write that each time it is full."""
        byte_ends = batch.byte_ends()
        first, position = 0, 0
        while first < len(batch):
            room = self._row_group_bytes_target - self._pending_bytes
            # Up to and including the record that fills the row group, so that a huge record still goes somewhere.
            end = min(int(np.searchsorted(byte_ends, position + room)) + 1, len(batch))
            self._pending.append(replace(batch, first=first, end=end))
            self._pending_bytes += int(byte_ends[end - 1]) - position
            first, position = end, int(byte_ends[end - 1])
            if self._pending_bytes >= self._row_group_bytes_target:
                self._flush()

    def _flush(self) -> None:
        """Write the pending rows, if there are any, as one row group."""
        if not self._pending:
            return
        rows = gather_rows(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._file.write_row_group(rows)
        self._bounds = _bounds(rows) if self._bounds is None else self._bounds.with_also(_bounds(rows))
        self._null_keys += rows.key.null_count
        self._null_values += rows.value.null_count
        starts = np.flatnonzero(np.diff(rows.partition, prepend=-1))
        for first, end in pairwise([*starts.tolist(), len(rows)]):
            self._runs.append(
                _Run(
                    row_group=self._row_groups_count,
                    partition=PartitionIndex(int(rows.partition[first])),
                    row_first=first,
                    row_count=end - first,
                    offset_first=Offset(int(rows.offset[first])),
                    max_timestamp=Milliseconds(int(rows.timestamp_ms[first:end].max())),
                )
            )
        self._row_groups_count += 1

    def _describe(self) -> str:
        """What the file answers for, so that it can be understood without the ledger."""
        return json.dumps(
            {
                "version": FILE_FORMAT_VERSION,
                "topic_id": self._topic_id.hex(),
                "partitions": [[partition, *offsets] for partition, offsets in self._ranges.items()],
            },
            separators=(",", ":"),
        )

    def _runs_of(self, partition: PartitionIndex) -> list[_Run]:
        return [run for run in self._runs if run.partition == partition]


def _bounds(rows: RecordRows) -> RowBounds:
    """What lies lowest and highest among rows, of which there is one at least."""
    return RowBounds(
        partition_min=int(rows.partition.min()),
        partition_max=int(rows.partition.max()),
        offset_min=int(rows.offset.min()),
        offset_max=int(rows.offset.max()),
        timestamp_us_min=int(rows.timestamp_ms.min()) * MICROSECONDS_PER_MILLISECOND,
        timestamp_us_max=int(rows.timestamp_ms.max()) * MICROSECONDS_PER_MILLISECOND,
    )


def _archived(
    offset_first: Offset, offset_end: Offset, runs: list[_Run], places: tuple[RowGroupPlace, ...]
) -> tuple[ArchivedChunk, ...]:
    """A partition's runs as rows of the index. Each answers for the offsets up to the next one's first record."""
    if not runs:  # nothing but markers and what was aborted: the range stays in the index, and holds no rows
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


def _contents(sink: SpooledTemporaryFile[bytes], object_bytes: int) -> tuple[Buffer, ...]:
    """The file's bytes; those of a large one are mapped, and its nameless file goes with the mapping."""
    if object_bytes <= ARCHIVE_FILE_MEMORY_BYTES_MAX:
        sink.seek(0)
        return (sink.read(),)
    sink.flush()
    return (memoryview(mmap.mmap(sink.fileno(), object_bytes, access=mmap.ACCESS_READ)),)
