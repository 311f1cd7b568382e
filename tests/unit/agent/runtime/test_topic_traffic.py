"""The traffic of topics has bounded series."""

from agent.runtime.metrics import Metrics
from protocol.limits import METRIC_TOPICS_MAX


def test_bytes_and_records_are_counted_by_topic_and_direction() -> None:
    metrics = Metrics()
    metrics.topics_in.count("orders", 100, 2)
    metrics.topics_in.count("orders", 50, 1)
    metrics.topics_out.count("orders", 70, 3)
    text = metrics.exposition().decode()
    assert 'penstock_topic_bytes_total{direction="in",topic="orders"} 150.0' in text
    assert 'penstock_topic_records_total{direction="in",topic="orders"} 3.0' in text
    assert 'penstock_topic_bytes_total{direction="out",topic="orders"} 70.0' in text


def test_topics_above_the_limit_share_a_series() -> None:
    metrics = Metrics()
    for number in range(METRIC_TOPICS_MAX + 2):
        metrics.topics_in.count(f"t{number}", 1, 1)
    metrics.topics_in.count("t0", 1, 1)
    text = metrics.exposition().decode()
    assert 'penstock_topic_records_total{direction="in",topic="t0"} 2.0' in text
    assert 'penstock_topic_records_total{direction="in",topic="other"} 2.0' in text
    assert f't{METRIC_TOPICS_MAX}"' not in text
