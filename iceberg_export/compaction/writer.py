"""Writes the rows of several data files as one file: those that the index names, in the order of (partition, offset).

The rows do not change, only their file. The files are in the order of `topic_files`, so each row group is decoded once.
Memory holds at most one decoded row group of each file. CPU work for a thread.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np

from coordinator.state.chunk_index import ChunkRef
from iceberg_export.compaction.topic_files import MergeChunk
from iceberg_export.parquet.archive_file import ArchiveFile, ArchiveFileWriter, write_whole_file
from iceberg_export.parquet.reader import (
    HeldBytes,
    check_place,
    check_rows,
    decode_pages,
    decode_row_group,
    pages_of_chunk,
    parse_footer,
)
from iceberg_export.parquet.row_group import SMALL_ROW_GROUPS, RowGroupSizes
from iceberg_export.rows.columns import RecordRows, concat_rows
from iceberg_export.rows.footer import FileUnreadable, Footer
from iceberg_export.typed.file_columns import FileColumns
from protocol.limits import ROW_GROUP_BYTES_TARGET
from protocol.types import PartitionIndex, TopicId
from storage.object_store import Buffer


class _File:
    """A file to merge, with its row group that was decoded last."""

    def __init__(self, data: Buffer, key: str | None) -> None:
        self._data = memoryview(data)
        self._key = key
        self._footer: Footer | None = None
        self._decoded: tuple[int, RecordRows] | None = None

    def rows(self, partition: PartitionIndex, chunk: ChunkRef) -> RecordRows:
        """A chunk's rows. Raises `FileUnreadable`, also where the rows are not those of the index."""
        try:
            return self._rows(partition, chunk)
        except FileUnreadable as error:
            raise error if self._key is None else FileUnreadable(f"{self._key}: {error}") from error

    def _rows(self, partition: PartitionIndex, chunk: ChunkRef) -> RecordRows:
        if self._footer is None:
            self._footer = parse_footer(self._data, key=self._key, file_bytes=len(self._data))
        check_place(self._footer, chunk)
        pages = pages_of_chunk(self._footer, chunk)
        if pages is not None:
            decoded = decode_pages(self._footer, pages, HeldBytes([(0, self._data)]))
            rows = check_rows(decoded, chunk, row_first=pages.row_first)
        else:
            if self._decoded is None or self._decoded[0] != chunk.row_group:
                data = self._data[chunk.byte_first : chunk.byte_first + chunk.byte_count]
                self._decoded = chunk.row_group, decode_row_group(self._footer, chunk.row_group, data)
            rows = check_rows(self._decoded[1], chunk)
        # A wrong partition would move records to another log (safety rule S20).
        if int(rows.partition[0]) != partition:
            raise FileUnreadable(f"its rows are of partition {rows.partition[0]}, the index says {partition}")
        # A file from before checksums may be damaged unnoticed. All that the index knows of its rows is compared, so
        # that a merge does not copy damage into a file with valid checksums (safety rule S20).
        newest_ms = int(rows.timestamp_ms.max())
        if self._footer.checksums is None and newest_ms != chunk.max_timestamp:
            raise FileUnreadable(f"the newest of its rows is of {newest_ms}, the index says {chunk.max_timestamp}")
        return rows


def merge_files(
    topic_id: TopicId,
    chunks: Sequence[MergeChunk],
    files: Sequence[Buffer],
    *,
    keys: Sequence[str] | None = None,
    row_group_bytes_target: int = ROW_GROUP_BYTES_TARGET,
    typed: FileColumns | None = None,
    key: str | None = None,
    sizes: RowGroupSizes = SMALL_ROW_GROUPS,
) -> ArchiveFile:
    """The rows of the chunks as one file.

    `chunks`: in the order of (partition, offset). `files`: the bytes of each file, `keys`: their keys (None: tests
    alone). `key`: where the new file will be put; it is part of the file's checksum. `sizes`: of its row groups.

    Raises `FileUnreadable` where one of `files` is not as the index describes it.
    """

    def write(*, has_header_keys: bool) -> ArchiveFile:
        with ArchiveFileWriter(
            topic_id=topic_id, typed=typed, has_header_keys=has_header_keys, key=key, sizes=sizes
        ) as writer:
            return _merge(writer, chunks, _files(files, keys), row_group_bytes_target)

    return write_whole_file(write)


def _merge(
    writer: ArchiveFileWriter, chunks: Sequence[MergeChunk], readers: Sequence[_File], row_group_bytes_target: int
) -> ArchiveFile:
    pending: list[RecordRows] = []
    pending_bytes = 0
    for partition, of_partition in groupby(chunks, key=attrgetter("partition")):
        # A partition gets row groups of its own once the pending rows fill half of one. Small partitions share, so that
        # neither a Kafka fetch nor a Spark scan meets thousands of tiny row groups (as in `parquet.writer`).
        if pending_bytes * 2 >= row_group_bytes_target:
            writer.write_rows(concat_rows(pending))
            pending, pending_bytes = [], 0
        for each in of_partition:
            writer.enter(partition, each.chunk.offset_first, each.chunk.offset_end)
            # A chunk without rows has offsets that the new file answers for, and nothing to read.
            if not each.chunk.row_count:
                continue
            rows = readers[each.file].rows(partition, each.chunk)
            for part, byte_count in _cut(rows, row_group_bytes_target, row_group_bytes_target - pending_bytes):
                pending.append(part)
                pending_bytes += byte_count
                if pending_bytes >= row_group_bytes_target:
                    writer.write_rows(concat_rows(pending))
                    pending, pending_bytes = [], 0
    if pending:
        writer.write_rows(concat_rows(pending))
    return writer.finish()


def _files(files: Sequence[Buffer], keys: Sequence[str] | None) -> list[_File]:
    names: Sequence[str | None] = [None] * len(files) if keys is None else keys
    return [_File(data, key) for data, key in zip(files, names, strict=True)]


def rows_of(
    chunks: Sequence[MergeChunk], files: Sequence[Buffer], *, keys: Sequence[str] | None = None
) -> Iterator[RecordRows]:
    """The rows of each chunk, in the order of `chunks`. Parameters and errors: see `merge_files`."""
    readers = _files(files, keys)
    for each in chunks:
        if each.chunk.row_count:
            yield readers[each.file].rows(each.partition, each.chunk)


def _cut(rows: RecordRows, bytes_target: int, first_bytes_target: int) -> Iterator[tuple[RecordRows, int]]:
    """The rows in parts, each with its bytes. The first part has about `first_bytes_target`, others `bytes_target`.

    A part includes the record that reaches its target, so that a record larger than the target fits into a part.
    """
    byte_ends = rows.byte_ends()
    first, position, part_bytes_target = 0, 0, first_bytes_target
    while first < len(rows):
        end = min(int(np.searchsorted(byte_ends, position + part_bytes_target)) + 1, len(rows))
        yield rows.part(first, end), int(byte_ends[end - 1]) - position
        first, position, part_bytes_target = end, int(byte_ends[end - 1]), bytes_target
