"""Configs, quotas, and what else administrators alter. Called by `coordinator.apply.apply`.

Rule: an alteration is carried out on what is set at its position, so none undoes another. A mapping that changed is
another object, by which caches that derive from it notice the change. The proposer checked names and values. How much
there may be in all is checked here, with the values of `protocol.limits`: changing one of them is a change of
the rules (S3).
Source: org.apache.kafka.controller.ConfigurationControlManager, ClientQuotaControlManager (Kafka 4.3).
"""

from typing import assert_never

from coordinator.apply.config_operations import altered
from coordinator.apply.topics import assign_replicas, create_partitions
from coordinator.commands.admin import (
    AdminCommand,
    AlterClientQuotas,
    AlterConfigs,
    AssignReplicas,
    ConfigResourceType,
    CreatePartitions,
)
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.configs.config_types import configs_bytes
from coordinator.state.state import EVERY_BROKER, ClusterState, TopicState
from protocol.errors import ErrorCode
from protocol.limits import CONFIG_RESOURCES_MAX, CONFIGS_BYTES_MAX, QUOTA_ENTITIES_MAX


def apply_admin_command(state: ClusterState, command: AdminCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about partitions, configs and quotas."""
    match command:
        case CreatePartitions():
            return create_partitions(state, command)
        case AssignReplicas():
            return assign_replicas(state, command)
        case AlterConfigs():
            return alter_configs(state, command)
        case AlterClientQuotas():
            return alter_client_quotas(state, command)
        case _:
            assert_never(command)


def alter_configs(state: ClusterState, command: AlterConfigs) -> Outcome:
    """Carry out all operations on one resource, or none."""
    match command.resource_type:
        case ConfigResourceType.TOPIC:
            return _alter_topic(state, command)
        case ConfigResourceType.BROKER:
            configs = _altered(state.broker_configs, command)
            if not isinstance(configs, Rejected):
                state.broker_configs = configs
                if command.resource_name == EVERY_BROKER:
                    _stamp(state, *state.topics.values())
        case ConfigResourceType.GROUP:
            configs = _altered(state.group_configs, command)
            if not isinstance(configs, Rejected):
                state.group_configs = configs
        case ConfigResourceType.CLIENT_METRICS:
            configs = _altered(state.client_metrics_configs, command)
            if not isinstance(configs, Rejected):
                state.client_metrics_configs = configs
        case ConfigResourceType.BROKER_LOGGER:
            configs = Rejected(error_code=ErrorCode.invalid_request, reason="loggers' levels are not in the ledger")
        case _:
            assert_never(command.resource_type)
    return configs if isinstance(configs, Rejected) else Done()


def _alter_topic(state: ClusterState, command: AlterConfigs) -> Outcome:
    topic_id = state.topic_ids.get(command.resource_name)
    if topic_id is None:
        return Rejected(
            error_code=ErrorCode.unknown_topic_or_partition, reason=f"Topic '{command.resource_name}' does not exist."
        )
    topic = state.topics[topic_id]
    configs = altered(topic.configs, command.operations, is_whole=command.is_whole)
    rejected = _check_bytes(configs)
    if rejected is not None:
        return rejected
    topic.configs = configs
    _stamp(state, topic)
    return Done()


def _stamp(state: ClusterState, *topics: TopicState) -> None:
    """Whose clock stamps the topics' records from now on (safety rule S14)."""
    for topic in topics:
        topic.is_log_append_time = state.uses_append_time(topic)


def _altered(configs: dict[str, dict[str, str]], command: AlterConfigs) -> dict[str, dict[str, str]] | Rejected:
    """The configs of all resources of one type; one that has none left is not among them."""
    name = command.resource_name
    own = altered(configs.get(name, {}), command.operations, is_whole=command.is_whole)
    rejected = _check_bytes(own)
    if rejected is not None:
        return rejected
    others = {other: values for other, values in configs.items() if other != name}
    if own and len(others) >= CONFIG_RESOURCES_MAX:
        return Rejected(
            error_code=ErrorCode.policy_violation,
            reason=f"{len(others)} resources of this type have configs, {CONFIG_RESOURCES_MAX} is the most.",
        )
    return {**others, name: own} if own else others


def _check_bytes(configs: dict[str, str]) -> Rejected | None:
    taken = configs_bytes(configs)
    if taken <= CONFIGS_BYTES_MAX:
        return None
    return Rejected(
        error_code=ErrorCode.invalid_config,
        reason=f"The configs would have {taken} bytes together, {CONFIGS_BYTES_MAX} is the most.",
    )


def alter_client_quotas(state: ClusterState, command: AlterClientQuotas) -> Outcome:
    """Set and remove quotas of one entity; one that has none left is forgotten."""
    quotas = dict(state.client_quotas.get(command.entity, {}))
    for name, value in command.quotas:
        if value is None:
            quotas.pop(name, None)
        else:
            quotas[name] = value
    others = state.client_quotas.copy()
    others.pop(command.entity, None)
    if quotas and len(others) >= QUOTA_ENTITIES_MAX:
        return Rejected(
            error_code=ErrorCode.policy_violation,
            reason=f"{len(others)} entities have quotas, {QUOTA_ENTITIES_MAX} is the most.",
        )
    if quotas:
        others[command.entity] = quotas
    state.client_quotas = others
    return Done()
