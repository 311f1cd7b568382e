"""The files that are generated: rules, a dashboard's JSON for each board, and the copies that the chart packs.

The chart's rules have marks for the number of agents, for their job and for the address of the runbook. The chart
replaces them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.monitoring.alerts import AGENTS_JOB_MARK, AGENTS_MIN_MARK, RUNBOOK_MARK, rules
from deploy.monitoring.boards.groups import GROUPS
from deploy.monitoring.boards.lake import LAKE
from deploy.monitoring.boards.ledger import LEDGER
from deploy.monitoring.boards.overview import OVERVIEW
from deploy.monitoring.boards.storage import STORAGE
from deploy.monitoring.boards.topics import TOPICS
from deploy.monitoring.panels import Board, dashboard

FOLDER: Final = Path(__file__).resolve().parent.parent
MONITORING: Final = "monitoring"
CHART: Final = "chart/files"
BOARDS: Final[Sequence[Board]] = (OVERVIEW, TOPICS, GROUPS, STORAGE, LEDGER, LAKE)
NOTE: Final = "# `make monitoring` writes this file from deploy/monitoring/alerts.py.\n"


def files() -> Mapping[str, str]:
    """The text of each file, by its path below `deploy`."""
    boards = {
        f"dashboards/{board.name.lower()}.json": json.dumps(
            json.loads(JSONEncoder(sort_keys=True).encode(dashboard(board))), indent=1, sort_keys=True
        )
        + "\n"
        for board in BOARDS
    }
    return {
        f"{MONITORING}/rules.yaml": _yaml(rules()),
        f"{CHART}/rules.yaml": _yaml(rules(AGENTS_MIN_MARK, AGENTS_JOB_MARK, RUNBOOK_MARK)),
        **{f"{folder}/{name}": text for folder in (MONITORING, CHART) for name, text in boards.items()},
    }


def _yaml(value: Mapping[str, object]) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=120)
    return NOTE + text


def write() -> None:
    """Write all of them."""
    for name, text in files().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
