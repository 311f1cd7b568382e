"""Writes chunks of the intake as one Parquet file.

Records are written in the order of (partition, offset), without those of aborted transactions. Memory is bounded by one
row group and one batch, and by the limits of `archive_file`. CPU work for a thread.

A partition that fills row groups has row groups of its own. Small partitions share them, so that neither a Kafka fetch
nor a Spark scan meets thousands of tiny row groups.
"""

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from iceberg_export.parquet.archive_file import ArchiveFile, ArchiveFileWriter
from iceberg_export.parquet.row_group import SMALL_ROW_GROUPS, RowGroupSizes
from iceberg_export.parquet.source_chunks import SourceChunk, readable_batches
from iceberg_export.rows.kafka_rows import RunRows, gather_run
from protocol.errors import DoesNotUnpack
from protocol.limits import DECOMPRESSED_BYTES_MAX, ROW_GROUP_BYTES_TARGET, UNPACKED_BYTES_UNRESERVED_MAX
from protocol.records.batch import BatchHeader
from protocol.records.records import BatchRun
from protocol.types import Milliseconds, Offset, PartitionIndex, TopicId

if TYPE_CHECKING:
    from iceberg_export.typed.file_columns import FileColumns


class _Batch(NamedTuple):
    """A batch whose records are pending."""

    header: BatchHeader
    partition: PartitionIndex
    base_offset: Offset
    append_time_ms: Milliseconds


class ArchiveWriter:
    """Takes chunks in the order of (partition, offset). The chunks of a partition are contiguous.

    As a context manager it discards an unfinished file at its exit.
    """

    def __init__(
        self,
        *,
        topic_id: TopicId,
        row_group_bytes_target: int = ROW_GROUP_BYTES_TARGET,
        typed: "FileColumns | None" = None,
        has_header_keys: bool = False,
        key: str | None = None,
        sizes: RowGroupSizes = SMALL_ROW_GROUPS,
    ) -> None:
        """Parameters: see `ArchiveFileWriter`."""
        self._row_group_bytes_target = row_group_bytes_target
        self._file = ArchiveFileWriter(
            topic_id=topic_id, typed=typed, has_header_keys=has_header_keys, key=key, sizes=sizes
        )
        self._run = BatchRun()
        self._batches: list[_Batch] = []
        """The headers and places of the run's batches, in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def add(self, chunk: SourceChunk) -> None:
        """Append a chunk's records. Raises `InvalidBatch` or `ChunkMismatch` (damaged bytes), and `HeaderKeysFound`.

        Damage inside records may be found by a later call, or by `finish`.
        """
        self._enter(chunk.partition, chunk.offset_first, chunk.offset_end)
        for header, base_offset in readable_batches(chunk):
            self._add_batch(chunk, _Batch(header, chunk.partition, base_offset, chunk.append_time_ms))

    def leave_out(self, partition: PartitionIndex, offset_first: Offset, offset_end: Offset) -> None:
        """Append offsets without records, such as that of a transaction marker. They become a gap."""
        self._enter(partition, offset_first, offset_end)

    def finish(self) -> ArchiveFile:
        """Write the pending rows and the footer. Nothing may be added after it. Raises `HeaderKeysFound`."""
        self._flush()
        return self._file.finish()

    def _enter(self, partition: PartitionIndex, offset_first: Offset, offset_end: Offset) -> None:
        # A new partition begins a new row group, unless the pending one is less than half full.
        if (
            self._file.enter(partition, offset_first, offset_end)
            and self._run.byte_count * 2 >= self._row_group_bytes_target
        ):
            self._flush()

    def _add_batch(self, chunk: SourceChunk, batch: _Batch) -> None:
        """Add a batch's records to the pending row group, and write it each time it is full."""
        if batch.header.batch_bytes > UNPACKED_BYTES_UNRESERVED_MAX:
            self._flush()  # alone, so that it is not copied
        try:
            unpacked_bytes = self._run.add(
                chunk.records, batch.header, unpacked_bytes_max=UNPACKED_BYTES_UNRESERVED_MAX
            )
        except DoesNotUnpack:
            pass  # outside the handler: its traceback refers to what was unpacked
        else:
            self._batches.append(batch)
            if self._run.byte_count >= self._row_group_bytes_target:
                self._write_full()
            if unpacked_bytes > UNPACKED_BYTES_UNRESERVED_MAX:
                self._flush()  # the rest would keep all of it in memory
            return
        self._flush()
        with chunk.reserve(DECOMPRESSED_BYTES_MAX):
            self._run.add(chunk.records, batch.header)
            self._batches.append(batch)
            self._flush()

    def _flush(self) -> None:
        """Write the pending rows, if there are any."""
        self._write_full()
        if self._batches:
            self._file.write_rows(gather_run(self._decoded()))

    def _write_full(self) -> None:
        """Write row groups until less than a full one is pending."""
        if self._run.byte_count < self._row_group_bytes_target:
            return
        last = self._batches[-1]
        rows = self._decoded()
        byte_ends = rows.byte_ends()
        first, position = 0, 0
        while int(byte_ends[-1]) - position >= self._row_group_bytes_target:
            # The record that fills the row group is included, so that one larger than the target fits, too.
            end = int(np.searchsorted(byte_ends, position + self._row_group_bytes_target)) + 1
            self._file.write_rows(gather_run(rows.part(first, end)))
            first, position = end, int(byte_ends[end - 1])
        row_count = len(byte_ends) - first
        # Without the last batch there was less than a row group, so the other rows are of that one.
        assert row_count <= last.header.record_count
        if row_count:
            payload = rows.columns.payload[position:].tobytes()  # that of the run is valid until the next batch
            self._run.add_last_records(last.header, payload, row_count)
            self._batches.append(last)

    def _decoded(self) -> RunRows:
        """All pending rows. Nothing is pending then."""
        batches, self._batches = self._batches, []
        return RunRows(
            row_counts=np.array(self._run.record_counts(), dtype=np.int64),
            columns=self._run.decode(),
            partition=np.array([batch.partition for batch in batches], dtype=np.int32),
            base_offset=np.array([batch.base_offset for batch in batches], dtype=np.int64),
            append_time_ms=np.array([batch.append_time_ms for batch in batches], dtype=np.int64),
        )
