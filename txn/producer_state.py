"""The state of one idempotent producer in a partition, and the verdict on its next batch.

Rule: `decide` only judges; the caller records what it accepted. Nothing here knows offsets' meaning or reads a clock.

A transactional batch is judged in this order: `is_stale`, so that an outdated producer learns that, and nothing worse
(KAFKA-19690); whether it belongs to a transaction (`txn.transitions`); `decide`. A V2 client's producer is never
unknown: its `unknown_producers_below` is 0, and its first sequence in an epoch too.

Source: org.apache.kafka.storage.internals.log.{ProducerAppendInfo,ProducerStateEntry,ProducerStateManager} (Kafka 4.3).
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.types import SEQUENCE_END, Milliseconds, Offset, Position, ProducerEpoch, ProducerId, Sequence

BATCHES_REMEMBERED = 10
"""A client keeps at most five requests in flight to each agent, and while a partition's hint moves they may be under
way through the old agent and the new one (safety rule S8). A repeat that is taken as out of order lets a client begin a
new epoch and write its batches once more.

Differs from Kafka: ProducerStateEntry.NUM_BATCHES_TO_RETAIN is 5, for one leader.
"""

NO_POSITION = Position(0)
NO_SEQUENCE = Sequence(-1)
NO_ACTIVITY_TIME = Milliseconds(0)
"""The activity time of a producer that was active while the entries carried no time (safety rule S2)."""


class RememberedBatch(NamedTuple):
    """An accepted batch, as a repeat of it would look. `sequence_end` is the sequence that follows its last record."""

    base_sequence: Sequence
    sequence_end: Sequence
    base_offset: Offset


class ProducerState:
    """One producer's state on one partition. `recent` holds up to `BATCHES_REMEMBERED` of `epoch`, oldest first: none
    where a transaction's marker brought the epoch, and the producer has not written in it. `epoch` took all sequences
    from `run_first` to before `sequence_next`; `NO_SEQUENCE` where that is unknown."""

    __slots__ = ("epoch", "last_active_ms", "last_position", "recent", "run_first", "sequence_next")

    def __init__(
        self,
        *,
        epoch: ProducerEpoch,
        recent: Iterable[RememberedBatch],
        last_active_ms: Milliseconds,
        last_position: Position = NO_POSITION,
        run_first: Sequence = NO_SEQUENCE,
    ) -> None:
        self.epoch = epoch
        self.run_first = run_first
        self.recent = list(recent)
        self.last_active_ms = last_active_ms
        self.last_position = last_position
        """The position of the entry with its last batch or marker here; the caller keeps it."""
        self.sequence_next = self.recent[-1].sequence_end if self.recent else SEQUENCE_FIRST

    def record(
        self, base_sequence: int, record_count: int, base_offset: int, time_ms: Milliseconds, *, is_run_kept: bool
    ) -> None:
        """Remember a batch that was accepted in the current epoch."""
        if is_run_kept and not self.recent:
            self.run_first = Sequence(base_sequence)
        end = sequence_after(base_sequence, record_count)
        self.sequence_next = end
        self.recent.append(RememberedBatch(Sequence(base_sequence), end, Offset(base_offset)))
        if len(self.recent) > BATCHES_REMEMBERED:
            del self.recent[0]
        self.last_active_ms = time_ms

    def begin_epoch(self, epoch: ProducerEpoch) -> None:
        """Forget the batches of the epoch before."""
        self.epoch = epoch
        self.recent.clear()
        self.run_first = NO_SEQUENCE
        self.sequence_next = SEQUENCE_FIRST


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is next: give it an offset and record it."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already: answer with its first copy's offset."""

    base_offset: Offset


@dataclass(frozen=True, slots=True)
class Reject:
    error_code: ErrorCode


Decision = Accept | Duplicate | Reject

ACCEPT = Accept()
INVALID = Reject(ErrorCode.invalid_record)
STALE_EPOCH = Reject(ErrorCode.invalid_producer_epoch)
OUT_OF_ORDER = Reject(ErrorCode.out_of_order_sequence_number)
APPENDED_BEFORE = Reject(ErrorCode.duplicate_sequence_number)
OUTSIDE_TRANSACTION = Reject(ErrorCode.invalid_txn_state)

SEQUENCE_FIRST = Sequence(0)


def sequence_after(base_sequence: int, record_count: int) -> Sequence:
    """The sequence that follows a batch; after 2**31 - 1 comes 0 (DefaultRecordBatch.incrementSequence)."""
    return Sequence((base_sequence + record_count) % SEQUENCE_END)


def is_stale(state: ProducerState | None, epoch: int) -> bool:
    """Whether the producer has a newer epoch: the batch is INVALID_PRODUCER_EPOCH, whatever else may be said of it."""
    return state is not None and epoch < state.epoch


def decide(
    state: ProducerState | None,
    *,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    record_count: int,
    unknown_producers_below: ProducerId,
    is_outside_transaction: bool = False,
) -> Decision:
    """The decision on a batch of `record_count` records.

    Without batches in the epoch the first sequence must be 0, unless `producer_id` is below `unknown_producers_below`
    (safety rule S8). Differs from Kafka: its ProducerAppendInfo takes any first sequence of a producer that it does not
    know. `is_outside_transaction`: the batch is not transactional, but its producer has a transaction open in the
    partition.
    """
    if is_outside_transaction:
        inside = decide(
            state,
            producer_id=producer_id,
            epoch=epoch,
            base_sequence=base_sequence,
            record_count=record_count,
            unknown_producers_below=unknown_producers_below,
        )
        # Last, as in ProducerAppendInfo.appendDataBatch: a repeat or a stale epoch gets its own answer. Accepted, the
        # batch would be committed or aborted with a transaction that it is no part of.
        return OUTSIDE_TRANSACTION if inside is ACCEPT else inside
    # No producer sends such a batch; Kafka rejects the sequence in LogValidator.validateBatch.
    if epoch < 0 or base_sequence < 0:
        return INVALID
    # Any other first sequence would hide lost batches before it, unless this state may have been dropped (S8).
    if state is None:
        return ACCEPT if base_sequence == 0 or producer_id < unknown_producers_below else OUT_OF_ORDER
    # Fenced by a newer instance or by a marker (ProducerAppendInfo.checkProducerEpoch).
    if epoch < state.epoch:
        return STALE_EPOCH
    # Each epoch counts from 0 (ProducerAppendInfo.checkSequence).
    if epoch > state.epoch:
        return ACCEPT if base_sequence == 0 else OUT_OF_ORDER
    # A state without batches comes from a marker alone: what the producer wrote before may have been dropped (S8).
    if base_sequence == state.sequence_next or (not state.recent and producer_id < unknown_producers_below):
        return ACCEPT
    return _find_duplicate(state, base_sequence, sequence_after(base_sequence, record_count))


def _find_duplicate(state: ProducerState, base_sequence: int, sequence_end: int) -> Duplicate | Reject:
    """A repeat has the same first and last sequence as a remembered batch. An older one lies within the run.

    Differs from Kafka 4.3.1, which answers OUT_OF_ORDER_SEQUENCE_NUMBER to a repeat that it no longer remembers. Its
    clients repeat that until their delivery times out, and report a batch as failed that is in the log. Clients take
    DUPLICATE_SEQUENCE_NUMBER as success without an offset (org.apache.kafka.clients.producer.internals.Sender).
    """
    for batch in state.recent:
        if batch.base_sequence == base_sequence and batch.sequence_end == sequence_end:
            return Duplicate(batch.base_offset)
    # A hint moved while its old agent stood still: the new agent took more batches than are remembered, and then the
    # repeats of those that the old agent had appended and not answered. After a wrap only what is surely old counts.
    is_in_run = NO_SEQUENCE < state.run_first <= base_sequence < sequence_end <= state.sequence_next
    if is_in_run and sequence_end <= state.recent[0].base_sequence:
        return APPENDED_BEFORE
    return OUT_OF_ORDER


def advance(
    producers: dict[ProducerId, ProducerState],
    *,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    record_count: int,
    base_offset: int,
    time_ms: Milliseconds,
    is_run_kept: bool,
) -> None:
    """Record a batch that `decide` accepted. A new producer or epoch starts with this batch alone.

    is_run_kept: whether the rules in force keep the first sequence of a run.
    """
    state = producers.get(ProducerId(producer_id))
    if state is not None and state.epoch == epoch:
        state.record(base_sequence, record_count, base_offset, time_ms, is_run_kept=is_run_kept)
        return
    first = RememberedBatch(Sequence(base_sequence), sequence_after(base_sequence, record_count), Offset(base_offset))
    producers[ProducerId(producer_id)] = ProducerState(
        epoch=ProducerEpoch(epoch),
        recent=(first,),
        last_active_ms=time_ms,
        run_first=Sequence(base_sequence) if is_run_kept else NO_SEQUENCE,
    )


def mark(
    producers: dict[ProducerId, ProducerState], *, producer_id: ProducerId, epoch: ProducerEpoch, time_ms: Milliseconds
) -> None:
    """A marker that carries `epoch` ends the producer's transaction in this partition, with records here or without.

    From now on batches of lower epochs are rejected. An epoch that moved on (V2, and every fenced transaction) begins
    without batches, at sequence 0; V1's goes on where it was.
    """
    state = producers.get(producer_id)
    if state is None:
        producers[producer_id] = ProducerState(epoch=epoch, recent=(), last_active_ms=time_ms)
        return
    if state.epoch < epoch:
        state.begin_epoch(epoch)
    state.last_active_ms = time_ms


def any_idle(
    producers: Mapping[ProducerId, ProducerState], before_ms: Milliseconds, kept: Container[ProducerId] = ()
) -> bool:
    """Whether `expire` would forget a producer, or note when one was active."""
    return any(state.last_active_ms < before_ms and one not in kept for one, state in producers.items())


def expire(
    producers: dict[ProducerId, ProducerState],
    before_ms: Milliseconds,
    now_ms: Milliseconds,
    kept: Container[ProducerId] = (),
) -> bool:
    """Forget every producer last active before `before_ms`; returns whether there was any.

    now_ms: the time that producers with `NO_ACTIVITY_TIME` get (safety rule S2); `NO_ACTIVITY_TIME` where this entry
    carries no time either: they stay as they are. kept: producers with an open transaction in the partition; they are
    not forgotten (ProducerStateManager).
    """
    for state in producers.values():
        if state.last_active_ms == NO_ACTIVITY_TIME:
            state.last_active_ms = now_ms
    expired = [
        one
        for one, state in producers.items()
        if NO_ACTIVITY_TIME < state.last_active_ms < before_ms and one not in kept
    ]
    for producer_id in expired:
        del producers[producer_id]
    return bool(expired)
