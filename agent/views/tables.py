"""The lake as plain values for JSON and tables: what `/api/lake` and `penstock lake status` show.

Rule: a list is made of the state alone, without a request to the store; one topic's details read its table's metadata,
behind a barrier, and again where it was replaced meanwhile. Keys do not change: programs read them (`--json`).
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from agent.views.state import View
from coordinator.state.state import ClusterState, TableState, TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.archive.plan import plan_pass
from iceberg_export.archive.topic_intake import intake_bytes, intake_first, topic_intake
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable, decode
from protocol.limits import LAKE_DETAILS_ATTEMPTS_MAX
from storage.object_store import ObjectMissing, ObjectStore, StoreUnavailable
from storage.refs import ObjectKind, topic_folder


class TableSource(Protocol):
    """The interface of an agent for a table's details."""

    @property
    def state(self) -> ClusterState: ...

    @property
    def store(self) -> ObjectStore: ...

    async def barrier(self) -> None:
        """Return once the state holds everything that was true when this was called (safety rule S4)."""
        ...


class TableDamaged(Exception):
    """The table's metadata is there and cannot be read. The message says why."""


NO_TABLE = TableState(metadata_key="", version=0, objects=set())


def lake_row(state: ClusterState, topic: TopicState) -> View:
    """One line of a list of tables.

    `files` and `bytes` are the table's data files that the log needs. `older_files` and `older_bytes` are those that it
    let go of, as they were merged or their records dropped: older snapshots hold them, and where records were dropped
    the newest one until the next commit; they go with the last snapshot that holds them. `waiting_bytes` could be
    archived now; `behind` is how many offsets the table ends before the log does.
    """
    table = topic.table or NO_TABLE
    held = [state.objects[object_id] for object_id in table.objects]
    data_bytes = sum(one.object_bytes for one in held if one.kind is ObjectKind.PARQUET)
    older_bytes = sum(state.objects[object_id].object_bytes for object_id in table.unneeded)
    return {
        "topic": topic.name,
        "version": table.version,
        "files": _files(state, table),
        "bytes": data_bytes - older_bytes,
        "older_files": len(table.unneeded),
        "older_bytes": older_bytes,
        "metadata_bytes": sum(one.object_bytes for one in held) - data_bytes,
        "waiting_bytes": intake_bytes(state, topic.topic_id),
        "behind": sum(
            partition.log_end - first
            for partition, first in zip(topic.partitions, intake_first(state, topic.topic_id), strict=True)
        ),
    }


def lake_rows(state: ClusterState, limit: int) -> list[View]:
    """The tables by name, `limit` at most."""
    return [lake_row(state, state.topics[state.topic_ids[name]]) for name in sorted(state.topic_ids)[:limit]]


def index_page(state: ClusterState, topic: TopicState, *, after: int, limit: int) -> View:
    """A page of a topic's archive in the log: rows, `limit` at most, behind the first `after`.

    `rows` are [partition, key of the file, first offset, end of offsets, row group, first row in it, rows],
    `partitions` [start of the log, end of what is archived]. `moment` is another one where any of
    it, or the table, has changed.
    """
    ends = intake_first(state, topic.topic_id)
    bounds = [[held.log_start, end] for held, end in zip(topic.partitions, ends, strict=True)]
    metadata_key = "" if topic.table is None else topic.table.metadata_key
    row_counts = [partition.index.intake_row for partition in topic.partitions]
    page = list(islice(_archived_rows(state, topic, row_counts, after), limit + 1))
    return {
        "metadata": metadata_key,
        "moment": f"{metadata_key} {sum(row_counts)} {bounds}",
        "partitions": bounds,
        "rows": page[:limit],
        "is_last": len(page) <= limit,
    }


def _archived_rows(
    state: ClusterState, topic: TopicState, row_counts: Sequence[int], after: int
) -> Iterator[list[object]]:
    """Behind the first `after`, which are counted and not looked at."""
    for number, (partition, row_count) in enumerate(zip(topic.partitions, row_counts, strict=True)):
        row_first = min(after, row_count)
        after -= row_first
        for row in range(row_first, row_count):
            chunk = partition.index.row(row)
            key = state.objects[chunk.object_id].key
            place = chunk.row_group, chunk.row_first, chunk.row_count
            yield [number, key, chunk.offset_first, chunk.offset_end, *place]


async def lake_details(source: TableSource, name: str) -> View | None:
    """A topic's table with its last snapshot, and what the next pass would take; None where there is no such topic.

    `leaving`: files that the last snapshot holds and the log does not need; the next commits drop them.
    Raises `LedgerError`, `StoreError`, `TableDamaged`.
    """
    for _ in range(LAKE_DETAILS_ATTEMPTS_MAX):
        await source.barrier()
        state = source.state
        topic_id = state.topic_ids.get(name)
        if topic_id is None:
            return None
        topic = state.topics[topic_id]
        shown = {
            **lake_row(state, topic),
            "folder": topic_folder(folder_name(state, topic), topic_id),
            **_next_pass(state, topic),
        }
        if topic.table is None:
            return {**shown, "metadata": None, "snapshots": 0, "records": 0, "leaving": 0}
        key = topic.table.metadata_key
        try:
            metadata = decode(await source.store.get(key), key)
            return {**shown, "metadata": key, **_snapshot_view(metadata, files=_files(state, topic.table))}
        except ObjectMissing:
            continue  # the table moved on
        except TableUnreadable as error:
            raise TableDamaged(f"the metadata of table {name} is damaged: {key}: {error}") from error
    raise StoreUnavailable(f"the metadata of table {name} is not in the bucket: try again, else penstock audit")


def _next_pass(state: ClusterState, topic: TopicState) -> View:
    intake = topic_intake(state, topic.topic_id)
    planned = None if intake is None else plan_pass(intake)
    chunks = () if planned is None else planned.chunks
    return {
        "next_pass_chunks": len(chunks),
        "next_pass_bytes": sum(chunk.byte_count for chunk in chunks if not chunk.is_marker),
    }


def _files(state: ClusterState, table: TableState) -> int:
    """How many data files of the table the log needs: all of them are in the last snapshot."""
    all_files = sum(state.objects[object_id].kind is ObjectKind.PARQUET for object_id in table.objects)
    return all_files - len(table.unneeded)


def _snapshot_view(metadata: TableMetadata, *, files: int) -> View:
    current = metadata.current()
    summary = {} if current is None else current.summary
    return {
        "leaving": int(summary.get("total-data-files", "0")) - files,
        "snapshots": len(metadata.snapshots),
        "records": int(summary.get("total-records", "0")),
        "last_commit_ms": metadata.last_updated_ms,
        "last_operation": summary.get("operation"),
        "last_snapshot": None if current is None else current.snapshot_id,
    }
