"""What clients push becomes Prometheus's series, and no more of them than the limits say."""

from collections.abc import Mapping, Sequence

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Histogram,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.telemetry import series as client_series
from agent.telemetry.series import ClientLabels, ClientSeries, Points, UnreadableMetrics, read_metrics
from protocol.records.compression import Compression, compress
from tests.support.agent.ledger_parts import ManualClock

Shown = dict[tuple[str, frozenset[tuple[str, str]]], float]


def attributes(**labels: str | float | bool) -> list[KeyValue]:
    made = []
    for name, value in labels.items():
        match value:
            case bool():
                told = AnyValue(bool_value=value)
            case int():
                told = AnyValue(int_value=value)
            case float():
                told = AnyValue(double_value=value)
            case _:
                told = AnyValue(string_value=value)
        made.append(KeyValue(key=name, value=told))
    return made


def gauge(name: str, value: float, **labels: str | float | bool) -> Metric:
    point = NumberDataPoint(as_double=value, attributes=attributes(**labels))
    return Metric(name=name, gauge=Gauge(data_points=[point]))


def total(name: str, value: int, *, is_delta: bool = True, is_monotonic: bool = True) -> Metric:
    temporality = AGGREGATION_TEMPORALITY_DELTA if is_delta else AGGREGATION_TEMPORALITY_CUMULATIVE
    data = Sum(
        data_points=[NumberDataPoint(as_int=value)], aggregation_temporality=temporality, is_monotonic=is_monotonic
    )
    return Metric(name=name, sum=data)


def pushed(*metrics: Metric, resource: Mapping[str, str] | None = None) -> Points:
    return read_metrics(Compression.NONE, encoded(*metrics, resource=resource))


def encoded(*metrics: Metric, resource: Mapping[str, str] | None = None) -> bytes:
    told = ResourceMetrics(
        resource=Resource(attributes=attributes(**(resource or {}))), scope_metrics=[ScopeMetrics(metrics=metrics)]
    )
    data: bytes = MetricsData(resource_metrics=[told]).SerializeToString()
    return data


class Watched:
    """Series, their clock, and what was dropped."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.dropped: list[float] = []
        self.series = ClientSeries(clock=self.clock, count_dropped=self.dropped.append)
        self._registry = CollectorRegistry(auto_describe=True)
        self._registry.register(self.series)

    def push(self, *metrics: Metric, client: str = "i", resource: Mapping[str, str] | None = None) -> None:
        labels = ClientLabels(instance_id=client, client_id="me", software_name="java")
        self.series.add(labels, pushed(*metrics, resource=resource), ttl_s=60)

    def shown(self) -> Shown:
        """What a scrape reads, without the labels that every series has."""
        text = generate_latest(self._registry).decode()
        return {
            (sample.name, frozenset(sample.labels.items()) - {("client_id", "me"), ("client_software_name", "java")}):
                sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }  # fmt: skip

    def values(self) -> Mapping[str, float]:
        return {name: value for (name, _), value in self.shown().items()}


def test_a_metric_is_named_after_kafkas_with_its_clients_labels_and_its_own() -> None:
    watched = Watched()
    resource = {"client_rack": "eu-1a"}
    watched.push(gauge("org.apache.kafka.consumer.node.request-latency", 1.5, node_id="7"), resource=resource)
    labels = {("client_instance_id", "i"), ("client_rack", "eu-1a"), ("node_id", "7")}
    assert watched.shown() == {("kafka_client_consumer_node_request_latency", frozenset(labels)): 1.5}


def test_attributes_of_every_simple_kind_are_labels() -> None:
    watched = Watched()
    metric = gauge("g", 1, s="x", i=3, f=0.5, b=True)
    metric.gauge.data_points[0].attributes.append(KeyValue(key="list", value=AnyValue(array_value=ArrayValue())))
    watched.push(metric)
    ((_, labels),) = watched.shown()
    assert labels == {("client_instance_id", "i"), ("s", "x"), ("i", "3"), ("f", "0.5"), ("b", "True")}


def test_what_is_counted_since_the_last_push_is_summed_and_what_is_counted_from_the_start_replaced() -> None:
    watched = Watched()
    for value in (3, 4):
        watched.push(
            total("sent", value), total("seen.total", value, is_delta=False), total("open", value, is_monotonic=False)
        )
    assert watched.values() == {
        "kafka_client_sent_total": 7,
        "kafka_client_seen_total": 4,
        "kafka_client_open": 7,
    }


def test_a_push_replaces_what_its_client_pushed_before_and_nobody_elses() -> None:
    watched = Watched()
    watched.push(gauge("a", 1), client="one")
    watched.push(gauge("a", 2), client="two")
    watched.push(gauge("b", 3), client="one")
    named = {(name, dict(labels)["client_instance_id"]): value for (name, labels), value in watched.shown().items()}
    assert named == {("kafka_client_a", "two"): 2, ("kafka_client_b", "one"): 3}


def test_series_go_a_while_after_their_clients_last_push() -> None:
    watched = Watched()
    watched.push(gauge("a", 1))
    watched.clock.seconds = 59.9
    assert watched.values() == {"kafka_client_a": 1}
    watched.clock.seconds = 60
    assert watched.values() == {}
    watched.push(total("a", 1))
    assert watched.values() == {"kafka_client_a_total": 1}


def test_two_clients_that_differ_about_a_metrics_kind_are_both_shown() -> None:
    watched = Watched()
    watched.push(gauge("a.total", 1), client="one")
    watched.push(total("a", 2), client="two")
    assert sorted(watched.shown().values()) == [1, 2]


def test_a_client_cannot_pass_for_another() -> None:
    watched = Watched()
    watched.push(gauge("a", 1, client_instance_id="you", __name__="b"))
    ((name, labels),) = watched.shown()
    assert (name, dict(labels)) == ("kafka_client_a", {"client_instance_id": "i", "name__": "b"})


def test_names_that_only_differ_in_what_prometheus_does_not_know_are_one_series() -> None:
    watched = Watched()
    watched.push(gauge("a.b", 1), gauge("a-b", 2))
    assert watched.values() == {"kafka_client_a_b": 2}


def test_what_is_beyond_the_limits_is_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "CLIENT_SERIES_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(client_series, "CLIENT_SERIES_MAX", 5)
    watched = Watched()
    many = [gauge(f"g{number}", number) for number in range(4)]
    for client in ("one", "two"):
        watched.push(*many, client=client)
    assert len(watched.shown()) == 5
    assert watched.dropped == [1, 2]
    watched.push(many[0], client="one")
    watched.push(*many, client="two")
    assert len(watched.shown()) == 4
    assert watched.dropped == [1, 2, 0, 1]


def test_names_and_values_of_labels_are_cut_and_their_number_is_bounded() -> None:
    watched = Watched()
    labels: dict[str, str | float | bool] = {f"l{number:02}": "v" * 1_000 for number in range(40)}
    watched.push(gauge("n" * 1_000, 1, **labels), resource={"r": "x"})
    ((name, shown),) = watched.shown()
    assert name == "kafka_client_" + "n" * 200
    assert len(shown) == 16 + 1
    assert {len(value) for key, value in shown if key.startswith("l")} == {200}


def test_what_is_no_number_is_counted_as_left_out() -> None:
    histogram = Metric(name="h", histogram=Histogram())
    nothing = Metric(name="g", gauge=Gauge(data_points=[NumberDataPoint()]))
    assert pushed(histogram, nothing, Metric(name="empty"), gauge("", 1)) == Points([], 4)


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_is_read(compression: Compression) -> None:
    (point,) = read_metrics(compression, bytes(compress(compression, encoded(gauge("g", 1.5))))).points
    assert (point.name, point.value) == ("kafka_client_g", 1.5)


@pytest.mark.parametrize(
    "data",
    [
        (Compression.NONE, b"\xff\xff"),
        (Compression.ZSTD, b"no frame"),
        (Compression.ZSTD, bytes(compress(Compression.ZSTD, bytes(2 << 20)))),
    ],
)
def test_what_is_not_metrics_or_too_much_is_refused(data: tuple[Compression, bytes]) -> None:
    with pytest.raises(UnreadableMetrics):
        read_metrics(*data)


def test_one_push_of_many_points_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "CLIENT_SERIES_PER_CLIENT_MAX", 2)
    many: Sequence[Metric] = [gauge(f"g{number}", 1) for number in range(5)]
    points = pushed(*many)
    assert (len(points.points), points.dropped_count) == (2, 3)


def test_a_push_of_countless_empty_parts_is_gone_through_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "CLIENT_METRICS_STEPS_MAX", 10)
    nothing = ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[Metric(name="empty")])])
    value = ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[gauge("g", 1)])])
    data = MetricsData(resource_metrics=[nothing, value, nothing, value]).SerializeToString()
    points = read_metrics(Compression.NONE, data)
    assert (len(points.points), points.dropped_count) == (1, 1)
