"""Prices of requests, from literal counts."""

import pytest

from benchmarks.prices import requests_usd


def test_a_thousand_puts_or_lists_cost_half_a_cent() -> None:
    assert requests_usd(puts=1000) == pytest.approx(0.005)
    assert requests_usd(lists=1000) == pytest.approx(0.005)


def test_a_thousand_gets_or_heads_cost_a_twelfth_of_it() -> None:
    assert requests_usd(gets=1000) == pytest.approx(0.0004)
    assert requests_usd(heads=1000) == pytest.approx(0.0004)


def test_requests_add_up() -> None:
    assert requests_usd(puts=200, lists=100, gets=1000, heads=500) == pytest.approx(0.0015 + 0.0006)
    assert requests_usd() == 0
