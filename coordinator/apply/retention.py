"""Moves the start of logs and of tables, and lets go of the chunks that neither needs. Part of
`coordinator.apply.apply`.

Rule: starts only move forward, to the end of a chunk or where a client says, and never beyond the log's end. A chunk
stays while the log or the table needs it (safety rule S6). What is too old or too much is worked out here, from the
topic's configs, and those of every broker, as they are at this position: who proposes it says what time it is and which
defaults hold where nothing was altered, no more. `due_chunks` is the same for the proposer, so nothing is written while
nothing is due.

An entry says how many chunks it may let go of, and which partitions it looks at: applying one holds up every agent, so
the proposer keeps it small, and goes on with another entry.

Producers keep their state, as in Kafka since 2.4 (KIP-360): what goes are records, and a repeat of them is still known.
So no producer needs an exemption from safety rule S8 here.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments, maybeIncrementLogStartOffset (Kafka 4.3).
A chunk is to Penstock what a segment is there, with its greatest timestamp and all its bytes. Differs from Kafka: a
chunk without any timestamp is as old as the next one that has one, where Kafka asks the age of the segment's file.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from coordinator.apply.objects import release_references
from coordinator.commands.commands import AdvanceLogStart, ApplyRetention, Done, LogStartsAdvanced, Outcome
from coordinator.configs.config_types import LONG_MAX, split_list
from coordinator.configs.topic_configs import AS_THE_LOG, TABLE_RETENTION
from coordinator.state.chunk_index import OFFSET_FIRST
from coordinator.state.state import EVERY_BROKER, ClusterState, PartitionState, TopicState
from protocol.errors import ErrorCode
from protocol.limits import PARTITIONS_PER_TOPIC_MAX
from protocol.types import Milliseconds, Offset

NO_OFFSET: Final = -1


class Starts(NamedTuple):
    """The first offset that a partition's consumers can read, and the first that its table keeps."""

    log: Offset
    table: Offset


class _Limits(NamedTuple):
    """The retention limits of a topic's partitions. None: no limit."""

    log_from_ms: int | None
    log_bytes_max: int | None
    table_from_ms: int | None
    is_table_apart: bool


def advance_log_start(state: ClusterState, command: AdvanceLogStart) -> Outcome:
    """Hide the records below the offsets that are named; one that is behind the log's start changes nothing."""
    topics = [state.topics.get(topic_id) for topic_id in command.topic_ids]
    error_codes: list[int] = []
    log_starts: list[int] = []
    for topic_index, partition_index, offset in zip(command.topic, command.partition, command.log_start, strict=True):
        topic = topics[topic_index]
        error_code, log_start = ErrorCode.none, NO_OFFSET
        if topic is None or partition_index >= len(topic.partitions):
            error_code = ErrorCode.unknown_topic_or_partition
        elif offset > topic.partitions[partition_index].log_end:
            error_code = ErrorCode.offset_out_of_range
        else:
            partition = topic.partitions[partition_index]
            log_start = max(partition.log_start, Offset(offset))
            is_table_apart = _table_retention_ms(topic) != AS_THE_LOG
            table_start = partition.table_start if is_table_apart else max(partition.table_start, log_start)
            _move(state, partition, Starts(log_start, table_start))
        error_codes.append(int(error_code))
        log_starts.append(log_start)
    return LogStartsAdvanced(error_codes=error_codes, log_starts=log_starts)


def apply_retention(state: ClusterState, command: ApplyRetention) -> Outcome:
    """Drop what is too old or too much in the topics that are named; unknown ones were deleted meanwhile."""
    # A clock that is ahead must not empty topics: what other agents said of the time counts too (safety rule S2).
    now_ms = Milliseconds(min(command.now_ms, state.time_ms))
    chunks_left = command.chunks_max
    ranges = command.partitions or ((0, PARTITIONS_PER_TOPIC_MAX),) * len(command.topic_ids)
    for topic_id, (first, end) in zip(command.topic_ids, ranges, strict=True):
        topic = state.topics.get(topic_id)
        if topic is None:
            continue
        limits = _limits(state, topic, command, now_ms)
        for partition in topic.partitions[first:end]:
            chunks_left -= _move(state, partition, _within(partition, _starts(partition, limits), chunks_left))
    return Done()


def due_chunks(state: ClusterState, topic: TopicState, proposed: ApplyRetention) -> Iterator[int | None]:
    """The number of chunks to drop from each partition; None where nothing moves, not even a start.

    The command's defaults and time count, its bounds do not.
    """
    limits = _limits(state, topic, proposed, proposed.now_ms)
    for partition in topic.partitions:
        starts = _starts(partition, limits)
        is_moved = starts != (partition.log_start, partition.table_start)
        yield partition.index.count_before(min(starts)) if is_moved else None


def _move(state: ClusterState, partition: PartitionState, starts: Starts) -> int:
    """How many chunks went."""
    partition.log_start, partition.table_start = starts
    # A chunk's object stays while either needs it (S6).
    dropped = partition.index.truncate_before(Offset(min(starts)))
    # What the table keeps is to be archived yet, without what was aborted. Fetches begin behind the log's start, and
    # their answers list no aborted range whose marker is before it (safety rule S5).
    forget_markers(partition, OFFSET_FIRST, partition.index.first)
    release_references(state, dropped)
    return len(dropped)


def forget_markers(partition: PartitionState, offset_first: Offset, offset_end: Offset) -> None:
    """Drop the aborted ranges whose markers are in this range, which is not served any more (S5)."""
    if partition.transactions is not None:
        partition.transactions.forget_markers(offset_first, offset_end)
        if partition.transactions.is_empty:
            partition.transactions = None


def _within(partition: PartitionState, starts: Starts, chunks_max: int) -> Starts:
    """The starts, or how far they can move while no more than `chunks_max` chunks go."""
    if partition.index.count_before(min(starts)) <= chunks_max:
        return starts
    end = partition.index.offset_first(chunks_max)
    log_start, table_start = min(starts.log, end), min(starts.table, end)
    return Starts(max(partition.log_start, log_start), max(partition.table_start, table_start))


def _starts(partition: PartitionState, limits: _Limits) -> Starts:
    """Where log and table begin within the limits: never before where they begin now."""
    index, log_start, table_start = partition.index, partition.log_start, partition.table_start
    if limits.log_bytes_max is not None:
        log_start = index.end_of_surplus(partition.log_start, limits.log_bytes_max)
    if limits.log_from_ms is not None:
        log_start = max(log_start, index.end_of_older(partition.log_start, limits.log_from_ms))
    if not limits.is_table_apart:
        table_start = max(table_start, log_start)
    elif limits.table_from_ms is not None:
        table_start = index.end_of_older(table_start, limits.table_from_ms)
    return Starts(log_start, table_start)


def _limits(state: ClusterState, topic: TopicState, command: ApplyRetention, now_ms: Milliseconds) -> _Limits:
    every_broker = state.broker_configs.get(EVERY_BROKER, {})
    policy = topic.configs.get("cleanup.policy", every_broker.get("log.cleanup.policy"))
    is_deleting = command.is_deleting if policy is None else "delete" in split_list(policy)
    default_ms = _number(every_broker, "log.retention.ms", command.retention_ms)
    default_bytes = _number(every_broker, "log.retention.bytes", command.retention_bytes)
    retention_ms = _number(topic.configs, "retention.ms", default_ms) if is_deleting else -1
    retention_bytes = _number(topic.configs, "retention.bytes", default_bytes) if is_deleting else -1
    table_ms = _table_retention_ms(topic)
    return _Limits(
        log_from_ms=now_ms - retention_ms if retention_ms >= 0 else None,
        log_bytes_max=retention_bytes if retention_bytes >= 0 else None,
        table_from_ms=now_ms - table_ms if table_ms >= 0 else None,
        is_table_apart=table_ms != AS_THE_LOG,
    )


def _table_retention_ms(topic: TopicState) -> int:
    return _number(topic.configs, TABLE_RETENTION, AS_THE_LOG)


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    """The value that is set, else the default. Proposers check values; one that is none sets no limit."""
    text = configs.get(name)
    if text is None:
        return default
    try:
        return min(int(text), LONG_MAX)
    except ValueError:
        return -1
