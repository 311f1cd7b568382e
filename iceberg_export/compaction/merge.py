"""One merge of data files: reads small files, puts one, and makes the entry that replaces them in index and table.

The order is that of an archive pass: the file is durable before its entry is appended. Nothing is deleted here. Older
snapshots of the table refer to the replaced files until they expire; then the garbage collector deletes the files. A
merge that fails, is cancelled, or loses a race leaves at most one object that no entry refers to (safety rule S6).
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coordinator.commands.commands import PartitionReplacement, ReplaceChunks, ReplacedChunk
from coordinator.state.state import ClusterState, TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.archive.archive_pass import ColumnsOf
from iceberg_export.compaction.plan import SizedFile, plan_merge
from iceberg_export.compaction.topic_files import MergeChunk, merge_chunks, topic_files
from iceberg_export.rows.executor import RunInThread
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.table_reader import gather_bounded
from protocol.limits import COMPACTION_CHUNKS_MAX
from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.object_store import ObjectStore
from storage.refs import is_merged_key, parquet_key

if TYPE_CHECKING:
    from iceberg_export.parquet.archive_file import ArchiveFile
    from iceberg_export.rows.columns import RecordRows
    from iceberg_export.typed.file_columns import FileColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files of a topic that become one, and their chunks in the index, in the order of (partition, offset)."""

    topic_id: TopicId
    name: str
    keys: tuple[str, ...]
    file_bytes: int
    """The size of all files together."""
    chunks: tuple[MergeChunk, ...]
    folder_name: str | None = None
    """The topic's name in the path of its table's folder; None: the same as `name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """The result of a merge: the durable file, and the command to append under the session that is in its key."""

    command: ReplaceChunks
    file: DataFile
    """The file as the table's manifest lists it. A file without rows is in no manifest."""
    columns: "FileColumns | None" = None
    """The typed columns of the file; None where it has none."""


async def next_merge(
    state: ClusterState,
    topic: TopicState,
    *,
    bytes_target: int,
    span_ms_max: int | None,
    excluded_keys: Container[str],
    run_in_thread: RunInThread,
) -> Merge | None:
    """The topic's next merge by `plan_merge`; None where no merge is worth it.

    `excluded_keys`: files that stay as they are, whatever their size. Raises `FilesOutOfOrder`.

    The plan is made of a copy of the index. Where the index changes meanwhile, the ledger rejects the entry.
    """
    # Two files that hold rows of all these partitions would need more chunks than one entry may name.
    if len(topic.partitions) > COMPACTION_CHUNKS_MAX // 2:
        return None
    indexes = [partition.index.archived() for partition in topic.partitions]
    files = await run_in_thread(topic_files, indexes)
    objects = [state.objects.get(file.object_id) for file in files]
    stored_files = [(file, stored) for file, stored in zip(files, objects, strict=True) if stored is not None]
    # The state changed while the thread worked, and a file is gone: the next call plans from the newer state.
    if len(stored_files) < len(files):
        return None
    planned = plan_merge(
        [
            SizedFile(
                # A file of the target size counts as done.
                object_bytes=bytes_target if stored.key in excluded_keys else stored.object_bytes,
                chunk_count=file.chunk_count,
                newest_ms=file.newest_ms,
            )
            for file, stored in stored_files
        ],
        bytes_target=bytes_target,
        span_ms_max=span_ms_max,
        chunks_max=COMPACTION_CHUNKS_MAX,
    )
    if planned is None:
        return None
    merged = stored_files[planned.start : planned.stop]
    return Merge(
        topic_id=topic.topic_id,
        name=topic.name,
        folder_name=folder_name(state, topic),
        keys=tuple(stored.key for _, stored in merged),
        file_bytes=sum(stored.object_bytes for _, stored in merged),
        chunks=await run_in_thread(merge_chunks, [file for file, _ in merged], indexes),
    )


async def merge(
    planned: Merge,
    *,
    store: ObjectStore,
    session: SessionId,
    number: ObjectNumber,
    run_in_thread: RunInThread,
    columns_of: ColumnsOf | None = None,
    is_first_to_write: bool = False,
) -> MergedFile:
    """Write the files' rows as the session's object `number`, and return the command that replaces the files with it.

    `columns_of`: returns the typed columns; called once the files are read. None: the file has no typed columns.
    `is_first_to_write`: other writers may use the same number; all but the first one get `ObjectExists`.

    Raises `StoreError`: `ObjectMissing` (the index has changed, plan again), `FileUnreadable` (a file is damaged).
    """
    data = await gather_bounded([partial(store.get, key) for key in planned.keys])
    columns = None if columns_of is None else await columns_of(partial(_rows, planned, data))
    # A single file is rewritten, and holds what it held.
    is_merged = len(planned.keys) > 1 or any(map(is_merged_key, planned.keys))
    key = parquet_key(planned.folder_name or planned.name, planned.topic_id, session, number, is_merged=is_merged)
    file = await run_in_thread(_write, planned, data, columns, key)
    # The put comes before the append of the command: an entry must never name an object that may not be there.
    await store.put(key, file.parts, if_absent=is_first_to_write)
    return MergedFile(command=_command(planned, file, session, key), file=file.data_file(key), columns=columns)


def _rows(planned: Merge, data: Sequence[bytes]) -> "Iterator[RecordRows]":
    from iceberg_export.compaction.writer import rows_of  # imports pyarrow

    return rows_of(planned.chunks, data, keys=planned.keys)


def _write(planned: Merge, data: Sequence[bytes], columns: "FileColumns | None", key: str) -> "ArchiveFile":
    from iceberg_export.compaction.writer import merge_files

    return merge_files(planned.topic_id, planned.chunks, data, keys=planned.keys, typed=columns, key=key)


def _command(planned: Merge, file: "ArchiveFile", session: SessionId, key: str) -> ReplaceChunks:
    replaced: dict[PartitionIndex, list[ReplacedChunk]] = {}
    for each in planned.chunks:
        replaced.setdefault(each.partition, []).append(
            ReplacedChunk(
                offset_first=each.chunk.offset_first,
                offset_end=each.chunk.offset_end,
                object_key=planned.keys[each.file],
                byte_first=each.chunk.byte_first,
            )
        )
    return ReplaceChunks(
        topic_id=planned.topic_id,
        object_session=session,
        object_key=key,
        object_bytes=file.object_bytes,
        partitions=tuple(
            PartitionReplacement(partition=partition, replaced=tuple(replaced[partition]), archived=archived)
            for partition, archived in file.partitions
        ),
    )
