"""The commands that have columns as ledger entries hold them. All others stand in entries as they are.

Rule: an entry is a MessagePack array, tagged with a number that is never given twice. Fields are only ever added at the
end, with a default, so that older entries stay readable (golden files). The types here and in `coordinator.commands`
carry the ranges that `coordinator.codec.codec` promises to check. Columns: `coordinator.codec.command_columns`.
"""

from typing import Annotated, assert_never

from coordinator.codec.command_columns import (
    check_crcs,
    commit_columns,
    log_start_columns,
    offset_columns,
    pending_offset_columns,
    read_batches,
    read_chunks,
    read_log_starts,
    read_offsets,
    read_pending_offsets,
)
from coordinator.commands.commands import AdvanceLogStart, Command, CommitChunks, PlainCommand, QuotaUse
from coordinator.commands.field_types import (
    Natural,
    NaturalMilliseconds,
    ObjectNumberField,
    ProducerEpochField,
    ProducerIdField,
    SessionField,
    TopicIdField,
)
from coordinator.commands.forms import WireStruct, since
from coordinator.commands.group import CommitOffsets
from coordinator.commands.rules import RULES_CHECKED_STORAGE, RULES_QUOTA_USE
from coordinator.commands.transaction import CommitTransactionalOffsets, ConnectionEpoch
from coordinator.ledger.port import LedgerCorrupt
from txn.transaction import TransactionVersion


class WireCommitChunks(WireStruct, frozen=True, tag=7):
    object_session: SessionField
    object_number: ObjectNumberField
    object_bytes: Natural
    topic_ids: tuple[TopicIdField, ...]
    chunks: list[bytes]
    batches: list[bytes]
    batch_crcs: Annotated[bytes, since(RULES_CHECKED_STORAGE)] = b""
    quota_uses: Annotated[tuple[QuotaUse, ...], since(RULES_QUOTA_USE)] = ()

    def command(self) -> CommitChunks:
        batches = read_batches(self.batches)
        check_crcs(self.batch_crcs, batches)
        return CommitChunks(
            object_session=self.object_session,
            object_number=self.object_number,
            object_bytes=self.object_bytes,
            topic_ids=self.topic_ids,
            chunks=read_chunks(
                self.chunks, batches=batches, topics_count=len(self.topic_ids), object_bytes=self.object_bytes
            ),
            batches=batches,
            batch_crcs=self.batch_crcs,
            quota_uses=self.quota_uses,
        )


class WireAdvanceLogStart(WireStruct, frozen=True, tag=15):
    topic_ids: tuple[TopicIdField, ...]
    columns: list[bytes]

    def command(self) -> AdvanceLogStart:
        topic, partition, log_start = read_log_starts(self.columns, topics_count=len(self.topic_ids))
        return AdvanceLogStart(topic_ids=self.topic_ids, topic=topic, partition=partition, log_start=log_start)


class WireCommitOffsets(WireStruct, frozen=True, tag=21):
    groups: tuple[tuple[str, Natural], ...]
    topic_ids: tuple[TopicIdField, ...]
    columns: list[bytes]
    metadata: tuple[str, ...] = ()

    def command(self) -> CommitOffsets:
        columns = read_offsets(self.columns, groups_count=len(self.groups), topics_count=len(self.topic_ids))
        group, topic, partition, offset, leader_epoch, retention_ms = columns
        if self.metadata and len(self.metadata) != len(group):
            raise LedgerCorrupt(f"{len(self.metadata)} texts for {len(group)} committed offsets")
        return CommitOffsets(
            groups=self.groups,
            topic_ids=self.topic_ids,
            group=group,
            topic=topic,
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            retention_ms=retention_ms,
            metadata=self.metadata,
        )


class WireCommitTransactionalOffsets(WireStruct, frozen=True, tag=37):
    group_id: str
    claim_epoch: Natural
    transactional_id: str
    producer_id: ProducerIdField
    epoch: ProducerEpochField
    version: TransactionVersion
    connection_epoch: ConnectionEpoch | None
    topic_ids: tuple[TopicIdField, ...]
    columns: list[bytes]
    metadata: tuple[str, ...]

    def command(self) -> CommitTransactionalOffsets:
        topic, partition, offset, leader_epoch = read_pending_offsets(self.columns, topics_count=len(self.topic_ids))
        if self.metadata and len(self.metadata) != len(topic):
            raise LedgerCorrupt(f"{len(self.metadata)} texts for {len(topic)} committed offsets")
        return CommitTransactionalOffsets(
            group_id=self.group_id,
            claim_epoch=self.claim_epoch,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            epoch=self.epoch,
            version=self.version,
            connection_epoch=self.connection_epoch,
            topic_ids=self.topic_ids,
            topic=topic,
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=self.metadata,
        )


WireColumns = WireCommitChunks | WireAdvanceLogStart | WireCommitOffsets | WireCommitTransactionalOffsets
WireCommand = PlainCommand | WireColumns


class WireProposal(WireStruct, frozen=True):
    time_ms: NaturalMilliseconds | None
    command: WireCommand


def from_wire(wire: WireCommand) -> Command:
    """The command. Raises `LedgerCorrupt` for columns that contradict each other."""
    return wire.command() if isinstance(wire, WireColumns) else wire


def to_wire(command: Command) -> WireCommand:
    """The command in its ledger shape. Ranges are not checked here: `codec.encode` reads what it wrote."""
    if isinstance(command, WireStruct):
        return command
    match command:
        case CommitChunks():
            chunks, batches = commit_columns(command)
            return WireCommitChunks(
                command.object_session,
                command.object_number,
                command.object_bytes,
                command.topic_ids,
                chunks,
                batches,
                command.batch_crcs,
                command.quota_uses,
            )
        case AdvanceLogStart():
            return WireAdvanceLogStart(command.topic_ids, log_start_columns(command))
        case CommitOffsets():
            return WireCommitOffsets(command.groups, command.topic_ids, offset_columns(command), command.metadata)
        case CommitTransactionalOffsets():
            return WireCommitTransactionalOffsets(
                command.group_id,
                command.claim_epoch,
                command.transactional_id,
                command.producer_id,
                command.epoch,
                command.version,
                command.connection_epoch,
                command.topic_ids,
                pending_offset_columns(command),
                command.metadata,
            )
        case _:
            assert_never(command)
