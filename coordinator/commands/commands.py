"""The commands that an agent may propose to the ledger, and the outcomes of applying them.

A command is a wire struct: it stands in the entry as it is (`coordinator.commands.forms`), with the ranges that are
checked in the types of its fields (`coordinator.commands.field_types`). Those with a row for each batch or offset are
dataclasses, whose columns `coordinator.codec.command_wire` packs. An entry's bytes: `coordinator.codec.codec`.

Rule: a command says what an agent proposes; the outcome is computed by `coordinator.apply.apply` from the state at the
entry's position, on every agent alike. A rejected command is an outcome, never an exception. Tags are never given
twice; fields are only ever added at the end, with a default and the version that brings them (`forms.since`).
How to add a command: CONTRIBUTING.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from coordinator.commands.admin import (
    AdminCommand,
    AlterClientQuotas,
    AlterConfigs,
    AssignReplicas,
    CreatePartitions,
    Replicas,
)
from coordinator.commands.agents import AgentCommand
from coordinator.commands.delegation_tokens import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCommand,
    TokenOutcome,
)
from coordinator.commands.field_types import (
    Digest,
    Index,
    MillisecondsField,
    Natural,
    NaturalMilliseconds,
    OffsetField,
    PartitionField,
    PositionField,
    Positive,
    SessionField,
    Shape,
    Signed32,
    Timestamp,
    TopicIdField,
)
from coordinator.commands.forms import WireStruct
from coordinator.commands.group import CommitOffsets, GroupsClaimed, OffsetsCommitted, PlainGroupCommand
from coordinator.commands.registry import (
    DeleteVersions,
    RegisterSchema,
    RegistryCommand,
    RegistryOutcome,
    SetCompatibility,
    SetMode,
)
from coordinator.commands.rules import RULES_FIRST, RULES_QUOTA_USE
from coordinator.commands.security import (
    AlterScram,
    BootstrapUsers,
    CreateAcls,
    DeleteAcls,
    SecurityCommand,
    SecurityOutcome,
)
from coordinator.commands.transaction import (
    CommitTransactionalOffsets,
    PlainTransactionCommand,
    TransactionalOffsetsPending,
    TransactionDecided,
)
from coordinator.configs.config_types import LONG_MAX
from protocol.errors import ErrorCode
from protocol.types import (
    Milliseconds,
    ObjectNumber,
    PartitionIndex,
    ProducerId,
    SessionId,
    TopicId,
)


class Endpoint(WireStruct, frozen=True, kw_only=True):
    """An address under a listener's name, as clients should use it."""

    listener: str
    host: str
    port: Index


class StartSession(WireStruct, frozen=True, kw_only=True, tag=1):
    """The first entry of a session. It ends a predecessor of the same name (safety rule S12)."""

    name: str
    node_id: Signed32
    endpoints: tuple[Endpoint, ...]
    zone: str | None
    rules_version: Natural
    """The newest rules that the agent knows (safety rule S3)."""


class EndSession(WireStruct, frozen=True, kw_only=True, tag=2):
    """A session is over; proposed by its own agent, or by another that saw the lease gone (safety rule S12)."""

    session: SessionField


class StartDrain(WireStruct, frozen=True, kw_only=True, tag=13):
    """A session's agent is stopping: from now on clients are sent to the other agents."""

    session: SessionField


class ClaimMaintenanceLeader(WireStruct, frozen=True, kw_only=True, tag=14):
    """Claim the role of maintenance leader. Rejected while a live session keeps it, or if `epoch` is not the next."""

    epoch: Natural


class CompareDigest(WireStruct, frozen=True, kw_only=True, tag=17):
    """Every live agent is to say what the state's digest is behind this append (safety rule S3).

    `shape`: of its canonical bytes (`coordinator.snapshot.SHAPE`).
    """

    shape: Shape


class ReportDigest(WireStruct, frozen=True, kw_only=True, tag=18):
    """The digest that the session's agent computed at the position of a `CompareDigest`; None where it writes another
    shape."""

    position: PositionField
    digest: Digest | None


class RaiseRules(WireStruct, frozen=True, kw_only=True, tag=3):
    """Put a newer version of the rules in force; rejected until every live session knows it (safety rule S3)."""

    rules_version: Natural


class CreateTopic(WireStruct, frozen=True, kw_only=True, tag=4):
    name: str
    topic_id: TopicIdField
    partition_count: Signed32
    configs: tuple[tuple[str, str], ...]
    """Overrides by Kafka's names, sorted by name, validated by the proposer (`coordinator.configs.topic_configs`)."""
    replicas: tuple[Replicas, ...] = ()
    """By hand, of each partition; or of none."""


class DeleteTopic(WireStruct, frozen=True, kw_only=True, tag=5):
    topic_id: TopicIdField


class AllocateProducerIds(WireStruct, frozen=True, kw_only=True, tag=6):
    """Reserve a block of producer ids for the session's agent; the outcome names the first."""

    count: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchColumns:
    """Record batches, one row each, in the order of their bytes. Sequences of equal length.

    `record_bytes` is the batch's whole size on the wire. Rows without a producer hold -1 in the three producer columns.
    """

    record_bytes: Sequence[int]
    record_count: Sequence[int]
    max_timestamp: Sequence[int]
    producer_id: Sequence[int]
    producer_epoch: Sequence[int]
    base_sequence: Sequence[int]
    is_transactional: Sequence[int]
    """0, or the version of its transaction (`txn.transaction.TransactionVersion`), as its Produce request says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkColumns:
    """Chunks, one row each. A chunk is `batch_count` consecutive rows of the batches, back to back from `byte_first`.

    `topic` is an index into the command's `topic_ids`.
    """

    topic: Sequence[int]
    partition: Sequence[int]
    byte_first: Sequence[int]
    batch_count: Sequence[int]


class QuotaUse(WireStruct, frozen=True, kw_only=True):
    """Bytes of Produce requests of those who share a quota (`agent.security.quotas.shared_use`). Apply ignores it."""

    SINCE: ClassVar[int] = RULES_QUOTA_USE

    key: Natural
    """The number of those who share it."""
    byte_count: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChunks:
    """Make the chunks of one durable intake object true. Rejected if the object is another session's (S1)."""

    object_session: SessionId
    object_number: ObjectNumber
    object_bytes: int
    topic_ids: tuple[TopicId, ...]
    chunks: ChunkColumns
    batches: BatchColumns
    batch_crcs: bytes = b""
    """The CRC in each batch's header, as `protocol.records.crc.pack_crcs` gives them; empty where the form in force has
    no field for them."""
    quota_uses: tuple[QuotaUse, ...] = ()
    """The use of quotas of the whole cluster by the agent's producers since its last commit. Agents add it up; no state
    follows from it."""


class ReplacedChunk(WireStruct, frozen=True, kw_only=True):
    """A chunk that is in the index now, named exactly (safety rule S6). A transaction's marker has the key "" and its
    producer's id as first byte."""

    offset_first: OffsetField
    offset_end: OffsetField
    object_key: str
    byte_first: Natural


class ArchivedChunk(WireStruct, frozen=True, kw_only=True):
    """A run of rows of the new data file: rows `[row_first, row_first + row_count)` of one row group.

    `[offset_first, offset_end)` is the range of offsets it answers for; it may hold gaps. `byte_first` and `byte_count`
    are the row group's place in the file (a hint for read plans and limits).
    """

    offset_first: OffsetField
    offset_end: OffsetField
    row_group: Index
    row_first: Index
    row_count: Index
    byte_first: Natural
    byte_count: Natural
    max_timestamp: MillisecondsField


class PartitionReplacement(WireStruct, frozen=True, kw_only=True):
    partition: PartitionField
    replaced: tuple[ReplacedChunk, ...]
    """Consecutive chunks of the index, in order of offsets."""
    archived: tuple[ArchivedChunk, ...]
    """The chunks that replace them, in order of offsets, covering exactly the same range of offsets."""


class NewObject(WireStruct, frozen=True, kw_only=True):
    """A durable object that an entry makes part of a table."""

    key: str
    object_bytes: Natural


class TableCommit(WireStruct, frozen=True, kw_only=True):
    """The next version of a topic's Iceberg table. Any difference from the state rejects the whole command (S6)."""

    replaces: str
    """The key of the metadata that it was made of; "" where the table had none."""
    metadata: NewObject
    """The metadata JSON that holds from now on."""
    added: tuple[NewObject, ...]
    """Manifest lists and manifests that it refers to and that are new."""
    data_files: tuple[str, ...]
    """Keys of data files that enter the table: that of the same command, or ones that chunks refer to already."""
    released: tuple[str, ...]
    """Keys of what the table needs no more, the replaced metadata among them."""


class ReplaceChunks(WireStruct, frozen=True, kw_only=True, tag=8):
    """Replace chunks by one Parquet file. Any difference from the state rejects the whole command (S6)."""

    topic_id: TopicIdField
    object_session: SessionField
    object_key: str
    object_bytes: Natural
    partitions: tuple[PartitionReplacement, ...]
    table: TableCommit | None = None
    """The commit to the table that comes with it; None where the file holds no rows."""


class CommitTable(WireStruct, frozen=True, kw_only=True, tag=39):
    """Change a topic's table, and nothing of its log: files leave it, or enter it that were archived before."""

    topic_id: TopicIdField
    object_session: SessionField
    table: TableCommit


class ForgetObjects(WireStruct, frozen=True, kw_only=True, tag=9):
    """Released objects that were deleted from the bucket: the state need not remember them any more."""

    object_keys: tuple[str, ...]


class ForgetSessions(WireStruct, frozen=True, kw_only=True, tag=10):
    """Ended sessions whose prefixes were listed for the last time (safety rule S6)."""

    sessions: tuple[SessionField, ...]


class ExpireProducers(WireStruct, frozen=True, kw_only=True, tag=11):
    """Drop the state of producers idle since before the smaller of `cutoff_ms` and the state's time (S2)."""

    cutoff_ms: MillisecondsField


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceLogStart:
    """Hide the records of partitions below an offset (DeleteRecords). Rows of equal length, one per partition.

    `topic` is an index into `topic_ids`.
    """

    topic_ids: tuple[TopicId, ...]
    topic: Sequence[int]
    partition: Sequence[int]
    log_start: Sequence[int]


class ApplyRetention(WireStruct, frozen=True, kw_only=True, tag=16):
    """Drop what the named topics need not keep by their configs, as they are when this is applied.

    `now_ms` is from a checked clock; the smaller of it and the state's time counts (S2). The rest are the proposer's
    defaults for topics that do not say: milliseconds and bytes, below 0 without limit; whether old records go at all.

    `partitions` has a first partition and an end for each of `topic_ids`, where a topic may stand several times; left
    out, all are meant. No more than `chunks_max` chunks go: what is due beyond that needs another entry.
    """

    now_ms: NaturalMilliseconds
    topic_ids: tuple[TopicIdField, ...]
    retention_ms: Timestamp
    retention_bytes: Timestamp
    is_deleting: bool
    partitions: tuple[tuple[Index, Index], ...] = ()
    chunks_max: Positive = LONG_MAX

    def __post_init__(self) -> None:
        if self.partitions and len(self.partitions) != len(self.topic_ids):
            raise ValueError(f"{len(self.partitions)} ranges of partitions for {len(self.topic_ids)} topics")


class ReportTime(WireStruct, frozen=True, kw_only=True, tag=12):
    """Carries nothing but the envelope's time: lets the state's time advance while nothing is written."""


PlainCommand = (
    StartSession
    | EndSession
    | StartDrain
    | ClaimMaintenanceLeader
    | CompareDigest
    | ReportDigest
    | RaiseRules
    | CreateTopic
    | DeleteTopic
    | AllocateProducerIds
    | ReplaceChunks
    | CommitTable
    | ForgetObjects
    | ForgetSessions
    | ExpireProducers
    | ApplyRetention
    | ReportTime
    | PlainGroupCommand
    | AdminCommand
    | PlainTransactionCommand
    | RegistryCommand
    | SecurityCommand
    | TokenCommand
    | AgentCommand
)
"""Commands without columns. They stand in entries as they are, each under a tag that is never given twice."""
ColumnarCommand = CommitChunks | AdvanceLogStart | CommitOffsets | CommitTransactionalOffsets
"""Commands with a row for each batch, partition or offset: `coordinator.codec.command_wire` packs their columns."""
Command = PlainCommand | ColumnarCommand


DEFINITIONS = (
    CreateTopic,
    CreatePartitions,
    AssignReplicas,
    AlterConfigs,
    AlterClientQuotas,
    RegisterSchema,
    DeleteVersions,
    SetCompatibility,
    SetMode,
    CreateAcls,
    DeleteAcls,
    AlterScram,
    BootstrapUsers,
    CreateDelegationToken,
    RenewDelegationToken,
    ExpireDelegationToken,
)
"""Commands whose content stands in no object of the intake: a recovery has it from a snapshot or the ledger alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A command with the time at which it was proposed: None from an agent whose clock is unchecked (S2)."""

    time_ms: Milliseconds | None
    command: Command
    form: int = field(default=RULES_FIRST, compare=False)
    """The version of the rules whose form the entry needs, as it was read (`coordinator.commands.forms`)."""


# What applying answers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The command was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The command changed nothing. `error_code` is the answer for a client that asked for it."""

    error_code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
    producer_id_first: ProducerId
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksCommitted:
    """Per batch of the command, in its order: its error, and its base offset (-1 with an error).

    A duplicate has no error and its first copy's offset. What is placed at its transaction's commit has no error and
    -1, and so have its duplicates. `append_time_ms` per chunk is -1 unless the topic's timestamp type is LogAppendTime
    (safety rule S14); `log_start` per chunk is the partition's first offset.
    """

    error_codes: Sequence[int]
    base_offsets: Sequence[int]
    append_time_ms: Sequence[int]
    log_start: Sequence[int]
    grown: tuple[tuple[TopicId, PartitionIndex], ...]
    """Partitions whose log end moved: fetches that wait for their records can go on."""
    waiting_append_time_ms: Mapping[int, int] = field(default_factory=dict[int, int])
    """By row of the command's batches: the append time of a batch that waits for its transaction's commit, where the
    broker stamps it; a duplicate has its first copy's while that waits. No offset leads to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartsAdvanced:
    """Per row of the command: its error, and where the partition's log starts now (-1 with an error)."""

    error_codes: Sequence[int]
    log_starts: Sequence[int]


Outcome = (
    Done
    | Rejected
    | ProducerIdsAllocated
    | ChunksCommitted
    | LogStartsAdvanced
    | GroupsClaimed
    | OffsetsCommitted
    | TransactionDecided
    | TransactionalOffsetsPending
    | RegistryOutcome
    | SecurityOutcome
    | TokenOutcome
)
