"""Ledger commands about partitions, configs and quotas.

Rule: an alteration carries the operations that were asked for, not the configs that its agent expects to come out of
them: they are carried out where the entry is applied, so of two alterations at a time neither undoes the other. What a
name or a value may be was judged by the agent that proposed it; applying an entry asks no table of configs, which
versions of this program may know in different lengths (safety rule S3).
"""

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from coordinator.commands.field_types import INT64_MAX, Signed32, TopicIdField
from coordinator.commands.forms import WireStruct
from coordinator.security.quota_rules import QuotaEntity
from protocol.types import PartitionIndex

Replicas = tuple[Signed32, ...]
"""Node ids that a partition was given by hand, each once, the preferred leader first. Nothing is stored by them: they
say whom clients ask, as long as one of them lives."""


class ConfigResourceType(IntEnum):
    """Kafka's codes of what has configs (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class OperationKind(IntEnum):
    """Kafka's codes of what is done to one config (org.apache.kafka.clients.admin.AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class CreatePartitions(WireStruct, frozen=True, kw_only=True, tag=27):
    """Add partitions to a topic, so that it has `partition_count`."""

    topic_id: TopicIdField
    partition_count: Signed32
    replicas: tuple[Replicas, ...] = ()
    """By hand, of each partition that is added; or of none."""


class AssignReplicas(WireStruct, frozen=True, kw_only=True, tag=30):
    """Give partitions of a topic other replicas by hand, all of them or none."""

    topic_id: TopicIdField
    replicas: tuple[tuple[Annotated[PartitionIndex, Meta(ge=0, le=INT64_MAX)], Replicas], ...]


class ConfigOperation(WireStruct, frozen=True, kw_only=True):
    """An operation on one config. `value` is empty for DELETE, and elements between commas for APPEND and SUBTRACT."""

    kind: OperationKind
    name: str
    value: str
    list_default: str = ""
    """The value of a list that was not set, for APPEND and SUBTRACT."""


class AlterConfigs(WireStruct, frozen=True, kw_only=True, tag=28):
    """Change the configs of a topic by its name, a node id or every broker (""), a group, or a telemetry subscription.

    All of the operations, in their order, or none.
    """

    resource_type: ConfigResourceType
    resource_name: str
    is_whole: bool
    """Whether what no operation names goes (Kafka's AlterConfigs, before KIP-339)."""
    operations: tuple[ConfigOperation, ...]


Quota = Annotated[float, Meta(gt=0)]


class AlterClientQuotas(WireStruct, frozen=True, kw_only=True, tag=29):
    """Set the quotas of an entity by their names, or remove those whose value is None.

    Raises `ValueError` for what is no entity, as `check_quota_entity` does.
    """

    entity: QuotaEntity
    quotas: tuple[tuple[str, Quota | None], ...]

    def __post_init__(self) -> None:
        check_quota_entity(self.entity)


AdminCommand = CreatePartitions | AssignReplicas | AlterConfigs | AlterClientQuotas


def check_quota_entity(entity: QuotaEntity) -> None:
    """Raises `ValueError` for an entity without a type, or with types that are out of order or there twice."""
    types = [entity_type for entity_type, _ in entity]
    if not types or types != sorted(set(types)):
        raise ValueError(f"quotas of an entity of the types {types}")
