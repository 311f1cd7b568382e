"""The state of a transactional id, its events, and their decisions.

Rule: nothing here decides, reads a clock or knows a partition. The decision is `txn.transitions.decide`; which
partitions and groups take part, when a transaction began, and the connection epochs of safety rule S7 are kept by the
caller.

Which request is which event (a V2 request begins a transaction by itself, KIP-890):

    request                             event
    InitProducerId                      InitProducerId
    AddPartitionsToTxn, AddOffsetsToTxn AddToTransaction, V1 (every version, also the batched 4 and 5)
    ... with VerifyOnly                 VerifyInTransaction
    Produce, TxnOffsetCommit            AddToTransaction, V2, from the version of `txn.transaction_requests` on
    ... in older versions               VerifyInTransaction
    EndTxn                              EndTransaction, V1 or V2 by its version
    WriteTxnMarkers                     ForceTerminate
    a transaction's time-out            ExpireTransaction

Source: org.apache.kafka.coordinator.transaction.{TransactionMetadata,TransactionState,TransactionCoordinator}
(Kafka 4.3), KIP-98, KIP-360, KIP-890.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

EPOCH_EXHAUSTED: Final = ProducerEpoch(32766)
"""The last epoch that a client is given. One more fits into the 16 bits: markers carry it, so that even a producer in
its last epoch can be fenced."""


class TransactionStatus(Enum):
    """How the newest transaction of a transactional id stands. The values are Kafka's words, for DescribeTransactions.

    Differs from Kafka: one entry of the ledger decides a transaction in all its partitions, so the states between a
    decision and its last marker (PrepareCommit, PrepareAbort, PrepareEpochFence) do not exist, and no request is ever
    answered CONCURRENT_TRANSACTIONS.
    """

    EMPTY = "Empty"
    """No transaction since the producer was initialised."""
    ONGOING = "Ongoing"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class TransactionVersion(IntEnum):
    """The protocol of a client: KIP-98's protocol, or KIP-890's, with a new epoch after every transaction."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The state of a transactional id. All of it belongs into snapshots (KAFKA-20310, KAFKA-20357)."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    """0 to `EPOCH_EXHAUSTED`."""
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    version: TransactionVersion = TransactionVersion.V1
    """The protocol version of the request that began the newest transaction."""
    serial: int = 0
    """How many transactions this transactional id began: which one a time-out saw, where V1 keeps the epoch."""
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before, while who has it may still have to learn of the new one: its repeats are answered. -1 once the
    new epoch began a transaction, or was given to another instance."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """Where `last_epoch` is an epoch of another producer id, because its epochs were exhausted: that id."""

    @property
    def is_ongoing(self) -> bool:
        """Whether a transaction is open: such a transactional id never expires."""
        return self.status is TransactionStatus.ONGOING


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer begins, or goes on under a new epoch (KIP-360) where it says which id and epoch it has.

    It comes from fenceProducers of Kafka's Admin too, without an id.
    """

    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """-1 if and only if `producer_id` is (`txn.transaction_requests.check_init_producer_id`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToTransactionEvent:
    """Partitions, or a group's offsets, become part of the transaction, which begins where none is open."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    version: TransactionVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyInTransaction:
    """A V1 client writes to a partition, or commits a group's offsets: was that added before?"""

    producer_id: ProducerId
    epoch: ProducerEpoch
    is_added: bool
    """Whether the partition or group is part of the newest transaction; without meaning where none is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionEvent:
    producer_id: ProducerId
    epoch: ProducerEpoch
    version: TransactionVersion
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTransactionEvent:
    """A transaction was seen open for longer than its time-out: exactly this one is aborted, if it still is open."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    serial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceTerminate:
    """WriteTxnMarkers, as Kafka's tools send it to end a hanging transaction (safety rule S15)."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    is_commit: bool


Event = (
    InitProducerId
    | AddToTransactionEvent
    | VerifyInTransaction
    | EndTransactionEvent
    | ExpireTransactionEvent
    | ForceTerminate
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A transaction ended: what the markers in all its partitions, and its pending offsets, become."""

    is_commit: bool
    producer_id: ProducerId
    """The one that wrote the records, even where another id is the next."""
    epoch: ProducerEpoch
    """The epoch in the markers: the transaction's own epoch where a V1 client ended it, else the one after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on an event. An error leaves everything as it was."""

    error_code: ErrorCode = ErrorCode.none
    """The code of Kafka's newest version of the request; `txn.transaction_requests.answered_code` for older ones."""
    producer_id: ProducerId = NO_PRODUCER_ID
    """Answered by InitProducerId and by EndTxn of V2; -1 by everything else, and with every error."""
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    following: TransactionMetadata | None = None
    """The state from now on; None where nothing changes."""
    ending: Ending | None = None
    """A transaction that was open and no longer is."""
    is_fresh_id_used: bool = False
    """Whether the fresh producer id is taken."""

    @property
    def is_beginning(self) -> bool:
        """Whether a transaction opens: its partitions, groups and start time are set again."""
        return self.following is not None and self.following.is_ongoing
