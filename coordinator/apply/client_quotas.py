"""Quotas of clients: for whom there may be which, and which of those that are set a description asks for.

Which of them holds for a client: `coordinator.security.quota_rules`. Agents enforce them: `agent.security.quotas`.
Source: org.apache.kafka.controller.ClientQuotaControlManager, org.apache.kafka.image.ClientQuotasImage,
org.apache.kafka.server.config.QuotaConfig (Kafka 4.3). Differs from Kafka: an ip is an address, not a host's name, that
may mean another one tomorrow.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from coordinator.codec.admin_wire import entity_order
from coordinator.configs.config_types import ConfigType, shorten
from coordinator.security.quota_rules import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)
from protocol.limits import QUOTA_NAME_CHARS_MAX

ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})
CLIENT_QUOTAS: Final[Mapping[str, ConfigType]] = {
    CONSUMER_BYTE_RATE: ConfigType.LONG,
    CONTROLLER_MUTATION_RATE: ConfigType.DOUBLE,
    PRODUCER_BYTE_RATE: ConfigType.LONG,
    REQUEST_PERCENTAGE: ConfigType.DOUBLE,
}
IP_QUOTAS: Final[Mapping[str, ConfigType]] = {CONNECTION_CREATION_RATE: ConfigType.INT}
_GREATEST: Final = {ConfigType.INT: (1 << 31) - 1, ConfigType.LONG: (1 << 63) - 1}
_NEARLY_WHOLE: Final = 1e-6


class InvalidQuota(ValueError):
    """An entity, a quota or a filter that there cannot be. The message says which."""


class UnknownEntityType(InvalidQuota):
    """A filter for entities of a type that is not Kafka's."""


class MatchType(IntEnum):
    """DescribeClientQuotas' codes for what a filter wants of a type's name."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Whom a description asks for: types with the name that they have to have, and types that only have to be there."""

    names: Mapping[str, str | None]
    types: frozenset[str]
    is_strict: bool
    """Whether an entity has no other types."""

    def matches(self, entity: QuotaEntity) -> bool:
        named = dict(entity)
        if self.is_strict and len(named) != len(self.names) + len(self.types):
            return False
        has_names = all(entity_type in named and named[entity_type] == name for entity_type, name in self.names.items())
        return has_names and self.types <= named.keys()


def quota_entity_of(named: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names. Raises `InvalidQuota` where there are none, or where one has no quotas."""
    types = [entity_type for entity_type, _ in named]
    if not types:
        raise InvalidQuota("Invalid empty client quota entity")
    for entity_type, name in named:
        if types.count(entity_type) > 1:
            raise InvalidQuota(f"Invalid client quota entity, duplicate entity entry {shorten(entity_type)}")
        if entity_type not in ENTITY_TYPES:
            raise InvalidQuota(f"Unhandled client quota entity type: {shorten(entity_type)}")
        if name == "":
            raise InvalidQuota(f"Empty {entity_type} not supported")
        if name is not None and len(name) > QUOTA_NAME_CHARS_MAX:
            raise InvalidQuota(f"The {entity_type} has {len(name)} characters, {QUOTA_NAME_CHARS_MAX} is the most.")
    if IP in types:
        _check_ip(types, dict(named)[IP])
    return tuple(sorted(named, key=lambda part: part[0]))


def _check_ip(types: Sequence[str], address: str | None) -> None:
    if len(types) > 1:
        raise InvalidQuota("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    if address is not None:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise InvalidQuota(f"{shorten(address)} is not a valid IP.") from error


def check_quota(entity: QuotaEntity, name: str, value: float) -> None:
    """Raise `InvalidQuota` unless the entity can have this quota."""
    quotas = IP_QUOTAS if entity[0][0] == IP else CLIENT_QUOTAS
    quota_type = quotas.get(name)
    if quota_type is None:
        raise InvalidQuota(f"Invalid configuration key {shorten(name)}")
    if not value > 0:
        raise InvalidQuota(f"Quota {name} must be greater than 0")
    greatest = _GREATEST.get(quota_type)
    if greatest is None:
        return
    if value > greatest:
        raise InvalidQuota(f"Proposed value for {name} is too large for {quota_type.name}.")
    if value % 1.0 > _NEARLY_WHOLE:
        raise InvalidQuota(f"{name} cannot be a fractional value.")


def entity_filter(components: Sequence[tuple[str, int, str | None]], *, is_strict: bool) -> EntityFilter:
    """The filter of these types, match types and names. Raises `InvalidQuota`."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for entity_type, match_type, name in components:
        _check_component(entity_type, name, match_type)
        if entity_type in names or entity_type in types:
            raise InvalidQuota(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if match_type == MatchType.SPECIFIED:
            types.add(entity_type)
        else:
            names[entity_type] = name
    filtered = names.keys() | types
    if IP in filtered and len(filtered) > 1:
        raise InvalidQuota(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return EntityFilter(names, frozenset(types), is_strict)


def _check_component(entity_type: str, name: str | None, match_type: int) -> None:
    if not entity_type:
        raise InvalidQuota("Invalid empty entity type.")
    if entity_type not in ENTITY_TYPES:
        raise UnknownEntityType(f"Unsupported entity type {shorten(entity_type)}")
    if match_type not in tuple(MatchType):
        raise InvalidQuota(f"Unknown match type {match_type}")
    is_exact = match_type == MatchType.EXACT
    if is_exact and name is None:
        raise InvalidQuota("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if not is_exact and name is not None:
        raise InvalidQuota(f"Request specified MATCH_TYPE_{MatchType(match_type).name}, but also a match string.")


def described(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], entity_filter: EntityFilter
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that a filter asks for, in order of their names, with their quotas."""
    for entity, values in sorted(quotas.items(), key=entity_order):
        if entity_filter.matches(entity):
            yield entity, values
