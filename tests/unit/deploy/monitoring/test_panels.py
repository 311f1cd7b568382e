"""Queries are of one cluster, and panels say where to read on."""

import json

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.monitoring.generated import BOARDS
from deploy.monitoring.panels import Board, Panel, Unit, dashboard, query, selected
from tests.support.documents import anchors
from tools.steps import ROOT

PANELS = [
    pytest.param(panel, id=f"{board.name}: {panel.title}")
    for board in BOARDS
    for panels in board.rows.values()
    for panel in panels
]


@pytest.mark.parametrize(
    ("expression", "of_a_job"),
    [
        ("sum(penstock_ready)", 'sum(penstock_ready{job=~"$job"})'),
        ('rate(penstock_x_bucket{api="Fetch"}[5m])', 'rate(penstock_x_bucket{job=~"$job", api="Fetch"}[5m])'),
        ("max(penstock_a) / max(process_b)", 'max(penstock_a{job=~"$job"}) / max(process_b{job=~"$job"})'),
    ],
)
def test_each_metric_is_of_the_chosen_job(expression: str, of_a_job: str) -> None:
    assert selected(expression) == of_a_job


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_is_normal_and_its_page_exists(panel: Panel) -> None:
    page, _, anchor = panel.page.partition("#")
    document = (ROOT / "docs" / "operations" / page).read_text()
    assert not anchor or anchor in anchors(document)
    assert panel.normal.endswith(".")
    assert panel.queries


def test_a_board_becomes_a_dashboard() -> None:
    panel = Panel(
        title="Ready",
        queries=[query("sum(penstock_ready)", "ready"), query("max(penstock_sessions)", "sessions")],
        unit=Unit.COUNT,
        normal="All.",
        page="cluster.md",
        is_stat=True,
    )
    built = dashboard(Board(name="Tiny", rows={"Row": [panel]}))
    assert (built.uid, built.title) == ("penstock-tiny", "Penstock / Tiny")
    assert built.templating.list_val is not None
    assert [variable.name for variable in built.templating.list_val] == ["datasource", "job"]
    assert built.panels is not None
    row, shown = built.panels
    assert (row.title, shown.title) == ("Row", "Ready")


def test_a_large_number_is_red_from_its_own_bound_on() -> None:
    """Grafana's default bound is 80: a cluster of 81 topics would be red."""

    def steps(red_from: float | None) -> list[dict[str, object]]:
        panel = Panel(
            title="t", queries=[query("x")], unit=Unit.COUNT, normal="1.", page="p", is_stat=True, red_from=red_from
        )
        text = JSONEncoder(sort_keys=True).encode(dashboard(Board(name="B", rows={"R": [panel]})))
        found: list[dict[str, object]] = json.loads(text)["panels"][1]["fieldConfig"]["defaults"]["thresholds"]["steps"]
        return found

    assert steps(None) == [{"value": None, "color": "green"}]
    assert steps(30) == [{"value": None, "color": "green"}, {"value": 30, "color": "red"}]
