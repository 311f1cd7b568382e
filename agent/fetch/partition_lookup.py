"""Finds the requested partitions of a fetch in the state, or the errors for their consumer.

An error that may only mean that this agent is behind the ledger waits for a barrier, one for all partitions of a fetch
(safety rule S4). Nothing here does I/O. The state may be another at each step, so partitions are looked up again.

Source: org.apache.kafka.server.ReplicaManager.readFromLog, org.apache.kafka.cluster.Partition.readRecords (Kafka 4.3).
"""

from typing import NamedTuple

from agent.admin.cluster_view import NO_LEADER_EPOCH, leader_epoch_error
from agent.fetch.isolation import visible_end
from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import BARRIER, FetchInputs, Steps
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.state import ClusterState, PartitionState, TopicState
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH, PartitionIndex, TopicId
from txn.isolation import IsolationLevel

NEEDS_BARRIER = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.offset_out_of_range,
)
"""Errors that may only mean that this agent is behind the ledger (safety rule S4)."""


class ReadablePartition(NamedTuple):
    """A partition that can be read, in the state of this moment: never keep it from one step to the next."""

    topic: TopicState
    partition: PartitionState
    number: int
    """The partition's index in the topic."""
    is_diverging: bool = False
    """The consumer has read beyond the end of this epoch (KIP-320)."""
    is_beyond_stable: bool = False
    """A read_committed consumer's offset is beyond the last stable offset that this agent knows."""

    @property
    def key(self) -> PartitionKey:
        return self.topic.topic_id, PartitionIndex(self.number)


class PartitionLookup:
    """The lookups of one fetch, which takes at most one barrier for all of them.

    A caller uses `find`, and `find_confirmed` where that returns None: most lookups need no generator.
    """

    __slots__ = ("_inputs", "_is_confirmed", "_isolation")

    def __init__(self, inputs: FetchInputs, isolation: IsolationLevel) -> None:
        self._inputs = inputs
        self._isolation = isolation
        self._is_confirmed: bool | None = None
        """Whether the ledger answered the barrier of this fetch; None before it is taken."""

    def find(self, requested: RequestedPartition) -> ReadablePartition | ErrorCode | None:
        """The partition, or the error for its consumer; None where only a barrier can say (`find_confirmed`)."""
        result = find_partition(self._inputs.state, requested, self._isolation)
        if self._is_confirmed or not needs_barrier(result):
            return result
        # Without the ledger's answer the consumer asks again: an UNKNOWN_TOPIC or OFFSET_OUT_OF_RANGE by an old state
        # would make it reset its position (S4).
        return None if self._is_confirmed is None else ErrorCode.not_leader_or_follower

    def find_confirmed(self, requested: RequestedPartition) -> Steps[ReadablePartition | ErrorCode]:
        """The result of `find` behind a barrier."""
        yield BARRIER
        self._is_confirmed = self._inputs.is_barrier_answered
        result = self.find(requested)
        assert result is not None, "no second barrier"
        return result


def find_partition(
    state: ClusterState, requested: RequestedPartition, isolation: IsolationLevel
) -> ReadablePartition | ErrorCode:
    """The partition, or the error for its consumer, by the entries that this agent has applied."""
    if isinstance(requested.topic, str):
        topic_id, unknown_topic = state.topic_ids.get(requested.topic), ErrorCode.unknown_topic_or_partition
    else:
        topic_id, unknown_topic = TopicId(requested.topic), ErrorCode.unknown_topic_id
    topic = None if topic_id is None else state.topics.get(topic_id)
    if topic is None:
        return unknown_topic
    if not 0 <= requested.partition < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    # From here on in Kafka's order: the client's leader epoch, a diverging epoch, the range of offsets. Any negative
    # epoch is none (FetchRequest.optionalEpoch).
    epoch_error = leader_epoch_error(max(requested.current_leader_epoch, NO_LEADER_EPOCH))
    if epoch_error is not ErrorCode.none:
        return epoch_error
    partition = topic.partitions[requested.partition]
    # KIP-320: the answer names the epoch's end, and the consumer truncates.
    if requested.last_fetched_epoch == LEADER_EPOCH and requested.fetch_offset > partition.log_end:
        return ReadablePartition(topic, partition, requested.partition, is_diverging=True)
    # No log has an epoch above LEADER_EPOCH, so the consumer's position is of no log of this cluster.
    is_epoch_unknown = requested.last_fetched_epoch > LEADER_EPOCH
    if is_epoch_unknown or not partition.log_start <= requested.fetch_offset <= partition.log_end:
        return ErrorCode.offset_out_of_range
    # Another agent may have applied the end of a transaction and served records up to there (S4).
    is_beyond = partition.transactions is not None and requested.fetch_offset > visible_end(partition, isolation)
    return ReadablePartition(topic, partition, requested.partition, is_beyond_stable=is_beyond)


def needs_barrier(result: ReadablePartition | ErrorCode) -> bool:
    """Whether the result may only mean that this agent is behind the ledger (safety rule S4)."""
    if isinstance(result, ReadablePartition):
        return result.is_diverging or result.is_beyond_stable
    return result in NEEDS_BARRIER
