"""Groups of consumers that read a topic while their coordinators are killed, paused and drained, one after the other.

Rule: a fault hits the agent that coordinates a group at that moment. Before the next one, every group must have been
served: whoever has a partition in hand had a commit answered that was sent after the fault began (a coordinator that
stands still does not come back for it), and again after the agent is back. Everything ends by itself; what does not
come in time is an anomaly.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.faults.consumers.line_protocol import Member, Protocol
from tests.faults.group_agents import TOPIC, Agents, produce
from tests.faults.group_checker import check_group, processed_again
from tests.faults.group_history import GroupHistory, add_lines
from tests.support.cluster.cluster import Cluster
from tests.support.processes import Process
from tests.support.services.java import KAFKA_LOGGING, JavaProgram
from tests.torture.checker import Anomaly
from tests.torture.history import GrowingLog
from tests.torture.schedule import LEASE_SECONDS, Act
from tools.steps import ROOT

FOLLOW_SECONDS = 0.1
SERVICE_SECONDS_MAX = 60.0
"""An agent's lease, a client that gives up a coordinator that stands still, and a rebalance, on a busy machine."""
FINISH_SECONDS_MAX = 240.0
LEAVE_SECONDS_MAX = 60.0
LIBRARIES = {
    "range": ("confluent", "confluent", "aiokafka", "aiokafka", "kafkapython", "kafkapython", "java"),
    "cooperative": ("confluent", "confluent", "confluent", "java"),
    "static": ("confluent", "confluent", "aiokafka", "kafkapython", "java"),
    "next": ("confluent", "confluent", "confluent", "java"),
}
"""Whose members a group has: 20 in all. A group's name is its protocol's."""
FIRST_COMMITS, LAST_COMMITS = 45, 30
"""After so many the first and the last member of a group leave and come back, so that partitions move all the time."""
PROGRAMS = {"confluent": "confluent", "aiokafka": "aio", "kafkapython": "kafka_python"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What was done to a group's coordinator, and what became of it."""

    group: str
    act: Act
    agent: str
    service_s: float | None
    """Until every group was served again; None: not in time."""
    generations: Mapping[str, tuple[int, int]]
    """The largest generation of each group before and after."""

    def __str__(self) -> str:
        moved = ", ".join(f"{group} {before}-{after}" for group, (before, after) in self.generations.items())
        seconds = "never" if self.service_s is None else f"{self.service_s:.1f} s"
        return f"{self.act.value} of {self.agent}, coordinator of {self.group}: served after {seconds}; {moved}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    anomalies: Sequence[Anomaly]
    blows: Sequence[Blow]
    processed: int
    """Records, by all groups together, each counted once for each group."""
    again: Mapping[str, int]
    """Records that were processed once more, by group."""
    errors: Counter[str]
    seconds: float

    def __str__(self) -> str:
        lines = [f"{self.processed} records in {self.seconds:.0f} s; once more: {dict(self.again)}"]
        lines += [str(blow) for blow in self.blows]
        lines += [f"{count} x {error}" for error, count in sorted(self.errors.items())]
        return "\n".join([*lines, *(f"ANOMALY {each.kind}: {each.text}" for each in self.anomalies)])


def all_members(groups: Sequence[str]) -> list[tuple[str, Member]]:
    """The library and the name of every consumer."""
    return [
        (library, Member(f"{group}-{library}-{number}", group, Protocol(group), _commits_max(group, number)))
        for group in groups
        for number, library in enumerate(LIBRARIES[group])
    ]


def _commits_max(group: str, number: int) -> int:
    return {0: FIRST_COMMITS, len(LIBRARIES[group]) - 1: LAST_COMMITS}.get(number, 0)


@dataclass(slots=True, kw_only=True)
class GroupRun:
    """One run; `run` returns what it showed."""

    cluster: Cluster
    folder: Path
    java: JavaProgram
    records: int
    pause_ms: int
    """A consumer's, between processing records and committing them."""
    blows: Sequence[tuple[str, Act]]
    """Groups whose coordinators are hit, one after the other."""
    is_return_awaited: bool = True
    """Whether every group must have been served again before the next blow, too, once the agent is back."""
    groups: Sequence[str] = tuple(LIBRARIES)
    _histories: dict[str, GroupHistory] = field(default_factory=dict[str, GroupHistory])
    _programs: dict[str, Process] = field(default_factory=dict[str, Process])
    _logs: dict[str, GrowingLog] = field(default_factory=dict[str, GrowingLog])
    _anomalies: list[Anomaly] = field(default_factory=list[Anomaly])
    _ends: Sequence[int] = ()
    _never: threading.Event = field(default_factory=threading.Event)

    def run(self) -> GroupReport:
        began_s = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._histories = {group: GroupHistory(has_generations=group != "next") for group in self.groups}
        with ExitStack() as stack:
            agents = Agents(self.cluster)
            stack.callback(agents.go_on)
            self._ends = produce(agents.bootstrap, self.records)
            self._start_consumers(agents.bootstrap, stack)
            self._await_service("the start", time.time_ns() // 1000)
            blows = [self._strike(agents, group, act) for group, act in self.blows]
            self._finish(agents)
        return GroupReport(
            anomalies=self._anomalies,
            blows=blows,
            processed=len(self.groups) * sum(self._ends),
            again={group: processed_again(history) for group, history in self._histories.items()},
            errors=sum((history.errors for history in self._histories.values()), Counter[str]()),
            seconds=time.monotonic() - began_s,
        )

    def _start_consumers(self, bootstrap: str, stack: ExitStack) -> None:
        members = all_members(self.groups)
        job = [bootstrap, TOPIC, str(self.pause_ms), str(self._hurry_file), str(self._stop_file)]
        for library in dict.fromkeys(library for library, _ in members):
            own = [str(member) for its_library, member in members if its_library == library]
            command = [*self._program(library), *job, *own]
            process = stack.enter_context(
                Process(command, self.folder, name=f"consumers-{library}", env={"PYTHONPATH": str(ROOT)})
            )
            self._programs[library], self._logs[library] = process, GrowingLog(process.output)

    def _program(self, library: str) -> list[str]:
        if library != "java":
            return [sys.executable, "-m", f"tests.faults.consumers.{PROGRAMS[library]}"]
        logging = self.folder / "log4j2.properties"
        logging.write_text(KAFKA_LOGGING, encoding="utf-8")
        program, *rest = self.java.command()
        return [program, f"-Dlog4j2.configurationFile={logging}", *rest]

    @property
    def _hurry_file(self) -> Path:
        return self.folder / "hurry"

    @property
    def _stop_file(self) -> Path:
        return self.folder / "stop"

    def _strike(self, agents: Agents, group: str, act: Act) -> Blow:
        """One fault, from its begin until everything is as before."""
        agent = self._await_coordinator(agents, group)
        before = self._generations()
        began_us, began_s = time.time_ns() // 1000, time.monotonic()
        agents.begin(act, agent)
        service_s = self._await_service(f"{act.value} of {agent}", began_us)
        if act is Act.PAUSE:
            self._follow_for(began_s + LEASE_SECONDS + 1 - time.monotonic())
        agents.end(act, agent)
        if self.is_return_awaited:
            self._await_service(f"the return of {agent}", time.time_ns() // 1000)
        self._anomalies += [Anomaly(kind="agent ended", text=text) for text in agents.ended()]
        after = self._generations()
        moved = {name: (before[name], after[name]) for name in before}
        blow = Blow(group=group, act=act, agent=agent, service_s=service_s, generations=moved)
        print(blow, flush=True)
        return blow

    def _await_coordinator(self, agents: Agents, group: str) -> str:
        deadline = time.monotonic() + SERVICE_SECONDS_MAX
        while (agent := agents.coordinator(group)) is None:
            assert time.monotonic() < deadline, f"nobody coordinates {group}"
            self._follow_for(FOLLOW_SECONDS)
        return agent

    def _await_service(self, after: str, since_us: int) -> float | None:
        """Wait until every group is served again; how long it took."""
        began_s = time.monotonic()
        while waiting := self._waiting_for_service(since_us):
            if time.monotonic() - began_s > SERVICE_SECONDS_MAX:
                self._found("stuck", f"{SERVICE_SECONDS_MAX} s after {after} no commit of {waiting}")
                return None
            self._follow_for(FOLLOW_SECONDS)
        return time.monotonic() - began_s

    def _waiting_for_service(self, since_us: int) -> dict[str, list[int]]:
        """Partitions by group that are not read to the end and that no served member has in hand.

        A member is served that committed something since then, and was answered; it may have other partitions before.
        """
        waiting: dict[str, list[int]] = {}
        for group, history in self._histories.items():
            served = {name for name, served_us in history.served_us.items() if served_us > since_us}
            holders = history.holders()
            left = [row for row in self._unfinished(history) if not holders.get(row, set()) & served]
            if left:
                waiting[group] = left
        return waiting

    def _unfinished(self, history: GroupHistory) -> list[int]:
        return [partition for partition, end in enumerate(self._ends) if history.reached.get(partition, 0) < end]

    def _generations(self) -> dict[str, int]:
        return {
            group: max((rows[-1] for rows in history.generations.values()), default=0)
            for group, history in self._histories.items()
        }

    def _finish(self, agents: Agents) -> None:
        """Let the groups read all that is left, and end them."""
        self._hurry_file.touch()
        deadline = time.monotonic() + FINISH_SECONDS_MAX
        while left := {
            group: found for group, history in self._histories.items() if (found := self._unfinished(history))
        }:
            if time.monotonic() > deadline:
                self._found("stuck", f"{FINISH_SECONDS_MAX} s after the last fault not read to the end: {left}")
                break
            self._follow_for(FOLLOW_SECONDS)
        self._stop_file.touch()
        deadline = time.monotonic() + LEAVE_SECONDS_MAX
        while any(process.is_running for process in self._programs.values()) and time.monotonic() < deadline:
            self._follow_for(FOLLOW_SECONDS)
        for library, process in self._programs.items():
            if process.is_running:
                self._found("stuck", f"consumers of {library} do not leave within {LEAVE_SECONDS_MAX} s")
            elif process.wait_ended() != 0:
                self._found("client ended", str(process.failed(f"consumers of {library}")))
        self._follow()
        for group, history in self._histories.items():
            for anomaly in check_group(history, self._ends):
                self._found(f"{group}: {anomaly.kind}", anomaly.text)
            self._check_committed(agents, group)
        self._look_at_logs()

    def _check_committed(self, agents: Agents, group: str) -> None:
        """Whoever asks in the end is told what was committed last."""
        admin = AdminClient({"bootstrap.servers": agents.bootstrap})
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        told = {place.partition: place.offset for place in future.result(60).topic_partitions}
        if told != dict(enumerate(self._ends)):
            self._found(f"{group}: committed", f"{told}, the ends are {list(self._ends)}")

    def _look_at_logs(self) -> None:
        for log in sorted(self.cluster.folder.glob("*.log")):
            text = log.read_text(errors="replace")
            if "Traceback" in text:
                first = text.index("Traceback")
                self._found("traceback", f"{log.name}: {text[first : first + 2_000]}")

    def _follow_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._never.wait(min(left_s, FOLLOW_SECONDS))
            self._follow()

    def _follow(self) -> None:
        for log in self._logs.values():
            add_lines(self._histories, log.new_lines())

    def _found(self, kind: str, text: str) -> None:
        print(f"ANOMALY {kind}: {text}", flush=True)
        self._anomalies.append(Anomaly(kind=kind, text=text))
