"""The queries of all panels, out of the committed dashboards, and those that may be without data in a run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.monitoring.generated import FOLDER
from tests.monitoring.prometheus import JOB

EXCUSED: Final[Mapping[str, str]] = {
    "penstock_authentication_failures_total": "clients of the run do not authenticate",
    "penstock_authorization_denials_total": "the run has no ACLs",
    "penstock_external_catalog_": "the run has no external catalog",
    "penstock_relayed_requests_total": "clients reach each agent by its own address",
}
"""Beginnings of metrics, with the reason why a query of them may have no data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelQuery:
    """One expression of a panel, as a file of a dashboard has it."""

    board: str
    panel: str
    expression: str

    def asked(self, rate_interval_s: int) -> str:
        """What Grafana would ask for this run's cluster."""
        return self.expression.replace("$job", JOB).replace("$__rate_interval", f"{rate_interval_s}s")

    @property
    def excuse(self) -> str | None:
        return next((reason for start, reason in EXCUSED.items() if start in self.expression), None)


def panel_queries() -> Sequence[PanelQuery]:
    """All of them, in the order of the boards."""
    queries: list[PanelQuery] = []
    for path in sorted((FOLDER / "monitoring" / "dashboards").glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        queries += [
            PanelQuery(board=path.stem, panel=panel["title"], expression=target["expr"])
            for panel in _panels(board["panels"])
            for target in panel.get("targets", [])
        ]
    return queries


def _panels(panels: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Panels, those in rows too."""
    return [each for panel in panels for each in [panel, *_panels(panel.get("panels", []))]]
