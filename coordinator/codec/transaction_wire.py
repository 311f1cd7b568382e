"""The shape of transactions in entries and snapshots. Part of `coordinator.codec.command_wire` and
`coordinator.snapshot`.

Rule: as there: tags are never given twice, and fields only ever added at the end, with a default.
"""

from typing import Annotated, assert_never

from msgspec import Meta

from coordinator.codec.command_columns import pending_offset_columns, read_pending_offsets
from coordinator.commands.field_types import Index, Natural, Signed32, Timestamp, Uuid
from coordinator.commands.forms import WireStruct
from coordinator.commands.transaction import (
    AddToTransaction,
    CommitTransactionalOffsets,
    EndTransaction,
    ExpireTransaction,
    ExpireTransactionalIds,
    InitTransactionalProducer,
    SetTransactionVersion,
    Stamp,
    TerminateTransaction,
    TransactionCommand,
    TransactionPartition,
)
from coordinator.configs.config_types import LONG_MAX
from coordinator.ledger.port import LedgerCorrupt
from coordinator.state.transactions import AppliedStamp, TransactionalId
from protocol.types import (
    Milliseconds,
    PartitionIndex,
    Position,
    ProducerEpoch,
    ProducerId,
    SessionId,
    TopicId,
)
from txn.transaction import TransactionMetadata, TransactionStatus, TransactionVersion

WireEpoch = Annotated[int, Meta(ge=-1, le=(1 << 15) - 1)]
WireProducerId = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
WireStamp = tuple[Natural, Natural]
"""Position, serial."""
WirePartition = tuple[Uuid, Index]
WireAppliedStamp = tuple[int, int, int]
"""Position, session, serial."""


class WireInitTransactionalProducer(WireStruct, frozen=True, tag=31):
    transactional_id: str
    timeout_ms: Signed32
    producer_id: WireProducerId
    epoch: WireEpoch

    def command(self) -> InitTransactionalProducer:
        return InitTransactionalProducer(
            transactional_id=self.transactional_id,
            timeout_ms=self.timeout_ms,
            producer_id=ProducerId(self.producer_id),
            epoch=ProducerEpoch(self.epoch),
        )


class WireAddToTransaction(WireStruct, frozen=True, tag=32):
    transactional_id: str
    producer_id: WireProducerId
    epoch: WireEpoch
    partitions: list[WirePartition]
    groups: list[str]
    stamp: WireStamp | None

    def command(self) -> AddToTransaction:
        return AddToTransaction(
            transactional_id=self.transactional_id,
            producer_id=ProducerId(self.producer_id),
            epoch=ProducerEpoch(self.epoch),
            partitions=tuple(map(_partition, self.partitions)),
            groups=tuple(self.groups),
            stamp=_stamp(self.stamp),
        )


class WireEndTransaction(WireStruct, frozen=True, tag=33):
    transactional_id: str
    producer_id: WireProducerId
    epoch: WireEpoch
    version: Annotated[int, Meta(ge=0, le=127)]
    is_commit: bool
    stamp: WireStamp | None

    def command(self) -> EndTransaction:
        return EndTransaction(
            transactional_id=self.transactional_id,
            producer_id=ProducerId(self.producer_id),
            epoch=ProducerEpoch(self.epoch),
            version=_version(self.version),
            is_commit=self.is_commit,
            stamp=_stamp(self.stamp),
        )


class WireExpireTransaction(WireStruct, frozen=True, tag=34):
    transactional_id: str
    producer_id: WireProducerId
    epoch: WireEpoch
    serial: Natural

    def command(self) -> ExpireTransaction:
        return ExpireTransaction(
            transactional_id=self.transactional_id,
            producer_id=ProducerId(self.producer_id),
            epoch=ProducerEpoch(self.epoch),
            serial=self.serial,
        )


class WireTerminateTransaction(WireStruct, frozen=True, tag=35):
    producer_id: WireProducerId
    epoch: WireEpoch
    is_commit: bool

    def command(self) -> TerminateTransaction:
        return TerminateTransaction(
            producer_id=ProducerId(self.producer_id), epoch=ProducerEpoch(self.epoch), is_commit=self.is_commit
        )


class WireExpireTransactionalIds(WireStruct, frozen=True, tag=36):
    cutoff_ms: Timestamp
    ids_max: Natural = LONG_MAX

    def command(self) -> ExpireTransactionalIds:
        return ExpireTransactionalIds(cutoff_ms=Milliseconds(self.cutoff_ms), ids_max=self.ids_max)


class WireCommitTransactionalOffsets(WireStruct, frozen=True, tag=37):
    group_id: str
    claim_epoch: Natural
    transactional_id: str
    producer_id: WireProducerId
    epoch: WireEpoch
    version: Annotated[int, Meta(ge=0, le=127)]
    stamp: WireStamp | None
    topic_ids: list[Uuid]
    columns: list[bytes]
    metadata: list[str]

    def command(self) -> CommitTransactionalOffsets:
        topic, partition, offset, leader_epoch = read_pending_offsets(self.columns, topics_count=len(self.topic_ids))
        if self.metadata and len(self.metadata) != len(topic):
            raise LedgerCorrupt(f"{len(self.metadata)} texts for {len(topic)} committed offsets")
        return CommitTransactionalOffsets(
            group_id=self.group_id,
            claim_epoch=self.claim_epoch,
            transactional_id=self.transactional_id,
            producer_id=ProducerId(self.producer_id),
            epoch=ProducerEpoch(self.epoch),
            version=_version(self.version),
            stamp=_stamp(self.stamp),
            topic_ids=tuple(map(TopicId, self.topic_ids)),
            topic=topic,
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=tuple(self.metadata),
        )


class WireSetTransactionVersion(WireStruct, frozen=True, tag=38):
    level: Annotated[int, Meta(ge=0, le=127)]

    def command(self) -> SetTransactionVersion:
        return SetTransactionVersion(level=self.level)


WireTransactionCommand = (
    WireInitTransactionalProducer
    | WireAddToTransaction
    | WireEndTransaction
    | WireExpireTransaction
    | WireTerminateTransaction
    | WireExpireTransactionalIds
    | WireSetTransactionVersion
    | WireCommitTransactionalOffsets
)


def transaction_command_to_wire(command: TransactionCommand) -> WireTransactionCommand:
    match command:
        case InitTransactionalProducer():
            return WireInitTransactionalProducer(
                command.transactional_id, command.timeout_ms, command.producer_id, command.epoch
            )
        case AddToTransaction():
            return WireAddToTransaction(
                command.transactional_id,
                command.producer_id,
                command.epoch,
                list(command.partitions),
                list(command.groups),
                _stamp_to_wire(command.stamp),
            )
        case EndTransaction():
            return WireEndTransaction(
                command.transactional_id,
                command.producer_id,
                command.epoch,
                command.version,
                command.is_commit,
                _stamp_to_wire(command.stamp),
            )
        case ExpireTransaction():
            return WireExpireTransaction(command.transactional_id, command.producer_id, command.epoch, command.serial)
        case TerminateTransaction():
            return WireTerminateTransaction(command.producer_id, command.epoch, command.is_commit)
        case ExpireTransactionalIds():
            return WireExpireTransactionalIds(command.cutoff_ms, command.ids_max)
        case SetTransactionVersion():
            return WireSetTransactionVersion(command.level)
        case CommitTransactionalOffsets():
            return WireCommitTransactionalOffsets(
                command.group_id,
                command.claim_epoch,
                command.transactional_id,
                command.producer_id,
                command.epoch,
                command.version,
                _stamp_to_wire(command.stamp),
                list(command.topic_ids),
                pending_offset_columns(command),
                list(command.metadata),
            )
        case _:
            assert_never(command)


class WireTransactionalId(WireStruct, frozen=True):
    """A transactional id in a snapshot."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: str
    version: int
    serial: int
    last_epoch: int
    previous_producer_id: int
    updated_ms: int
    started_ms: int
    partitions: list[tuple[bytes, int]]
    groups: list[str]
    stamp: WireAppliedStamp | None
    offset_stamps: list[tuple[str, WireAppliedStamp]]
    waiting_runs: int = 0
    waiting_bytes: int = 0
    offset_stamps_from: int = 0

    def value(self) -> TransactionalId:
        return TransactionalId(
            metadata=TransactionMetadata(
                producer_id=ProducerId(self.producer_id),
                epoch=ProducerEpoch(self.epoch),
                timeout_ms=self.timeout_ms,
                status=TransactionStatus(self.status),
                version=TransactionVersion(self.version),
                serial=self.serial,
                last_epoch=ProducerEpoch(self.last_epoch),
                previous_producer_id=ProducerId(self.previous_producer_id),
            ),
            updated_ms=Milliseconds(self.updated_ms),
            started_ms=Milliseconds(self.started_ms),
            partitions=dict.fromkeys(map(_partition, self.partitions)),
            groups=dict.fromkeys(self.groups),
            waiting_runs=self.waiting_runs,
            waiting_bytes=self.waiting_bytes,
            stamp=None if self.stamp is None else _applied_stamp(self.stamp),
            offset_stamps={group_id: _applied_stamp(stamp) for group_id, stamp in self.offset_stamps},
            offset_stamps_from=Position(self.offset_stamps_from),
        )


def transactional_id_to_wire(transactional_id: str, held: TransactionalId) -> WireTransactionalId:
    metadata = held.metadata
    return WireTransactionalId(
        transactional_id=transactional_id,
        producer_id=metadata.producer_id,
        epoch=metadata.epoch,
        timeout_ms=metadata.timeout_ms,
        status=metadata.status.value,
        version=metadata.version,
        serial=metadata.serial,
        last_epoch=metadata.last_epoch,
        previous_producer_id=metadata.previous_producer_id,
        updated_ms=held.updated_ms,
        started_ms=held.started_ms,
        partitions=list(held.partitions),
        groups=list(held.groups),
        stamp=held.stamp,
        offset_stamps=sorted(held.offset_stamps.items()),
        waiting_runs=held.waiting_runs,
        waiting_bytes=held.waiting_bytes,
        offset_stamps_from=held.offset_stamps_from,
    )


def _applied_stamp(wire: WireAppliedStamp) -> AppliedStamp:
    position, session, serial = wire
    return AppliedStamp(Position(position), SessionId(session), serial)


def _partition(wire: tuple[bytes, int]) -> TransactionPartition:
    topic_id, index = wire
    return TopicId(topic_id), PartitionIndex(index)


def _stamp(wire: WireStamp | None) -> Stamp | None:
    return None if wire is None else Stamp(position=Position(wire[0]), serial=wire[1])


def _stamp_to_wire(stamp: Stamp | None) -> WireStamp | None:
    return None if stamp is None else (stamp.position, stamp.serial)


def _version(wire: int) -> TransactionVersion:
    try:
        return TransactionVersion(wire)
    except ValueError as error:
        raise LedgerCorrupt(f"a transaction of version {wire}") from error
