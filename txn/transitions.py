"""Decides an event of a transactional id: `decide` looks up the table, and does what the cell says.

Rule: what is not allowed is an answer, and leaves what is remembered as it was; nothing raises.

Differs from Kafka:
* One entry decides a transaction, and markers are not written as records, so nothing is ever pending and no cell holds
  CONCURRENT_TRANSACTIONS. InitProducerId while a transaction is open aborts it and gives the next epoch at once; Kafka
  says CONCURRENT_TRANSACTIONS, and gives that epoch when the client repeats the request.
* InitProducerId with an epoch that is not the newest leaves an open transaction alone; Kafka aborts it, then rejects.
* The epoch before is forgotten once the new one began a transaction: who began it had learnt of it. Kafka goes on to
  answer InitProducerId with the epoch before.
* InitProducerId is answered again however often it is repeated across a change of the producer id; Kafka fences the
  second repeat, and answers UNKNOWN_SERVER_ERROR to a repeat that finds the last epoch.
* EndTxn (V2) that would commit what was aborted is PRODUCER_FENCED, not the fatal INVALID_TXN_STATE: KAFKA-20785, which
  4.3.1 does not have.
* Aborting by tool moves the epoch on (safety rule S15): in Kafka a producer that still lives goes on in the same epoch,
  and commits the rest of its transaction alone.

Source: TransactionMetadata.prepare* (Kafka 4.3, with KAFKA-20090: the producer id changes after its last epoch on every
path, also where a transaction is fenced).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple, assert_never

from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from txn.transaction import (
    EPOCH_EXHAUSTED,
    AddToTransactionEvent,
    Decision,
    Ending,
    EndTransactionEvent,
    Event,
    ExpireTransactionEvent,
    ForceTerminate,
    InitProducerId,
    TransactionMetadata,
    TransactionStatus,
    TransactionVersion,
    VerifyInTransaction,
)
from txn.transition_table import COLUMNS, TABLE, UNKNOWN_ID, EventKind, Sender, TransitionStep

_EPOCH_FIRST: Final = ProducerEpoch(0)


def decide(current: TransactionMetadata | None, event: Event, fresh_producer_id: ProducerId) -> Decision:
    """The decision on `event`.

    current: what is remembered of its transactional id; None where that is nothing.
    fresh_producer_id: one that was never given to anyone; taken where the decision says so.
    """
    kind = kind_of(event)
    if current is None:
        cell = UNKNOWN_ID[kind]
    else:
        cell = TABLE[kind][sender_of(current, event)][COLUMNS.index(current.status)]
    if isinstance(cell, ErrorCode):
        return Decision(error_code=cell)
    if cell is TransitionStep.NOTHING:
        return Decision()
    if isinstance(event, InitProducerId):
        return _initialise(current, event, fresh_producer_id, _EPOCHS_GIVEN[cell])
    assert current is not None, "of an unknown transactional id, nothing but InitProducerId does anything"
    if cell is TransitionStep.REPEAT:
        return Decision(producer_id=current.producer_id, epoch=current.epoch)
    if isinstance(event, AddToTransactionEvent):
        return _begin(current, event)
    return _end(current, fresh_producer_id, _ENDS[cell])


def kind_of(event: Event) -> EventKind:
    """The table's word for an event."""
    match event:
        case InitProducerId():
            return EventKind.INIT
        case AddToTransactionEvent():
            return EventKind.ADD
        case VerifyInTransaction(is_added=is_added):
            return EventKind.VERIFY_ADDED if is_added else EventKind.VERIFY_MISSING
        case EndTransactionEvent(version=TransactionVersion.V1, is_commit=is_commit):
            return EventKind.COMMIT_V1 if is_commit else EventKind.ABORT_V1
        case EndTransactionEvent(is_commit=is_commit):
            return EventKind.COMMIT_V2 if is_commit else EventKind.ABORT_V2
        case ExpireTransactionEvent():
            return EventKind.EXPIRE
        case ForceTerminate(is_commit=is_commit):
            return EventKind.TERMINATE_COMMIT if is_commit else EventKind.TERMINATE
        case _:
            assert_never(event)


def sender_of(current: TransactionMetadata, event: Event) -> Sender:
    """How the event's producer id and epoch relate to those remembered."""
    if event.producer_id == NO_PRODUCER_ID and isinstance(event, InitProducerId):
        return Sender.ANYONE
    if event.producer_id == current.producer_id and event.epoch == current.epoch:
        is_another = isinstance(event, ExpireTransactionEvent) and event.serial != current.serial
        return Sender.OUTDATED if is_another else Sender.CURRENT
    if event.epoch == current.last_epoch != NO_PRODUCER_EPOCH:
        if current.previous_producer_id == NO_PRODUCER_ID:
            if event.producer_id == current.producer_id:
                return Sender.BEFORE
        elif event.producer_id == current.previous_producer_id:
            return Sender.ROTATED
    return Sender.OUTDATED if event.producer_id == current.producer_id else Sender.FOREIGN


class _End(NamedTuple):
    """How a transaction ends."""

    is_commit: bool
    is_bumped: bool
    is_epoch_answered: bool
    """Whether the new epoch is answered."""


_ENDS: Final[Mapping[TransitionStep, _End]] = {
    TransitionStep.COMMIT: _End(is_commit=True, is_bumped=False, is_epoch_answered=False),
    TransitionStep.ABORT: _End(is_commit=False, is_bumped=False, is_epoch_answered=False),
    TransitionStep.COMMIT_AND_BUMP: _End(is_commit=True, is_bumped=True, is_epoch_answered=True),
    TransitionStep.ABORT_AND_BUMP: _End(is_commit=False, is_bumped=True, is_epoch_answered=True),
    TransitionStep.BUMP: _End(is_commit=False, is_bumped=True, is_epoch_answered=True),
    TransitionStep.FENCE: _End(is_commit=False, is_bumped=True, is_epoch_answered=False),
}

_EPOCHS_GIVEN: Final[Mapping[TransitionStep, tuple[bool, ...]]] = {
    TransitionStep.START: (False,),
    TransitionStep.RESUME: (True,),
    TransitionStep.REPEAT_INIT: (),
    TransitionStep.FENCE_AND_START: (True, False),
    TransitionStep.FENCE_AND_RESUME: (True,),
}
"""For each time that InitProducerId moves the epoch on, whether the epoch before is remembered. Fencing is the first of
two, as in Kafka, whose clients come to the second by their repeat."""


def _initialise(
    current: TransactionMetadata | None, event: InitProducerId, fresh: ProducerId, epochs_given: tuple[bool, ...]
) -> Decision:
    if current is None:
        following = TransactionMetadata(producer_id=fresh, epoch=_EPOCH_FIRST, timeout_ms=event.timeout_ms)
    else:
        following = current
        for is_remembered in epochs_given:
            following = _move_on(following, fresh, TransactionStatus.EMPTY, is_remembered=is_remembered)
        following = replace(following, status=TransactionStatus.EMPTY, timeout_ms=event.timeout_ms)
    return Decision(
        producer_id=following.producer_id,
        epoch=following.epoch,
        following=following,
        ending=None if current is None else _ending(current, is_commit=False, is_bumped=True),
        is_fresh_id_used=following.producer_id == fresh,
    )


def _begin(current: TransactionMetadata, event: AddToTransactionEvent) -> Decision:
    following = replace(
        current,
        status=TransactionStatus.ONGOING,
        version=event.version,
        serial=current.serial + 1,
        last_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=NO_PRODUCER_ID,
    )
    return Decision(following=following)


def _end(current: TransactionMetadata, fresh: ProducerId, end: _End) -> Decision:
    status = TransactionStatus.COMPLETE_COMMIT if end.is_commit else TransactionStatus.COMPLETE_ABORT
    if end.is_bumped:
        following = _move_on(current, fresh, status, is_remembered=True)
    else:
        following = replace(current, status=status)
    return Decision(
        producer_id=following.producer_id if end.is_epoch_answered else NO_PRODUCER_ID,
        epoch=following.epoch if end.is_epoch_answered else NO_PRODUCER_EPOCH,
        following=following,
        ending=_ending(current, is_commit=end.is_commit, is_bumped=end.is_bumped),
        is_fresh_id_used=following.producer_id == fresh,
    )


def _ending(current: TransactionMetadata, *, is_commit: bool, is_bumped: bool) -> Ending | None:
    """The parts of the open transaction that end."""
    if not current.is_ongoing:
        return None
    epoch = ProducerEpoch(current.epoch + is_bumped)
    return Ending(is_commit=is_commit, producer_id=current.producer_id, epoch=epoch)


def _move_on(
    current: TransactionMetadata, fresh: ProducerId, status: TransactionStatus, *, is_remembered: bool
) -> TransactionMetadata:
    """The next epoch: of the same producer id, or the first one of `fresh` where the epochs are exhausted."""
    is_rotated = current.epoch >= EPOCH_EXHAUSTED
    return replace(
        current,
        producer_id=fresh if is_rotated else current.producer_id,
        epoch=_EPOCH_FIRST if is_rotated else ProducerEpoch(current.epoch + 1),
        status=status,
        last_epoch=current.epoch if is_remembered else NO_PRODUCER_EPOCH,
        previous_producer_id=current.producer_id if is_rotated and is_remembered else NO_PRODUCER_ID,
    )
