"""The subscription of a CLIENT_METRICS resource: which metrics, how often, from which clients (KIP-714).

Rule: pure. The configs were checked when they were set (`coordinator.configs.client_metrics_configs`). Patterns are
regular expressions that have to match the whole of what a client says (`agent.telemetry.subscriptions` asks RE2); of
two about one thing the last counts. Source:
org.apache.kafka.server.metrics.{ClientMetricsConfigs,ClientMetricsInstanceMetadata} (Kafka 4.3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coordinator.configs.client_metrics_configs import CLIENT_METRICS_CONFIGS, read_pattern
from coordinator.configs.config_types import split_list

EVERY_METRIC: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSubscription:
    """One resource, read. `metrics` are prefixes of names, or `EVERY_METRIC`."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]
    """Expressions by what of a client they are about."""


def read_subscription(configs: Mapping[str, str]) -> ClientSubscription:
    """The subscription that these configs make; what is not set has Kafka's default."""
    return ClientSubscription(
        metrics=tuple(split_list(_value(configs, "metrics"))),
        interval_ms=int(_value(configs, "interval.ms")),
        match=dict(read_pattern(text) for text in split_list(_value(configs, "match"))),
    )


def _value(configs: Mapping[str, str], name: str) -> str:
    value = configs.get(name, CLIENT_METRICS_CONFIGS[name].default)
    assert value is not None, f"{name} has no default"
    return value
