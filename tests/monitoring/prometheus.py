"""A real Prometheus on a free port of this machine, which scrapes agents and judges rules."""

import json
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import yaml

from tests.support.ports import free_port
from tests.support.processes import Process

ANSWER_SECONDS_MAX = 30.0
JOB = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """An alert that Prometheus would send now."""

    name: str
    severity: str
    labels: Mapping[str, str]
    summary: str
    runbook_url: str


class Prometheus:
    """Use it in a `with` block."""

    def __init__(
        self, program: Path, folder: Path, *, targets: Sequence[str], rules: Mapping[str, Any], interval_s: int
    ) -> None:
        """Scrape `targets` and judge `rules` every `interval_s`."""
        folder.mkdir(parents=True)
        (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
        every = f"{interval_s}s"
        settings = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        self._address = f"127.0.0.1:{free_port()}"
        command: list[str | Path] = [
            program,
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._address}",
            "--log.level=warn",
        ]
        self._process = Process(command, folder, name="prometheus")

    def __enter__(self) -> Self:
        self._process.__enter__()
        self._process.wait_until(self._is_ready, "Prometheus")
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()

    def values(self, expression: str) -> list[float]:
        """The value of each series that an expression has now. Raises `HTTPError` where Prometheus does not take it."""
        answer = self._ask(f"query?{urllib.parse.urlencode({'query': expression})}")
        return [float(series["value"][1]) for series in answer["result"]]

    def firing(self) -> list[Firing]:
        """The alerts that it would send now."""
        return [
            Firing(
                name=alert["labels"]["alertname"],
                severity=alert["labels"]["severity"],
                labels={
                    key: value
                    for key, value in alert["labels"].items()
                    if key not in {"alertname", "severity", "component", "job"}
                },
                summary=alert["annotations"]["summary"],
                runbook_url=alert["annotations"]["runbook_url"],
            )
            for alert in self._ask("alerts")["alerts"]
            if alert["state"] == "firing"
        ]

    def _ask(self, path: str) -> dict[str, Any]:
        with urlopen(f"http://{self._address}/api/v1/{path}", timeout=ANSWER_SECONDS_MAX) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=ANSWER_SECONDS_MAX) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False
