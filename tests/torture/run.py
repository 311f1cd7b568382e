"""One run: a cluster under clients, faults in turn, a verdict.

Rule: it is bounded by its minutes and what recovery may take, and what it starts ends with it. Anomalies are what no
client may ever see, and what an operator may not: an agent that ended by itself, a traceback, service that does
not come back.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import START_SECONDS_MAX, Process
from tests.torture.checker import Anomaly, check
from tests.torture.direct_reader import direct_reader
from tests.torture.history import Read
from tests.torture.monitor import Monitor
from tests.torture.schedule import Fault, Slot
from tests.torture.workload import TOPIC, Workload, start_workload
from tests.torture.world import World

FOLLOW_SECONDS = 0.2
CALM_SECONDS = (1.0, 4.0)
"""Between recovery and the next fault."""
RECOVERY_SECONDS_MAX = 90.0
"""Without service for so long a run is over."""
SERVICE_SECONDS_MAX = 10.0
"""After the last fault."""
FLUSH_SECONDS_MAX = 120.0


@dataclass(slots=True, kw_only=True)
class SlotReport:
    """What one slot did."""

    began_s: float
    faults: tuple[Fault, ...]
    errors: Counter[str]
    recovery_s: float | None
    acknowledged_count: int


@dataclass(slots=True, kw_only=True)
class RunReport:
    """What a run found."""

    seed: int
    seconds: float
    slots: list[SlotReport]
    anomalies: list[Anomaly]
    totals: dict[str, int]
    struck: Counter[str]
    """How often each fault of the store struck."""


@dataclass(slots=True, kw_only=True)
class Run:
    """State of a run. `partitions` of the topic; producers pause `pause_ms` between rounds."""

    folder: Path
    seed: int
    slots: Iterator[Slot]
    seconds_max: float
    """No slot begins later."""
    partitions: int = 6
    pause_ms: int = 40
    anomalies: list[Anomaly] = field(default_factory=list[Anomaly])
    reread_count: int = 0
    reports: list[SlotReport] = field(default_factory=list[SlotReport])
    _never: threading.Event = field(default_factory=threading.Event)
    _began_s: float = 0.0

    def run(self) -> RunReport:
        chance = random.Random(self.seed)
        with ExitStack() as stack:
            world = stack.enter_context(World(self.folder, self.seed))
            load = start_workload(
                self.folder / "clients",
                world.bootstrap,
                [world.direct(name) for name in world.agents],
                stack,
                partitions=self.partitions,
                pause_ms=self.pause_ms,
                seed=self.seed,
            )
            self._began_s = time.monotonic()
            self._recover(load.monitor, "the start")
            for slot in self.slots:
                if self._elapsed_s() > self.seconds_max or self.anomalies:
                    break
                self._slot(world, load.monitor, slot)
                self._follow(load.monitor, chance.uniform(*CALM_SECONDS))
            if self.reports and (self.reports[-1].recovery_s or 0) > SERVICE_SECONDS_MAX:
                self._found("late", f"service came {self.reports[-1].recovery_s} s after the last fault")
            finals = self._finish(world, load)
            self.anomalies += check(load.monitor.produced, finals, load.monitor.consumed)
            self._look_at_logs(world)
            counts = sum((Counter(counts) for counts in world.proxy.counts().values()), Counter[str]())
            return self._report(load.monitor, counts)

    def _slot(self, world: World, monitor: Monitor, slot: Slot) -> None:
        began_s, before, acknowledged = self._elapsed_s(), monitor.errors(), len(monitor.produced.acknowledged)
        print(f"{began_s:7.1f} s  {text_of(slot.faults)}", flush=True)
        for fault in slot.faults:
            world.begin(fault)
        over_s = 0.0
        for fault in sorted(slot.faults, key=lambda each: each.seconds):
            self._follow(monitor, fault.seconds - over_s)
            over_s = fault.seconds
            world.end(fault)
        recovery_s = self._recover(monitor, text_of(slot.faults))
        self._wait_agents(world, monitor)
        for text in world.died():
            self._found("agent ended", text)
        self.reports.append(
            SlotReport(
                began_s=began_s,
                faults=slot.faults,
                errors=monitor.errors() - before,
                recovery_s=recovery_s,
                acknowledged_count=len(monitor.produced.acknowledged) - acknowledged,
            )
        )

    def _recover(self, monitor: Monitor, after: str) -> float | None:
        """Wait until every client has service; the seconds that it took, or None where it does not come."""
        recovery = monitor.await_service(time.time_ns() // 1_000_000)
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        while recovery.seconds is None:
            if time.monotonic() > deadline:
                waiting = ", ".join(f"{name} {partition}" for name, partition in sorted(recovery.waiting))
                self._found("stuck", f"{RECOVERY_SECONDS_MAX} s after {after} no service for {waiting}")
                return None
            self._follow(monitor, FOLLOW_SECONDS)
        return recovery.seconds

    def _wait_agents(self, world: World, monitor: Monitor) -> None:
        """Until every agent serves: one that was killed waits for its old session's lease to run out."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while waiting := world.not_serving():
            if time.monotonic() > deadline:
                self._found("not up", f"agents {waiting} do not serve {START_SECONDS_MAX} s after they were started")
                return
            self._follow(monitor, FOLLOW_SECONDS)

    def _follow(self, monitor: Monitor, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._never.wait(min(left_s, FOLLOW_SECONDS))
            monitor.follow()

    def _finish(self, world: World, load: Workload) -> dict[str, list[Read]]:
        """End the clients, and read everything through each agent."""
        load.stop_producers()
        self._wait_ended(load, {**load.producers, "rereader": load.rereader}, "client")
        self._look_at_rereader(load.rereader)
        finals: dict[str, list[Read]] = {}
        ends: list[int] = []
        for name in world.agents:
            with direct_reader(world.direct(name), TOPIC, self.partitions) as reader:
                ends = ends or reader.log_ends()
                if reader.log_ends() != ends:
                    self._found("inconsistent offset", f"log ends {ends}, but {reader.log_ends()} through agent {name}")
                if name == next(iter(world.agents)):
                    load.stop_readers(ends)
                finals[name] = reader.read_all()
        self._wait_ended(load, load.readers, "reader")
        return finals

    def _wait_ended(self, load: Workload, processes: Mapping[str, Process], role: str) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS_MAX
        for name, process in processes.items():
            while process.is_running and time.monotonic() < deadline:
                self._follow(load.monitor, FOLLOW_SECONDS)
            if process.is_running:
                self._found("stuck", f"the {role} {name} does not end within {FLUSH_SECONDS_MAX} s")
                process.kill()
            elif process.kill() != 0:
                self._found("client ended", str(process.failed(f"the {role} {name}")))
        load.monitor.follow()

    def _look_at_rereader(self, rereader: Process) -> None:
        lines = [line.split(" ", 2) for line in rereader.stdout.splitlines()]
        self.reread_count = sum(int(words[2]) for words in lines if words[0] == "R")
        for words in lines:
            if words[0] == "B":
                self._found("not as before", f"the rereader at {words[1]} ms: {words[2]}")

    def _look_at_logs(self, world: World) -> None:
        for text in world.tracebacks():
            self._found("traceback", text)

    def _report(self, monitor: Monitor, struck: Counter[str]) -> RunReport:
        produced = monitor.produced
        totals = {
            "sent": len(produced.sent),
            "acknowledged": len(produced.acknowledged),
            "read": sum(len(consumed.reads) for consumed in monitor.consumed.values()),
            "read again": self.reread_count,
        }
        return RunReport(
            seed=self.seed,
            seconds=self._elapsed_s(),
            slots=self.reports,
            anomalies=self.anomalies,
            totals=totals,
            struck=struck,
        )

    def _found(self, kind: str, text: str) -> None:
        print(f"{self._elapsed_s():7.1f} s  ANOMALY {kind}: {text}", flush=True)
        self.anomalies.append(Anomaly(kind=kind, text=text))

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


def text_of(faults: tuple[Fault, ...]) -> str:
    return " + ".join(f"{fault.part}: {fault.what} for {fault.seconds:g} s" for fault in faults)
