"""Boards and alerts name metrics that exist, and every metric is used or excused."""

from deploy.monitoring.alerts import ALERTS
from deploy.monitoring.generated import BOARDS
from deploy.monitoring.metrics_used import EXCUSED, OF_THE_PROCESS, metrics_of
from tools.pages.metric_rows import metric_rows

EXISTING = {row.name for row in metric_rows()}
USED = metrics_of(
    [
        *(alert.expression for alert in ALERTS),
        *(
            query.expression
            for board in BOARDS
            for panels in board.rows.values()
            for panel in panels
            for query in panel.queries
        ),
    ]
)


def test_metrics_are_found_in_expressions() -> None:
    expression = 'rate(penstock_a_seconds_bucket{api="x"}[5m]) / penstock_b_total + process_c'
    assert metrics_of([expression]) == {"penstock_a_seconds", "penstock_b_total", "process_c"}


def test_every_metric_that_is_used_exists() -> None:
    assert not USED - EXISTING - OF_THE_PROCESS


def test_every_metric_is_used_or_excused_and_none_is_both() -> None:
    assert not EXISTING - USED - EXCUSED.keys(), "make a panel, or excuse them in deploy/monitoring/metrics_used.py"
    assert not EXCUSED.keys() - EXISTING
    assert not EXCUSED.keys() & USED
