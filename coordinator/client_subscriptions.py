"""What a CLIENT_METRICS resource asks of clients: which metrics, how often, of which clients (KIP-714).

Rule: pure. The configs were checked when they were set (`coordinator.client_metrics_configs`). Patterns are regular
expressions that have to match the whole of what a client says; of two about one thing the last counts.
Source: org.apache.kafka.server.metrics.{ClientMetricsConfigs,ClientMetricsInstanceMetadata} (Kafka 4.3).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coordinator.client_metrics_configs import CLIENT_METRICS_CONFIGS
from coordinator.config_types import split_list

EVERY_METRIC: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSubscription:
    """One resource, read. `metrics` are prefixes of names, or `EVERY_METRIC`."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    def is_for(self, client: Mapping[str, str]) -> bool:
        """Whether the client is meant; `client` is what is known of it, by the names that a pattern may be about."""
        return all(name in client and pattern.fullmatch(client[name]) for name, pattern in self.match.items())


def read_subscription(configs: Mapping[str, str]) -> ClientSubscription:
    """The subscription that these configs make; what is not set has Kafka's default."""
    return ClientSubscription(
        metrics=tuple(split_list(_value(configs, "metrics"))),
        interval_ms=int(_value(configs, "interval.ms")),
        match=dict(_pattern(text) for text in split_list(_value(configs, "match"))),
    )


def _value(configs: Mapping[str, str], name: str) -> str:
    value = configs.get(name, CLIENT_METRICS_CONFIGS[name].default)
    assert value is not None, f"{name} has no default"
    return value


def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    name, _, value = text.partition("=")
    return name.strip(), re.compile(value.strip())
