"""Boards, rows and panels as plain values, and the dashboards that Grafana's own library makes of them.

Rule: everything is of one cluster: each query selects `$job`, the one variable. `rate` takes Grafana's interval. A unit
has the same bounds everywhere. Red means the same everywhere: an alert fires from that value on. A panel says in its
description what is normal, and where to read on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as StatPanel
from grafana_foundation_sdk.builders.timeseries import Panel as TimeseriesPanel
from grafana_foundation_sdk.models.dashboard import Dashboard as DashboardModel
from grafana_foundation_sdk.models.dashboard import DataSourceRef, Threshold, ThresholdsMode

WIDTH: Final = 24
"""Columns of Grafana's grid."""
PANELS_PER_ROW: Final = 3
PANEL_HEIGHT: Final = 8
JOB: Final = 'job=~"$job"'
_METRIC: Final = re.compile(r"\b(?:penstock|process)_[a-z0-9_]+(\{)?")


class Unit(Enum):
    """Grafana's name of a unit."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    PER_SECOND = "cps"
    RATIO = "percentunit"
    CPUS = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardQuery:
    """A PromQL expression, without the selection of the job, and the legend of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A graph, or one large number where `is_stat`."""

    title: str
    queries: Sequence[DashboardQuery]
    unit: Unit
    normal: str
    """One or two sentences: what the panel shows, and what is normal."""
    page: str
    """The page, or section, of docs/operations that helps."""
    is_stat: bool = False
    red_from: float | None = None
    """From this value on a large number is red. Without it none is: Grafana's own default is 80."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dashboard: rows of panels by their titles."""

    name: str
    """In the title, the id and the file's name."""
    rows: Mapping[str, Sequence[Panel]]


def query(expression: str, legend: str = "") -> DashboardQuery:
    return DashboardQuery(expression=expression, legend=legend)


def selected(expression: str) -> str:
    """The expression, each of whose metrics is of the chosen job."""
    return _METRIC.sub(lambda match: f"{match[0]}{JOB}, " if match[1] else f"{match[0]}{{{JOB}}}", expression)


def dashboard(board: Board) -> DashboardModel:
    """The dashboard of a board."""
    built = (
        Dashboard(f"Penstock / {board.name}")
        .uid(f"penstock-{board.name.lower()}")
        .tags(["penstock"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .with_variable(DatasourceVariable("datasource").type("prometheus").label("Data source"))
        .with_variable(
            QueryVariable("job").label("Cluster").datasource(_source()).query("label_values(penstock_ready, job)")
        )
    )
    for title, panels in board.rows.items():
        built = built.with_row(Row(title))
        for panel in panels:
            built = built.with_panel(_panel(panel))
    return built.build()


def _panel(panel: Panel) -> StatPanel | TimeseriesPanel:
    built = _stat(panel) if panel.is_stat else TimeseriesPanel().min(0).line_width(1).fill_opacity(10)
    if panel.unit is Unit.RATIO:
        built = built.max(1)
    built = (
        built.title(panel.title)
        .description(f"{panel.normal} See docs/operations/{panel.page}")
        .unit(panel.unit.value)
        .datasource(_source())
        .span(WIDTH // PANELS_PER_ROW)
        .height(PANEL_HEIGHT)
    )
    for number, each in enumerate(panel.queries):
        built = built.with_target(
            Dataquery().expr(selected(each.expression)).legend_format(each.legend).ref_id(chr(ord("A") + number))
        )
    return built


def _stat(panel: Panel) -> StatPanel:
    steps = [Threshold(value=None, color="green")]
    if panel.red_from is not None:
        steps.append(Threshold(value=panel.red_from, color="red"))
    return StatPanel().thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))


def _source() -> DataSourceRef:
    return DataSourceRef(type_val="prometheus", uid="$datasource")
