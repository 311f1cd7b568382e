"""The lake as plain values for JSON and tables: what `/api/lake` and `penstock lake status` show.

Rule: a list is made of the state alone, without a request to the store; one topic's details read its table's metadata,
behind a barrier, and again where it was replaced meanwhile. Keys do not change: programs read them (`--json`).
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from agent.state_views import View
from coordinator.state import ClusterState, TableState, TopicState
from iceberg_export.plan import plan_pass
from iceberg_export.tables.metadata import TableMetadata, decode
from iceberg_export.topic_intake import intake_bytes, intake_first, topic_intake
from protocol.limits import LAKE_DETAILS_ATTEMPTS_MAX
from storage.object_store import ObjectMissing, StoreUnavailable
from storage.refs import ObjectKind, topic_folder

if TYPE_CHECKING:
    from agent.http_server import Agent

NO_TABLE = TableState(metadata_key="", version=0, objects=set())


def lake_row(state: ClusterState, topic: TopicState) -> View:
    """One line of a list of tables.

    `files` and `bytes` are data files that the table's snapshots need, `leaving` those of them that left the log.
    `waiting_bytes` could be archived now; `behind` is how many offsets the table ends before the log does.
    """
    table = topic.table or NO_TABLE
    held = [state.objects[object_id] for object_id in table.objects]
    data = [one for one in held if one.kind is ObjectKind.PARQUET]
    return {
        "topic": topic.name,
        "version": table.version,
        "files": len(data),
        "bytes": sum(one.object_bytes for one in data),
        "metadata_bytes": sum(one.object_bytes for one in held) - sum(one.object_bytes for one in data),
        "leaving": len(table.unneeded),
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
    """What the log has of a topic's archive: a page of its rows, `limit` at most, behind the first `after`.

    `rows` are [partition, key of the file, first offset, end of offsets, row group, first row in it, rows],
    `partitions` [start of the log, end of what is archived]. `moment` is another one where any of
    it, or the table, has changed.
    """
    ends = intake_first(state, topic.topic_id)
    bounds = [[held.log_start, end] for held, end in zip(topic.partitions, ends, strict=True)]
    metadata_key = "" if topic.table is None else topic.table.metadata_key
    page = list(islice(_archived_rows(state, topic), after, after + limit + 1))
    row_count = sum(partition.index.intake_row for partition in topic.partitions)
    return {
        "metadata": metadata_key,
        "moment": f"{metadata_key} {row_count} {bounds}",
        "partitions": bounds,
        "rows": page[:limit],
        "is_last": len(page) <= limit,
    }


def _archived_rows(state: ClusterState, topic: TopicState) -> Iterator[list[object]]:
    for number, partition in enumerate(topic.partitions):
        for row in range(partition.index.intake_row):
            chunk = partition.index.row(row)
            key = state.objects[chunk.object_id].key
            place = chunk.row_group, chunk.row_first, chunk.row_count
            yield [number, key, chunk.offset_first, chunk.offset_end, *place]


async def lake_details(agent: "Agent", name: str) -> View | None:
    """A topic's table with its last snapshot, and what the next pass would take; None where there is no such topic.

    Raises `LedgerError`, `StoreError`.
    """
    for _ in range(LAKE_DETAILS_ATTEMPTS_MAX):
        await agent.barrier()
        state = agent.state
        topic_id = state.topic_ids.get(name)
        if topic_id is None:
            return None
        topic = state.topics[topic_id]
        shown = {**lake_row(state, topic), "folder": topic_folder(name, topic_id), **_next_pass(state, topic)}
        if topic.table is None:
            return {**shown, "metadata": None, "snapshots": 0, "records": 0}
        key = topic.table.metadata_key
        try:
            return {**shown, "metadata": key, **_snapshot_view(decode(await agent.store.get(key)))}
        except ObjectMissing:
            continue  # the table moved on
    raise StoreUnavailable(f"the metadata of table {name} is not in the bucket: try again, else penstock audit")


def _next_pass(state: ClusterState, topic: TopicState) -> View:
    intake = topic_intake(state, topic.topic_id)
    planned = None if intake is None else plan_pass(intake)
    chunks = () if planned is None else planned.chunks
    return {
        "next_pass_chunks": len(chunks),
        "next_pass_bytes": sum(chunk.byte_count for chunk in chunks if not chunk.is_marker),
    }


def _snapshot_view(metadata: TableMetadata) -> View:
    current = metadata.current()
    summary = {} if current is None else current.summary
    return {
        "snapshots": len(metadata.snapshots),
        "records": int(summary.get("total-records", "0")),
        "last_commit_ms": metadata.last_updated_ms,
        "last_operation": summary.get("operation"),
        "last_snapshot": None if current is None else current.snapshot_id,
    }
