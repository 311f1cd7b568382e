"""Checks of values for broker configs, from `--set` and from AlterConfigs.

In: names and values. Out: nothing, or an error that says what to do.
"""

from collections.abc import Mapping
from typing import Final

from coordinator.configs.broker_configs import BROKER_CONFIGS, CLUSTER_WIDE
from coordinator.configs.config_types import InvalidConfig, InvalidConfigRequest, shorten

RETENTION_TIMES: Final = ("log.retention.hours", "log.retention.minutes", "log.retention.ms")
"""KafkaConfig.logRetentionTimeMillis rejects 0, which would drop every record at once."""


def validate_broker(name: str, value: str) -> None:
    """Raise `InvalidConfig` for an unknown name or a value that it does not take."""
    spec = BROKER_CONFIGS.get(name)
    if spec is None:
        raise InvalidConfig(f"Unknown broker config name: {name}")
    spec.validate(value)
    if name in RETENTION_TIMES and int(value) == 0:
        raise InvalidConfig(f"Invalid value {value} for configuration {name}: must be -1 for no limit, or at least 1")


def validate_dynamic(configs: Mapping[str, str], *, is_every_broker: bool) -> None:
    """Raise `InvalidConfigRequest` for configs that cannot be altered while brokers run, for one or for all of them.

    Source: org.apache.kafka.server.config.DynamicBrokerConfig.validate, which calls any of it an invalid request
    (KAFKA-13609). Differs from Kafka: unknown configs are rejected, and those that all brokers have to share.
    """
    unknown = [name for name in configs if name not in BROKER_CONFIGS]
    if unknown:
        raise InvalidConfigRequest(f"Unknown broker config name: {shorten(', '.join(unknown))}")
    fixed = [name for name in configs if BROKER_CONFIGS[name].is_read_only]
    if fixed:
        raise InvalidConfigRequest(f"Cannot update these configs dynamically: {shorten(', '.join(fixed))}")
    alone = [] if is_every_broker else sorted(CLUSTER_WIDE & configs.keys())
    if alone:
        raise InvalidConfigRequest(
            f"Cannot update these configs for one broker, as any serves every partition: {', '.join(alone)}. Update "
            "them at default cluster level, with an empty broker id (--entity-default of kafka-configs.sh)"
        )
    for name, value in configs.items():
        try:
            validate_broker(name, value)
        except InvalidConfig as error:
            raise InvalidConfigRequest(str(error)) from error
