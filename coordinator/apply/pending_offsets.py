"""Offsets that a group commits in a transaction: pending until it ends (KIP-98, KIP-447). Part of
`coordinator.apply.apply`.

Rule: the group's claim is judged as for any commit (safety rule S13), then whether the producer may: a V1 client has
added the group before, under V2 this adds it (KIP-890). All rows are kept or, but for partitions that are gone, none.
What ends a transaction is in `coordinator.apply.transactions`; what becomes of the offsets then in
`coordinator.apply.groups`.

A request of V1 carries the epoch of its connection, which is compared with those of this group's commits alone: it
came to the group's coordinator, by another connection than those to the transaction's (safety rule S7).
"""

from coordinator.apply.groups import claimed
from coordinator.apply.transactions import applied_connection_epoch, join
from coordinator.commands.commands import Outcome, Rejected
from coordinator.commands.group_values import CommittedOffset, GroupState
from coordinator.commands.transaction import CommitTransactionalOffsets, TransactionalOffsetsPending
from coordinator.state.state import ClusterState
from coordinator.state.transactions import TransactionalId
from protocol.errors import ErrorCode
from protocol.types import Offset, PartitionIndex, SessionId

NO_ERROR = int(ErrorCode.none)


def commit_transactional_offsets(
    state: ClusterState, session_id: SessionId, command: CommitTransactionalOffsets
) -> Outcome:
    """Remember offsets that become true when their producer's transaction commits."""
    group = claimed(state, session_id, command.group_id, command.claim_epoch)
    if isinstance(group, Rejected):
        return group
    id_state = state.transactional_ids.get(command.transactional_id)
    if id_state is None:
        return _all(command, ErrorCode.invalid_producer_id_mapping)
    if _is_stale(id_state, session_id, command):
        return TransactionalOffsetsPending(error_codes=(), is_stale=True)
    error_code = join(
        state,
        command.transactional_id,
        id_state,
        command.producer_id,
        command.epoch,
        command.version,
        group_id=command.group_id,
        is_added=id_state.metadata.is_ongoing and command.group_id in id_state.groups,
    )
    if error_code is not ErrorCode.none:
        return _all(command, error_code)
    applied = applied_connection_epoch(state, session_id, command.connection_epoch)
    if applied is not None:
        id_state.keep_offset_commit_epoch(command.group_id, applied)
    return TransactionalOffsetsPending(error_codes=_keep(state, group, command))


def _keep(state: ClusterState, group: GroupState, command: CommitTransactionalOffsets) -> list[int]:
    topics = [state.topics.get(topic_id) for topic_id in command.topic_ids]
    notes = command.metadata or ("",) * len(command.topic)
    now_ms = state.known_time_ms
    error_codes: list[int] = []
    rows = zip(command.topic, command.partition, command.offset, command.leader_epoch, notes, strict=True)
    for topic_row, index, offset, leader_epoch, note in rows:
        topic = topics[topic_row]
        if topic is None or index >= len(topic.partitions):
            error_codes.append(int(ErrorCode.unknown_topic_or_partition))
            continue
        pending = group.pending.setdefault(command.producer_id, {}).setdefault(topic.topic_id, {})
        group.commits_count += 1
        pending[PartitionIndex(index)] = CommittedOffset(
            Offset(offset), leader_epoch, note, now_ms, number=group.commits_count
        )
        error_codes.append(NO_ERROR)
    if group.pending:
        state.vacant_groups.pop(group.group_id, None)
    return error_codes


def _all(command: CommitTransactionalOffsets, error_code: ErrorCode) -> TransactionalOffsetsPending:
    return TransactionalOffsetsPending(error_codes=[int(error_code)] * len(command.topic))


def _is_stale(id_state: TransactionalId, session_id: SessionId, command: CommitTransactionalOffsets) -> bool:
    metadata = id_state.metadata
    if command.connection_epoch is None or (metadata.producer_id, metadata.epoch) != (
        command.producer_id,
        command.epoch,
    ):
        return False
    return id_state.is_offset_commit_stale(command.group_id, session_id, command.connection_epoch)
