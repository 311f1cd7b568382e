"""Every pair of status and event, for tests: what is remembered, and an event from each sender."""

from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from txn.transaction import (
    AddToTransactionEvent,
    Decision,
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
from txn.transition_table import EventKind, Sender

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
PRODUCER, PREVIOUS, FOREIGN, FRESH = ProducerId(7), ProducerId(6), ProducerId(1), ProducerId(99)
EPOCH, LAST = ProducerEpoch(5), ProducerEpoch(32766)
SERIAL = 3
TIMEOUT_MS = 60_000


def remembered(status: TransactionStatus, sender: Sender) -> TransactionMetadata:
    """What makes `sender` what it is."""
    is_rotated = sender is Sender.ROTATED
    return TransactionMetadata(
        producer_id=PRODUCER,
        epoch=ProducerEpoch(0) if is_rotated else EPOCH,
        timeout_ms=TIMEOUT_MS,
        status=status,
        version=V2,
        serial=SERIAL,
        last_epoch=LAST if is_rotated else ProducerEpoch(EPOCH - 1),
        previous_producer_id=PREVIOUS if is_rotated else NO_PRODUCER_ID,
    )


def identity(current: TransactionMetadata, sender: Sender) -> tuple[ProducerId, ProducerEpoch]:
    """A producer id and epoch that `sender` may have."""
    match sender:
        case Sender.ANYONE:
            return NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        case Sender.CURRENT:
            return current.producer_id, current.epoch
        case Sender.BEFORE:
            return current.producer_id, current.last_epoch
        case Sender.ROTATED:
            return PREVIOUS, current.last_epoch
        case Sender.OUTDATED:
            return current.producer_id, ProducerEpoch(current.epoch - 2)
        case Sender.FOREIGN:
            return FOREIGN, current.epoch


def event(kind: EventKind, producer_id: ProducerId, epoch: ProducerEpoch) -> Event:
    """An event of `kind`."""
    match kind:
        case EventKind.INIT:
            return InitProducerId(timeout_ms=TIMEOUT_MS + 1, producer_id=producer_id, epoch=epoch)
        case EventKind.ADD:
            return AddToTransactionEvent(producer_id=producer_id, epoch=epoch, version=V1)
        case EventKind.VERIFY_ADDED | EventKind.VERIFY_MISSING:
            return VerifyInTransaction(producer_id=producer_id, epoch=epoch, is_added=kind is EventKind.VERIFY_ADDED)
        case EventKind.COMMIT_V1 | EventKind.ABORT_V1:
            return EndTransactionEvent(
                producer_id=producer_id, epoch=epoch, version=V1, is_commit=kind is EventKind.COMMIT_V1
            )
        case EventKind.COMMIT_V2 | EventKind.ABORT_V2:
            return EndTransactionEvent(
                producer_id=producer_id, epoch=epoch, version=V2, is_commit=kind is EventKind.COMMIT_V2
            )
        case EventKind.EXPIRE:
            return ExpireTransactionEvent(producer_id=producer_id, epoch=epoch, serial=SERIAL)
        case EventKind.TERMINATE | EventKind.TERMINATE_COMMIT:
            return ForceTerminate(producer_id=producer_id, epoch=epoch, is_commit=kind is EventKind.TERMINATE_COMMIT)


def described(current: TransactionMetadata, decision: Decision) -> str:
    """A decision in words: an error, or what ends with which epoch, what follows, and what is answered.

    Epochs are said as they differ from the one remembered.
    """
    if decision.error_code:
        assert decision == Decision(error_code=decision.error_code), "an error changes nothing"
        return decision.error_code.name
    words: list[str] = []
    if decision.ending is not None:
        assert decision.ending.producer_id == current.producer_id
        words.append(f"{'commit' if decision.ending.is_commit else 'abort'}@{decision.ending.epoch - current.epoch:+d}")
    following = decision.following
    if following is not None:
        words.append(f"{following.status.value}{following.epoch - current.epoch:+d}")
    if decision.producer_id != NO_PRODUCER_ID:
        latest = following or current
        assert (decision.producer_id, decision.epoch) == (latest.producer_id, latest.epoch)
        words.append("told")
    return " ".join(words) or "nothing"
