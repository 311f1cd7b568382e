"""Finds the batches whose predecessors are lost: those that come to no ledger in their producer's sequence.

In: the commits of all objects that are still to come, then one after the other. Out: for each, the rows that are out of
order. A batch of which a copy comes later is none of them: it was rejected as out of order, and sent again.
"""

from collections import Counter
from collections.abc import Iterator

from coordinator.commands.commands import CommitChunks
from coordinator.recovery.intake_objects import BatchKey, sequenced_batches
from coordinator.state.state import ClusterState, PartitionState
from protocol.types import ProducerId, TopicId
from txn.producer_state import OUT_OF_ORDER, ProducerState, decide, sequence_after


class MissingBatches:
    """The copies of each batch that are still to come, and the check of a commit against them and the state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._copies: Counter[BatchKey] = Counter()

    def expect(self, command: CommitChunks) -> None:
        """Count the batches of a command that will be committed later."""
        self._copies.update(batch for batch, _ in sequenced_batches(command))

    def remove(self, command: CommitChunks) -> None:
        """Uncount the batches of a command that is committed now."""
        self._copies.subtract(batch for batch, _ in sequenced_batches(command))

    def rows_behind_a_gap(self, command: CommitChunks) -> Iterator[int]:
        """The batches that are neither next in sequence, nor repeats, nor repeated: their predecessors are missing."""
        next_by_producer: dict[tuple[TopicId, int, int], tuple[int, int]] = {}
        passed: Counter[BatchKey] = Counter()
        for batch, row in sequenced_batches(command):
            passed[batch] += 1
            topic_id, partition, producer_id, epoch, sequence = batch
            key, record_count = (topic_id, partition, producer_id), command.batches.record_count[row]
            partition_state = self._state.partition(topic_id, partition)
            is_next = next_by_producer.get(key) == (epoch, sequence)
            if is_next or not _is_gap(partition_state, producer_id, epoch, sequence, record_count):
                next_by_producer[key] = epoch, sequence_after(sequence, record_count)
            elif self._copies[batch] <= passed[batch]:
                yield row


def _is_gap(
    partition_state: PartitionState | None, producer_id: int, epoch: int, sequence: int, record_count: int
) -> bool:
    """Whether a batch is rejected as out of order because something before it is missing, and not because it is old."""
    producer: ProducerState | None = (
        None if partition_state is None else partition_state.producers.get(ProducerId(producer_id))
    )
    decision = decide(
        producer,
        producer_id=producer_id,
        epoch=epoch,
        base_sequence=sequence,
        record_count=record_count,
        unknown_producers_below=ProducerId(0) if partition_state is None else partition_state.unknown_producers_below,
    )
    if decision != OUT_OF_ORDER:
        return False
    return producer is None or epoch > producer.epoch or sequence > producer.sequence_next
