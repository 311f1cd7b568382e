"""Invariants of the transactions in every state that entries can lead to. Called by `coordinator.invariants`.

Rule: reads everything, changes nothing.
"""

from collections.abc import Iterator, Sequence

from coordinator.commands.transaction import TransactionPartition
from coordinator.state.state import ClusterState, PartitionState
from coordinator.state.transactions import NOT_STARTED, TransactionalId
from coordinator.state.unplaced_batches import UnplacedBatch
from protocol.limits import OFFSET_COMMIT_EPOCHS_MAX
from protocol.types import PartitionIndex, ProducerId


def transaction_faults(state: ClusterState) -> Iterator[str]:
    """Every invariant about transactions that does not hold, as a sentence."""
    now = {id_state.metadata.producer_id: name for name, id_state in state.transactional_ids.items()}
    if state.producers_of_transactions != now:
        yield "producers_of_transactions does not mirror transactional_ids"
    if set(state.open_transactions) != {
        n for n, id_state in state.transactional_ids.items() if id_state.metadata.is_ongoing
    }:
        yield "open_transactions does not mirror transactional_ids"
    for name, id_state in state.transactional_ids.items():
        for fault in _transactional_id(state, id_state):
            yield f"transactional id {name!r}: {fault}"
    for topic in state.topics.values():
        for index, partition in enumerate(topic.partitions):
            for fault in _partition(state, (topic.topic_id, PartitionIndex(index)), partition):
                yield f"{topic.name}-{index}: {fault}"
    for group in state.groups.values():
        for producer_id, pending in group.pending.items():
            waited_for = _ongoing(state, producer_id)
            if waited_for is None or group.group_id not in waited_for.groups:
                yield f"group {group.group_id!r}: offsets wait for producer {producer_id} without a transaction"
            if not pending or not all(pending.values()):
                yield f"group {group.group_id!r}: nothing waits for producer {producer_id}"


def _transactional_id(state: ClusterState, id_state: TransactionalId) -> Iterator[str]:
    metadata = id_state.metadata
    waiting = [run for key in id_state.partitions for run in _waiting(state, key, metadata.producer_id)]
    counted = (len(waiting), sum(run.byte_count for run in waiting))
    if (id_state.unplaced_runs, id_state.unplaced_bytes) != counted:
        yield f"counts {id_state.unplaced_runs} runs of {id_state.unplaced_bytes} bytes that wait, and has {counted}"
    if metadata.producer_id >= state.producer_id_next:
        yield f"has the producer id {metadata.producer_id}, which was not given yet"
    if metadata.is_ongoing == (id_state.started_ms == NOT_STARTED):
        yield f"is {metadata.status.value}, and its transaction began at {id_state.started_ms}"
    if not metadata.is_ongoing and (id_state.partitions or id_state.groups):
        members = f"{len(id_state.partitions)} partitions and {len(id_state.groups)} groups"
        yield f"is {metadata.status.value}, and has {members}"
    if max(id_state.updated_ms, id_state.started_ms) > state.time_ms:
        yield "was used in the future"
    if len(id_state.offset_commit_epochs) > OFFSET_COMMIT_EPOCHS_MAX:
        yield f"has connection epochs of {len(id_state.offset_commit_epochs)} groups"
    if any(epoch.position < id_state.offset_commit_epochs_from - 1 for epoch in id_state.offset_commit_epochs.values()):
        yield f"dropped connection epochs below {id_state.offset_commit_epochs_from}, and has an older one"
    for key in id_state.partitions:
        if state.partition(*key) is None:
            yield f"has partition {key[1]} of a topic that is not there, {key[0].hex()}"


def _partition(state: ClusterState, key: TransactionPartition, partition: PartitionState) -> Iterator[str]:
    for producer_id, runs in partition.unplaced_batches.items():
        id_state = _ongoing(state, producer_id)
        if not runs or id_state is None or key not in id_state.partitions:
            yield f"{len(runs)} runs of producer {producer_id} wait for the commit of no transaction"
    transactions = partition.transactions
    if transactions is None:
        return
    if transactions.is_empty:
        yield "remembers that it has no transactions"
    for producer_id, first in transactions.open.items():
        id_state = _ongoing(state, producer_id)
        if id_state is None or key not in id_state.partitions:
            yield f"producer {producer_id} has a transaction open that is none"
        if not 0 <= first < partition.log_end:
            yield f"a transaction is open from offset {first} on, and the log ends at {partition.log_end}"


def _waiting(state: ClusterState, key: TransactionPartition, producer_id: ProducerId) -> Sequence[UnplacedBatch]:
    partition = state.partition(*key)
    return () if partition is None else partition.unplaced_batches.get(producer_id, ())


def _ongoing(state: ClusterState, producer_id: ProducerId) -> TransactionalId | None:
    name = state.producers_of_transactions.get(producer_id)
    id_state = None if name is None else state.transactional_ids[name]
    return id_state if id_state is not None and id_state.metadata.is_ongoing else None
