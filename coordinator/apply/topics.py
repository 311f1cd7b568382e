"""Topics and producer ids. Called by `coordinator.apply.apply`.

Limits are judged here with the values of `protocol.limits`: changing one of them is a change of the rules (S3).
Source of the checks and their order: org.apache.kafka.controller.ReplicationControlManager (Kafka 4.3).
"""

from collections.abc import Iterable
from itertools import chain

from coordinator.apply.groups import forget_topic
from coordinator.apply.objects import release_references
from coordinator.apply.tables import release_table
from coordinator.apply.transactions import forget_topic_in_transactions, release_unplaced
from coordinator.commands.admin import AssignReplicas, CreatePartitions, Replicas
from coordinator.commands.commands import (
    AllocateProducerIds,
    CreateTopic,
    DeleteTopic,
    Done,
    ExpireProducers,
    Outcome,
    ProducerIdsAllocated,
    Rejected,
)
from coordinator.configs.topic_names import InvalidTopicName, shape, validate_topic_name
from coordinator.state.state import ClusterState, PartitionState, TopicState
from protocol.errors import ErrorCode
from protocol.limits import (
    PARTITIONS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    PRODUCER_IDS_PER_BLOCK_MAX,
    REPLICAS_ASSIGNED_MAX,
)
from protocol.types import Milliseconds, PartitionIndex, ProducerId, TopicId
from txn.producer_state import expire

PRODUCER_IDS_MAX = (1 << 63) - 1
NO_TOPIC_ID = TopicId(bytes(16))
"""Kafka's Uuid.ZERO_UUID: in requests it means that no topic is named."""


def create_topic(state: ClusterState, command: CreateTopic) -> Outcome:
    """Create a topic with all its partitions empty."""
    rejected = _check_creation(state, command)
    if rejected is not None:
        return rejected
    # A producer may have written to a topic of this name that was deleted since; it goes on where it was (S8).
    unknown_below = state.producers_before_deletion
    partitions = [PartitionState(unknown_producers_below=unknown_below) for _ in range(command.partition_count)]
    topic = state.topics[command.topic_id] = TopicState(
        topic_id=command.topic_id,
        name=command.name,
        configs=dict(sorted(command.configs)),
        partitions=partitions,
        created_ms=state.time_ms,
        replicas=_numbered(0, command.replicas),
    )
    topic.is_log_append_time = state.uses_append_time(topic)
    state.topic_ids[command.name] = command.topic_id
    state.topic_shapes[shape(command.name)] = command.name
    state.partitions_count += command.partition_count
    state.topics_at = state.position
    return Done()


def _check_creation(state: ClusterState, command: CreateTopic) -> Rejected | None:
    try:
        validate_topic_name(command.name)
    except InvalidTopicName as error:
        return Rejected(error_code=ErrorCode.invalid_topic_exception, reason=str(error))
    if command.name in state.topic_ids:
        return Rejected(error_code=ErrorCode.topic_already_exists, reason=f"Topic '{command.name}' already exists.")
    other = state.topic_shapes.get(shape(command.name))
    if other is not None:
        return Rejected(
            error_code=ErrorCode.invalid_topic_exception,
            reason=f"Topic '{command.name}' collides with '{other}': '.' and '_' count as the same character.",
        )
    if command.topic_id in state.topics or command.topic_id == NO_TOPIC_ID:
        return Rejected(
            error_code=ErrorCode.invalid_request, reason=f"the topic id {command.topic_id.hex()} cannot be given"
        )
    if not 1 <= command.partition_count <= PARTITIONS_PER_TOPIC_MAX:
        return Rejected(
            error_code=ErrorCode.invalid_partitions,
            reason=f"A topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions, {command.partition_count} were asked for.",
        )
    return _check_room(state, command.partition_count) or _check_replicas(command.replicas, command.partition_count)


def _check_replicas(replicas: tuple[Replicas, ...], partition_count: int) -> Rejected | None:
    """Why so many partitions cannot be given these by hand; None where they can, or are given none."""
    if replicas and len(replicas) != partition_count:
        reason = f"{partition_count} partition(s) are added, but {len(replicas)} assignment(s) were specified."
        return Rejected(error_code=ErrorCode.invalid_replica_assignment, reason=reason)
    return _check_nodes(replicas)


def _check_nodes(replicas: Iterable[Replicas]) -> Rejected | None:
    for nodes in replicas:
        if not 1 <= len(nodes) <= REPLICAS_ASSIGNED_MAX or len(set(nodes)) < len(nodes):
            reason = f"A partition is given 1 to {REPLICAS_ASSIGNED_MAX} brokers, each once, not {list(nodes)}."
            return Rejected(error_code=ErrorCode.invalid_replica_assignment, reason=reason)
    return None


def _numbered(first: int, replicas: tuple[Replicas, ...]) -> dict[PartitionIndex, Replicas]:
    return {PartitionIndex(index): nodes for index, nodes in enumerate(replicas, first)}


def _check_room(state: ClusterState, added_count: int) -> Rejected | None:
    if state.partitions_count + added_count <= PARTITIONS_MAX:
        return None
    return Rejected(
        error_code=ErrorCode.policy_violation,
        reason=f"The cluster has {state.partitions_count} of at most {PARTITIONS_MAX} partitions.",
    )


def create_partitions(state: ClusterState, command: CreatePartitions) -> Outcome:
    """Add partitions, empty, behind those that the topic has."""
    topic = state.topics.get(command.topic_id)
    if topic is None:
        return Rejected(
            error_code=ErrorCode.unknown_topic_id, reason=f"there is no topic with the id {command.topic_id.hex()}"
        )
    count = len(topic.partitions)
    added_count = command.partition_count - count
    rejected = check_growth(state, topic, command.partition_count) or _check_replicas(command.replicas, added_count)
    if rejected is not None:
        return rejected
    # As at a topic's creation: there may have been such a partition in one of this name that was deleted (S8).
    unknown_below = state.producers_before_deletion
    topic.partitions.extend(PartitionState(unknown_producers_below=unknown_below) for _ in range(added_count))
    topic.replicas.update(_numbered(count, command.replicas))
    state.partitions_count += added_count
    state.topics_at = state.position
    return Done()


def assign_replicas(state: ClusterState, command: AssignReplicas) -> Outcome:
    """Give partitions other replicas by hand (KIP-455): nothing is moved, so it is done at once."""
    topic = state.topics.get(command.topic_id)
    if topic is None:
        return Rejected(
            error_code=ErrorCode.unknown_topic_id, reason=f"there is no topic with the id {command.topic_id.hex()}"
        )
    rejected = _check_nodes(nodes for _, nodes in command.replicas)
    if rejected is not None:
        return rejected
    for index, _ in command.replicas:
        if index >= len(topic.partitions):
            reason = f"Unable to find partition {topic.name}:{index}."
            return Rejected(error_code=ErrorCode.unknown_topic_or_partition, reason=reason)
    topic.replicas = dict(sorted({**topic.replicas, **dict(command.replicas)}.items()))
    return Done()


def check_growth(state: ClusterState, topic: TopicState, partition_count: int) -> Rejected | None:
    """Why the topic cannot have so many partitions; None where it can."""
    count = len(topic.partitions)
    if partition_count == count:
        reason = f"Topic already has {count} partition(s)."
    elif partition_count < count:
        reason = (
            f"The topic {topic.name} currently has {count} partition(s); {partition_count} would not be an increase."
        )
    elif partition_count > PARTITIONS_PER_TOPIC_MAX:
        reason = f"A topic has at most {PARTITIONS_PER_TOPIC_MAX} partitions, {partition_count} were asked for."
    else:
        return _check_room(state, partition_count - count)
    return Rejected(error_code=ErrorCode.invalid_partitions, reason=reason)


def delete_topic(state: ClusterState, command: DeleteTopic) -> Outcome:
    """Delete a topic: its records, its producers' state, its chunks' references to objects, and
    what groups committed."""
    topic = state.topics.pop(command.topic_id, None)
    if topic is None:
        return Rejected(
            error_code=ErrorCode.unknown_topic_id, reason=f"there is no topic with the id {command.topic_id.hex()}"
        )
    del state.topic_ids[topic.name]
    del state.topic_shapes[shape(topic.name)]
    state.partitions_count -= len(topic.partitions)
    state.producers_count -= sum(len(partition.producers) for partition in topic.partitions)
    state.topics_at = state.position
    state.producers_before_deletion = state.producer_id_next
    forget_topic(state, command.topic_id)
    forget_topic_in_transactions(state, command.topic_id)
    release_references(state, chain.from_iterable(partition.index.object_ids() for partition in topic.partitions))
    release_unplaced(state, topic.partitions)
    release_table(state, topic)
    return Done()


def allocate_producer_ids(state: ClusterState, command: AllocateProducerIds) -> Outcome:
    """Hand out the next block of producer ids."""
    first = state.producer_id_next
    if not 1 <= command.count <= PRODUCER_IDS_PER_BLOCK_MAX or first + command.count > PRODUCER_IDS_MAX:
        return Rejected(
            error_code=ErrorCode.invalid_request,
            reason=f"{command.count} producer ids from {first} on: ask for 1 to {PRODUCER_IDS_PER_BLOCK_MAX}",
        )
    state.producer_id_next = ProducerId(first + command.count)
    return ProducerIdsAllocated(producer_id_first=first, count=command.count)


def expire_producers(state: ClusterState, command: ExpireProducers) -> Outcome:
    """Forget idle producers; a cutoff ahead of the state's time counts as that time (safety rule S2)."""
    before_ms = Milliseconds(min(command.cutoff_ms, state.time_ms))
    for topic in state.topics.values():
        for partition in topic.partitions:
            count = len(partition.producers)
            if expire(partition.producers, before_ms, state.known_time_ms, partition.open_producers()):
                partition.unknown_producers_below = state.producer_id_next
                state.producers_count -= count - len(partition.producers)
    return Done()
