"""A whole cluster to be tortured: three etcd members, MinIO, three agents, and a proxy on every link.

Rule: every process is ours, ended by its id; what is paused goes on before it is ended. An agent has links of its own,
so that it can be cut off alone: `a-etcd-0`..`2`, `a-store`, and `a-client`, which is the address that clients are told.
"""

import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.support.cluster.cluster import Cluster, ClusterAgent
from tests.support.ports import free_port
from tests.support.processes import stand_still
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import READY, MinioProcess
from tests.torture.link import LinkFault
from tests.torture.proxy_control import ProxyControl
from tests.torture.schedule import AGENTS, Act, Fault
from tests.torture.store_link import StoreFault

MEMBERS = 3
TRACEBACK_CHARACTERS_MAX = 2_000
OPTIONS = {
    "archive-interval-s": "10",
    "gc-min-age-s": "30",
    "snapshot-entries": "300",
    "log-level": "info",
    "drain-timeout-s": "5",
    "read-cache-bytes": "1MiB",
}
"""So that archive passes, snapshots, trims, the garbage collector and reads of objects are at work all the time."""


@dataclass(slots=True)
class AgentPlace:
    """Where an agent is started again and again."""

    cluster: Cluster
    listen_port: int
    client_port: int
    running: ClusterAgent | None = None
    is_meant_to_run: bool = False

    def wait_ready(self) -> None:
        assert self.running is not None, "start it first"
        self.running.process.wait_until(lambda: self.is_ready, "an agent")

    @property
    def is_ready(self) -> bool:
        return self.running is not None and READY.search(self.running.process.stdout) is not None


@dataclass
class World:
    """Use it in a `with` block. `begin` and `end` do faults; what clients connect to is `bootstrap`.

    `front`: given the port of an agent's link, the port of what else stands before it, which clients are told instead.
    """

    folder: Path
    seed: int
    front: Callable[[int], int] = lambda port: port
    agents: dict[str, AgentPlace] = field(default_factory=dict[str, AgentPlace])
    _stack: ExitStack = field(default_factory=ExitStack)
    _ends: dict[Fault, Callable[[], None]] = field(default_factory=dict[Fault, Callable[[], None]])

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_all()
        self._stack.close()

    def _start(self) -> None:
        stack = self._stack
        self.etcd = stack.enter_context(Etcd(self.folder / "etcd", members_count=MEMBERS))
        self.minio = MinioProcess(self.folder / "minio")
        self.store = self.minio.start()
        stack.callback(lambda: self.store.kill())
        self.minio.wait(self.store)
        self.minio.server.make_bucket("torture")
        self.proxy = stack.enter_context(ProxyControl(self.folder, seed=self.seed))
        for name in AGENTS:
            self.agents[name] = self._place(name)
            self.start_agent(name)
        for place in self.agents.values():
            place.wait_ready()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{place.client_port}" for place in self.agents.values())

    def direct(self, name: str) -> str:
        """An agent's own address, without the proxy."""
        return f"127.0.0.1:{self.agents[name].listen_port}"

    def begin(self, fault: Fault) -> None:
        if fault.act is not None:
            self._ends[fault] = self._act(fault.act, fault.part)
        elif fault.store is not None:
            self._set_store(fault.part, {fault.store: fault.store_part})
            self._ends[fault] = lambda: self._set_store(fault.part, {})
        else:
            links = self._links(fault.part)
            self._set(links, fault.link)
            self._ends[fault] = lambda: self._set(links, None)

    def end(self, fault: Fault) -> None:
        self._ends.pop(fault)()

    def died(self) -> list[str]:
        """Agents that ended although nobody ended them, with what they said last."""
        found: list[str] = []
        for name, place in self.agents.items():
            running = place.running
            if place.is_meant_to_run and running is not None and not running.process.is_running:
                place.is_meant_to_run = False
                found.append(str(running.process.failed(f"agent {name} ended")))
        return found

    def tracebacks(self) -> list[str]:
        """The first traceback of each agent's log, with the log's name."""
        found: list[str] = []
        for log in sorted((self.folder / "agents").glob("*.log")):
            _, traceback, rest = log.read_text(errors="replace").partition("Traceback")
            if traceback:
                found.append(f"{log.name}: {traceback}{rest[:TRACEBACK_CHARACTERS_MAX]}")
        return found

    def start_agent(self, name: str) -> None:
        """Start it, or start it again; it is not waited for."""
        place = self.agents[name]
        place.running = place.cluster.start(
            name,
            listen=f"127.0.0.1:{place.listen_port}",
            options={**OPTIONS, "advertise": f"127.0.0.1:{place.client_port}"},
            is_waited_for=False,
        )
        place.is_meant_to_run = True

    def not_serving(self) -> list[str]:
        """Agents that run, or should, and did not say that they are ready since they were started last."""
        return [name for name, place in self.agents.items() if place.is_meant_to_run and not place.is_ready]

    def _place(self, name: str) -> AgentPlace:
        endpoints = [
            f"127.0.0.1:{self.proxy.open(f'{name}-etcd-{row}', member.client_port)}"
            for row, member in enumerate(self.etcd.members)
        ]
        requests = self.proxy.open(f"{name}-store-requests", self.minio.port, is_store=True)
        store = self.proxy.open(f"{name}-store", requests)
        listen_port = free_port()
        cluster = Cluster(
            ledger=f"etcd://{','.join(endpoints)}/torture",
            store="s3://torture/data",
            env={**self.minio.server.settings, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store}"},
            folder=self.folder / "agents",
            stack=self._stack,
        )
        return AgentPlace(cluster, listen_port, self.front(self.proxy.open(f"{name}-client", listen_port)))

    def _set(self, links: list[str], fault: LinkFault | None) -> None:
        for link in links:
            self.proxy.set(link, fault)

    def _set_store(self, part: str, faults: Mapping[StoreFault, float]) -> None:
        links = [f"{name}-store" for name in AGENTS] if part == "all-store" else [part]
        for link in links:
            self.proxy.set_store(f"{link}-requests", faults)

    def _links(self, part: str) -> list[str]:
        return [f"{part}-{row}" for row in range(MEMBERS)] if part.endswith("-etcd") else [part]

    def _act(self, act: Act, part: str) -> Callable[[], None]:
        """Do it; returns what ends it."""
        kind, _, which = part.partition(" ")
        match kind:
            case "agent":
                return self._act_on_agent(act, which)
            case "etcd":
                rows = self._rows(which)
                return _both([self._act_on_member(act, row) for row in rows])
            case _:
                return self._act_on_store(act)

    def _act_on_agent(self, act: Act, name: str) -> Callable[[], None]:
        place = self.agents[name]
        assert place.running is not None
        process = place.running.process
        if act is Act.PAUSE:
            return _paused(process.pid)
        place.is_meant_to_run = False
        if act is Act.KILL:
            process.kill()
        else:
            process.stop()
        return lambda: self.start_agent(name)

    def _act_on_member(self, act: Act, row: int) -> Callable[[], None]:
        member = self.etcd.members[row]
        if act is Act.PAUSE:
            return _paused(member.pid)
        member.kill()
        return lambda: member.start(self.etcd.members)

    def _act_on_store(self, act: Act) -> Callable[[], None]:
        if act is Act.PAUSE:
            return _paused(self.store.pid)
        if act is Act.KILL:
            self.store.kill()
        else:
            self.store.stop()
        return self._start_store

    def _start_store(self) -> None:
        self.store = self.minio.start()

    def _rows(self, which: str) -> list[int]:
        """etcd members by word: `one` is no leader."""
        leader = self._leader()
        match which:
            case "all":
                return list(range(MEMBERS))
            case "leader":
                return [leader]
            case _:
                return [(leader + 1) % MEMBERS]

    def _leader(self) -> int:
        for row, member in enumerate(self.etcd.members):
            request = Request(f"http://{member.endpoint}/v3/maintenance/status", data=b"{}")
            try:
                with urlopen(request, timeout=5) as answer:
                    text = answer.read().decode()
            except (URLError, OSError):
                continue
            own, leader = re.search(r'"member_id":"(\d+)"', text), re.search(r'"leader":"(\d+)"', text)
            if own is not None and leader is not None and own[1] == leader[1]:
                return row
        return 0

    def _end_all(self) -> None:
        """End what is still wrong, so that everything can be stopped; agents are killed."""
        for place in self.agents.values():
            if place.running is not None:
                place.running.process.kill()
        for fault in [fault for fault in self._ends if fault.act is Act.PAUSE]:
            self.end(fault)


def _paused(pid: int) -> Callable[[], None]:
    stand_still(pid)
    return lambda: os.kill(pid, signal.SIGCONT)


def _both(ends: list[Callable[[], None]]) -> Callable[[], None]:
    def end() -> None:
        for each in ends:
            each()

    return end
