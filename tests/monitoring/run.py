"""The monitoring run: a calm minute without any alert, then one fault after the other.

Rule: a fault has to raise its own alert, and no other page. Tickets besides are told. Before the next fault no page may
be left. Every query of a panel has to have data at some time: in the calm minute, or in a fault.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from deploy.monitoring.alerts import PAGE
from deploy.monitoring.generated import FOLDER
from tests.monitoring.faster import faster_rules
from tests.monitoring.faults import Fault
from tests.monitoring.load import HELD_CLIENT, PAYMENTS, TOPIC, Counts, Load
from tests.monitoring.panels import PanelQuery, panel_queries
from tests.monitoring.prometheus import Firing, Prometheus
from tests.monitoring.world import World

INTERVAL_S: Final = 2
RATE_INTERVAL_S: Final = 4 * INTERVAL_S
FACTOR: Final = 10
CALM_S: Final = 75
LOOK_S: Final = 1.0
HELD_BYTES_PER_SECOND: Final = 250_000
"""Less than the client's mistakes."""
ALERT_SECONDS_MAX: Final = 400.0
END_SECONDS_MAX: Final = 240.0
Fired = tuple[str, str]
"""Name and severity."""


@dataclass(slots=True, kw_only=True)
class FaultReport:
    """What a fault raised."""

    fault: Fault
    after_s: Mapping[Fired, float]
    """Seconds from the fault to each alert."""
    shown: Mapping[Fired, Firing]
    is_fired: bool
    lasted_s: float
    ended_s: float | None
    """Seconds from the end of the fault until neither its alert nor a page was left; None where one stayed."""

    @property
    def other_pages(self) -> list[str]:
        return [name for name, severity in self.after_s if severity == PAGE and name != self.fault.alert]

    @property
    def is_well(self) -> bool:
        return self.is_fired and not self.other_pages and self.ended_s is not None


@dataclass(slots=True, kw_only=True)
class RunReport:
    """Everything."""

    seconds: float = 0.0
    calm: Mapping[Fired, Firing] = field(default_factory=dict[Fired, Firing])
    """The alerts of the minute without a fault."""
    empty: list[PanelQuery] = field(default_factory=list[PanelQuery])
    """Queries without data that have no excuse."""
    excused: list[PanelQuery] = field(default_factory=list[PanelQuery])
    queries_count: int = 0
    faults: list[FaultReport] = field(default_factory=list[FaultReport])
    counts: Counts = field(default_factory=Counts)
    died: list[str] = field(default_factory=list[str])

    @property
    def is_well(self) -> bool:
        return not self.calm and not self.empty and not self.died and all(fault.is_well for fault in self.faults)


@dataclass(slots=True, kw_only=True)
class Run:
    """One run, with its logs in `folder`."""

    program: Path
    folder: Path
    faults: list[Fault]
    _never: threading.Event = field(default_factory=threading.Event)

    def run(self) -> RunReport:
        began_s, report = time.monotonic(), RunReport()
        rules = yaml.safe_load((FOLDER / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))
        with World(folder=self.folder) as world:
            for topic in (TOPIC, PAYMENTS):
                world.create_topic(topic)
            world.hold(HELD_CLIENT, HELD_BYTES_PER_SECOND)
            with (
                Prometheus(
                    self.program,
                    self.folder / "prometheus",
                    targets=[agent.http for agent in world.agents],
                    rules=faster_rules(rules, FACTOR),
                    interval_s=INTERVAL_S,
                ) as prometheus,
                Load(agents=[agent.bootstrap for agent in world.agents], counts=report.counts),
            ):
                self._stay_calm(prometheus, report)
                for fault in self.faults:
                    print(f"{fault.name}: ", end="", flush=True)
                    report.faults.append(self._suffer(world, prometheus, report, fault))
                    print(_told(report.faults[-1].after_s), flush=True)
            report.empty = [query for query in report.empty if query.excuse is None]
            report.died = world.died()
        report.seconds = time.monotonic() - began_s
        return report

    def _stay_calm(self, prometheus: Prometheus, report: RunReport) -> None:
        seen = _Seen(prometheus)
        while seen.age_s < CALM_S:
            seen.look()
            self._never.wait(LOOK_S)
        report.calm = seen.shown
        report.empty = list(panel_queries())
        report.queries_count = len(report.empty)
        _ask(prometheus, report)
        report.excused = [query for query in report.empty if query.excuse is not None]
        print(f"calm: {_told(seen.after_s)}; {len(report.empty)} queries have no data yet", flush=True)

    def _suffer(self, world: World, prometheus: Prometheus, report: RunReport, fault: Fault) -> FaultReport:
        with fault.breaks(world):
            seen = _Seen(prometheus)
            while seen.age_s < ALERT_SECONDS_MAX and not (seen.has(fault.alert) and seen.age_s >= fault.hold_s):
                seen.look()
                self._never.wait(LOOK_S)
            lasted_s, is_fired = seen.age_s, seen.has(fault.alert)
            _ask(prometheus, report)
        healed_s = time.monotonic()
        ended_s: float | None = None
        while ended_s is None and time.monotonic() - healed_s < END_SECONDS_MAX:
            # Pages that come only now count, too. Tickets look back for longer.
            if not any(alert.severity == PAGE or alert.name == fault.alert for alert in seen.look()):
                ended_s = time.monotonic() - healed_s
            self._never.wait(LOOK_S)
        return FaultReport(
            fault=fault,
            after_s=seen.after_s,
            shown=seen.shown,
            is_fired=is_fired,
            lasted_s=lasted_s,
            ended_s=ended_s,
        )


class _Seen:
    """The alerts that fired since this began."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._began_s = time.monotonic()
        self.after_s: dict[Fired, float] = {}
        self.shown: dict[Fired, Firing] = {}

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began_s

    def has(self, name: str) -> bool:
        return any(name == fired for fired, _ in self.after_s)

    def look(self) -> Sequence[Firing]:
        """Note what fires now."""
        firing = self._prometheus.firing()
        for alert in firing:
            self.after_s.setdefault((alert.name, alert.severity), self.age_s)
            self.shown.setdefault((alert.name, alert.severity), alert)
        return firing


def _ask(prometheus: Prometheus, report: RunReport) -> None:
    """Ask for the queries that have had no data so far."""
    report.empty = [
        query for query in report.empty if all(map(math.isnan, prometheus.values(query.asked(RATE_INTERVAL_S))))
    ]


def _told(after_s: Mapping[Fired, float]) -> str:
    return ", ".join(f"{severity} {name} {seconds:.0f} s" for (name, severity), seconds in after_s.items()) or "nothing"
