"""Ledger commands about transactions, and the outcomes of applying them.

Rule: a command carries what a client asked for; whether it may have it is decided where the entry is applied
(`coordinator.apply.transactions`), so of two requests at a time the ledger's order decides. One `EndTransaction`
decides a transaction in all its partitions and groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from coordinator.commands.field_types import (
    MillisecondsField,
    Natural,
    PartitionField,
    PositionField,
    ProducerEpochField,
    ProducerIdField,
    Signed32,
    TopicIdField,
)
from coordinator.commands.forms import WireStruct
from coordinator.configs.config_types import LONG_MAX
from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicId
from txn.transaction import TransactionVersion

TransactionPartition = tuple[TopicIdField, PartitionField]


class ConnectionEpoch(WireStruct, frozen=True, kw_only=True):
    """Which connection a V1 client's request came on (safety rule S7); its agent is the one that appended the entry.

    `position`: the ledger's when the agent accepted the connection, at least. `serial`: rises with every connection
    that the agent accepts.
    """

    position: PositionField
    serial: Natural


class InitTransactionalProducer(WireStruct, frozen=True, kw_only=True, tag=31):
    """A producer begins under a transactional id, or goes on under a new epoch (KIP-360)."""

    transactional_id: str
    timeout_ms: Signed32
    producer_id: ProducerIdField
    """-1 where it says none; so is `epoch`."""
    epoch: ProducerEpochField


class AddToTransaction(WireStruct, frozen=True, kw_only=True, tag=32):
    """Partitions, or groups whose offsets will be committed, become part of a V1 transaction: all of them or none."""

    transactional_id: str
    producer_id: ProducerIdField
    epoch: ProducerEpochField
    partitions: tuple[TransactionPartition, ...]
    groups: tuple[str, ...]
    connection_epoch: ConnectionEpoch | None


class EndTransaction(WireStruct, frozen=True, kw_only=True, tag=33):
    """Commit or abort: in all partitions and groups, or not at all."""

    transactional_id: str
    producer_id: ProducerIdField
    epoch: ProducerEpochField
    version: TransactionVersion
    is_commit: bool
    connection_epoch: ConnectionEpoch | None


class ExpireTransaction(WireStruct, frozen=True, kw_only=True, tag=34):
    """An agent saw exactly this transaction open for longer than its time-out: it is aborted, if it still is open."""

    transactional_id: str
    producer_id: ProducerIdField
    epoch: ProducerEpochField
    serial: Natural


class TerminateTransaction(WireStruct, frozen=True, kw_only=True, tag=35):
    """WriteTxnMarkers: abort what the producer has open, whatever its client thinks (safety rule S15)."""

    producer_id: ProducerIdField
    epoch: ProducerEpochField
    is_commit: bool


class ExpireTransactionalIds(WireStruct, frozen=True, kw_only=True, tag=36):
    """Forget transactional ids that were not used since the smaller of `cutoff_ms` and the state's time (S2), at most
    `ids_max`: more of them need another entry."""

    cutoff_ms: MillisecondsField
    ids_max: Natural = LONG_MAX


class SetTransactionVersion(WireStruct, frozen=True, kw_only=True, tag=38):
    """Set the level of the feature transaction.version that ApiVersions answers (KIP-584): 0 to 2."""

    level: Annotated[int, Meta(ge=0, le=127)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactionalOffsets:
    """Offsets of one group that become true with a transaction. Rows of equal length, one per partition.

    `topic` is an index into `topic_ids`. `metadata` is empty where all rows have none. Under V2 the group becomes part
    of the transaction by this.
    """

    group_id: str
    claim_epoch: int
    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    version: TransactionVersion
    connection_epoch: ConnectionEpoch | None
    topic_ids: tuple[TopicId, ...]
    topic: Sequence[int]
    partition: Sequence[int]
    offset: Sequence[int]
    leader_epoch: Sequence[int]
    metadata: tuple[str, ...] = ()


PlainTransactionCommand = (
    InitTransactionalProducer
    | AddToTransaction
    | EndTransaction
    | ExpireTransaction
    | TerminateTransaction
    | ExpireTransactionalIds
    | SetTransactionVersion
)
"""Commands without columns."""
TransactionCommand = PlainTransactionCommand | CommitTransactionalOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDecided:
    """The outcome of a command on a transaction, errors included: they are no `Rejected`, for a rejected command is an
    entry of the transaction's order, too (S7)."""

    error_code: ErrorCode
    """The error of the newest version of the request (`txn.transaction_requests`)."""
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    is_stale: bool = False
    """The request came on a connection that its client had given up: nothing is to be answered (safety rule S7)."""
    grown: tuple[TransactionPartition, ...] = ()
    """Partitions that have a marker now: fetches that wait for their records can go on."""
    ended_groups: tuple[str, ...] = ()
    """Groups whose pending offsets were committed or dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOffsetsPending:
    """Per row of a `CommitTransactionalOffsets`: its error."""

    error_codes: Sequence[int]
    is_stale: bool = False
