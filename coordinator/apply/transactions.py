"""Transactions: who takes part, how they end, and what follows from it in every partition. Part of
`coordinator.apply.apply`.

Rule: `txn.transitions.decide` says what becomes of an event; this carries it out. A transaction ends in one entry,
however many partitions and groups it has: in each partition its marker takes the next offset, and what its group
committed becomes true or is dropped. Neither is ever half done, so no other entry finds a transaction on its way.

A request of a V1 client carries the epoch of the connection that it came on (safety rule S7). Once another connection
has acted later than this one began, its client has left this one, and its requests decide nothing. A rejection is an
entry too, so the position has moved on when the client comes back by another connection.
"""

from collections.abc import Iterable
from itertools import islice
from typing import assert_never

from coordinator.apply.groups import end_pending_offsets
from coordinator.apply.objects import release_references
from coordinator.apply.producer_bounds import may_begin, note_dropped, note_written
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.commands.transaction import (
    AddToTransaction,
    ConnectionEpoch,
    EndTransaction,
    ExpireTransaction,
    ExpireTransactionalIds,
    InitTransactionalProducer,
    PlainTransactionCommand,
    SetTransactionVersion,
    TerminateTransaction,
    TransactionDecided,
    TransactionPartition,
)
from coordinator.configs.topic_configs import AT_COMMIT, PLACEMENT
from coordinator.state.chunk_index import MarkerRow, marker_row
from coordinator.state.state import NO_TIME, TRANSACTION_VERSION_NEWEST, ClusterState, PartitionState, TopicState
from coordinator.state.transactions import NOT_STARTED, AppliedConnectionEpoch, TransactionalId, TransactionEnding
from coordinator.state.unplaced_batches import UnplacedBatch
from protocol.errors import ErrorCode
from protocol.limits import (
    TRANSACTION_MEMBERS_MAX,
    TRANSACTION_UNPLACED_BYTES_MAX,
    TRANSACTION_UNPLACED_RUNS_MAX,
    TRANSACTIONAL_IDS_MAX,
)
from protocol.types import Offset, ProducerEpoch, ProducerId, SessionId, TopicId
from txn import transaction as events
from txn.isolation import PartitionTransactions
from txn.producer_state import mark
from txn.transaction import Decision, Ending, TransactionVersion
from txn.transitions import decide

STALE = TransactionDecided(error_code=ErrorCode.not_coordinator, is_stale=True)


def apply_transaction_command(state: ClusterState, session_id: SessionId, command: PlainTransactionCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about transactions, but for the offsets that groups commit in
    them."""
    match command:
        case InitTransactionalProducer():
            return init_producer(state, command)
        case AddToTransaction():
            return add_to_transaction(state, session_id, command)
        case EndTransaction():
            return end_transaction(state, session_id, command)
        case ExpireTransaction():
            return expire_transaction(state, command)
        case TerminateTransaction():
            return terminate_transaction(state, command)
        case ExpireTransactionalIds():
            return expire_transactional_ids(state, command)
        case SetTransactionVersion():
            return set_transaction_version(state, command)
        case _:
            assert_never(command)


def init_producer(state: ClusterState, command: InitTransactionalProducer) -> Outcome:
    """Give a producer its next epoch. What its predecessor has open is aborted."""
    id_state = state.transactional_ids.get(command.transactional_id)
    # They stand in every snapshot, and clients choose them: without a bound one client could fill the state.
    if id_state is None and len(state.transactional_ids) >= TRANSACTIONAL_IDS_MAX:
        reason = f"There are {len(state.transactional_ids)} transactional ids, as many as there may be."
        return Rejected(error_code=ErrorCode.policy_violation, reason=reason)
    event = events.InitProducerId(timeout_ms=command.timeout_ms, producer_id=command.producer_id, epoch=command.epoch)
    decision = decide(None if id_state is None else id_state.metadata, event, state.producer_id_next)
    decided = _carry_out(state, command.transactional_id, id_state, decision, TransactionEnding.FENCED)
    if decision.following is not None:
        state.transactional_ids[command.transactional_id].forget_connection_epochs()
    return decided


def add_to_transaction(state: ClusterState, session_id: SessionId, command: AddToTransaction) -> Outcome:
    """Make partitions and groups part of a V1 transaction, which begins where none is open."""
    id_state = state.transactional_ids.get(command.transactional_id)
    if _is_stale(id_state, session_id, command):
        return STALE
    event = events.AddToTransactionEvent(
        producer_id=command.producer_id, epoch=command.epoch, version=TransactionVersion.V1
    )
    decision = decide(None if id_state is None else id_state.metadata, event, state.producer_id_next)
    if decision.error_code is not ErrorCode.none or id_state is None:
        return TransactionDecided(error_code=decision.error_code)
    partitions = [key for key in command.partitions if state.partition(*key) is not None]
    # All or nothing, as in Kafka (KafkaApis.handleAddPartitionsToTxnRequest, which answers the other partitions with
    # OPERATION_NOT_ATTEMPTED).
    if len(partitions) < len(command.partitions):
        return TransactionDecided(error_code=ErrorCode.unknown_topic_or_partition)
    if (
        len(id_state.partitions) + len(partitions) + len(id_state.groups) + len(command.groups)
        > TRANSACTION_MEMBERS_MAX
    ):
        return TransactionDecided(error_code=ErrorCode.policy_violation)
    decided = _carry_out(state, command.transactional_id, id_state, decision)
    id_state.partitions.update(dict.fromkeys(partitions))
    id_state.groups.update(dict.fromkeys(command.groups))
    _keep_connection_epoch(state, id_state, session_id, command)
    return decided


def join_partition(
    state: ClusterState, key: TransactionPartition, producer_id: ProducerId, epoch: ProducerEpoch, version: int
) -> ErrorCode:
    """Whether a batch may be written to a partition as part of its producer's open transaction.

    Under V2 the batch itself makes the partition part of it, and begins one where none is open (KIP-890).
    """
    transactional_id = state.producers_of_transactions.get(producer_id)
    if transactional_id is None:
        return ErrorCode.invalid_producer_id_mapping
    id_state = state.transactional_ids[transactional_id]
    metadata = id_state.metadata
    is_ongoing = metadata.is_ongoing
    is_added = is_ongoing and key in id_state.partitions
    if is_ongoing and metadata.epoch == epoch and (is_added or version >= TransactionVersion.V2):
        # What `decide` would say of almost every batch: to add to what is open changes nothing but who takes part.
        if not is_added and _is_full(id_state):
            return ErrorCode.policy_violation
        id_state.updated_ms = state.known_time_ms
        id_state.partitions[key] = None
        return ErrorCode.none
    return join(state, transactional_id, id_state, producer_id, epoch, version, partition=key, is_added=is_added)


def join(
    state: ClusterState,
    transactional_id: str,
    id_state: TransactionalId,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    version: int,
    *,
    partition: TransactionPartition | None = None,
    group_id: str | None = None,
    is_added: bool,
) -> ErrorCode:
    """The same of a partition or a group that is no part yet, or under another epoch."""
    event: events.Event
    if version >= TransactionVersion.V2:
        event = events.AddToTransactionEvent(producer_id=producer_id, epoch=epoch, version=TransactionVersion.V2)
    else:
        event = events.VerifyInTransaction(producer_id=producer_id, epoch=epoch, is_added=is_added)
    decision = decide(id_state.metadata, event, state.producer_id_next)
    if decision.error_code is not ErrorCode.none:
        return decision.error_code
    if not is_added and id_state.metadata.is_ongoing and _is_full(id_state):
        return ErrorCode.policy_violation
    if decision.following is not None:
        _carry_out(state, transactional_id, id_state, decision)
    if partition is not None:
        id_state.partitions[partition] = None
    if group_id is not None:
        id_state.groups[group_id] = None
    return ErrorCode.none


def _is_full(id_state: TransactionalId) -> bool:
    return len(id_state.partitions) + len(id_state.groups) >= TRANSACTION_MEMBERS_MAX


def begin(partition: PartitionState, producer_id: ProducerId, offset: Offset) -> None:
    """A batch of the producer's transaction got `offset`: it is open here, from its first batch on."""
    if partition.transactions is None:
        partition.transactions = PartitionTransactions()
    partition.transactions.begin(producer_id, offset)


def end_transaction(state: ClusterState, session_id: SessionId, command: EndTransaction) -> Outcome:
    """Commit or abort."""
    id_state = state.transactional_ids.get(command.transactional_id)
    if _is_stale(id_state, session_id, command):
        return STALE
    event = events.EndTransactionEvent(
        producer_id=command.producer_id,
        epoch=command.epoch,
        version=command.version,
        is_commit=command.is_commit,
    )
    decision = decide(None if id_state is None else id_state.metadata, event, state.producer_id_next)
    how = TransactionEnding.COMMITTED if command.is_commit else TransactionEnding.ABORTED
    decided = _carry_out(state, command.transactional_id, id_state, decision, how)
    if id_state is not None and decision.error_code is ErrorCode.none:
        _keep_connection_epoch(state, id_state, session_id, command)
    return decided


def expire_transaction(state: ClusterState, command: ExpireTransaction) -> Outcome:
    """Abort a transaction that is open for too long, if it is the one that was seen."""
    id_state = state.transactional_ids.get(command.transactional_id)
    event = events.ExpireTransactionEvent(producer_id=command.producer_id, epoch=command.epoch, serial=command.serial)
    decision = decide(None if id_state is None else id_state.metadata, event, state.producer_id_next)
    return _carry_out(state, command.transactional_id, id_state, decision, TransactionEnding.EXPIRED)


def terminate_transaction(state: ClusterState, command: TerminateTransaction) -> Outcome:
    """Abort what a producer has open, as a tool asked for (safety rule S15)."""
    transactional_id = state.producers_of_transactions.get(command.producer_id)
    id_state = None if transactional_id is None else state.transactional_ids[transactional_id]
    event = events.ForceTerminate(producer_id=command.producer_id, epoch=command.epoch, is_commit=command.is_commit)
    decision = decide(None if id_state is None else id_state.metadata, event, state.producer_id_next)
    return _carry_out(state, transactional_id or "", id_state, decision, TransactionEnding.TERMINATED)


def expire_transactional_ids(state: ClusterState, command: ExpireTransactionalIds) -> Outcome:
    """Forget idle transactional ids; a cutoff ahead of the state's time counts as that time (S2).

    Ids that were last used without a known time count as used now if this entry has a time; otherwise they keep
    `NO_TIME`.
    """
    before_ms = min(command.cutoff_ms, state.time_ms)
    for id_state in state.transactional_ids.values():
        if id_state.updated_ms == NO_TIME:
            id_state.updated_ms = state.known_time_ms
    idle_ids = (
        transactional_id
        for transactional_id, id_state in state.transactional_ids.items()
        if NO_TIME < id_state.updated_ms < before_ms and not id_state.metadata.is_ongoing
    )
    # Which ones go first follows from the order in which they came: snapshots keep it.
    for transactional_id in list(islice(idle_ids, command.ids_max)):
        id_state = state.transactional_ids.pop(transactional_id)
        del state.producers_of_transactions[id_state.metadata.producer_id]
    return Done()


def set_transaction_version(state: ClusterState, command: SetTransactionVersion) -> Outcome:
    """Change the level of transaction.version; by the epoch clients see that it changed."""
    if not 0 <= command.level <= TRANSACTION_VERSION_NEWEST:
        return Rejected(
            error_code=ErrorCode.invalid_update_version,
            reason=f"transaction.version has the levels 0 to {TRANSACTION_VERSION_NEWEST}, not {command.level}",
        )
    if command.level != state.transaction_version:
        state.transaction_version = command.level
        state.features_epoch += 1
    return Done()


def forget_topic_in_transactions(state: ClusterState, topic_id: TopicId) -> None:
    """The topic is deleted: no transaction has a partition of it any more."""
    for transactional_id in state.open_transactions:
        id_state = state.transactional_ids[transactional_id]
        for key in [key for key in id_state.partitions if key[0] == topic_id]:
            del id_state.partitions[key]


def _is_stale(
    id_state: TransactionalId | None, session_id: SessionId, command: AddToTransaction | EndTransaction
) -> bool:
    """Whether another connection acted in this epoch since the request's one began (safety rule S7).

    One of another producer id or epoch is judged by these alone: it is fenced, and says so.
    """
    if id_state is None or id_state.connection_epoch is None or command.connection_epoch is None:
        return False
    is_current = (id_state.metadata.producer_id, id_state.metadata.epoch) == (command.producer_id, command.epoch)
    return is_current and id_state.connection_epoch.is_newer(session_id, command.connection_epoch)


def _keep_connection_epoch(
    state: ClusterState, id_state: TransactionalId, session_id: SessionId, command: AddToTransaction | EndTransaction
) -> None:
    id_state.connection_epoch = (
        applied_connection_epoch(state, session_id, command.connection_epoch) or id_state.connection_epoch
    )


def applied_connection_epoch(
    state: ClusterState, session_id: SessionId, epoch: ConnectionEpoch | None
) -> AppliedConnectionEpoch | None:
    """The connection epoch of a request that acts by the entry that is being applied, as the state keeps it."""
    return None if epoch is None else AppliedConnectionEpoch(state.position, session_id, epoch.serial)


def _carry_out(
    state: ClusterState,
    transactional_id: str,
    id_state: TransactionalId | None,
    decision: Decision,
    how: TransactionEnding | None = None,
) -> TransactionDecided:
    """Do what was decided, and say so. `how`: how a transaction ends, where one does."""
    grown: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()
    following = decision.following
    if following is not None:
        if id_state is None:
            id_state = state.transactional_ids[transactional_id] = TransactionalId(
                metadata=following, updated_ms=state.known_time_ms
            )
        else:
            del state.producers_of_transactions[id_state.metadata.producer_id]
        state.producers_of_transactions[following.producer_id] = transactional_id
        if decision.is_fresh_id_used:
            state.producer_id_next = ProducerId(following.producer_id + 1)
        if decision.ending is not None:
            grown, groups = tuple(id_state.partitions), tuple(id_state.groups)
            _end(state, id_state, decision.ending)
            assert how is not None, "what only adds to a transaction ends none"
            state.transaction_counts.ended[how] += 1
            del state.open_transactions[transactional_id]
        if decision.is_beginning:
            id_state.started_ms = state.time_ms
            state.transaction_counts.begun += 1
            state.open_transactions[transactional_id] = None
        id_state.metadata = following
        id_state.updated_ms = state.known_time_ms
    return TransactionDecided(
        error_code=decision.error_code,
        producer_id=decision.producer_id,
        epoch=decision.epoch,
        grown=grown,
        ended_groups=groups,
    )


def _end(state: ClusterState, id_state: TransactionalId, ending: Ending) -> None:
    """Put the marker into every partition, and let go of what the groups committed, or make it true."""
    producer_id, epoch, is_commit, now_ms = ending.producer_id, ending.epoch, ending.is_commit, state.known_time_ms
    row = marker_row(MarkerRow(producer_id, epoch, is_commit, state.time_ms))
    for topic_id, index in id_state.partitions:
        topic = state.topics[topic_id]
        partition = topic.partitions[index]
        is_new = producer_id not in partition.producers
        # A batch is rejected where there is no room for its producer's state. A marker cannot be: the state is left out
        # as if it had been dropped right after (S8).
        if is_new and not may_begin(state, (topic_id, index), partition):
            note_dropped(state, partition)
        else:
            mark(partition.producers, producer_id=producer_id, epoch=epoch, time_ms=now_ms)
            note_written(state, (topic_id, index), partition, producer_id, is_new=is_new)
        if is_placed_at_commit(topic, partition, producer_id):
            runs = partition.unplaced_batches.pop(producer_id, [])
            if not is_commit:
                release_references(state, [run.object_id for run in runs])
            # Before the marker, which ends the transaction at its offset (KIP-98).
            _place(partition, runs if is_commit else [])
            # Consumers saw nothing of the transaction here: there is nothing for a marker to end. Differs from Kafka.
            if not is_commit or not runs:
                continue
        offset = partition.index.append_marker(row)
        partition.log_end = Offset(offset + 1)
        transactions = partition.transactions
        if transactions is not None:
            transactions.end(producer_id, offset, is_commit=is_commit)
            if transactions.is_empty:
                partition.transactions = None
    for group_id in id_state.groups:
        group = state.groups.get(group_id)
        if group is not None:
            end_pending_offsets(state, group, ending)
    id_state.partitions.clear()
    id_state.groups.clear()
    id_state.started_ms = NOT_STARTED
    id_state.unplaced_runs = id_state.unplaced_bytes = 0


def is_placed_at_commit(topic: TopicState, partition: PartitionState, producer_id: ProducerId) -> bool:
    """Whether what the producer's open transaction writes to the partition has no offsets before it commits."""
    # The first batch decides for the whole transaction: batches that are placed at once would overtake waiting ones.
    if producer_id in partition.unplaced_batches:
        return True
    if partition.transactions is not None and producer_id in partition.transactions.open:
        return False
    return topic.configs.get(PLACEMENT) == AT_COMMIT


def wait_for_commit(
    state: ClusterState, partition: PartitionState, producer_id: ProducerId, run: UnplacedBatch
) -> bool:
    """Keep a batch until its transaction is decided; returns whether it is a run of its own, one more reference."""
    id_state = state.transactional_ids[state.producers_of_transactions[producer_id]]
    id_state.unplaced_bytes += run.byte_count
    runs = partition.unplaced_batches.setdefault(producer_id, [])
    last = runs[-1] if runs else None
    if last is not None and (last.object_id, last.byte_end) == (run.object_id, run.byte_first):
        runs[-1] = last.extended(run)
        return False
    runs.append(run)
    id_state.unplaced_runs += 1
    return True


def has_unplaced_capacity(state: ClusterState, producer_id: ProducerId, byte_count: int) -> bool:
    """Whether the producer's open transaction may have one more run of so many bytes wait for its commit."""
    id_state = state.transactional_ids[state.producers_of_transactions[producer_id]]
    is_room = id_state.unplaced_runs < TRANSACTION_UNPLACED_RUNS_MAX
    return is_room and id_state.unplaced_bytes + byte_count <= TRANSACTION_UNPLACED_BYTES_MAX


def release_unplaced(state: ClusterState, partitions: Iterable[PartitionState]) -> None:
    """The partitions are deleted, and what waited there with them."""
    for partition in partitions:
        for producer_id, runs in partition.unplaced_batches.items():
            id_state = state.transactional_ids[state.producers_of_transactions[producer_id]]
            id_state.unplaced_runs -= len(runs)
            id_state.unplaced_bytes -= sum(run.byte_count for run in runs)
            release_references(state, [run.object_id for run in runs])


def _place(partition: PartitionState, runs: Iterable[UnplacedBatch]) -> None:
    """Give the runs the next offsets, in the order in which they were written."""
    for run in runs:
        offset_end = Offset(partition.log_end + run.record_count)
        partition.index.append(
            offset_end,
            run.object_id,
            run.byte_first,
            run.byte_count,
            run.max_timestamp,
            run.append_time_ms,
            run.checksum,
        )
        partition.log_end = offset_end
