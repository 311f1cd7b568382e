"""The rules of transactions, as a table: what becomes of which event, from whom, in which status.

Rule: data alone. A row for every kind of event and relation of its sender, a column for every status, nothing left out;
`txn.transitions` looks one cell up and does what it says. A cell that is no `TransitionStep` rejects the event with
that error.

Source: TransactionCoordinator.{prepareInitProducerIdTransit,handleAddPartitionsToTransaction,
handleVerifyPartitionsInTransaction,endTransaction,endTransactionWithTV1} (Kafka 4.3). What differs: `txn.transitions`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from protocol.errors import ErrorCode
from txn.transaction import TransactionStatus


class EventKind(Enum):
    """The kinds of event that the table distinguishes."""

    INIT = auto()
    ADD = auto()
    VERIFY_ADDED = auto()
    VERIFY_MISSING = auto()
    COMMIT_V1 = auto()
    ABORT_V1 = auto()
    COMMIT_V2 = auto()
    ABORT_V2 = auto()
    EXPIRE = auto()
    TERMINATE = auto()
    TERMINATE_COMMIT = auto()


class Sender(Enum):
    """How the producer id and epoch of an event relate to those remembered."""

    ANYONE = auto()
    """It says none: another instance."""
    CURRENT = auto()
    BEFORE = auto()
    """It has the epoch before, and may not have learnt of the new one."""
    ROTATED = auto()
    """The same, but the new epoch is the first of a new producer id."""
    OUTDATED = auto()
    """Another epoch of the current producer id, whether lower or higher."""
    FOREIGN = auto()
    """Another producer id."""


class TransitionStep(Enum):
    """The action where an event is not rejected."""

    NOTHING = auto()
    """Answer: no error."""
    REPEAT = auto()
    """Answer the id and epoch that were answered before."""
    BEGIN = auto()
    """A transaction opens."""
    COMMIT = auto()
    ABORT = auto()
    COMMIT_AND_BUMP = auto()
    """Commit; the epoch moves on, and the markers carry the new one."""
    ABORT_AND_BUMP = auto()
    FENCE = auto()
    """The same, but the sender does not learn the new epoch."""
    BUMP = auto()
    """The epoch moves on as if a transaction without partitions were aborted."""
    START = auto()
    """The next epoch is for a new instance: the one before is forgotten."""
    RESUME = auto()
    """The next epoch is for the same instance: the one before is remembered."""
    REPEAT_INIT = auto()
    """The epoch that RESUME, or an EndTxn, gave is answered once more."""
    FENCE_AND_START = auto()
    FENCE_AND_RESUME = auto()


Cell = TransitionStep | ErrorCode

FENCED: Final = ErrorCode.producer_fenced
STATE: Final = ErrorCode.invalid_txn_state
MAPPING: Final = ErrorCode.invalid_producer_id_mapping
ABORTABLE: Final = ErrorCode.transaction_abortable
EPOCH: Final = ErrorCode.invalid_producer_epoch

COLUMNS: Final = (
    TransactionStatus.EMPTY,
    TransactionStatus.ONGOING,
    TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.COMPLETE_ABORT,
)


Row = tuple[Cell, Cell, Cell, Cell]


def _all(cell: Cell) -> Row:
    return (cell, cell, cell, cell)


def _only_current(*row: *Row) -> dict[Sender, Row]:
    """The rows of a request that knows no repeats: everyone but the current producer is rejected."""
    return {
        Sender.CURRENT: row,
        Sender.BEFORE: _all(FENCED),
        Sender.ROTATED: _all(MAPPING),
        Sender.OUTDATED: _all(FENCED),
        Sender.FOREIGN: _all(MAPPING),
    }


TABLE: Final[Mapping[EventKind, Mapping[Sender, Row]]] = {
    # sender             Empty               Ongoing                 CompleteCommit      CompleteAbort
    EventKind.INIT: {
        Sender.ANYONE: (
            TransitionStep.START,
            TransitionStep.FENCE_AND_START,
            TransitionStep.START,
            TransitionStep.START,
        ),
        Sender.CURRENT: (
            TransitionStep.RESUME,
            TransitionStep.FENCE_AND_RESUME,
            TransitionStep.RESUME,
            TransitionStep.RESUME,
        ),
        Sender.BEFORE: (TransitionStep.REPEAT_INIT, FENCED, TransitionStep.REPEAT_INIT, TransitionStep.REPEAT_INIT),
        Sender.ROTATED: (TransitionStep.REPEAT_INIT, FENCED, TransitionStep.REPEAT_INIT, TransitionStep.REPEAT_INIT),
        Sender.OUTDATED: _all(FENCED),
        Sender.FOREIGN: _all(FENCED),
    },
    EventKind.ADD: _only_current(
        TransitionStep.BEGIN, TransitionStep.NOTHING, TransitionStep.BEGIN, TransitionStep.BEGIN
    ),
    EventKind.VERIFY_ADDED: _only_current(ABORTABLE, TransitionStep.NOTHING, ABORTABLE, ABORTABLE),
    EventKind.VERIFY_MISSING: _only_current(*_all(ABORTABLE)),
    EventKind.COMMIT_V1: _only_current(STATE, TransitionStep.COMMIT, TransitionStep.NOTHING, STATE),
    EventKind.ABORT_V1: _only_current(STATE, TransitionStep.ABORT, STATE, TransitionStep.NOTHING),
    EventKind.COMMIT_V2: {
        Sender.CURRENT: (STATE, TransitionStep.COMMIT_AND_BUMP, STATE, STATE),
        Sender.BEFORE: (FENCED, FENCED, TransitionStep.REPEAT, FENCED),
        Sender.ROTATED: (FENCED, FENCED, TransitionStep.REPEAT, FENCED),
        Sender.OUTDATED: _all(FENCED),
        Sender.FOREIGN: _all(MAPPING),
    },
    EventKind.ABORT_V2: {
        Sender.CURRENT: (TransitionStep.BUMP, TransitionStep.ABORT_AND_BUMP, TransitionStep.BUMP, TransitionStep.BUMP),
        Sender.BEFORE: (FENCED, FENCED, STATE, TransitionStep.REPEAT),
        Sender.ROTATED: (FENCED, FENCED, STATE, TransitionStep.REPEAT),
        Sender.OUTDATED: _all(FENCED),
        Sender.FOREIGN: _all(MAPPING),
    },
    EventKind.EXPIRE: _only_current(STATE, TransitionStep.FENCE, STATE, STATE),
    EventKind.TERMINATE: {
        Sender.CURRENT: (TransitionStep.NOTHING, TransitionStep.FENCE, TransitionStep.NOTHING, TransitionStep.NOTHING),
        Sender.BEFORE: _all(EPOCH),
        Sender.ROTATED: _all(EPOCH),
        Sender.OUTDATED: _all(EPOCH),
        Sender.FOREIGN: _all(TransitionStep.NOTHING),
    },
    EventKind.TERMINATE_COMMIT: {sender: _all(STATE) for sender in Sender if sender is not Sender.ANYONE},
}

UNKNOWN_ID: Final[Mapping[EventKind, Cell]] = {
    EventKind.INIT: TransitionStep.START,
    EventKind.ADD: MAPPING,
    EventKind.VERIFY_ADDED: MAPPING,
    EventKind.VERIFY_MISSING: MAPPING,
    EventKind.COMMIT_V1: MAPPING,
    EventKind.ABORT_V1: MAPPING,
    EventKind.COMMIT_V2: MAPPING,
    EventKind.ABORT_V2: MAPPING,
    EventKind.EXPIRE: MAPPING,
    EventKind.TERMINATE: TransitionStep.NOTHING,
    EventKind.TERMINATE_COMMIT: STATE,
}
"""Where nothing is remembered of the transactional id, or of the producer id that WriteTxnMarkers names."""
