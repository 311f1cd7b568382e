"""The cluster's state as plain values for JSON and tables: for /api, `penstock topics` and `penstock inspect`.

Rule: pure functions of the state; values are str, int, bool, None, lists and dicts. Keys do not change: programs read
them (`--json`).
"""

from collections.abc import Collection, Iterator

from agent.runtime.ids import uuid_text
from agent.runtime.yielding import CooperativeYield
from agent.views.transactions import transaction_statistics
from coordinator.configs.config_entries import Layers, topic_entry
from coordinator.configs.topic_configs import TOPIC_CONFIGS
from coordinator.snapshot import digest
from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from coordinator.state.state import ClusterState, ObjectState, TopicState
from protocol.types import ObjectId

View = dict[str, object]


def topic_row(topic: TopicState) -> View:
    """One row of a list of topics. `bytes` is the size of its chunks in the store."""
    return {
        "name": topic.name,
        "id": uuid_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "records": sum(partition.log_end - partition.log_start for partition in topic.partitions),
        "chunks": sum(len(partition.index) for partition in topic.partitions),
        "bytes": sum(partition.index.stored_bytes for partition in topic.partitions),
    }


async def topic_rows(state: ClusterState, turns: CooperativeYield, names: Collection[str] | None = None) -> list[View]:
    """Topics by name: all, or those of `names` that exist. `turns` is stepped for each partition."""
    rows: list[View] = []
    for topic in sorted(state.topics.values(), key=lambda topic: topic.name):
        if names is None or topic.name in names:
            rows.append(topic_row(topic))
            for _ in topic.partitions:
                await turns.step()
    return rows


def topic_details(topic: TopicState, layers: Layers | None) -> View:
    """A topic with its configs and partitions.

    `archived_end` is the end of the archived prefix; read_committed ends at `last_stable`. `configs` are the topic's
    own overrides; `config_list` has all effective configs with their sources, by Kafka's names. `layers`: the agent's
    broker configs; None to show no configs.
    """
    entries = [] if layers is None else [topic_entry(topic.configs, layers, name) for name in TOPIC_CONFIGS]
    return {
        **topic_row(topic),
        "created_ms": topic.created_ms,
        "configs": {} if layers is None else dict(topic.configs),
        "config_list": [
            {"config": entry.spec.name, "value": entry.value, "source": entry.source.name} for entry in entries
        ],
        "partition_list": [
            {
                "partition": number,
                "log_start": partition.log_start,
                "table_start": partition.table_start,
                "log_end": partition.log_end,
                "archived_end": _archived_end(partition.index),
                "last_stable": partition.last_stable,
                "open_transactions": 0 if partition.transactions is None else len(partition.transactions.open),
                "chunks": len(partition.index),
                "bytes": partition.index.stored_bytes,
                "producers": len(partition.producers),
            }
            for number, partition in enumerate(topic.partitions)
        ],
    }


def chunk_rows(state: ClusterState, topic: TopicState, partition: int | None = None) -> Iterator[View]:
    """Every chunk of a topic, ordered by partition and offset."""
    for number, partition_state in enumerate(topic.partitions):
        if partition in (None, number):
            for chunk in _chunks(partition_state.index):
                yield {"partition": number, **_chunk_view(state, chunk)}


def object_rows(state: ClusterState, *, released_max: int | None = None) -> list[View]:
    """Every object that the state knows. `state` is "live" or "released"; live ones come first.

    At most `released_max` released objects, ordered by key.
    """
    rows: list[View] = [
        {
            "key": known.key,
            "kind": known.kind.name.lower(),
            "bytes": known.object_bytes,
            "references": known.references,
            "state": "live",
        }
        for known in sorted(state.objects.values(), key=_key)
    ]
    rows.extend(
        {"key": key, "kind": None, "bytes": None, "references": 0, "state": "released", "released_ms": released_ms}
        for key, released_ms in sorted(state.released.items())[:released_max]
    )
    return rows


def session_rows(state: ClusterState) -> list[View]:
    """Live sessions, oldest first."""
    return [
        {
            "session": session,
            "name": known.name,
            "node_id": known.node_id,
            "zone": known.zone,
            "is_draining": known.is_draining,
            "rules_version": known.rules_version,
            "endpoints": [f"{end.listener}://{end.host}:{end.port}" for end in known.endpoints],
        }
        for session, known in sorted(state.sessions.items())
    ]


def state_summary(state: ClusterState) -> View:
    """A summary of the state."""
    transactions = transaction_statistics(state)
    return {
        "cluster_id": state.cluster_id,
        "incarnation": state.incarnation,
        "position": state.position,
        "rules_version": state.rules_version,
        "time_ms": state.time_ms,
        "topics": len(state.topics),
        "partitions": state.partitions_count,
        "chunks": sum(len(each.index) for topic in state.topics.values() for each in topic.partitions),
        "objects": len(state.objects),
        "objects_released": len(state.released),
        "transactional_ids": transactions.ids,
        "transactions_open": transactions.open,
        "transaction_version": state.transaction_version,
        "sessions": session_rows(state),
    }


def state_digest(state: ClusterState) -> View:
    """The digest of the state: all agents have the same one at the same position (safety rule S3).

    It reads the whole state without yielding: some seconds for millions of chunks.
    """
    return {"position": state.position, "rules_version": state.rules_version, "digest": digest(state).hex()}


def _archived_end(index: ChunkIndex) -> int:
    end = int(index.first)
    for chunk in _chunks(index):
        if not chunk.is_archived:
            break
        end = chunk.offset_end
    return end


def _chunks(index: ChunkIndex) -> Iterator[ChunkRef]:
    return (index.row(row) for row in range(len(index)))


def _chunk_view(state: ClusterState, chunk: ChunkRef) -> View:
    marker = chunk.marker
    if marker is not None:
        return {
            "offset_first": chunk.offset_first,
            "offset_end": chunk.offset_end,
            "object": f"none: the {'commit' if marker.is_commit else 'abort'} marker of a transaction",
            "byte_first": None,
            "byte_count": 0,
            "max_timestamp": chunk.max_timestamp,
            "producer_id": marker.producer_id,
            "producer_epoch": marker.epoch,
        }
    known = state.objects.get(ObjectId(chunk.object_id))
    view: View = {
        "offset_first": chunk.offset_first,
        "offset_end": chunk.offset_end,
        "object": known.key if known else f"unknown object {chunk.object_id}",
        "byte_first": chunk.byte_first,
        "byte_count": chunk.byte_count,
        "max_timestamp": chunk.max_timestamp,
    }
    if chunk.is_archived:
        view |= {"row_group": chunk.row_group, "row_first": chunk.row_first, "row_count": chunk.row_count}
    return view


def _key(known: ObjectState) -> str:
    return known.key
