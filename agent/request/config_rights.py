"""The rights on the resources whose configs a request describes or alters.

A topic and a group have rights of their own. Brokers, loggers and client metrics are the cluster's.
Source: org.apache.kafka.server.ConfigHelper.handleDescribeConfigsRequest, ControllerApis.authorizeAlterResource
(Kafka 4.3).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from agent.security.required_rights import Right
from agent.security.rights import Rights
from coordinator.commands.admin import ConfigResourceType
from protocol.auth.operations import ResourceType
from protocol.errors import ErrorCode

DENIALS: Final = {
    ResourceType.TOPIC: (ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
}
_TYPES: Final = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
}


class ConfigDenial(NamedTuple):
    """The error of a resource whose configs the client may neither see nor alter."""

    error_code: ErrorCode
    message: str


class ConfigRights:
    """The denials of one request, by resource. Judge all resources first: they share one barrier (S16)."""

    def __init__(self, rights: Rights, *, topic: Right, group: Right, cluster: Right) -> None:
        self._rights = rights
        self._required = {right.resource_type: right for right in (topic, group, cluster)}
        self._denied: dict[ResourceType, frozenset[str]] = {}
        self._may_on_cluster = True

    async def judge(self, resources: Iterable[Any]) -> None:
        """Asks for the rights on resources that have a `resource_type` and a `resource_name`."""
        names: dict[ResourceType, set[str]] = {}
        for resource in resources:
            resource_type = _resource_type(resource.resource_type)
            if resource_type is not None:
                names.setdefault(resource_type, set()).add(resource.resource_name)
        for resource_type, named in names.items():
            right = self._required[resource_type]
            if resource_type is ResourceType.CLUSTER:
                self._may_on_cluster = await self._rights.may_on_cluster(right.operation)
            else:
                self._denied[resource_type] = await self._rights.denied_names(*right, named)

    def denial(self, config_type: int, name: str) -> ConfigDenial | None:
        """The error of a judged resource; None where the client may go on, and for a type that does not exist."""
        resource_type = _resource_type(config_type)
        if resource_type is None:
            return None
        is_cluster = resource_type is ResourceType.CLUSTER
        is_denied = not self._may_on_cluster if is_cluster else name in self._denied[resource_type]
        return ConfigDenial(*DENIALS[resource_type]) if is_denied else None


def _resource_type(config_type: int) -> ResourceType | None:
    return _TYPES[ConfigResourceType(config_type)] if config_type in tuple(ConfigResourceType) else None
