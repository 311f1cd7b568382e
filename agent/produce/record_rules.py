"""The rules of a topic's configs for records, worked out once per topic.

Rule: pure; the configs of a topic, and those of brokers, are replaced as a whole when they change, so the same mappings
mean the same rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.admin.config_layers import BrokerConfigs
from coordinator.configs.topic_configs import effective
from coordinator.state.state import TopicState
from protocol.limits import RECORD_RULES_CACHED_MAX
from protocol.types import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """A topic's settings as far as records are concerned. Spans in milliseconds around the time of arrival."""

    message_bytes_max: int
    is_compacted: bool
    uses_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int


class RecordRulesOfTopics:
    """The rules of each topic, kept until its configs are others, or until they are the longest kept of many topics."""

    def __init__(self, broker_configs: BrokerConfigs) -> None:
        self._broker_configs = broker_configs
        self._kept_for: Mapping[str, str] | None = None
        self._kept: dict[TopicId, tuple[Mapping[str, str], RecordRules]] = {}

    def rules(self, topic: TopicState) -> RecordRules:
        now = self._broker_configs.now
        if now is not self._kept_for:
            self._kept.clear()
            self._kept_for = now
        kept = self._kept.get(topic.topic_id)
        if kept is None or kept[0] is not topic.configs:
            if len(self._kept) >= RECORD_RULES_CACHED_MAX:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[topic.topic_id] = (topic.configs, record_rules(topic, now))
        return kept[1]


def record_rules(topic: TopicState, broker_configs: Mapping[str, str]) -> RecordRules:
    """The rules that a topic's configs make."""

    def number(name: str) -> int:
        return int(effective(topic.configs, broker_configs, name))

    return RecordRules(
        message_bytes_max=number("max.message.bytes"),
        is_compacted="compact" in effective(topic.configs, broker_configs, "cleanup.policy"),
        uses_append_time=topic.is_log_append_time,
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
    )
