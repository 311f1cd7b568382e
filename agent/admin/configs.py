"""Alters configs on behalf of requests: checks the operations, and proposes an entry that carries them out.

Names and values are checked here, with the configs behind a barrier. Apply computes the result from the configs that
are set by then. Each resource is altered independently, by all of its operations or none.
Source of the checks and their order: kafka.server.ConfigAdminManager, org.apache.kafka.controller.
ConfigurationControlManager, kafka.server.ControllerConfigurationValidator (Kafka 4.3).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.admin.config_layers import BrokerConfigs
from agent.admin.log_levels import LEVELS, ROOT, is_known, set_level, unset_level
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.regexes import regex_problem
from agent.runtime.threads import run_in_thread
from coordinator.apply.config_operations import altered
from coordinator.commands.admin import AlterConfigs, ConfigOperation, ConfigResourceType, OperationKind
from coordinator.commands.commands import Rejected
from coordinator.configs.broker_config_checks import validate_dynamic
from coordinator.configs.broker_configs import BROKER_CONFIGS
from coordinator.configs.client_metrics_configs import validate_client_metrics
from coordinator.configs.client_subscriptions import read_subscription
from coordinator.configs.config_types import ConfigSpec, ConfigType, InvalidConfig, InvalidConfigRequest, shorten
from coordinator.configs.group_configs import validate_group
from coordinator.configs.topic_configs import TOPIC_CONFIGS, stamped_by, validate_topic_configs
from coordinator.configs.topic_names import InvalidTopicName, validate_topic_name
from coordinator.state.state import EVERY_BROKER
from protocol.errors import ErrorCode
from protocol.limits import CONFIG_OPERATIONS_MAX, CONFIG_RESOURCE_NAME_CHARS_MAX

log = logging.getLogger(__name__)

_LISTED: Mapping[ConfigResourceType, Mapping[str, ConfigSpec]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    ConfigResourceType.BROKER: BROKER_CONFIGS,
}
"""The resources whose lists can be appended to and subtracted from: as in Kafka not groups and telemetry subscriptions.
"""
NOTHING: Mapping[str, str] = {}


class ConfigError(Exception):
    """The error code and message for a client whose configs cannot be described or altered."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """The alteration of one resource in a request, with the values as they arrived."""

    resource_type: int
    resource_name: str
    is_whole: bool
    operations: Sequence[tuple[str, int, str | None]]
    """Name, kind, value."""


class ConfigAdmin:
    """Alters configs, and returns those of resources, which need not exist."""

    def __init__(self, *, ledger: LedgerClient, broker_configs: BrokerConfigs, node_id: int) -> None:
        self._ledger = ledger
        self._broker_configs = broker_configs
        self._node_id = node_id

    async def alter(self, alteration: Alteration, *, is_validate_only: bool) -> None:
        """Alter one resource, or only check the alteration. The caller has taken a barrier.

        An alteration that changes nothing is not written. Raises `ConfigError`.
        """
        resource_type, operations = _read(alteration)
        if resource_type is ConfigResourceType.BROKER_LOGGER:
            self._alter_loggers(alteration, operations, is_validate_only=is_validate_only)
            return
        if resource_type is ConfigResourceType.TOPIC:
            operations = self._with_timestamp_type(operations, is_whole=alteration.is_whole)
        before = self.configs(resource_type, alteration.resource_name)
        result = altered(before, operations, is_whole=alteration.is_whole)
        self._check(resource_type, alteration.resource_name, result)
        if resource_type is ConfigResourceType.CLIENT_METRICS:
            await _check_patterns(result)
        if is_validate_only or result == before:
            return
        outcome = await self._ledger.propose(
            AlterConfigs(
                resource_type=resource_type,
                resource_name=alteration.resource_name,
                is_whole=alteration.is_whole,
                operations=tuple(operations),
            )
        )
        if isinstance(outcome, Rejected):
            raise ConfigError(outcome.error_code, outcome.reason)
        described = ", ".join(f"{each.kind.name} {each.name}={each.value}" for each in operations)
        log.info(
            "configs were altered",
            extra={
                "resource": _described(resource_type, alteration.resource_name),
                "operations": shorten(described),
                "is_whole": alteration.is_whole,
            },
        )

    def configs(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """The configs of a resource that may not exist, as far as this agent has applied the ledger."""
        state = self._ledger.state
        match resource_type:
            case ConfigResourceType.TOPIC:
                topic_id = state.topic_ids.get(name)
                return NOTHING if topic_id is None else state.topics[topic_id].configs
            case ConfigResourceType.BROKER:
                return state.broker_configs.get(name, NOTHING)
            case ConfigResourceType.GROUP:
                return state.group_configs.get(name, NOTHING)
            case ConfigResourceType.CLIENT_METRICS:
                return state.client_metrics_configs.get(name, NOTHING)
            case ConfigResourceType.BROKER_LOGGER:
                return NOTHING

    def _with_timestamp_type(self, operations: Sequence[ConfigOperation], *, is_whole: bool) -> list[ConfigOperation]:
        """The operations, with this agent's message.timestamp.type where the topic would lose its own.

        Apply does not know the settings of an agent's start, and gives append times by configs of the state (S14).
        """
        override = stamped_by(self._broker_configs.settings, self._broker_configs.every_broker)
        if not override:
            return list(operations)
        others = [each for each in operations if each.name not in override or each.kind is not OperationKind.DELETE]
        is_lost = len(others) < len(operations) or (is_whole and not override.keys() & {each.name for each in others})
        return [*others, *(_set(name, value) for name, value in override.items())] if is_lost else others

    def _check(self, resource_type: ConfigResourceType, name: str, result: Mapping[str, str]) -> None:
        """Raise `ConfigError` unless the resource may have these configs."""
        try:
            match resource_type:
                case ConfigResourceType.TOPIC:
                    self._check_topic(name, result)
                case ConfigResourceType.BROKER:
                    self._check_broker(name, result)
                case ConfigResourceType.GROUP:
                    if not name:
                        raise InvalidConfigRequest("Default group resources are not allowed.")
                    validate_group(result, self._broker_configs)
                case ConfigResourceType.CLIENT_METRICS:
                    if not name:
                        raise InvalidConfigRequest("Subscription name can't be empty")
                    validate_client_metrics(result)
                case ConfigResourceType.BROKER_LOGGER:
                    raise AssertionError("levels of loggers are not altered by an entry")
        except InvalidConfigRequest as error:
            raise ConfigError(ErrorCode.invalid_request, str(error)) from error
        except InvalidConfig as error:
            raise ConfigError(ErrorCode.invalid_config, str(error)) from error

    def _check_topic(self, name: str, result: Mapping[str, str]) -> None:
        if not name:
            raise InvalidConfigRequest("Default topic resources are not allowed.")
        try:
            validate_topic_name(name)
        except InvalidTopicName as error:
            raise ConfigError(ErrorCode.invalid_topic_exception, str(error)) from error
        validate_topic_configs(result)
        if name not in self._ledger.state.topic_ids:
            raise ConfigError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")

    def _check_broker(self, name: str, result: Mapping[str, str]) -> None:
        if name != EVERY_BROKER:
            self.check_node(name, "broker")
        validate_dynamic(result, is_every_broker=name == EVERY_BROKER)

    def check_node(self, name: str, what: str) -> None:
        """Raise `ConfigError` unless `name` is this agent's node id: it does not know another one's settings."""
        if not name.removeprefix("-").isdecimal():
            raise ConfigError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {shorten(name)}")
        if name != str(self._node_id):
            raise ConfigError(
                ErrorCode.invalid_request,
                f"Unexpected {what} id, expected {self._node_id}, but received {shorten(name)}",
            )

    def _alter_loggers(
        self, alteration: Alteration, operations: Sequence[ConfigOperation], *, is_validate_only: bool
    ) -> None:
        if alteration.is_whole:  # AlterConfigs does not know this type, only IncrementalAlterConfigs does (KIP-412)
            raise ConfigError(
                ErrorCode.invalid_request, f"Unknown resource type {ConfigResourceType.BROKER_LOGGER.value}"
            )
        self.check_node(alteration.resource_name, "node")
        for operation in operations:
            _check_logger(operation)
        if is_validate_only:
            return
        for operation in operations:
            if operation.kind is OperationKind.SET:
                set_level(operation.name, operation.value)
            else:
                unset_level(operation.name)
            log.info("a logger's level was altered", extra={"altered": operation.name, "level": operation.value})


def _check_logger(operation: ConfigOperation) -> None:
    match operation.kind:
        case OperationKind.SET:
            if operation.value not in LEVELS:
                raise ConfigError(
                    ErrorCode.invalid_config,
                    f"Cannot set the log level of {shorten(operation.name)} to {shorten(operation.value)} as it is not "
                    f"a supported log level. Valid log levels are {', '.join(LEVELS)}",
                )
        case OperationKind.DELETE:
            if operation.name == ROOT:
                raise ConfigError(ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed")
        case OperationKind.APPEND | OperationKind.SUBTRACT:
            raise ConfigError(
                ErrorCode.invalid_request,
                f"{operation.kind.name} operation is not allowed for the BROKER_LOGGER resource",
            )
    if not is_known(operation.name):
        raise ConfigError(ErrorCode.invalid_config, f"Logger {shorten(operation.name)} does not exist!")


def _read(alteration: Alteration) -> tuple[ConfigResourceType, list[ConfigOperation]]:
    """The resource's type and the operations on it. Raises `ConfigError` where the request is malformed."""
    operations = alteration.operations
    names = [name for name, _, _ in operations]
    if len(set(names)) != len(names):
        raise ConfigError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    without = [name for name, kind, value in operations if value is None and kind != OperationKind.DELETE]
    if without:
        raise ConfigError(ErrorCode.invalid_request, f"Null value not supported for : {shorten(', '.join(without))}")
    if alteration.resource_type not in tuple(ConfigResourceType):
        raise ConfigError(ErrorCode.invalid_request, f"Unknown resource type {alteration.resource_type}")
    if len(names) > CONFIG_OPERATIONS_MAX:
        raise ConfigError(
            ErrorCode.invalid_request, f"{len(names)} configs of one resource, {CONFIG_OPERATIONS_MAX} is the most."
        )
    if len(alteration.resource_name) > CONFIG_RESOURCE_NAME_CHARS_MAX:
        raise ConfigError(
            ErrorCode.invalid_request,
            f"The resource's name has {len(alteration.resource_name)} characters, {CONFIG_RESOURCE_NAME_CHARS_MAX} is "
            "the most.",
        )
    resource_type = ConfigResourceType(alteration.resource_type)
    return resource_type, [_operation(resource_type, name, kind, value) for name, kind, value in operations]


def _operation(resource_type: ConfigResourceType, name: str, kind: int, value: str | None) -> ConfigOperation:
    if kind not in tuple(OperationKind):
        raise ConfigError(ErrorCode.invalid_request, f"Unknown operations type {kind}")
    operation_kind = OperationKind(kind)
    if operation_kind is OperationKind.DELETE or value is None:
        return ConfigOperation(kind=OperationKind.DELETE, name=name, value="")
    spec = _LISTED.get(resource_type, {}).get(name)
    list_default = ""
    if operation_kind is not OperationKind.SET and resource_type is not ConfigResourceType.BROKER_LOGGER:
        if spec is None or spec.type is not ConfigType.LIST:
            raise ConfigError(
                ErrorCode.invalid_config,
                f"Can't {operation_kind.name} to key {shorten(name)} because its type is not LIST.",
            )
        list_default = spec.default or ""
    # Blanks around a value mean nothing (org.apache.kafka.common.config.ConfigDef).
    return ConfigOperation(kind=operation_kind, name=name, value=value.strip(), list_default=list_default)


def _described(resource_type: ConfigResourceType, name: str) -> str:
    """The resource's name for a log line."""
    if resource_type is ConfigResourceType.BROKER and name == EVERY_BROKER:
        return "every broker"
    return f"{resource_type.name} {shorten(name)}"


def _set(name: str, value: str) -> ConfigOperation:
    return ConfigOperation(kind=OperationKind.SET, name=name, value=value)


async def _check_patterns(configs: Mapping[str, str]) -> None:
    """Raise `ConfigError` where RE2, which matches clients, cannot read an expression of a telemetry subscription."""
    for name, expression in read_subscription(configs).match.items():
        problem = await run_in_thread(regex_problem, expression)
        if problem is not None:
            message = f"Illegal client matching pattern: {name}={shorten(expression)}: {problem}"
            raise ConfigError(ErrorCode.invalid_config, message)
