"""Bytes and records by topic, of a bounded number of topics."""

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter

from protocol.limits import METRIC_TOPICS_MAX

OTHER: Final = "other"
"""The label of topics above the limit. A topic of this name shares its series with them."""
Bound = tuple[Callable[[float], None], Callable[[float], None]]


class TopicTraffic:
    """One direction. The first `METRIC_TOPICS_MAX` topics have series of their own, until the agent ends."""

    __slots__ = ("_bound", "_bytes", "_direction", "_records")

    def __init__(self, direction: str, record_bytes: Counter, records: Counter) -> None:
        self._direction = direction
        self._bytes = record_bytes
        self._records = records
        self._bound: dict[str, Bound] = {}

    def count(self, topic: str, record_bytes: int, records: int) -> None:
        """Count what went through the agent."""
        bound = self._bound.get(topic)
        if bound is None:
            bound = self._bind(topic if len(self._bound) < METRIC_TOPICS_MAX else OTHER)
        bound[0](record_bytes)
        bound[1](records)

    def _bind(self, label: str) -> Bound:
        labels = (label, self._direction)
        bound = self._bytes.labels(*labels).inc, self._records.labels(*labels).inc
        if len(self._bound) < METRIC_TOPICS_MAX:
            self._bound[label] = bound
        return bound
