"""What is counted, as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from agent.runtime.metrics import Metrics, StateStatistics, TransactionStatistics
from protocol.limits import METRIC_PARTITIONS_MAX


def figures(partitions: int) -> StateStatistics:
    return StateStatistics(
        topics=1,
        partitions=partitions,
        chunks=3,
        objects=4,
        objects_pending_deletion=5,
        sessions=1,
        ledger_position=9,
        log_ends=[("orders", 0, 7)],
        transactions=TransactionStatistics(
            ids=8, open=2, open_seconds_max=1.5, begun=6, ended={"committed": 4}, lags=[("orders", 3)]
        ),
        producers=11,
        producers_dropped=2,
    )


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
    metrics.store("put").observe(100, 0.01, is_failed=False)
    metrics.store("put").observe(50, 0.01, is_failed=True)
    text = metrics.exposition().decode()
    assert 'penstock_store_requests_total{operation="put"} 2.0' in text
    assert 'penstock_store_bytes_total{operation="put"} 150.0' in text
    assert 'penstock_store_errors_total{operation="put"} 1.0' in text


def test_the_state_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    metrics.watch_state(lambda: figures(1))
    text = metrics.exposition().decode()
    assert 'penstock_log_end_offset{partition="0",topic="orders"} 7.0' in text
    assert "penstock_objects_pending_deletion 5.0" in text
    assert "penstock_producer_states 11.0" in text
    assert "penstock_producer_states_dropped_total 2.0" in text
    assert 'penstock_last_stable_offset_lag{topic="orders"} 3.0' in text
    assert "penstock_transaction_oldest_open_seconds 1.5" in text
    assert 'penstock_transactions_ended_total{how="committed"} 4.0' in text


def test_a_scrape_stays_small_where_there_are_many_partitions() -> None:
    metrics = Metrics()
    metrics.watch_state(lambda: figures(METRIC_PARTITIONS_MAX + 1))
    assert b"penstock_log_end_offset" not in metrics.exposition()
    assert b"penstock_last_stable_offset_lag" not in metrics.exposition()


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
