"""The shape of partitions, configs and quotas in entries and snapshots. Part of `coordinator.codec.command_wire`.

Rule: as there: tags are never given twice, and fields only ever added at the end, with a default. In a snapshot
everything is in order of names.
"""

from collections.abc import Mapping
from typing import Annotated, assert_never

from msgspec import Meta

from coordinator.commands.admin import (
    AdminCommand,
    AlterClientQuotas,
    AlterConfigs,
    AssignReplicas,
    ConfigOperation,
    CreatePartitions,
    OperationKind,
    QuotaEntity,
    ResourceType,
)
from coordinator.commands.field_types import Natural, Signed32, Uuid
from coordinator.commands.forms import WireStruct
from coordinator.ledger.port import LedgerCorrupt
from protocol.types import PartitionIndex, TopicId

WireEntity = list[tuple[str, str | None]]
WireConfigs = list[tuple[str, list[tuple[str, str]]]]
"""Names of resources, each with names and values of its configs."""
WireQuotas = list[tuple[WireEntity, list[tuple[str, float]]]]
WireReplicas = list[list[Signed32]]
Quota = Annotated[float, Meta(gt=0)]


class WireCreatePartitions(WireStruct, frozen=True, tag=27):
    topic_id: Uuid
    partition_count: Signed32
    replicas: WireReplicas = []

    def command(self) -> CreatePartitions:
        return CreatePartitions(
            topic_id=TopicId(self.topic_id),
            partition_count=self.partition_count,
            replicas=tuple(map(tuple, self.replicas)),
        )


class WireAlterConfigs(WireStruct, frozen=True, tag=28):
    resource_type: Annotated[int, Meta(ge=0, le=127)]
    resource_name: str
    is_whole: bool
    operations: list[tuple[Annotated[int, Meta(ge=0, le=127)], str, str, str]]

    def command(self) -> AlterConfigs:
        try:
            return AlterConfigs(
                resource_type=ResourceType(self.resource_type),
                resource_name=self.resource_name,
                is_whole=self.is_whole,
                operations=tuple(
                    ConfigOperation(kind=OperationKind(kind), name=name, value=value, list_default=list_default)
                    for kind, name, value, list_default in self.operations
                ),
            )
        except ValueError as error:
            raise LedgerCorrupt(f"an alteration of configs cannot be read: {error}") from error


class WireAlterClientQuotas(WireStruct, frozen=True, tag=29):
    entity: WireEntity
    quotas: list[tuple[str, Quota | None]]

    def command(self) -> AlterClientQuotas:
        return AlterClientQuotas(entity=quota_entity(self.entity), quotas=tuple(self.quotas))


class WireAssignReplicas(WireStruct, frozen=True, tag=30):
    topic_id: Uuid
    replicas: list[tuple[Natural, list[Signed32]]]

    def command(self) -> AssignReplicas:
        return AssignReplicas(
            topic_id=TopicId(self.topic_id),
            replicas=tuple((PartitionIndex(index), tuple(nodes)) for index, nodes in self.replicas),
        )


WireAdminCommand = WireCreatePartitions | WireAssignReplicas | WireAlterConfigs | WireAlterClientQuotas


def admin_command_to_wire(command: AdminCommand) -> WireAdminCommand:
    match command:
        case CreatePartitions():
            return WireCreatePartitions(command.topic_id, command.partition_count, list(map(list, command.replicas)))
        case AssignReplicas():
            return WireAssignReplicas(command.topic_id, [(index, list(nodes)) for index, nodes in command.replicas])
        case AlterConfigs():
            operations = [(int(each.kind), each.name, each.value, each.list_default) for each in command.operations]
            return WireAlterConfigs(int(command.resource_type), command.resource_name, command.is_whole, operations)
        case AlterClientQuotas():
            return WireAlterClientQuotas(list(command.entity), list(command.quotas))
        case _:
            assert_never(command)


def quota_entity(named: WireEntity) -> QuotaEntity:
    """Raises `LedgerCorrupt` where it is none: nobody, or a type that stands twice or out of order."""
    types = [entity_type for entity_type, _ in named]
    if not types or types != sorted(set(types)):
        raise LedgerCorrupt(f"quotas of an entity of the types {types}")
    return tuple(named)


def configs_to_wire(configs: Mapping[str, Mapping[str, str]]) -> WireConfigs:
    return [(name, sorted(values.items())) for name, values in sorted(configs.items())]


def configs_from_wire(wire: WireConfigs) -> dict[str, dict[str, str]]:
    return {name: dict(values) for name, values in wire}


def quotas_to_wire(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> WireQuotas:
    return [(list(entity), sorted(values.items())) for entity, values in sorted(quotas.items(), key=entity_order)]


def quotas_from_wire(wire: WireQuotas) -> dict[QuotaEntity, dict[str, float]]:
    return {quota_entity(entity): dict(values) for entity, values in wire}


def entity_order(item: tuple[QuotaEntity, object]) -> list[tuple[str, bool, str]]:
    """Orders entities by types and names, the default of a type before those with a name."""
    return [(entity_type, name is not None, name or "") for entity_type, name in item[0]]
