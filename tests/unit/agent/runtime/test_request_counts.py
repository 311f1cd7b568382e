"""The counts and durations of requests, as a scrape shows them."""

from agent.runtime.request_counts import RequestCounts

BOUNDS = (0.5, 1.0)


def samples(counts: RequestCounts) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value for family in counts.collect() for sample in family.samples
    }


def test_a_duration_counts_in_the_first_bucket_that_holds_it_and_in_all_above() -> None:
    counts = RequestCounts("x", BOUNDS)
    for seconds in (0.1, 0.5, 0.75, 3.0):
        counts.count_of("Fetch", 4).answered(seconds)
    assert samples(counts) == {
        ("x_requests_total", "Fetch", "4"): 4,
        ("x_request_duration_seconds_bucket", "Fetch", "0.5"): 2,
        ("x_request_duration_seconds_bucket", "Fetch", "1.0"): 3,
        ("x_request_duration_seconds_bucket", "Fetch", "+Inf"): 4,
        ("x_request_duration_seconds_count", "Fetch"): 4,
        ("x_request_duration_seconds_sum", "Fetch"): 4.35,
    }


def test_requests_are_counted_by_version_and_timed_over_all() -> None:
    counts = RequestCounts("x", BOUNDS)
    counts.count_of("Fetch", 4).answered(0.25)
    counts.count_of("Fetch", 5).answered(2.0)
    counts.count_of("Produce", 5).answered(4.0)
    found = samples(counts)
    assert found["x_requests_total", "Fetch", "4"] == found["x_requests_total", "Fetch", "5"] == 1
    assert found["x_request_duration_seconds_bucket", "Fetch", "0.5"] == 1
    assert found["x_request_duration_seconds_sum", "Fetch"] == 2.25
    assert found["x_request_duration_seconds_sum", "Produce"] == 4.0


def test_the_metrics_are_described_before_the_first_request() -> None:
    counts = RequestCounts("x", BOUNDS)
    assert [family.name for family in counts.describe()] == ["x_requests", "x_request_duration_seconds"]
    assert [(name, kind) for name, kind, _, _ in counts.rows] == [
        ("x_requests_total", "counter"),
        ("x_request_duration_seconds", "histogram"),
    ]
