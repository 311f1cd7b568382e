"""One merge of data files: small files read, one put, and the entry that swaps them, in the index and in the table.

Rule: as an archive pass does it. The file is durable before its entry is appended; nothing is deleted here: what the
index lets go of stays with the table's older snapshots until those expire, and the garbage collector deletes it then. A
merge that fails, is cancelled, or loses a race leaves at most an object that no entry refers to (safety rule S6).
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
from storage.refs import parquet_key

if TYPE_CHECKING:
    from iceberg_export.parquet.archive_file import ArchiveFile
    from iceberg_export.rows.columns import RecordRows
    from iceberg_export.typed.file_columns import FileColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files of a topic that become one, and the chunks of theirs that the index has, by (partition, offset)."""

    topic_id: TopicId
    name: str
    keys: tuple[str, ...]
    file_bytes: int
    chunks: tuple[MergeChunk, ...]
    folder_name: str | None = None
    """What the topic is called in its table's folder, where that is not its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """What a merge made: the durable file, and the command to append under the session that is in its key."""

    command: ReplaceChunks
    file: DataFile
    """The file as a table knows it; without rows it is none of the table's."""
    columns: "FileColumns | None" = None
    """The typed columns of the file; None where it has none."""


async def next_merge(
    state: ClusterState,
    topic: TopicState,
    *,
    bytes_target: int,
    span_ms_max: int | None,
    kept: Container[str],
    run_in_thread: RunInThread,
) -> Merge | None:
    """Which of the topic's files should become one next, as `level_plan` says; None where none should.

    `kept`: keys of files that stay as they are, whatever their size.

    It is planned over a copy: where the index moves on meanwhile, the ledger refuses what comes of it.
    """
    if len(topic.partitions) > COMPACTION_CHUNKS_MAX // 2:
        return None  # two files of all of them are more than an entry names
    indexes = [partition.index.archived() for partition in topic.partitions]
    files = await run_in_thread(topic_files, indexes)
    objects = [state.objects.get(file.object_id) for file in files]
    found = [(file, held) for file, held in zip(files, objects, strict=True) if held is not None]
    if len(found) < len(files):
        return None  # some of them went meanwhile
    planned = plan_merge(
        [
            SizedFile(
                object_bytes=bytes_target if held.key in kept else held.object_bytes,
                chunk_count=file.chunk_count,
                newest_ms=file.newest_ms,
            )
            for file, held in found
        ],
        bytes_target=bytes_target,
        span_ms_max=span_ms_max,
        chunks_max=COMPACTION_CHUNKS_MAX,
    )
    if planned is None:
        return None
    merged = found[planned.start : planned.stop]
    return Merge(
        topic_id=topic.topic_id,
        name=topic.name,
        folder_name=folder_name(state, topic),
        keys=tuple(held.key for _, held in merged),
        file_bytes=sum(held.object_bytes for _, held in merged),
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
    """Write what the files hold as the session's object `number`, and return the entry that puts it in their place.

    `columns_of`: asked for the typed columns once the files are read; None where there are to be none.
    `is_first_to_write`: others may write under the same number; who is later gets `ObjectExists`.

    Raises `StoreError`: `ObjectMissing` (the index moved on, plan again), `FileUnreadable` (a file is damaged).
    """
    data = await gather_bounded([partial(store.get, key) for key in planned.keys])
    columns = None if columns_of is None else await columns_of(partial(_rows, planned, data))
    key = parquet_key(planned.folder_name or planned.name, planned.topic_id, session, number)
    file = await run_in_thread(_write, planned, data, columns, key)
    await store.put(key, file.parts, if_absent=is_first_to_write)
    return MergedFile(command=_command(planned, file, session, key), file=file.data_file(key), columns=columns)


def _rows(planned: Merge, data: Sequence[bytes]) -> "Iterator[RecordRows]":
    from iceberg_export.compaction.writer import rows_of  # brings pyarrow

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
