"""The counts and durations of answered Kafka requests, which the event loop alone counts.

The client's own counters and histograms take a lock for each value, two or three for a request. These take none: the
loop counts, and a scrape reads.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

REQUESTS = ("requests", "Answered Kafka requests, by API and version.", ("api", "version"))
DURATION = ("request_duration_seconds", "Time from the last byte of a Kafka request to its answer.", ("api",))


class RequestCount:
    """The answered requests of one API in one version."""

    __slots__ = ("_bounds", "by_bucket", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.by_bucket = [0] * (len(bounds) + 1)
        """How many took at most as long as each bound, and longer than the one before. The last: longer than all."""
        self.seconds = 0.0

    def answered(self, seconds: float) -> None:
        """Count one answer, errors included."""
        self.by_bucket[bisect_left(self._bounds, seconds)] += 1
        self.seconds += seconds


class RequestCounts(Collector):
    """The answered requests of an agent."""

    def __init__(self, prefix: str, bounds: Sequence[float]) -> None:
        """`bounds`: the upper bounds of the durations' buckets, in seconds and in order."""
        self._prefix = prefix
        self._bounds = bounds
        self._labels = [*map(str, bounds), "+Inf"]
        self._counts: dict[tuple[str, int], RequestCount] = {}

    def count_of(self, api: str, version: int) -> RequestCount:
        """The count of one API in one version."""
        count = self._counts.get((api, version))
        if count is None:
            count = self._counts[api, version] = RequestCount(self._bounds)
        return count

    @property
    def rows(self) -> Iterable[tuple[str, str, tuple[str, ...], str]]:
        """Name, kind, labels and text of each metric."""
        for kind, suffix, (name, text, labels) in (("counter", "_total", REQUESTS), ("histogram", "", DURATION)):
            yield f"{self._prefix}_{name}{suffix}", kind, labels, text

    def describe(self) -> Iterable[Metric]:
        yield from self._families()

    def collect(self) -> Iterable[Metric]:
        requests, durations = self._families()
        seconds: dict[str, float] = {}
        by_bucket: dict[str, list[int]] = {}
        for (api, version), count in self._counts.items():
            requests.add_metric((api, str(version)), sum(count.by_bucket))
            seconds[api] = seconds.get(api, 0.0) + count.seconds
            before = by_bucket.get(api, [0] * len(self._labels))
            by_bucket[api] = [one + other for one, other in zip(before, count.by_bucket, strict=True)]
        for api, counts in by_bucket.items():
            cumulative = list(accumulate(counts))
            durations.add_metric((api,), list(zip(self._labels, cumulative, strict=True)), seconds[api])
        yield requests
        yield durations

    def _families(self) -> tuple[CounterMetricFamily, HistogramMetricFamily]:
        (requests, requests_text, requests_labels), (duration, duration_text, duration_labels) = REQUESTS, DURATION
        return (
            CounterMetricFamily(f"{self._prefix}_{requests}", requests_text, labels=requests_labels),
            HistogramMetricFamily(f"{self._prefix}_{duration}", duration_text, labels=duration_labels),
        )
