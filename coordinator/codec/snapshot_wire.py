"""The shape of the whole state in a snapshot. Conversions: `coordinator.snapshot`.

Rule: fields are only ever added at the end, with a default and the version that brings them (`forms.since`), so
that older snapshots stay readable and a cluster in which an older version is in force goes on writing its form.
"""

import hashlib
from typing import Annotated, Final

import msgspec

from coordinator.codec.admin_wire import WireConfigs, WireQuotas
from coordinator.codec.group_wire import WireGroup
from coordinator.codec.registry_wire import WireRegistry
from coordinator.codec.transaction_wire import WireTransactionalId
from coordinator.commands.delegation_tokens import TokenRow
from coordinator.commands.forms import WireStruct, layout_in_form, since
from coordinator.commands.rules import (
    RULES_AGENTS,
    RULES_CHECKED_ENTRIES,
    RULES_CHECKED_STORAGE,
    RULES_DELEGATION_TOKENS,
    RULES_FIRST,
    RULES_QUOTA_USE,
    RULES_SECURITY,
)
from coordinator.commands.security import AclRow, ScramRow
from coordinator.state.chunk_index import COLUMN_TYPES
from coordinator.state.state import NO_TIME, TRANSACTION_VERSION_NEWEST

FORMAT_VERSION: Final = 1
SHAPE_BYTES = 8


class SnapshotSession(WireStruct, frozen=True):
    session: int
    name: str
    node_id: int
    endpoints: list[tuple[str, str, int]]
    zone: str | None
    rules_version: int
    entry_next: int
    is_draining: bool = False
    http_url: Annotated[str | None, since(RULES_AGENTS)] = None
    version: Annotated[str | None, since(RULES_AGENTS)] = None
    started_ms: Annotated[int, since(RULES_AGENTS)] = NO_TIME
    is_drain_requested: Annotated[bool, since(RULES_AGENTS)] = False
    draining_since_ms: Annotated[int, since(RULES_AGENTS)] = NO_TIME


class SnapshotPartition(WireStruct, frozen=True):
    log_start: int
    index_first: int
    unknown_producers_below: int
    columns: list[memoryview]
    """Read without a copy: they are most of a snapshot. Those of an index; without checksums before
    `RULES_CHECKED_STORAGE`."""
    producers: list[tuple[int, int, int, list[tuple[int, int, int]]]]
    """Producer id, epoch, last activity, remembered batches."""
    table_start: int | None = None
    """None: where the log starts."""
    transactions_open: list[tuple[int, int]] = []
    """Producer id and first offset of each, the lowest offset first."""
    transactions_aborted: list[memoryview] = []
    """The columns of `txn.isolation`."""
    waiting: list[tuple[int, list[tuple[int, int, int, int, int, int]]]] = []
    """By producer id, the fields of each `UnplacedBatch` but its checksum."""
    producer_positions: Annotated[list[int], since(RULES_CHECKED_STORAGE)] = []
    """The last position of each of `producers`, in their order."""
    waiting_checksums: Annotated[list[list[int]], since(RULES_CHECKED_STORAGE)] = []
    """The checksum of each run of each of `waiting`, in their order."""
    producer_runs: Annotated[list[int], since(RULES_CHECKED_ENTRIES)] = []
    """The first sequence of the run of each of `producers`, in their order."""


class SnapshotTopic(WireStruct, frozen=True):
    topic_id: bytes
    name: str
    configs: list[tuple[str, str]]
    created_ms: int
    partitions: list[SnapshotPartition]
    replicas: list[tuple[int, list[int]]] = []
    table: tuple[str, int, list[int]] | None = None
    """Key of the metadata, version, and the objects in their order."""


SnapshotComparison = tuple[int, bytes, list[tuple[int, bytes | None]], int]
"""Position, shape, what each session said, and how many were asked."""


class SnapshotContent(WireStruct, frozen=True):
    cluster_id: str
    incarnation: int
    position: int
    appends_count: int
    time_ms: int
    rules_version: int
    producer_id_next: int
    object_id_next: int
    producers_before_deletion: int
    sessions: list[SnapshotSession]
    sessions_ended: list[tuple[int, int]]
    topics: list[SnapshotTopic]
    objects: list[tuple[int, str, int, int, int]]
    """Object id, key, kind, bytes, references."""
    released: list[tuple[str, int]]
    maintenance_leader: int | None = None
    maintenance_leader_epoch: int = 0
    comparison: SnapshotComparison | None = None
    groups: list[WireGroup] = []
    group_claims_count: int = 0
    broker_configs: WireConfigs = []
    group_configs: WireConfigs = []
    client_metrics_configs: WireConfigs = []
    client_quotas: WireQuotas = []
    transactional_ids: list[WireTransactionalId] = []
    transaction_version: int = TRANSACTION_VERSION_NEWEST
    features_epoch: int = 0
    registry: WireRegistry = msgspec.field(default_factory=WireRegistry)
    acls: Annotated[list[AclRow], since(RULES_SECURITY)] = []
    """In the order of their entries."""
    scram: Annotated[list[ScramRow], since(RULES_SECURITY)] = []
    """In order of users and mechanisms."""
    is_security_set_up: Annotated[bool, since(RULES_SECURITY)] = False
    is_acls_confirmed: Annotated[bool, since(RULES_SECURITY)] = True
    tokens: Annotated[list[TokenRow], since(RULES_DELEGATION_TOKENS)] = []
    """In the order of their entries."""


_RECORDED_SHAPES = {
    RULES_FIRST: bytes.fromhex("ffdf09db8dcebfb8"),
    RULES_CHECKED_STORAGE: bytes.fromhex("adaa8b3811de0c9a"),
    RULES_CHECKED_ENTRIES: bytes.fromhex("b13b9cfd95a25a8e"),
    RULES_SECURITY: bytes.fromhex("155880adad2f754a"),
    RULES_DELEGATION_TOKENS: bytes.fromhex("d1b6c4c3205ebfb3"),
    RULES_QUOTA_USE: bytes.fromhex("d1b6c4c3205ebfb3"),
    RULES_AGENTS: bytes.fromhex("bd55011069ea57c4"),
}
"""The shapes of released forms. Fixed, because `described_shape` changes with the names of fields."""


def snapshot_shape(rules_version: int) -> bytes:
    """Which fields, of which types, the canonical bytes have under a version of the rules.

    Programs that differ in it give one state two digests, so they do not compare them.
    """
    recorded = _RECORDED_SHAPES.get(rules_version)
    return described_shape(rules_version) if recorded is None else recorded


def described_shape(rules_version: int) -> bytes:
    """The shape as this program describes it, for a version that has none recorded."""
    described = (FORMAT_VERSION, COLUMN_TYPES, layout_in_form(SnapshotContent, rules_version))
    return hashlib.blake2b(repr(described).encode(), digest_size=SHAPE_BYTES).digest()
