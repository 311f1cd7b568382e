"""How many producers' states there may be, and which one is dropped for the next. Called by `coordinator.apply.apply`.

Rule: what is dropped has the oldest last position in its partition, or in the cluster, and no open transaction there.
The drop is noted as an expiry is: its partition takes any first sequence of the producers that have an id by now
(safety rule S8). A batch for which no other state can go is rejected; a marker for which none can go leaves no state.

The bounds hold from `RULES_CHECKED_STORAGE` on. What there is beyond them by then goes bit by bit, for applying an
entry holds up every agent. An order is built when its bound is first reached. From then on the next state is found in
the logarithm of their number.

Differs from Kafka, which keeps a producer's state until it expires (producer.id.expiration.ms), however many there are.
"""

from collections.abc import Iterator

from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.commands.transaction import TransactionPartition
from coordinator.state.producer_order import ProducerKey, ProducerOrder
from coordinator.state.state import ClusterState, PartitionState
from protocol.limits import PRODUCER_STATES_MAX, PRODUCER_STATES_PER_PARTITION_MAX
from protocol.types import PartitionIndex, Position, ProducerId

DROPPED_FOR_ONE = 2
"""More than one, so that a partition that is beyond its bound comes back to it."""
STALE_SHARE = 2
"""An order with so many entries for each state that may be there is built again when it is next needed."""


def may_begin(state: ClusterState, place: TransactionPartition, partition: PartitionState) -> bool:
    """Whether one more producer may have a state in the partition. Drops what has to go for it."""
    if state.rules_version < RULES_CHECKED_STORAGE:
        return True
    return _is_room_in(state, place, partition) and _is_room(state)


def note_written(
    state: ClusterState,
    place: TransactionPartition,
    partition: PartitionState,
    producer_id: ProducerId,
    *,
    is_new: bool,
) -> None:
    """The producer's state is of now: it was begun, or its transaction ended here. Most writes only move its position,
    which its entry in an order learns of when it is the oldest."""
    partition.producers[producer_id].last_position = state.position
    state.producers_count += is_new
    key = (*place, producer_id)
    if partition.producer_order is not None:
        partition.producer_order.add(state.position, key)
        if len(partition.producer_order) > STALE_SHARE * PRODUCER_STATES_PER_PARTITION_MAX:
            partition.producer_order = None
    if state.producer_order is not None:
        state.producer_order.add(state.position, key)
        if len(state.producer_order) > STALE_SHARE * PRODUCER_STATES_MAX:
            state.producer_order = None


def note_dropped(state: ClusterState, partition: PartitionState) -> None:
    """Counts a producer's state that was dropped, or not kept. Whose it was is not remembered (safety rule S8)."""
    partition.unknown_producers_below = state.producer_id_next
    state.producers_dropped_count += 1


def put_in_order(state: ClusterState) -> None:
    """Put the bounds into force. Older rules noted no positions, so those states are ordered by their last write."""
    by_last_write = [
        (producer.last_active_ms, topic_id, index, producer_id, producer)
        for topic_id, topic in state.topics.items()
        for index, partition in enumerate(topic.partitions)
        for producer_id, producer in partition.producers.items()
    ]
    by_last_write.sort(key=lambda row: row[:4])
    for number, (*_, producer) in enumerate(by_last_write, start=-len(by_last_write)):
        producer.last_position = Position(number)


def _is_room_in(state: ClusterState, place: TransactionPartition, partition: PartitionState) -> bool:
    dropped_count = 0
    while len(partition.producers) >= PRODUCER_STATES_PER_PARTITION_MAX and dropped_count < DROPPED_FOR_ONE:
        if partition.producer_order is None:
            partition.producer_order = ProducerOrder(_entries(place, partition))
        oldest = _oldest(state, partition.producer_order)
        if oldest is None:
            break
        _drop(state, oldest)
        dropped_count += 1
    return dropped_count > 0 or len(partition.producers) < PRODUCER_STATES_PER_PARTITION_MAX


def _is_room(state: ClusterState) -> bool:
    dropped_count = 0
    while state.producers_count >= PRODUCER_STATES_MAX and dropped_count < DROPPED_FOR_ONE:
        if state.producer_order is None:
            state.producer_order = ProducerOrder(
                entry
                for topic_id, topic in state.topics.items()
                for index, partition in enumerate(topic.partitions)
                for entry in _entries((topic_id, PartitionIndex(index)), partition)
            )
        oldest = _oldest(state, state.producer_order)
        if oldest is None:
            break
        _drop(state, oldest)
        dropped_count += 1
    return dropped_count > 0 or state.producers_count < PRODUCER_STATES_MAX


def _entries(place: TransactionPartition, partition: PartitionState) -> Iterator[tuple[Position, ProducerKey]]:
    for producer_id, producer in partition.producers.items():
        yield producer.last_position, (*place, producer_id)


def _oldest(state: ClusterState, order: ProducerOrder) -> ProducerKey | None:
    """The state that goes next, out of the order; None where each has a transaction open."""
    while (entry := order.pop()) is not None:
        position, key = entry
        topic_id, index, producer_id = key
        partition = state.partition(topic_id, index)
        producer = None if partition is None else partition.producers.get(producer_id)
        if partition is None or producer is None:
            continue
        if producer.last_position > position:
            order.add(producer.last_position, key)
        elif not partition.has_open_transaction(producer_id):
            return key
        # Else it is entered again when its transaction ends here: that is a write of its own.
    return None


def _drop(state: ClusterState, key: ProducerKey) -> None:
    topic_id, index, producer_id = key
    partition = state.topics[topic_id].partitions[index]
    del partition.producers[producer_id]
    state.producers_count -= 1
    note_dropped(state, partition)
