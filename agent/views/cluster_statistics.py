"""The values of the cluster-wide metrics, computed from the state in turns, so that a scrape delays no client.

Rule: nothing here changes the state, and names and times come from it alone. The state may change between two turns:
each topic and each group is right at its own moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.runtime.yielding import CooperativeYield
from agent.views.append_times import AppendTimes
from agent.views.group_lags import GroupLag, GroupRow, group_lag, group_row
from agent.views.transactions import TransactionStatistics, transaction_statistics
from coordinator.state.chunk_index import NO_OBJECT, ChunkIndex
from coordinator.state.state import ClusterState, TopicState
from protocol.limits import ARCHIVE_AGE_MS_DEFAULT
from protocol.types import Milliseconds


class TopicStatistics(NamedTuple):
    """One topic."""

    name: str
    log_ends: Sequence[int]
    """By partition."""
    chunks: int
    intake_bytes: int
    """Stored bytes of chunks that are not archived."""
    lake_bytes: int
    """Stored bytes of archived chunks."""
    unarchived_ms: Milliseconds | None
    """The append time of the oldest record that is in no table file; None without one, or where it is not known."""
    unstable_records: int
    """The records above the last stable offset of the partition that has most of them."""
    unstable_ms: Milliseconds | None
    """The append time of the oldest record above a last stable offset; None without one, or where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatistics:
    """The cluster at about one moment."""

    now_ms: Milliseconds
    """That moment: ages are counted up to it."""
    leader_epoch: int
    """How often an agent became the maintenance leader."""
    topics: Sequence[TopicStatistics]
    groups: Sequence[GroupRow]
    lags: Sequence[GroupLag]
    transactions: TransactionStatistics
    topics_count: int
    partitions: int
    chunks: int
    objects: int
    objects_pending_deletion: int
    sessions: int
    producers: int
    """Producer states of all partitions. A producer counts in each partition that it wrote to."""
    producers_dropped: int
    """Producer states dropped above the limit since this agent began to apply the ledger."""


async def cluster_statistics(
    state: ClusterState,
    turns: CooperativeYield,
    now_ms: Milliseconds | None = None,
    pass_interval_ms: int = ARCHIVE_AGE_MS_DEFAULT,
) -> ClusterStatistics:
    """The statistics of the state. `turns` is stepped for each partition and each committed offset.

    `now_ms`: a checked clock's time; None uses the state's time, which stands still without entries.
    `pass_interval_ms`: that of `AppendTimes`.
    """
    append_times = AppendTimes(state.objects, pass_interval_ms)
    topics = [await _topic_statistics(topic, append_times, turns) for topic in list(state.topics.values())]
    groups: list[GroupRow] = []
    lags: list[GroupLag] = []
    for group in list(state.groups.values()):
        if group.is_vacant:
            continue
        groups.append(group_row(group))
        for topic_id, offsets in list(group.offsets.items()):
            committed_topic = state.topics.get(topic_id)
            if committed_topic is not None:
                lags.append(await group_lag(group.group_id, committed_topic, offsets, append_times, turns))
        await turns.step()
    return ClusterStatistics(
        topics=topics,
        groups=groups,
        lags=lags,
        transactions=transaction_statistics(state, now_ms),
        now_ms=max(state.time_ms, now_ms or state.time_ms),
        leader_epoch=state.maintenance_leader_epoch,
        topics_count=len(topics),
        partitions=state.partitions_count,
        chunks=sum(topic.chunks for topic in topics),
        objects=len(state.objects),
        objects_pending_deletion=len(state.released),
        sessions=len(state.sessions),
        producers=state.producers_count,
        producers_dropped=state.producers_dropped_count,
    )


async def _topic_statistics(topic: TopicState, append_times: AppendTimes, turns: CooperativeYield) -> TopicStatistics:
    chunks = intake_bytes = stored_bytes = unstable_records = 0
    unarchived: list[Milliseconds] = []
    unstable: list[Milliseconds] = []
    log_ends: list[int] = []
    for partition in list(topic.partitions):
        index = partition.index
        log_ends.append(partition.log_end)
        chunks += len(index)
        unstable_records = max(unstable_records, partition.log_end - partition.last_stable)
        if len(index):
            intake_row = index.intake_row
            intake_bytes += _stored_bytes(index, intake_row)
            stored_bytes += index.stored_bytes
            unarchived_first = index.offset_first(intake_row) if intake_row < len(index) else None
            unstable_first = partition.last_stable if partition.last_stable < partition.log_end else None
            for times, offset in ((unarchived, unarchived_first), (unstable, unstable_first)):
                time_ms = None if offset is None else append_times.first(topic, partition, offset)
                if time_ms is not None:
                    times.append(time_ms)
        await turns.step()
    return TopicStatistics(
        name=topic.name,
        log_ends=log_ends,
        chunks=chunks,
        intake_bytes=intake_bytes,
        lake_bytes=stored_bytes - intake_bytes,
        unarchived_ms=min(unarchived, default=None),
        unstable_records=unstable_records,
        unstable_ms=min(unstable, default=None),
    )


def _stored_bytes(index: ChunkIndex, row_first: int) -> int:
    """Stored bytes of the chunks from a row on; markers are stored nowhere."""
    places = index.places(row_first, len(index))
    return int(places.byte_count[places.object_id != NO_OBJECT].sum())
