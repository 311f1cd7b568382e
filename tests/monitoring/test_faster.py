"""The rules of the monitoring run are those of the product, but for time."""

import re

from deploy.monitoring.alerts import rules
from tests.monitoring.faster import WAITS, faster_expression, faster_rules


def test_windows_offsets_and_bounds_of_waiting_become_shorter() -> None:
    assert faster_expression("max(penstock_store_outage_seconds) > 30", 10) == "max(penstock_store_outage_seconds) > 3"
    assert faster_expression("deriv(sum(x)[15m:1m]) > 0", 10) == "deriv(sum(x)[90000ms:6000ms]) > 0"
    assert faster_expression("x > x offset 6h", 10) == "x > x offset 2160000ms"


def test_latencies_and_the_life_of_certificates_stay() -> None:
    kept = "penstock_tls_certificate_expiry_seconds < 14 * 86400 or penstock_request_duration_seconds_bucket > 2"
    assert faster_expression(kept, 10) == kept


def test_every_bound_of_waiting_in_the_rules_is_shortened() -> None:
    before, after = str(rules()), str(faster_rules(rules(), 10))
    for name in WAITS:
        bounds = re.findall(rf"{name}\)? > (\d+)", before)
        assert bounds
        assert re.findall(rf"{name}\)? > (\d+)", after) == [str(int(bound) // 10) for bound in bounds]
