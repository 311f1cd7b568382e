"""Configs of telemetry subscriptions: which metrics clients are to push, how often, and which clients (KIP-714).

Source: org.apache.kafka.server.metrics.ClientMetricsConfigs (Kafka 4.3).
"""

from collections.abc import Mapping
from typing import Final

from coordinator.configs.config_types import (
    ConfigSpec,
    ConfigType,
    Effect,
    InvalidConfig,
    InvalidConfigRequest,
    shorten,
    split_list,
    table,
)
from protocol.limits import CLIENT_PUSH_INTERVAL_MS_MAX, CLIENT_PUSH_INTERVAL_MS_MIN, CONFIG_VALUE_CHARS_MAX

MATCHED: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""The properties of a client that a subscription's `match` may name."""

CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    ConfigSpec(
        name="interval.ms",
        type=ConfigType.INT,
        default="300000",
        documentation="How often a client pushes its metrics.",
        effect=Effect.HONOURED,
    ),
    ConfigSpec(
        name="match",
        type=ConfigType.LIST,
        default="",
        documentation="Patterns NAME=REGULAR EXPRESSION that choose clients. An empty list chooses all.",
        effect=Effect.HONOURED,
    ),
    ConfigSpec(
        name="metrics",
        type=ConfigType.LIST,
        default="",
        documentation="Prefixes of the names of metrics to push; * is all metrics.",
        effect=Effect.HONOURED,
    ),
)


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfig` for any of a subscription's configs."""
    for name, value in configs.items():
        spec = CLIENT_METRICS_CONFIGS.get(name)
        if spec is None:
            raise InvalidConfigRequest(f"Unknown client metrics configuration: {shorten(name)}")
        if len(value) > CONFIG_VALUE_CHARS_MAX:
            raise InvalidConfig(
                f"The value of {name} has {len(value)} characters, {CONFIG_VALUE_CHARS_MAX} is the most."
            )
        spec.validate(value)
    interval_ms = int(configs.get("interval.ms", CLIENT_PUSH_INTERVAL_MS_MAX))
    if not CLIENT_PUSH_INTERVAL_MS_MIN <= interval_ms <= CLIENT_PUSH_INTERVAL_MS_MAX:
        raise InvalidConfigRequest(
            f"Invalid value {interval_ms} for interval.ms, interval must be between {CLIENT_PUSH_INTERVAL_MS_MIN} and "
            f"{CLIENT_PUSH_INTERVAL_MS_MAX} (1 hour)"
        )
    for pattern in split_list(configs.get("match", "")):
        if not _is_pattern(pattern):
            raise InvalidConfig(f"Illegal client matching pattern: {shorten(pattern)}")


def read_pattern(pattern: str) -> tuple[str, str]:
    """The property of a client that a pattern names, and its expression, which was checked when it was altered."""
    name, _, expression = pattern.partition("=")
    return name.strip(), expression.strip()


def _is_pattern(pattern: str) -> bool:
    name, expression = read_pattern(pattern)
    return name in MATCHED and "=" in pattern and "=" not in expression
