"""The lake as plain values for JSON and tables: for `/api/lake` and `penstock lake status`.

Rule: lists use the state only, without a request to the store. The details of a topic read its table's metadata behind
a barrier, and again if it was replaced meanwhile. Keys do not change: programs read them (`--json`).
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Protocol

from agent.views.state import View
from coordinator.state.state import ClusterState, TableState, TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.archive.topic_intake import intake_bytes, intake_first, next_pass
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable, decode
from protocol.limits import LAKE_DETAILS_ATTEMPTS_MAX
from storage.object_store import ObjectMissing, ObjectStore, StoreUnavailable
from storage.refs import ObjectKind, topic_folder


class LedgerState(Protocol):
    """The interface of the ledger's client for a table's details."""

    @property
    def state(self) -> ClusterState: ...

    async def barrier(self) -> object:
        """Return once the state holds everything that was true when this was called (safety rule S4)."""
        ...


class TableDamaged(Exception):
    """The table's metadata exists but cannot be read. The message has the reason."""


NO_TABLE = TableState(metadata_key="", version=0, objects=set())


def lake_row(state: ClusterState, topic: TopicState) -> View:
    """One row of a list of tables.

    `files` and `bytes` are the data files that the log needs. `older_files` and `older_bytes` are files that the log no
    longer needs, because they were compacted or retention deleted their records: older snapshots still refer to them,
    and the newest one may until the next commit. `waiting_bytes` could be archived now. `behind` is the number of
    offsets between the end of the table and the end of the log.
    """
    table = topic.table or NO_TABLE
    stored = [state.objects[object_id] for object_id in table.objects]
    data_bytes = sum(each.object_bytes for each in stored if each.kind is ObjectKind.PARQUET)
    older_bytes = sum(state.objects[object_id].object_bytes for object_id in table.unneeded)
    return {
        "topic": topic.name,
        "version": table.version,
        "files": _files(state, table),
        "bytes": data_bytes - older_bytes,
        "older_files": len(table.unneeded),
        "older_bytes": older_bytes,
        "metadata_bytes": sum(each.object_bytes for each in stored) - data_bytes,
        "waiting_bytes": intake_bytes(state, topic.topic_id),
        "behind": sum(
            partition.log_end - first
            for partition, first in zip(topic.partitions, intake_first(state, topic.topic_id), strict=True)
        ),
    }


def lake_rows(state: ClusterState, limit: int, names: Collection[str] | None = None) -> list[View]:
    """The first `limit` tables by name: of all topics, or of those of `names` that exist."""
    shown = sorted(name for name in state.topic_ids if names is None or name in names)[:limit]
    return [lake_row(state, state.topics[state.topic_ids[name]]) for name in shown]


def index_page(state: ClusterState, topic: TopicState, *, after: int, limit: int) -> View:
    """A page of a topic's archived index rows: at most `limit`, after the first `after`.

    `rows` are [partition, key of the file, first offset, end offset, row group, first row in it, number of rows],
    `partitions` are [log start, end of the archived offsets]. `moment` changes whenever one of these or the table
    changes.
    """
    ends = intake_first(state, topic.topic_id)
    bounds = [[partition.log_start, end] for partition, end in zip(topic.partitions, ends, strict=True)]
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
    """The rows after the first `after`, which are skipped without reading them."""
    for number, (partition, row_count) in enumerate(zip(topic.partitions, row_counts, strict=True)):
        row_first = min(after, row_count)
        after -= row_first
        for row in range(row_first, row_count):
            chunk = partition.index.row(row)
            key = state.objects[chunk.object_id].key
            place = chunk.row_group, chunk.row_first, chunk.row_count
            yield [number, key, chunk.offset_first, chunk.offset_end, *place]


async def lake_details(ledger: LedgerState, store: ObjectStore, name: str) -> View | None:
    """A topic's table with its last snapshot and the size of the next archive pass; None for an unknown topic.

    `leaving`: files of the last snapshot that the log does not need; the next commits remove them.
    Raises `LedgerError`, `StoreError`, `TableDamaged`.
    """
    for _ in range(LAKE_DETAILS_ATTEMPTS_MAX):
        await ledger.barrier()
        state = ledger.state
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
            metadata = decode(await store.get(key), key)
            return {**shown, "metadata": key, **_snapshot_view(metadata, files=_files(state, topic.table))}
        except ObjectMissing:
            continue  # the metadata was replaced meanwhile
        except TableUnreadable as error:
            raise TableDamaged(f"the metadata of table {name} is damaged: {key}: {error}") from error
    raise StoreUnavailable(f"the bucket lacks the metadata of table {name}: try again, or run penstock audit")


def _next_pass(state: ClusterState, topic: TopicState) -> View:
    planned = next_pass(state, topic.topic_id)
    chunks = () if planned is None else planned.chunks
    return {
        "next_pass_chunks": len(chunks),
        "next_pass_bytes": sum(chunk.byte_count for chunk in chunks if not chunk.is_marker),
    }


def _files(state: ClusterState, table: TableState) -> int:
    """The number of data files that the log needs. All of them are in the last snapshot."""
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
