"""Writes chunks of the intake as one Parquet file.

Records are written in the order of (partition, offset), without those of aborted transactions. Memory is bounded by one
row group and one batch, and by the limits of `archive_file`. CPU work for a thread.

A partition that fills row groups has row groups of its own. Small partitions share them, so that neither a Kafka fetch
nor a Spark scan meets thousands of tiny row groups.
"""

from typing import TYPE_CHECKING, Self

import numpy as np

from iceberg_export.parquet.archive_file import ArchiveFile, ArchiveFileWriter
from iceberg_export.parquet.source_chunks import SourceChunk, decode_chunk
from iceberg_export.rows.kafka_rows import BatchRows, gather_rows
from protocol.limits import ROW_GROUP_BYTES_TARGET, UNPACKED_BYTES_UNRESERVED_MAX
from protocol.types import Offset, PartitionIndex, TopicId

if TYPE_CHECKING:
    from iceberg_export.typed.file_columns import FileColumns


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
    ) -> None:
        """Parameters: see `ArchiveFileWriter`."""
        self._row_group_bytes_target = row_group_bytes_target
        self._file = ArchiveFileWriter(topic_id=topic_id, typed=typed, has_header_keys=has_header_keys, key=key)
        self._pending: list[BatchRows] = []
        self._pending_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def add(self, chunk: SourceChunk) -> None:
        """Append a chunk's records. Raises `InvalidBatch` or `ChunkMismatch` (damaged bytes), and `HeaderKeysFound`."""
        self._enter(chunk.partition, chunk.offset_first, chunk.offset_end)
        for batch in decode_chunk(chunk):
            self._add_batch(batch)
            # The rest of a large batch would keep all of it in memory, beyond its reservation.
            if len(batch.columns.payload) > UNPACKED_BYTES_UNRESERVED_MAX:
                self._flush()
            del batch

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
            and self._pending_bytes * 2 >= self._row_group_bytes_target
        ):
            self._flush()

    def _add_batch(self, batch: BatchRows) -> None:
        """Add a batch's rows to the pending row group, and write it each time it is full."""
        if not batch.row_count:
            return
        batch_bytes = batch.byte_end() - batch.byte_first()
        # Nearly every batch fits whole.
        if self._pending_bytes + batch_bytes < self._row_group_bytes_target:
            self._pending.append(batch)
            self._pending_bytes += batch_bytes
            return
        byte_ends = batch.byte_ends()
        first, position = 0, 0
        while first < batch.row_count:
            missing_bytes = self._row_group_bytes_target - self._pending_bytes
            # The record that fills the row group is included, so that one larger than the target fits, too.
            end = min(int(np.searchsorted(byte_ends, position + missing_bytes)) + 1, batch.row_count)
            self._pending.append(batch._replace(first=first, end=end))
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
        self._file.write_rows(rows)
