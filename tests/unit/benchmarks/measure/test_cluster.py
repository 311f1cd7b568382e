"""Requests of all agents, and what they cost."""

import pytest

from benchmarks.measure.cluster import GIB, request_figures


def samples(put: float, get: float, produced: float, objects: float) -> dict[str, float]:
    return {
        'penstock_store_requests_total{operation="put"}': put,
        'penstock_store_requests_total{operation="get"}': get,
        "penstock_produce_bytes_total": produced,
        "penstock_intake_object_bytes_sum": produced,
        "penstock_intake_object_bytes_count": objects,
    }


def test_requests_of_all_agents_are_added_and_divided_by_what_was_acknowledged() -> None:
    before = [samples(10, 5, 0, 0), samples(0, 0, GIB, 7)]
    after = [samples(110, 5, GIB, 100), samples(100, 1000, 2 * GIB, 107)]
    figures = request_figures(before, after, seconds=10)
    assert figures == {
        "puts_per_s": 20,
        "gets_per_s": 100,
        "puts_per_gib": 100,
        "gets_per_gib": 500,
        "usd_per_tib": pytest.approx((200 * 0.000005 + 1000 * 0.0000004) / 2 * 1024),
        "object_bytes": 2 * GIB / 200,
    }


def test_nothing_acknowledged_divides_by_nothing() -> None:
    nothing = [samples(1, 1, 1, 1)]
    assert request_figures(nothing, nothing, seconds=1)["puts_per_gib"] == 0
