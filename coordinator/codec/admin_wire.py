"""The shape of configs and quotas in snapshots. Commands about them are wire structs themselves:
`coordinator.commands.admin`.

Rule: everything is in order of names, so that equal states give equal bytes.
"""

from collections.abc import Mapping

from coordinator.commands.admin import check_quota_entity
from coordinator.security.quota_rules import QuotaEntity

WireConfigs = list[tuple[str, list[tuple[str, str]]]]
"""Names of resources, each with names and values of its configs."""
WireQuotas = list[tuple[QuotaEntity, list[tuple[str, float]]]]


def configs_to_wire(configs: Mapping[str, Mapping[str, str]]) -> WireConfigs:
    return [(name, sorted(values.items())) for name, values in sorted(configs.items())]


def configs_from_wire(wire: WireConfigs) -> dict[str, dict[str, str]]:
    return {name: dict(values) for name, values in wire}


def quotas_to_wire(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> WireQuotas:
    return [(entity, sorted(values.items())) for entity, values in sorted(quotas.items(), key=entity_order)]


def quotas_from_wire(wire: WireQuotas) -> dict[QuotaEntity, dict[str, float]]:
    """Raises `ValueError` where an entity is none."""
    for entity, _ in wire:
        check_quota_entity(entity)
    return {entity: dict(values) for entity, values in wire}


def entity_order(item: tuple[QuotaEntity, object]) -> list[tuple[str, bool, str]]:
    """Orders entities by types and names, the default of a type before those with a name."""
    return [(entity_type, name is not None, name or "") for entity_type, name in item[0]]
