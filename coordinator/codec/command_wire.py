"""The shape of every command in a ledger entry: MessagePack arrays, tagged with a number that is never given twice.

Rule: fields are only ever added at the end, with a default, so that older entries stay readable (golden files). The
types here carry the ranges that `coordinator.codec.codec` promises to check. Columns:
`coordinator.codec.command_columns`.
"""

from typing import Annotated, assert_never

from coordinator.codec.command_columns import (
    check_crcs,
    commit_columns,
    log_start_columns,
    read_batches,
    read_chunks,
    read_log_starts,
)
from coordinator.codec.group_wire import WireCommitOffsets, commit_offsets_to_wire
from coordinator.codec.transaction_wire import WireCommitTransactionalOffsets, pending_offsets_to_wire
from coordinator.commands.admin import AdminCommand, Replicas
from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    ApplyRetention,
    ArchivedChunk,
    ClaimHousekeeper,
    Command,
    CommitChunks,
    CommitTable,
    CompareDigest,
    CreateTopic,
    DeleteTopic,
    Endpoint,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    NewObject,
    PartitionReplacement,
    RaiseRules,
    ReplaceChunks,
    ReplacedChunk,
    ReportDigest,
    ReportTime,
    StartDrain,
    StartSession,
    TableCommit,
)
from coordinator.commands.field_types import Digest, Index, Natural, Positive, Shape, Signed32, Timestamp, Uuid
from coordinator.commands.forms import WireStruct, since
from coordinator.commands.group import CommitOffsets, GroupStructs
from coordinator.commands.registry import RegistryCommand
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.commands.transaction import CommitTransactionalOffsets, TransactionStructs
from coordinator.configs.config_types import LONG_MAX
from coordinator.ledger.port import LedgerCorrupt
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, Position, SessionId, TopicId


class WireStartSession(WireStruct, frozen=True, tag=1):
    name: str
    node_id: Signed32
    endpoints: list[tuple[str, str, Index]]
    zone: str | None
    rules_version: Natural

    def command(self) -> StartSession:
        return StartSession(
            name=self.name,
            node_id=self.node_id,
            endpoints=tuple(Endpoint(listener=name, host=host, port=port) for name, host, port in self.endpoints),
            zone=self.zone,
            rules_version=self.rules_version,
        )


class WireEndSession(WireStruct, frozen=True, tag=2):
    session: Natural

    def command(self) -> EndSession:
        return EndSession(session=SessionId(self.session))


class WireRaiseRules(WireStruct, frozen=True, tag=3):
    rules_version: Natural

    def command(self) -> RaiseRules:
        return RaiseRules(rules_version=self.rules_version)


class WireCreateTopic(WireStruct, frozen=True, tag=4):
    name: str
    topic_id: Uuid
    partition_count: Signed32
    configs: list[tuple[str, str]]
    replicas: tuple[Replicas, ...] = ()

    def command(self) -> CreateTopic:
        return CreateTopic(
            name=self.name,
            topic_id=TopicId(self.topic_id),
            partition_count=self.partition_count,
            configs=tuple(self.configs),
            replicas=self.replicas,
        )


class WireDeleteTopic(WireStruct, frozen=True, tag=5):
    topic_id: Uuid

    def command(self) -> DeleteTopic:
        return DeleteTopic(topic_id=TopicId(self.topic_id))


class WireAllocateProducerIds(WireStruct, frozen=True, tag=6):
    count: Timestamp

    def command(self) -> AllocateProducerIds:
        return AllocateProducerIds(count=self.count)


class WireCommitChunks(WireStruct, frozen=True, tag=7):
    object_session: Natural
    object_number: Natural
    object_bytes: Natural
    topic_ids: list[Uuid]
    chunks: list[bytes]
    batches: list[bytes]
    batch_crcs: Annotated[bytes, since(RULES_CHECKED_STORAGE)] = b""

    def command(self) -> CommitChunks:
        batches = read_batches(self.batches)
        check_crcs(self.batch_crcs, batches)
        return CommitChunks(
            object_session=SessionId(self.object_session),
            object_number=ObjectNumber(self.object_number),
            object_bytes=self.object_bytes,
            topic_ids=tuple(map(TopicId, self.topic_ids)),
            chunks=read_chunks(
                self.chunks, batches=batches, topics_count=len(self.topic_ids), object_bytes=self.object_bytes
            ),
            batches=batches,
            batch_crcs=self.batch_crcs,
        )


class WireReplacedChunk(WireStruct, frozen=True):
    offset_first: Natural
    offset_end: Natural
    object_key: str
    byte_first: Natural


class WireArchivedChunk(WireStruct, frozen=True):
    offset_first: Natural
    offset_end: Natural
    row_group: Index
    row_first: Index
    row_count: Index
    byte_first: Natural
    byte_count: Natural
    max_timestamp: Timestamp


class WirePartitionReplacement(WireStruct, frozen=True):
    partition: Index
    replaced: list[WireReplacedChunk]
    archived: list[WireArchivedChunk]

    def replacement(self) -> PartitionReplacement:
        return PartitionReplacement(
            partition=PartitionIndex(self.partition),
            replaced=tuple(
                ReplacedChunk(
                    offset_first=Offset(chunk.offset_first),
                    offset_end=Offset(chunk.offset_end),
                    object_key=chunk.object_key,
                    byte_first=chunk.byte_first,
                )
                for chunk in self.replaced
            ),
            archived=tuple(
                ArchivedChunk(
                    offset_first=Offset(chunk.offset_first),
                    offset_end=Offset(chunk.offset_end),
                    row_group=chunk.row_group,
                    row_first=chunk.row_first,
                    row_count=chunk.row_count,
                    byte_first=chunk.byte_first,
                    byte_count=chunk.byte_count,
                    max_timestamp=Milliseconds(chunk.max_timestamp),
                )
                for chunk in self.archived
            ),
        )


class WireTableCommit(WireStruct, frozen=True):
    replaces: str
    metadata: tuple[str, Natural]
    added: list[tuple[str, Natural]]
    data_files: list[str]
    released: list[str]

    def commit(self) -> TableCommit:
        return TableCommit(
            replaces=self.replaces,
            metadata=_new_object(self.metadata),
            added=tuple(map(_new_object, self.added)),
            data_files=tuple(self.data_files),
            released=tuple(self.released),
        )


def _new_object(wire: tuple[str, int]) -> NewObject:
    key, object_bytes = wire
    return NewObject(key=key, object_bytes=object_bytes)


class WireReplaceChunks(WireStruct, frozen=True, tag=8):
    topic_id: Uuid
    object_session: Natural
    object_key: str
    object_bytes: Natural
    partitions: list[WirePartitionReplacement]
    table: WireTableCommit | None = None

    def command(self) -> ReplaceChunks:
        return ReplaceChunks(
            topic_id=TopicId(self.topic_id),
            object_session=SessionId(self.object_session),
            object_key=self.object_key,
            object_bytes=self.object_bytes,
            partitions=tuple(partition.replacement() for partition in self.partitions),
            table=None if self.table is None else self.table.commit(),
        )


class WireCommitTable(WireStruct, frozen=True, tag=39):
    topic_id: Uuid
    object_session: Natural
    table: WireTableCommit

    def command(self) -> CommitTable:
        return CommitTable(
            topic_id=TopicId(self.topic_id),
            object_session=SessionId(self.object_session),
            table=self.table.commit(),
        )


class WireForgetObjects(WireStruct, frozen=True, tag=9):
    object_keys: list[str]

    def command(self) -> ForgetObjects:
        return ForgetObjects(object_keys=tuple(self.object_keys))


class WireForgetSessions(WireStruct, frozen=True, tag=10):
    sessions: list[Natural]

    def command(self) -> ForgetSessions:
        return ForgetSessions(sessions=tuple(map(SessionId, self.sessions)))


class WireExpireProducers(WireStruct, frozen=True, tag=11):
    cutoff_ms: Timestamp

    def command(self) -> ExpireProducers:
        return ExpireProducers(cutoff_ms=Milliseconds(self.cutoff_ms))


class WireReportTime(WireStruct, frozen=True, tag=12):
    def command(self) -> ReportTime:
        return ReportTime()


class WireStartDrain(WireStruct, frozen=True, tag=13):
    session: Natural

    def command(self) -> StartDrain:
        return StartDrain(session=SessionId(self.session))


class WireAdvanceLogStart(WireStruct, frozen=True, tag=15):
    topic_ids: list[Uuid]
    columns: list[bytes]

    def command(self) -> AdvanceLogStart:
        topic, partition, log_start = read_log_starts(self.columns, topics_count=len(self.topic_ids))
        return AdvanceLogStart(
            topic_ids=tuple(map(TopicId, self.topic_ids)), topic=topic, partition=partition, log_start=log_start
        )


class WireApplyRetention(WireStruct, frozen=True, tag=16):
    now_ms: Natural
    topic_ids: list[Uuid]
    retention_ms: Timestamp
    retention_bytes: Timestamp
    is_deleting: bool
    partitions: list[tuple[Index, Index]] = []
    chunks_max: Positive = LONG_MAX

    def command(self) -> ApplyRetention:
        if self.partitions and len(self.partitions) != len(self.topic_ids):
            raise LedgerCorrupt(f"{len(self.partitions)} ranges of partitions for {len(self.topic_ids)} topics")
        return ApplyRetention(
            now_ms=Milliseconds(self.now_ms),
            topic_ids=tuple(map(TopicId, self.topic_ids)),
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            is_deleting=self.is_deleting,
            partitions=tuple(self.partitions),
            chunks_max=self.chunks_max,
        )


class WireClaimHousekeeper(WireStruct, frozen=True, tag=14):
    epoch: Natural

    def command(self) -> ClaimHousekeeper:
        return ClaimHousekeeper(epoch=self.epoch)


class WireCompareDigest(WireStruct, frozen=True, tag=17):
    shape: Shape

    def command(self) -> CompareDigest:
        return CompareDigest(shape=self.shape)


class WireReportDigest(WireStruct, frozen=True, tag=18):
    position: Natural
    digest: Digest | None

    def command(self) -> ReportDigest:
        return ReportDigest(position=Position(self.position), digest=self.digest)


WireCommand = (
    WireStartSession
    | WireEndSession
    | WireRaiseRules
    | WireCreateTopic
    | WireDeleteTopic
    | WireAllocateProducerIds
    | WireCommitChunks
    | WireReplaceChunks
    | WireCommitTable
    | WireForgetObjects
    | WireForgetSessions
    | WireExpireProducers
    | WireReportTime
    | WireAdvanceLogStart
    | WireApplyRetention
    | WireStartDrain
    | WireClaimHousekeeper
    | WireCompareDigest
    | WireReportDigest
    | GroupStructs
    | WireCommitOffsets
    | AdminCommand
    | TransactionStructs
    | WireCommitTransactionalOffsets
    | RegistryCommand
)


class WireProposal(WireStruct, frozen=True):
    time_ms: Natural | None
    command: WireCommand


def to_wire(command: Command) -> WireCommand:  # noqa: C901 - one arm per command
    """The command in its ledger shape. Ranges are not checked here: `command_codec.encode` reads what it wrote."""
    if isinstance(command, WireStruct):
        return command
    match command:
        case CommitOffsets():
            return commit_offsets_to_wire(command)
        case CommitTransactionalOffsets():
            return pending_offsets_to_wire(command)
        case CommitChunks():
            chunks, batches = commit_columns(command)
            return WireCommitChunks(
                command.object_session,
                command.object_number,
                command.object_bytes,
                list(command.topic_ids),
                chunks,
                batches,
                command.batch_crcs,
            )
        case StartSession():
            endpoints = [(endpoint.listener, endpoint.host, endpoint.port) for endpoint in command.endpoints]
            return WireStartSession(command.name, command.node_id, endpoints, command.zone, command.rules_version)
        case EndSession():
            return WireEndSession(command.session)
        case RaiseRules():
            return WireRaiseRules(command.rules_version)
        case CreateTopic():
            return _topic_to_wire(command)
        case DeleteTopic():
            return WireDeleteTopic(command.topic_id)
        case AllocateProducerIds():
            return WireAllocateProducerIds(command.count)
        case ReplaceChunks():
            return _replace_to_wire(command)
        case CommitTable():
            return WireCommitTable(command.topic_id, command.object_session, _table_to_wire(command.table))
        case ForgetObjects():
            return WireForgetObjects(list(command.object_keys))
        case ForgetSessions():
            return WireForgetSessions(list(command.sessions))
        case ExpireProducers():
            return WireExpireProducers(command.cutoff_ms)
        case ReportTime():
            return WireReportTime()
        case AdvanceLogStart():
            return WireAdvanceLogStart(list(command.topic_ids), log_start_columns(command))
        case ApplyRetention():
            return WireApplyRetention(
                command.now_ms,
                list(command.topic_ids),
                command.retention_ms,
                command.retention_bytes,
                command.is_deleting,
                list(command.partitions),
                command.chunks_max,
            )
        case StartDrain():
            return WireStartDrain(command.session)
        case ClaimHousekeeper():
            return WireClaimHousekeeper(command.epoch)
        case CompareDigest():
            return WireCompareDigest(command.shape)
        case ReportDigest():
            return WireReportDigest(command.position, command.digest)
        case _:
            assert_never(command)


def from_wire(wire: WireCommand) -> Command:
    """The command. Raises `LedgerCorrupt` for columns that contradict each other."""
    return (
        wire if isinstance(wire, AdminCommand | RegistryCommand | GroupStructs | TransactionStructs) else wire.command()
    )


def _replace_to_wire(command: ReplaceChunks) -> WireReplaceChunks:
    return WireReplaceChunks(
        command.topic_id,
        command.object_session,
        command.object_key,
        command.object_bytes,
        [_replacement_to_wire(partition) for partition in command.partitions],
        None if command.table is None else _table_to_wire(command.table),
    )


def _table_to_wire(commit: TableCommit) -> WireTableCommit:
    return WireTableCommit(
        commit.replaces,
        (commit.metadata.key, commit.metadata.object_bytes),
        [(added.key, added.object_bytes) for added in commit.added],
        list(commit.data_files),
        list(commit.released),
    )


def _topic_to_wire(command: CreateTopic) -> WireCreateTopic:
    return WireCreateTopic(
        command.name,
        command.topic_id,
        command.partition_count,
        list(command.configs),
        command.replicas,
    )


def _replacement_to_wire(replacement: PartitionReplacement) -> WirePartitionReplacement:
    return WirePartitionReplacement(
        replacement.partition,
        [
            WireReplacedChunk(chunk.offset_first, chunk.offset_end, chunk.object_key, chunk.byte_first)
            for chunk in replacement.replaced
        ],
        [
            WireArchivedChunk(
                chunk.offset_first,
                chunk.offset_end,
                chunk.row_group,
                chunk.row_first,
                chunk.row_count,
                chunk.byte_first,
                chunk.byte_count,
                chunk.max_timestamp,
            )
            for chunk in replacement.archived
        ],
    )
