"""What guards transactions, switched off: safety rules S5, S7 and S15, and the rules of KIP-98, KIP-447 and KIP-890.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from agent.cache import chunk_cache
from agent.fetch import chunk_reader
from agent.fetch.isolation import AbortedTransactions
from agent.handlers import offset_fetch
from coordinator.apply import chunks as apply_chunks
from coordinator.apply import groups as apply_groups
from coordinator.apply import pending_offsets as apply_pending_offsets
from coordinator.apply import replace as apply_replace
from coordinator.apply import transactions as apply_transactions
from coordinator.apply.retention import forget_markers
from coordinator.commands.group_values import CommittedOffset, GroupState
from coordinator.commands.transaction import TransactionPartition
from coordinator.state.state import ClusterState, PartitionState
from coordinator.state.transactions import TransactionalId
from iceberg_export.parquet import reader as parquet_reader
from protocol.errors import ErrorCode
from protocol.records.control_batches import empty_control_batch, marker_batch
from protocol.types import Milliseconds, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId
from tests.simulation.mutations.mutation import archives_soon, mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan, ProducerFate, ProducerPlan
from txn import transitions
from txn.isolation import AbortedBatches, PartitionTransactions
from txn.transaction import (
    AddToTransactionEvent,
    Decision,
    Ending,
    EndTransactionEvent,
    Event,
    ExpireTransactionEvent,
    ForceTerminate,
    InitProducerId,
    TransactionMetadata,
    TransactionVersion,
    VerifyInTransaction,
)
from txn.transition_table import TransitionStep

PRODUCER_ID_FIRST = ProducerId(0)
"""Of whoever is given one first."""

Decide = Callable[[TransactionMetadata | None, Event, ProducerId], Decision]


def has(plan: Plan, fits: Callable[[ProducerPlan], bool] = lambda producer: True) -> bool:
    """Whether there are transactions of such a producer."""
    return plan.transactions is not None and any(map(fits, plan.transactions.producers))


def is_placed(plan: Plan, *, at_commit: bool) -> bool:
    return plan.transactions is not None and at_commit in plan.transactions.placements


def aborts(producer: ProducerPlan) -> bool:
    return producer.abort_chance > 0


def is_fenced(producer: ProducerPlan) -> bool:
    """Whether a producer goes on after another one began."""
    return ProducerFate.HIJACK in producer.fates and producer.pause_s < 1


def comes_late(version: int) -> Callable[[ProducerPlan], bool]:
    return lambda producer: producer.version == version and producer.late_chance > 0.05 and producer.pause_s < 1


def aborts_beside(plan: Plan) -> bool:
    return has(plan, aborts) and is_placed(plan, at_commit=False)


def deciding(change: Callable[[Decide, TransactionMetadata | None, Event, ProducerId], Decision]) -> Any:
    """Apply decides by `change`, which has the right decision as its first argument."""
    right = transitions.decide
    return patched(apply_transactions, "decide", lambda current, event, fresh: change(right, current, event, fresh))


@mutation(where=lambda plan: aborts_beside(plan) and archives_soon(plan))
def s5_aborted_ranges_stay_when_their_markers_are_archived() -> Iterator[None]:
    """Fetches list them indefinitely."""
    with patched(apply_replace, "forget_markers", lambda partition, first, end: None):
        yield


@mutation(where=lambda plan: aborts_beside(plan) and archives_soon(plan))
def s5_aborted_ranges_go_with_any_archive() -> Iterator[None]:
    """Also those whose records are still served."""

    def forget(partition: PartitionState, offset_first: Offset, offset_end: Offset) -> None:
        forget_markers(partition, Offset(0), partition.log_end)

    with patched(apply_replace, "forget_markers", forget):
        yield


@mutation(where=aborts_beside)
def aborted_ranges_are_not_listed() -> Iterator[None]:
    """Readers take what was aborted for true."""
    with patched(AbortedTransactions, "listed", lambda self, offset_end: ()):
        yield


@mutation(where=lambda plan: aborts_beside(plan) and archives_soon(plan))
def aborted_records_are_archived() -> Iterator[None]:
    """Where nothing tells that they are."""
    with patched(AbortedBatches, "holds", lambda self, producer_id, offset: False):
        yield


@mutation(where=lambda plan: has(plan) and is_placed(plan, at_commit=False))
def the_last_stable_offset_is_the_end() -> Iterator[None]:
    """Readers of what is decided are given what is open."""
    with patched(PartitionState, "last_stable", property(lambda self: self.log_end)):
        yield


@mutation(where=lambda plan: aborts_beside(plan) and archives_soon(plan))
def an_archive_does_not_wait_for_open_transactions() -> Iterator[None]:
    """What is aborted later is in it."""
    with patched(PartitionTransactions, "last_stable_offset", lambda self, log_start, log_end: log_end):
        yield


@mutation(where=lambda plan: has(plan, comes_late(1)))
def s7_stamps_are_not_compared() -> Iterator[None]:
    """A request that comes late on a connection that its client has left counts."""
    with (
        patched(apply_transactions, "_is_stale", lambda held, session_id, command: False),
        patched(apply_pending_offsets, "_is_stale", lambda held, session_id, command: False),
    ):
        yield


@mutation(is_scripted=True)
def s5_gaps_are_bridged_by_markers_of_a_producer() -> Iterator[None]:
    """What the archive left out of a producer's transactions is taken for its end."""

    def bridged(offset_first: int, offset_end: int) -> bytes:
        batches = bytearray(empty_control_batch(offset_first, max(offset_end - 1, offset_first)))
        if offset_first < offset_end:
            batches += marker_batch(
                offset=Offset(offset_end - 1),
                producer_id=PRODUCER_ID_FIRST,
                producer_epoch=ProducerEpoch(0),
                is_commit=False,
                timestamp_ms=Milliseconds(0),
            )
        return bytes(batches)

    with patched(parquet_reader, "empty_control_batch", bridged):
        yield


@mutation(is_scripted=True)
def s5_aborted_batches_are_served_behind_their_pass() -> Iterator[None]:
    """From memory, as they were produced, though the archive leaves them out."""
    with (
        patched(chunk_cache, "may_outlive_pass", lambda chunk_bytes, is_transactional: True),
        patched(chunk_reader, "has_every_record", lambda index, offset_first, offset_end: True),
    ):
        yield


@mutation(where=lambda plan: has(plan, is_fenced) or has(plan, comes_late(2)))
def a_transaction_is_ended_under_any_epoch() -> Iterator[None]:
    """Whoever has its transactional id, or had it."""

    def change(right: Decide, current: TransactionMetadata | None, event: Event, fresh: ProducerId) -> Decision:
        if isinstance(event, EndTransactionEvent) and current is not None:
            event = replace(event, producer_id=current.producer_id, epoch=current.epoch)
        return right(current, event, fresh)

    with deciding(change):
        yield


@mutation(where=lambda plan: has(plan, comes_late(2)))
def the_end_of_a_transaction_keeps_its_epoch() -> Iterator[None]:
    """V2 as V1: a late request is taken for one of the next transaction."""
    kept = {
        step: end._replace(is_bumped=end.is_bumped and not end.is_epoch_answered)
        for step, end in transitions._ENDS.items()
    }
    with patched(transitions, "_ENDS", kept):
        yield


@mutation(where=has)
def a_partition_gets_no_marker() -> Iterator[None]:
    """The last of several, which stays open."""

    def end(state: ClusterState, held: TransactionalId, ending: Ending) -> None:
        if len(held.partitions) > 1:
            held.partitions.popitem()
        end_right(state, held, ending)

    end_right = apply_transactions._end
    with patched(apply_transactions, "_end", end):
        yield


@mutation(where=has)
def a_new_producer_does_not_abort_what_is_open() -> Iterator[None]:
    """What its predecessor had begun goes on."""

    def change(right: Decide, current: TransactionMetadata | None, event: Event, fresh: ProducerId) -> Decision:
        decision = right(current, event, fresh)
        return replace(decision, ending=None) if isinstance(event, InitProducerId) else decision

    with deciding(change):
        yield


@mutation(is_scripted=True)
def a_time_out_aborts_whatever_is_open_by_then() -> Iterator[None]:
    """Also the transaction that came after the one that was seen."""

    def change(right: Decide, current: TransactionMetadata | None, event: Event, fresh: ProducerId) -> Decision:
        if isinstance(event, ExpireTransactionEvent) and current is not None:
            event = replace(event, producer_id=current.producer_id, epoch=current.epoch, serial=current.serial)
        return right(current, event, fresh)

    with deciding(change):
        yield


@mutation(where=lambda plan: has(plan, is_fenced))
def batches_of_any_epoch_join_a_transaction() -> Iterator[None]:
    """Neither the transaction nor the marker's epoch keeps out who was fenced."""

    def change(right: Decide, current: TransactionMetadata | None, event: Event, fresh: ProducerId) -> Decision:
        if isinstance(event, AddToTransactionEvent | VerifyInTransaction) and current is not None:
            event = replace(event, producer_id=current.producer_id, epoch=current.epoch)
        return right(current, event, fresh)

    with deciding(change), patched(apply_transactions, "mark", lambda *args, **others: None):
        yield


@mutation(where=lambda plan: has(plan, is_fenced) and has(plan, lambda one: one.version == 1))
def batches_of_v1_are_not_verified() -> Iterator[None]:
    """They are taken without a transaction that has their partition, as before KIP-890; no marker fences anybody."""

    def join(
        state: ClusterState, key: TransactionPartition, producer_id: ProducerId, epoch: ProducerEpoch, version: int
    ) -> ErrorCode:
        if version < TransactionVersion.V2:
            return ErrorCode.none
        return join_right(state, key, producer_id, epoch, version)

    join_right = apply_transactions.join_partition
    with (
        patched(apply_chunks, "join_partition", join),
        patched(apply_transactions, "mark", lambda *args, **others: None),
    ):
        yield


@mutation(where=lambda plan: has(plan, lambda one: ProducerFate.TERMINATE in one.fates))
def s15_a_tool_may_commit() -> Iterator[None]:
    """WriteTxnMarkers decides as it is told."""

    def change(right: Decide, current: TransactionMetadata | None, event: Event, fresh: ProducerId) -> Decision:
        if isinstance(event, ForceTerminate) and event.is_commit:
            event = EndTransactionEvent(
                producer_id=event.producer_id, epoch=event.epoch, version=TransactionVersion.V1, is_commit=True
            )
        return right(current, event, fresh)

    with deciding(change):
        yield


@mutation(where=lambda plan: has(plan, lambda one: ProducerFate.TERMINATE in one.fates and one.rests_chance > 0))
def s15_who_was_aborted_by_a_tool_goes_on() -> Iterator[None]:
    """Its epoch stays, and it commits the rest of its transaction."""
    kept = {**transitions._ENDS, TransitionStep.FENCE: transitions._ENDS[TransitionStep.ABORT]}

    def change(right: Decide, current: TransactionMetadata | None, event: Event, fresh: ProducerId) -> Decision:
        with patched(transitions, "_ENDS", kept if isinstance(event, ForceTerminate) else transitions._ENDS):
            return right(current, event, fresh)

    with deciding(change):
        yield


def flows(producer: ProducerPlan) -> bool:
    return producer.is_flow and producer.pause_s < 1


@mutation(where=lambda plan: has(plan, lambda one: flows(one) and one.rests_chance > 0))
def pending_offsets_are_told() -> Iterator[None]:
    """Before their transaction commits."""

    def committed(group: GroupState | None, topic_id: TopicId | None, index: int) -> CommittedOffset | None:
        if group is not None and topic_id is not None:
            for pending in group.pending.values():
                if index in pending.get(topic_id, {}):
                    return pending[topic_id][PartitionIndex(index)]
        return committed_right(group, topic_id, index)

    committed_right = offset_fetch._committed
    with patched(offset_fetch, "_committed", committed):
        yield


@mutation(where=lambda plan: has(plan, flows))
def pending_offsets_are_lost_when_their_transaction_commits() -> Iterator[None]:
    """The group stays where it was."""

    def end(state: ClusterState, group: GroupState, ending: Ending) -> None:
        end_right(state, group, replace(ending, is_commit=False))

    end_right = apply_groups.end_pending_offsets
    with patched(apply_transactions, "end_pending_offsets", end):
        yield


@mutation(where=lambda plan: has(plan, lambda one: flows(one) and aborts(one)))
def offsets_of_aborted_transactions_are_committed() -> Iterator[None]:
    """The group goes by what it has not processed."""

    def end(state: ClusterState, group: GroupState, ending: Ending) -> None:
        end_right(state, group, replace(ending, is_commit=True))

    end_right = apply_groups.end_pending_offsets
    with patched(apply_transactions, "end_pending_offsets", end):
        yield


@mutation(where=lambda plan: has(plan) and is_placed(plan, at_commit=True))
def runs_are_placed_in_another_order() -> Iterator[None]:
    """The newest first."""

    def place(partition: PartitionState, runs: Any) -> None:
        place_right(partition, list(runs)[::-1])

    place_right = apply_transactions._place
    with patched(apply_transactions, "_place", place):
        yield


@mutation(where=lambda plan: has(plan, aborts) and is_placed(plan, at_commit=True))
def what_is_aborted_is_placed_too() -> Iterator[None]:
    """Where nobody should ever see it."""

    def end(state: ClusterState, held: TransactionalId, ending: Ending) -> None:
        end_right(state, held, replace(ending, is_commit=True))

    end_right = apply_transactions._end
    with patched(apply_transactions, "_end", end):
        yield
