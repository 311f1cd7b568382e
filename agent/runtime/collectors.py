"""Collectors of the Prometheus client that this program adds."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Collected(CollectorRegistry):
    """A registry of what was collected before."""

    def __init__(self, collected: Sequence[Metric]) -> None:
        super().__init__()
        self._collected = collected

    def collect(self) -> Iterable[Metric]:
        return self._collected


class CountedElsewhere(Collector):
    """A counter whose owner counts anyway; its value is read at each scrape."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._count: Callable[[], int] = lambda: 0

    def set_function(self, count: Callable[[], int]) -> None:
        """Report what `count` returns; it never goes down."""
        self._count = count

    def describe(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text)

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._count())
