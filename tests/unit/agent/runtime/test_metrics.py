"""What is counted, as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from agent.runtime.metrics import Metrics
from coordinator.apply.digest_comparison import DigestVerdict


def test_a_request_is_counted_and_timed() -> None:
    metrics = Metrics()
    produce = metrics.request("Produce", 10)
    produce.answered(0.002)
    produce.answered(0.002)
    text = metrics.exposition().decode()
    assert 'penstock_requests_total{api="Produce",version="10"} 2.0' in text
    assert 'penstock_request_duration_seconds_count{api="Produce"} 2.0' in text


def test_bound_metrics_are_made_once() -> None:
    metrics = Metrics()
    assert metrics.request("Fetch", 12) is metrics.request("Fetch", 12)
    assert metrics.store("put") is metrics.store("put")


def test_a_request_to_the_store_is_counted_with_its_bytes() -> None:
    metrics = Metrics()
    metrics.store("put").observe(100, 0.01, failure=None)
    metrics.store("put").observe(50, 0.01, failure="timeout")
    text = metrics.exposition().decode()
    assert 'penstock_store_requests_total{operation="put"} 2.0' in text
    assert 'penstock_store_bytes_total{operation="put"} 150.0' in text
    assert 'penstock_store_errors_total{operation="put",reason="timeout"} 1.0' in text


def test_what_an_alert_waits_for_is_there_before_its_first_count() -> None:
    """Prometheus sees no increase in a series that begins with 1."""
    text = Metrics().exposition().decode()
    outcomes = [verdict.value.replace(" ", "_") for verdict in DigestVerdict if verdict is not DigestVerdict.OPEN]
    for outcome in outcomes:
        assert f'penstock_corruption_checks_total{{outcome="{outcome}"}} 0.0' in text
    for outcome in ("done", "retried", "rejected", "failed"):
        assert f'penstock_archive_passes_total{{outcome="{outcome}"}} 0.0' in text
    assert text.count("penstock_archive_passes_total{") == 4


async def test_the_text_written_in_a_thread_is_the_same() -> None:
    metrics = Metrics()
    metrics.request("Produce", 10).answered(0.002)
    assert _of_penstock(await metrics.exposition_in_thread()) == _of_penstock(metrics.exposition())


def _of_penstock(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if line.startswith(b"penstock_")]


def test_two_agents_of_one_process_have_their_own_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.produce_records.inc(5)
    assert b"penstock_produce_records_total 5.0" in first.exposition()
    assert b"penstock_produce_records_total 0.0" in second.exposition()


def test_what_others_count_is_a_counter() -> None:
    metrics = Metrics()
    metrics.cache_hits.set_function(lambda: 3)
    text = metrics.exposition().decode()
    assert "# TYPE penstock_cache_hits_total counter\npenstock_cache_hits_total 3.0\n" in text
    assert "penstock_background_restarts_total 0.0" in text


def test_rows_name_what_a_scrape_names() -> None:
    metrics = Metrics()
    scraped = [
        (family.name + "_total" if family.type == "counter" else family.name, family.type, family.documentation)
        for family in text_string_to_metric_families(metrics.exposition().decode())
        if not family.name.startswith("process_")
    ]
    assert sorted((row.name, row.kind, row.text) for row in metrics.rows) == sorted(scraped)
