"""The state of a cluster, as the ledger's entries up to one position make it.

Rule: only `coordinator.apply.apply` changes it. Whatever can be computed from another field is not in the snapshot;
such fields are marked "derived". Two states are the same if and only if `coordinator.snapshot.digest` says so.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from coordinator.commands.admin import Replicas
from coordinator.commands.commands import Endpoint
from coordinator.commands.group_values import GroupState
from coordinator.commands.rules import RULES_FIRST
from coordinator.configs.rules_hold import rules_hold_since_ms
from coordinator.security.acl_index import AclIndex
from coordinator.security.acls import Acl
from coordinator.security.delegation_tokens import DelegationToken
from coordinator.security.quota_rules import QuotaEntity
from coordinator.state.chunk_index import OFFSET_FIRST, ChunkIndex
from coordinator.state.producer_order import ProducerOrder
from coordinator.state.registry import Registry
from coordinator.state.transactions import TransactionalId, TransactionCounts
from coordinator.state.unplaced_batches import UnplacedBatch
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.types import Milliseconds, ObjectId, Offset, PartitionIndex, Position, ProducerId, SessionId, TopicId
from storage.refs import ObjectKind
from txn.isolation import PartitionTransactions
from txn.producer_state import ProducerState

NO_POSITION = Position(0)
NO_TIME = Milliseconds(0)
PRODUCER_ID_FIRST = ProducerId(0)
OBJECT_ID_FIRST = ObjectId(1)
TRANSACTION_VERSION_NEWEST = 2
EVERY_BROKER = ""
"""Kafka's name for the brokers' configs that hold where a broker has none of its own."""


@dataclass(slots=True, kw_only=True)
class SessionState:
    """A live session of an agent."""

    name: str
    node_id: int
    endpoints: tuple[Endpoint, ...]
    zone: str | None
    rules_version: int
    entry_next: int
    """The number that the session's next entry has: below it is a repeat, above it something is missing."""
    is_draining: bool = False
    """Its agent is stopping: clients are sent to the others."""
    http_url: str | None = None
    """The URL of its agent's HTTP port; None while the agent has not described itself, or advertises none."""
    version: str | None = None
    """The version of its agent's program; None while the agent has not described itself."""
    started_ms: Milliseconds = NO_TIME
    """When its agent began to serve; `NO_TIME` where that is not known."""
    is_drain_requested: bool = False
    """Its agent is to drain, and does so by itself."""
    draining_since_ms: Milliseconds = NO_TIME
    """When `is_draining` began; `NO_TIME` where that is not known."""


@dataclass(slots=True, kw_only=True)
class PartitionState:
    log_start: Offset = OFFSET_FIRST
    table_start: Offset = OFFSET_FIRST
    """The first offset that the topic's table keeps; chunks stay in the index while the log or the table needs them."""
    log_end: Offset = OFFSET_FIRST
    """The high watermark too: an offset exists once it is applied. Equal to the index's end."""
    index: ChunkIndex = field(default_factory=ChunkIndex)
    producers: dict[ProducerId, ProducerState] = field(default_factory=dict[ProducerId, ProducerState])
    unknown_producers_below: ProducerId = PRODUCER_ID_FIRST
    """Producers with a lower id may have had state here that was dropped (safety rule S8)."""
    transactions: PartitionTransactions | None = None
    """The open and the aborted transactions here; None where there are none, as in almost all partitions."""

    producer_order: ProducerOrder | None = field(default=None, compare=False)
    """Derived, once there are too many `producers`: which of them goes next."""
    unplaced_batches: dict[ProducerId, list[UnplacedBatch]] = field(
        default_factory=dict[ProducerId, list[UnplacedBatch]]
    )
    """Batches of open transactions that are placed at their commit, in order; no empty list."""

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether the producer wrote here in a transaction that is open, placed or not."""
        is_placed = self.transactions is not None and producer_id in self.transactions.open
        return is_placed or producer_id in self.unplaced_batches

    def open_producers(self) -> Collection[ProducerId]:
        """All of whom that is so."""
        if self.transactions is None:
            return self.unplaced_batches.keys()
        return self.transactions.open.keys() | self.unplaced_batches.keys()

    @property
    def last_stable(self) -> Offset:
        """The last stable offset: below it no transaction is open."""
        if self.transactions is None:
            return self.log_end
        return self.transactions.last_stable_offset(self.log_start, self.log_end)


@dataclass(slots=True, kw_only=True)
class TableState:
    """The topic's Iceberg table, since its first commit."""

    metadata_key: str
    """The key of the current metadata JSON: the pointer that a catalog answers."""
    version: int
    """How many commits there were."""
    objects: set[ObjectId]
    """Everything that the table's snapshots need: metadata and data files. Each counts as one reference (S6)."""
    unneeded: set[ObjectId] = field(default_factory=set[ObjectId])
    """Derived: its data files to which no chunk refers any more; they are to leave the table."""


@dataclass(slots=True, kw_only=True)
class TopicState:
    topic_id: TopicId
    name: str
    configs: dict[str, str]
    """Overrides by Kafka's names, in order of names; another mapping where they are altered. Read them through
    `coordinator.configs.topic_configs.effective`."""
    partitions: list[PartitionState]
    created_ms: Milliseconds
    replicas: dict[PartitionIndex, Replicas] = field(default_factory=dict[PartitionIndex, Replicas])
    """The replicas of partitions to which an operator assigned some."""
    table: TableState | None = None
    """None until the first commit: a table without rows."""
    is_log_append_time: bool = False
    """Derived: the broker stamps this topic's records (safety rule S14), as `ClusterState.uses_append_time` says."""


@dataclass(slots=True, kw_only=True)
class ObjectState:
    """An object that chunks of the index, or a table, refer to. `references` counts those chunks, and the table as one;
    it is never 0 (safety rule S6)."""

    key: str
    kind: ObjectKind
    object_bytes: int
    references: int


@dataclass(slots=True, kw_only=True)
class DigestComparison:
    """The agents' reports of the state's digest at one position (S3): `coordinator.apply.digest_comparison`."""

    position: Position
    shape: bytes
    """The shape of the canonical bytes (`coordinator.codec.snapshot_wire.snapshot_shape`): an agent that writes another
    one cannot take part."""
    digests: dict[SessionId, bytes | None]
    """The report of each session that was live at `position`; None from a live one that has not reported yet."""
    asked_count: int
    """The sessions that were live at `position`, less those that reported that they have no digest: of so many, more
    than half decide."""


@dataclass(slots=True, kw_only=True)
class ClusterState:
    cluster_id: str
    incarnation: int
    position: Position = NO_POSITION
    """The position of the newest entry applied."""
    appends_count: int = 0
    """Append transactions applied: compared with the ledger's own count (safety rule S9)."""
    time_ms: Milliseconds = NO_TIME
    """The latest time that any live agent with a checked clock proposed (safety rule S2)."""
    rules_version: int = RULES_FIRST
    sessions: dict[SessionId, SessionState] = field(default_factory=dict[SessionId, SessionState])
    sessions_ended: dict[SessionId, Milliseconds] = field(default_factory=dict[SessionId, Milliseconds])
    """When each session ended whose objects may still be in the bucket."""
    topics: dict[TopicId, TopicState] = field(default_factory=dict[TopicId, TopicState])
    objects: dict[ObjectId, ObjectState] = field(default_factory=dict[ObjectId, ObjectState])
    released: dict[str, Milliseconds] = field(default_factory=dict[str, Milliseconds])
    """When the last reference to each object was dropped, by key, until its deletion is reported; `NO_TIME` where
    no entry has had a time since."""
    producer_id_next: ProducerId = PRODUCER_ID_FIRST
    object_id_next: ObjectId = OBJECT_ID_FIRST
    producers_before_deletion: ProducerId = PRODUCER_ID_FIRST
    """Producers with a lower id may have written to a topic since deleted: a re-created one lets them go on (S8)."""
    maintenance_leader: SessionId | None = None
    """The live session that is the maintenance leader; None where there is none."""
    maintenance_leader_epoch: int = 0
    """How often that role was given."""
    comparison: DigestComparison | None = None
    """The newest comparison of digests; None before the first."""
    groups: dict[str, GroupState] = field(default_factory=dict[str, GroupState])
    vacant_groups: dict[str, None] = field(default_factory=dict[str, None])
    """The groups that are nothing but a claim, the oldest claim first. Follows from `groups`."""
    group_claims_count: int = 0
    """Claims of groups that were ever given: the newest one's epoch (safety rule S13)."""
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Brokers' configs as they were altered, by node id as text, and `EVERY_BROKER` for those of all brokers. These and
    the next two: another mapping where they are altered, and no resource without a config."""
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    client_metrics_configs: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Telemetry subscriptions by name (KIP-714)."""
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict[QuotaEntity, dict[str, float]])
    """Another mapping where one is altered, and no entity without a quota."""
    transactional_ids: dict[str, TransactionalId] = field(default_factory=dict[str, TransactionalId])
    """In the order in which they came, in snapshots too: those that expire together go in that order."""
    transaction_version: int = TRANSACTION_VERSION_NEWEST
    """The level of the feature transaction.version that ApiVersions answers (KIP-890, KIP-584)."""
    features_epoch: int = 0
    """How often a level was changed."""
    registry: Registry = field(default_factory=Registry)
    """Schemas of records, by subject."""
    acls: dict[Acl, None] = field(default_factory=dict[Acl, None])
    """In the order of their entries."""
    scram: dict[tuple[str, ScramMechanism], ScramCredential] = field(
        default_factory=dict[tuple[str, ScramMechanism], ScramCredential]
    )
    """SCRAM credentials by user and mechanism. Keys may be encrypted: nothing that is applied goes by them."""
    is_security_set_up: bool = False
    """Whether there ever was an ACL or a credential."""
    is_acls_confirmed: bool = True
    """False after a recovery, which may have lost a revocation, until somebody has looked at the ACLs: until then no
    ACL counts, and super users alone are served."""
    acl_index: AclIndex = field(default_factory=AclIndex)
    """Derived: the ACLs, arranged for questions."""
    acls_version: int = field(default=0, compare=False)
    """Derived: grows with each change of ACLs, and of whether they are confirmed. No two sets of ACLs of a cluster have
    the same, also where a snapshot was loaded between: it is no less than the position of the change."""
    scram_version: int = field(default=0, compare=False)
    """Derived: grows with each change of credentials."""
    tokens: dict[str, DelegationToken] = field(default_factory=dict[str, DelegationToken])
    """Delegation tokens by their ids, in the order of their entries, in snapshots too."""
    tokens_version: int = field(default=0, compare=False)
    """Derived: grows with each change of delegation tokens."""
    topic_ids: dict[str, TopicId] = field(default_factory=dict[str, TopicId])
    """Derived: topics by name."""
    topic_shapes: dict[str, str] = field(default_factory=dict[str, str])
    """Derived: names by `coordinator.configs.topic_names.shape`."""
    producers_of_transactions: dict[ProducerId, str] = field(default_factory=dict[ProducerId, str])
    """Derived: transactional ids by the producer id that each has now."""
    open_transactions: dict[str, None] = field(default_factory=dict[str, None])
    """Derived: transactional ids whose transaction is open."""
    transaction_counts: TransactionCounts = field(default_factory=TransactionCounts, compare=False)
    """Derived: for metrics alone. Where a snapshot was loaded they begin there."""
    object_ids: dict[str, ObjectId] = field(default_factory=dict[str, ObjectId])
    """Derived: objects by key."""
    partitions_count: int = 0
    """Derived: partitions of all topics."""
    producers_count: int = 0
    """Derived: producers that all partitions remember."""
    producer_order: ProducerOrder | None = field(default=None, compare=False)
    """Derived, once there are too many of them: which one goes next."""
    producers_dropped_count: int = field(default=0, compare=False)
    """Derived: for a metric alone, how many went because there were too many, since this process applies."""
    topics_at: Position = field(default=NO_POSITION, compare=False)
    """Derived: since this position, at least, no topic came, went or grew. Where a snapshot was loaded it may be later
    than elsewhere: nothing that is applied goes by it."""
    released_untimed: list[str] = field(default_factory=list[str], compare=False)
    """Derived: what of `released` waits for a time."""
    is_time_known: bool = field(default=True, compare=False)
    """Derived: whether the entry that is being applied has a time."""

    @classmethod
    def empty(cls, cluster_id: str, incarnation: int) -> "ClusterState":
        """The state before the first entry."""
        return cls(cluster_id=cluster_id, incarnation=incarnation)

    @property
    def known_time_ms(self) -> Milliseconds:
        """The state's time; `NO_TIME` while an entry without a time is applied: the state's may be long past then.
        Commands that expire things replace `NO_TIME` with their own time later (safety rule S2)."""
        return self.time_ms if self.is_time_known else NO_TIME

    @property
    def rules_hold_since_ms(self) -> Milliseconds | None:
        """Since when the rules version is held (`coordinator.configs.rules_hold`); None where it is not."""
        return rules_hold_since_ms(self.broker_configs.get(EVERY_BROKER, {}))

    def uses_append_time(self, topic: TopicState) -> bool:
        """Whether the broker stamps the topic's records: as it says itself, else as all brokers say (S14)."""
        by_default = self.broker_configs.get(EVERY_BROKER, {}).get("log.message.timestamp.type")
        return topic.configs.get("message.timestamp.type", by_default) == "LogAppendTime"

    def partition(self, topic_id: TopicId, index: PartitionIndex) -> PartitionState | None:
        """The partition, or None where the topic is unknown or has fewer partitions."""
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]
