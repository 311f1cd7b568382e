"""DescribeConfigs: configs of topics, brokers, groups, telemetry subscriptions and loggers, with their sources.

- Versions: 1-4. 3 adds documentation.
- Behaviour: the request takes a barrier first, so that a client reads what it altered through another agent (safety
  rule S4). An agent describes only its own broker configs and loggers.
- Differs from Kafka: one request describes at most CONFIG_RESOURCES_DESCRIBED_MAX resources.
- Source: org.apache.kafka.server.ConfigHelper.describeConfigs (Kafka 4.3).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from agent.admin.agent_configs import agent_entries
from agent.admin.configs import ConfigError
from agent.admin.log_levels import loggers
from agent.admin.topics import catch_up, deadline_s
from agent.request.config_entries import config_rows, logger_rows
from agent.request.config_rights import ConfigRights
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_GROUP, DESCRIBE_CONFIGS_TOPIC
from coordinator.commands.admin import ConfigResourceType
from coordinator.configs.broker_configs import BROKER_CONFIGS
from coordinator.configs.client_metrics_configs import CLIENT_METRICS_CONFIGS
from coordinator.configs.config_entries import (
    ConfigEntry,
    broker_entry,
    client_metrics_entry,
    every_broker_entries,
    group_entry,
    topic_entry,
)
from coordinator.configs.group_configs import GROUP_CONFIGS
from coordinator.configs.topic_configs import TOPIC_CONFIGS
from coordinator.configs.topic_names import InvalidTopicName, validate_topic_name
from coordinator.state.state import EVERY_BROKER
from protocol.errors import ErrorCode
from protocol.limits import CONFIG_RESOURCES_DESCRIBED_MAX, CREATIONS_PER_TURN

API_KEY = 32
TOO_MANY = (
    f"One request describes at most {CONFIG_RESOURCES_DESCRIBED_MAX} resources: ask for the others in another one."
)


async def handle(services: Services, request: Request, body: Any) -> Values:
    with_documentation = request.frame.api_version >= 3 and body.include_documentation
    rights = ConfigRights(
        request.rights, topic=DESCRIBE_CONFIGS_TOPIC, group=DESCRIBE_CONFIGS_GROUP, cluster=DESCRIBE_CONFIGS_CLUSTER
    )
    await rights.judge(body.resources)
    unseen = await catch_up(services.ledger, services.clock, deadline_s(services.clock))
    pacer = CooperativeYield(services.clock, CREATIONS_PER_TURN)
    results: list[dict[str, Any]] = []
    for resource in body.resources:
        result: dict[str, Any] = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [],
        }
        try:
            denial = rights.denial(resource.resource_type, resource.resource_name)
            if denial is not None:
                raise ConfigError(*denial)
            if unseen is not None:
                raise ConfigError(unseen.error_code, unseen.message or "")
            if len(results) >= CONFIG_RESOURCES_DESCRIBED_MAX:
                raise ConfigError(ErrorCode.policy_violation, TOO_MANY)
            result["configs"] = _rows(
                services, resource, with_synonyms=body.include_synonyms, with_documentation=with_documentation
            )
        except ConfigError as error:
            result |= {"error_code": error.error_code, "error_message": str(error)}
        results.append(result)
        await pacer.step()
    return {"results": results}


def _rows(services: Services, resource: Any, *, with_synonyms: bool, with_documentation: bool) -> list[dict[str, Any]]:
    names = resource.configuration_keys or None  # none named: all of them
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        services.configs.check_node(resource.resource_name, "broker")
        return logger_rows({name: level for name, level in loggers().items() if names is None or name in names})
    entries = _entries(services, resource.resource_type, resource.resource_name, names)
    return config_rows(entries, with_synonyms=with_synonyms, with_documentation=with_documentation)


def _entries(services: Services, resource_type: int, name: str, names: Collection[str] | None) -> Iterable[ConfigEntry]:
    """All entries of the resource, or the named ones. Names that do not exist are left out, as in Kafka."""
    layers = services.broker_configs.layers
    match resource_type:
        case ConfigResourceType.TOPIC:
            configs = _topic_configs(services, name)
            return [topic_entry(configs, layers, each) for each in _wanted(TOPIC_CONFIGS, names)]
        case ConfigResourceType.BROKER if name == EVERY_BROKER:
            entries = every_broker_entries(services.broker_configs.every_broker)
            return [entry for entry in entries if names is None or entry.spec.name in names]
        case ConfigResourceType.BROKER:
            services.configs.check_node(name, "broker")
            own = [each for each in agent_entries(services.ledger.agent) if names is None or each.spec.name in names]
            # Configs of one listener are listed where they are set, as in Kafka.
            of_listeners = [each for each in services.broker_configs.settings if each not in BROKER_CONFIGS]
            table = [*BROKER_CONFIGS, *of_listeners]
            return [*own, *(broker_entry(layers, each) for each in _wanted(table, names))]
        case ConfigResourceType.GROUP:
            configs = _named(services, ConfigResourceType.GROUP, name, "Group name must not be empty")
            return [group_entry(configs, layers, each) for each in _wanted(GROUP_CONFIGS, names)]
        case ConfigResourceType.CLIENT_METRICS:
            empty = "Client metrics subscription name must not be empty"
            configs = _named(services, ConfigResourceType.CLIENT_METRICS, name, empty)
            return [client_metrics_entry(configs, each) for each in _wanted(CLIENT_METRICS_CONFIGS, names)]
        case other:
            raise ConfigError(ErrorCode.invalid_request, f"Unsupported resource type: {other}")


def _wanted(table: Iterable[str], names: Collection[str] | None) -> Iterable[str]:
    return table if names is None else [name for name in table if name in names]


def _named(services: Services, resource_type: ConfigResourceType, name: str, empty: str) -> Mapping[str, str]:
    if not name:
        raise ConfigError(ErrorCode.invalid_request, empty)
    return services.configs.configs(resource_type, name)


def _topic_configs(services: Services, name: str) -> Mapping[str, str]:
    try:
        validate_topic_name(name)
    except InvalidTopicName as error:
        raise ConfigError(ErrorCode.invalid_topic_exception, str(error)) from error
    topic = services.topics.known(name)
    if topic is None:
        raise ConfigError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")
    return topic.configs
