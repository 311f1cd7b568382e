"""The shape of transactional ids in snapshots."""

from coordinator.commands.forms import WireStruct
from coordinator.commands.transaction import TransactionPartition
from coordinator.state.transactions import AppliedConnectionEpoch, TransactionalId
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

WireAppliedConnectionEpoch = tuple[int, int, int]
"""Position, session, serial."""


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
    connection_epoch: WireAppliedConnectionEpoch | None
    offset_commit_epochs: list[tuple[str, WireAppliedConnectionEpoch]]
    unplaced_runs: int = 0
    unplaced_bytes: int = 0
    offset_commit_epochs_from: int = 0

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
            unplaced_runs=self.unplaced_runs,
            unplaced_bytes=self.unplaced_bytes,
            connection_epoch=None
            if self.connection_epoch is None
            else _applied_connection_epoch(self.connection_epoch),
            offset_commit_epochs={
                group_id: _applied_connection_epoch(epoch) for group_id, epoch in self.offset_commit_epochs
            },
            offset_commit_epochs_from=Position(self.offset_commit_epochs_from),
        )


def transactional_id_to_wire(transactional_id: str, id_state: TransactionalId) -> WireTransactionalId:
    metadata = id_state.metadata
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
        updated_ms=id_state.updated_ms,
        started_ms=id_state.started_ms,
        partitions=list(id_state.partitions),
        groups=list(id_state.groups),
        connection_epoch=id_state.connection_epoch,
        offset_commit_epochs=sorted(id_state.offset_commit_epochs.items()),
        unplaced_runs=id_state.unplaced_runs,
        unplaced_bytes=id_state.unplaced_bytes,
        offset_commit_epochs_from=id_state.offset_commit_epochs_from,
    )


def _applied_connection_epoch(wire: WireAppliedConnectionEpoch) -> AppliedConnectionEpoch:
    position, session, serial = wire
    return AppliedConnectionEpoch(Position(position), SessionId(session), serial)


def _partition(wire: tuple[bytes, int]) -> TransactionPartition:
    topic_id, index = wire
    return TopicId(topic_id), PartitionIndex(index)
