"""Metrics that clients pushed (KIP-714): read from OTLP, kept in memory, shown to Prometheus.

Rule: limits bound what an agent keeps and exposes: series per client and in total, labels and characters. Values above
them are dropped and counted. A push replaces the client's last one; sums with delta temporality are added up. A
client's series stay for a while after its last push, so that a scrape finds its final values. The agent that received a
push exposes it: if a client moved between agents, each exposes its part of a sum.
Source: https://opentelemetry.io/docs/specs/otel/metrics/data-model, and .../compatibility/prometheus_and_openmetrics.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.runtime.clock import Clock
from protocol.errors import InvalidBatch
from protocol.limits import (
    CLIENT_METRICS_STEPS_MAX,
    CLIENT_METRICS_UNPACKED_BYTES_MAX,
    CLIENT_SERIES_LABELS_MAX,
    CLIENT_SERIES_MAX,
    CLIENT_SERIES_PER_CLIENT_MAX,
    CLIENT_SERIES_TEXT_CHARS_MAX,
)
from protocol.records.compression import Compression, decompress

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as PushedMetric
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, NumberDataPoint

PREFIX: Final = "kafka_client_"
KAFKA_PREFIX: Final = "org.apache.kafka."
TOTAL: Final = "_total"
GAUGE, COUNTER = "gauge", "counter"
DOCUMENTATION: Final = "Pushed by clients (KIP-714)."
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]
"""Label pairs in the order of their names."""


class UnreadableMetrics(Exception):
    """A push is not OTLP in the given compression, or too large when decompressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLabels:
    """The labels of all series of a client, with bounded lengths."""

    instance_id: str
    client_id: str
    software_name: str

    def all(self) -> Mapping[str, str]:
        return {
            "client_instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_software_name": self.software_name,
        }


CLIENT_LABELS: Final = frozenset(ClientLabels(instance_id="", client_id="", software_name="").all())


class Point(NamedTuple):
    """A value of one series, with name and labels in Prometheus' format."""

    name: str
    kind: str
    labels: Labels
    value: float
    is_delta: bool


class Points(NamedTuple):
    """The points of one push. `dropped_count`: its points of unsupported types or above the limits."""

    points: Sequence[Point]
    dropped_count: int


@dataclass(frozen=True, slots=True)
class _Client:
    labels: ClientLabels
    series: Mapping[tuple[str, Labels], Point]
    expires_s: float


class ClientSeries(Collector):
    """The series of all clients that pushed to this agent."""

    def __init__(self, *, clock: Clock, count_dropped: Callable[[float], None]) -> None:
        self._clock = clock
        self._count_dropped = count_dropped
        self._clients: dict[str, _Client] = {}
        self._series_count = 0

    def add(self, labels: ClientLabels, pushed: Points, *, ttl_s: float) -> None:
        """Replace the client's series by those of a push; they expire after `ttl_s` seconds."""
        now_s = self._clock.monotonic_s()
        self._drop_old(now_s)
        before = self._remove(labels.instance_id)
        series_max = min(CLIENT_SERIES_PER_CLIENT_MAX, CLIENT_SERIES_MAX - self._series_count)
        series: dict[tuple[str, Labels], Point] = {}
        dropped_count = pushed.dropped_count
        for point in pushed.points:
            key = point.name, point.labels
            known = series.get(key) or before.get(key)
            if key not in series and len(series) >= series_max:
                dropped_count += 1
                continue
            series[key] = point._replace(value=known.value + point.value) if point.is_delta and known else point
        self._clients[labels.instance_id] = _Client(labels, series, now_s + ttl_s)
        self._series_count += len(series)
        self._count_dropped(dropped_count)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        self._drop_old(self._clock.monotonic_s())
        families: dict[str, Metric] = {}
        for client in self._clients.values():
            labels = client.labels.all()
            for point in client.series.values():
                family = families.get(point.name)
                if family is None:
                    name = point.name.removesuffix(TOTAL) if point.kind == COUNTER else point.name
                    family = families[point.name] = Metric(name, DOCUMENTATION, point.kind)
                family.add_sample(point.name, {**dict(point.labels), **labels}, point.value)
        return families.values()

    def _drop_old(self, now_s: float) -> None:
        for instance_id in [key for key, client in self._clients.items() if client.expires_s <= now_s]:
            self._remove(instance_id)

    def _remove(self, instance_id: str) -> Mapping[tuple[str, Labels], Point]:
        client = self._clients.pop(instance_id, None)
        if client is None:
            return {}
        self._series_count -= len(client.series)
        return client.series


def read_metrics(compression: Compression, pushed: bytes) -> Points:
    """The points of OTLP's MetricsData. Raises `UnreadableMetrics`."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        data = MetricsData.FromString(bytes(decompress(compression, pushed, CLIENT_METRICS_UNPACKED_BYTES_MAX)))
    except (InvalidBatch, DecodeError) as error:
        raise UnreadableMetrics(str(error)) from error
    points: list[Point] = []
    dropped_count = 0
    for point in _points_of_all(data):
        if point is None or len(points) >= CLIENT_SERIES_PER_CLIENT_MAX:
            dropped_count += 1
        else:
            points.append(point)
    return Points(points, dropped_count)


def _points_of_all(data: "MetricsData") -> Iterator[Point | None]:
    """All points, None in the place of one that is not shown; what is beyond the steps of the way is not looked at."""
    steps = iter(range(CLIENT_METRICS_STEPS_MAX))
    for resource, _ in zip(data.resource_metrics, steps, strict=False):
        shared = _labels(resource.resource.attributes)
        for scope, _ in zip(resource.scope_metrics, steps, strict=False):
            for metric, _ in zip(scope.metrics, steps, strict=False):
                for point, _ in zip(_points(metric, shared), steps, strict=False):
                    yield point


def _points(metric: "PushedMetric", shared: Mapping[str, str]) -> Iterator[Point | None]:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

    data: Iterable[NumberDataPoint]
    match metric.WhichOneof("data"):
        case "gauge":
            data, kind, is_delta = metric.gauge.data_points, GAUGE, False
        case "sum":
            is_delta = metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
            data, kind = metric.sum.data_points, COUNTER if metric.sum.is_monotonic else GAUGE
        case _:
            yield None
            return
    name = _sample_name(metric.name, kind)
    for point in data:
        field = point.WhichOneof("value")
        if field is None or not metric.name:
            yield None
            continue
        labels = {**shared, **_labels(point.attributes)}
        value = float(point.as_int if field == "as_int" else point.as_double)
        yield Point(name, kind, tuple(sorted(labels.items())[:CLIENT_SERIES_LABELS_MAX]), value, is_delta)


def _sample_name(name: str, kind: str) -> str:
    metric_name = PREFIX + _NOT_IN_NAMES.sub("_", name.removeprefix(KAFKA_PREFIX)[:CLIENT_SERIES_TEXT_CHARS_MAX])
    return metric_name if kind == GAUGE or metric_name.endswith(TOTAL) else metric_name + TOTAL


def _labels(attributes: "Iterable[KeyValue]") -> dict[str, str]:
    """The attributes that are texts or numbers, without the labels that every series of the client has."""
    labels: dict[str, str] = {}
    for attribute in islice(attributes, CLIENT_SERIES_LABELS_MAX):
        name = _NOT_IN_NAMES.sub("_", attribute.key[:CLIENT_SERIES_TEXT_CHARS_MAX]).lstrip("_0123456789")
        kind = attribute.value.WhichOneof("value")
        if name and name not in CLIENT_LABELS and kind in ("string_value", "int_value", "double_value", "bool_value"):
            labels[name] = str(getattr(attribute.value, kind))[:CLIENT_SERIES_TEXT_CHARS_MAX]
    return labels
