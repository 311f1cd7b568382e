"""Replaces chunks by archived ones, and forgets deleted objects (S6). Called by `coordinator.apply.apply`.

Rule: everything is compared before anything is changed; one difference from the state rejects the whole command. The
table's part is compared with the state as it is once the replaced chunks have released their objects.
"""

from collections import Counter
from typing import NamedTuple

from coordinator.apply.objects import add_object, is_key_known, release_references
from coordinator.apply.retention import forget_markers
from coordinator.apply.tables import change_table, table_difference
from coordinator.commands.commands import (
    Done,
    ForgetObjects,
    Outcome,
    PartitionReplacement,
    Rejected,
    ReplaceChunks,
    TableCommit,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import ClusterState, PartitionState
from coordinator.state.table_folders import lake_folders
from protocol.errors import ErrorCode
from protocol.types import NO_TIMESTAMP, ObjectId, SessionId
from storage.refs import ObjectKind


class _Different(Exception):
    """The command does not describe the state as it is."""


class _Swap(NamedTuple):
    partition: PartitionState
    row_first: int
    row_end: int
    chunks: list[ChunkRef]


def replace_chunks(state: ClusterState, session_id: SessionId, command: ReplaceChunks) -> Outcome:
    """Swap the chunks of one topic for rows of one Parquet file, and release the objects that held them."""
    try:
        swaps = _check(state, session_id, command)
    except _Different as difference:
        return Rejected(error_code=ErrorCode.invalid_request, reason=str(difference))
    for swap in swaps:
        index = swap.partition.index
        # Before the rows are replaced: they name the objects.
        release_references(state, index.object_ids(swap.row_first, swap.row_end))
        index.replace(swap.row_first, swap.row_end, swap.chunks)
        # Aborted records are not in the archive, and no marker is served of it (safety rule S5).
        forget_markers(swap.partition, swap.chunks[0].offset_first, swap.chunks[-1].offset_end)
    add_object(
        state,
        key=command.object_key,
        kind=ObjectKind.PARQUET,
        object_bytes=command.object_bytes,
        references=sum(len(swap.chunks) for swap in swaps),
    )
    if command.table is not None:
        change_table(state, state.topics[command.topic_id], command.table)
    return Done()


def _check(state: ClusterState, session_id: SessionId, command: ReplaceChunks) -> list[_Swap]:
    # An object of another session may be on its way to deletion, because that session is dead (S1).
    if command.object_session != session_id:
        raise _Different(f"the object is of session {command.object_session}, the entry of session {session_id}")
    topic = state.topics.get(command.topic_id)
    if topic is None:
        raise _Different(f"there is no topic with the id {command.topic_id.hex()}")
    # Garbage collection knows an object's session, and a table's files, by the key alone (S6).
    prefixes = tuple(f"{folder}data/{session_id:016x}-" for folder in lake_folders(state, topic))
    if not command.object_key.startswith(prefixes):
        raise _Different(f"the key {command.object_key!r} does not begin with {prefixes[0]!r}")
    if is_key_known(state, command.object_key):
        raise _Different(f"the object {command.object_key!r} is known already")
    # Each replacement is compared with the index as it is now, and the first would change it under the second.
    if len({replacement.partition for replacement in command.partitions}) != len(command.partitions):
        raise _Different("a partition is named twice")
    swaps: list[_Swap] = []
    for replacement in command.partitions:
        partition = state.partition(command.topic_id, replacement.partition)
        if partition is None:
            raise _Different(f"there is no partition {replacement.partition}")
        swaps.append(_check_partition(state, partition, replacement))
    if command.table is not None:
        difference = table_difference(state, session_id, topic, command.table, new_file=command.object_key)
        if difference is not None:
            raise _Different(difference)
        _check_entering(state, swaps, command.table, new_file=command.object_key)
    return swaps


def _check_entering(state: ClusterState, swaps: list[_Swap], table: TableCommit, *, new_file: str) -> None:
    """Reject data files that no chunk would refer to any more once the replaced chunks are gone."""
    dropped: Counter[int] = Counter()
    for swap in swaps:
        dropped.update(swap.partition.index.object_ids(swap.row_first, swap.row_end))
    for key in table.data_files:
        if key == new_file:
            if not swaps:
                raise _Different(f"the file {key!r} enters the table, and no chunk refers to it")
            continue
        object_id = state.object_ids[key]
        if dropped[object_id] == state.objects[object_id].references:
            raise _Different(f"the file {key!r} enters the table, and the command replaces all of its chunks")


def _check_partition(state: ClusterState, partition: PartitionState, replacement: PartitionReplacement) -> _Swap:
    index = partition.index
    where = f"partition {replacement.partition}"
    if not replacement.replaced or not replacement.archived:
        raise _Different(f"{where}: nothing is replaced, or nothing replaces it")
    row_first = index.locate(replacement.replaced[0].offset_first)
    if row_first is None or row_first + len(replacement.replaced) > len(index):
        raise _Different(f"{where}: the chunks from offset {replacement.replaced[0].offset_first} are not there")
    if state.rules_version >= RULES_CHECKED_STORAGE and row_first > index.intake_row:
        # The range of an aborted transaction goes with its marker. What it wrote must be out of the log by then: it
        # would be read as if it were committed (safety rule S5). Archived records are the first ones of a log.
        raise _Different(f"{where}: chunks before offset {replacement.replaced[0].offset_first} are not archived")
    for row, named in enumerate(replacement.replaced, start=row_first):
        chunk = index.row(row)
        key = "" if chunk.marker is not None else state.objects[chunk.object_id].key
        indexed = (chunk.offset_first, chunk.offset_end, key, chunk.byte_first)
        if indexed != (named.offset_first, named.offset_end, named.object_key, named.byte_first):
            raise _Different(f"{where}: the index holds {indexed}, the command names {named}")
    chunks = _archived_chunks(state.object_id_next, replacement)
    transactions = partition.transactions
    # Its records may be aborted yet, and an archived record is read as a committed one (S5).
    if transactions is not None and chunks[-1].offset_end > transactions.decided_end(partition.log_end):
        raise _Different(f"{where}: a transaction is open before offset {chunks[-1].offset_end}")
    return _Swap(partition, row_first, row_first + len(replacement.replaced), chunks)


def _archived_chunks(object_id: ObjectId, replacement: PartitionReplacement) -> list[ChunkRef]:
    offset = replacement.replaced[0].offset_first
    chunks: list[ChunkRef] = []
    for archived in replacement.archived:
        if archived.offset_first != offset or archived.offset_end <= offset:
            raise _Different(
                f"partition {replacement.partition}: rows for [{archived.offset_first}, {archived.offset_end}) where "
                f"offset {offset} is next"
            )
        offset = archived.offset_end
        chunks.append(
            ChunkRef(
                offset_first=archived.offset_first,
                offset_end=archived.offset_end,
                object_id=object_id,
                byte_first=archived.byte_first,
                byte_count=archived.byte_count,
                max_timestamp=archived.max_timestamp,
                append_time_ms=NO_TIMESTAMP,
                row_group=archived.row_group,
                row_first=archived.row_first,
                row_count=archived.row_count,
            )
        )
    if offset != replacement.replaced[-1].offset_end:
        raise _Different(
            f"partition {replacement.partition}: rows end at offset {offset}, the chunks at "
            f"{replacement.replaced[-1].offset_end}"
        )
    return chunks


def forget_objects(state: ClusterState, command: ForgetObjects) -> Outcome:
    """Stop remembering released objects. Unknown ones are skipped: two maintenance leaders may report the same."""
    for key in command.object_keys:
        state.released.pop(key, None)
    return Done()
