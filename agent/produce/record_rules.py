"""The limits that a topic's configs set for its records, computed once per topic. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.admin.config_layers import BrokerConfigs
from coordinator.configs.topic_configs import effective
from coordinator.state.state import TopicState
from protocol.limits import RECORD_RULES_CACHED_MAX
from protocol.types import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """A topic's settings that concern records. Spans are milliseconds before and after the time of arrival."""

    message_bytes_max: int
    is_compacted: bool
    uses_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int


class RecordRulesOfTopics:
    """A cache of the rules of each topic. It drops the oldest entry beyond RECORD_RULES_CACHED_MAX topics."""

    def __init__(self, broker_configs: BrokerConfigs) -> None:
        self._broker_configs = broker_configs
        self._cached_for: Mapping[str, str] | None = None
        """The broker configs that all entries of the cache were computed with."""
        self._cache: dict[TopicId, tuple[Mapping[str, str], RecordRules]] = {}
        """The topic's configs that an entry was computed with, and the rules."""

    def rules(self, topic: TopicState) -> RecordRules:
        # Compared by identity: a change of configs replaces the whole mapping, and never edits it.
        broker_configs = self._broker_configs.now
        if broker_configs is not self._cached_for:
            self._cache.clear()
            self._cached_for = broker_configs
        entry = self._cache.get(topic.topic_id)
        if entry is None or entry[0] is not topic.configs:
            if len(self._cache) >= RECORD_RULES_CACHED_MAX:
                del self._cache[next(iter(self._cache))]
            entry = self._cache[topic.topic_id] = (topic.configs, record_rules(topic, broker_configs))
        return entry[1]


def record_rules(topic: TopicState, broker_configs: Mapping[str, str]) -> RecordRules:
    """The rules that follow from a topic's configs and the brokers' defaults."""

    def number(name: str) -> int:
        return int(effective(topic.configs, broker_configs, name))

    return RecordRules(
        message_bytes_max=number("max.message.bytes"),
        is_compacted="compact" in effective(topic.configs, broker_configs, "cleanup.policy"),
        uses_append_time=topic.is_log_append_time,
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
    )
