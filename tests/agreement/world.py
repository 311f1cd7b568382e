"""The cluster of the agreement run: etcd, MinIO, three agents that are killed and started again, and producers.

Rule: every process is ours, ended by its id, and gone when the `with` block ends.
"""

import json
import random
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tests.agreement.producer import Load
from tests.agreement.records import TRANSACTIONS, UNKNOWN, topic_name
from tests.support.cluster.cluster import Cluster, ClusterAgent
from tests.support.lake.bucket_listing import ListedBucket, minio_bucket
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import Minio, MinioProcess

AGENTS = ("a", "b", "c")
BUCKET, PREFIX = "agreement", "data"
STORE = f"s3://{BUCKET}/{PREFIX}"
ANSWER_SECONDS_MAX = 120.0
TOPICS_AT_ONCE = 10
STOP_SECONDS_MAX = 150.0
"""A producer may be busy for so long with its last transaction."""
OPEN_SECONDS_MAX = 90.0
"""Longer than transactions live that nobody ends."""
LOAD_OPTIONS = {"gc-min-age-s": "30", "snapshot-entries": "500", "log-level": "info"}
"""So that snapshots, trims and the garbage collector are at work all the time."""
QUIET_OPTIONS = {"gc-min-age-s": "2", "archive-interval-s": "3600", "log-level": "info"}
"""Archive on request alone, and delete soon what is replaced."""

Ends = dict[tuple[str, int], int]


@dataclass(slots=True, kw_only=True)
class World:
    """Use it in a `with` block; `topics` with `partitions` each."""

    folder: Path
    topics: int
    partitions: int
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the agents, now: changed by `restart`."""
    kills: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)
    _ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in AGENTS})
    _cluster: Cluster = field(init=False)
    minio: Minio = field(init=False)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for agent in self.agents.values():
            agent.process.kill()
        self._stack.close()

    def _start(self) -> None:
        etcd = self._stack.enter_context(Etcd(self.folder / "etcd"))
        minio = MinioProcess(self.folder / "minio")
        minio.wait(self._stack.enter_context(minio.start()))
        minio.server.make_bucket(BUCKET)
        self.minio = minio.server
        self._cluster = Cluster(
            ledger=f"etcd://{','.join(etcd.endpoints)}/agreement",
            store=STORE,
            env=self.minio.settings,
            folder=self.folder / "agents",
            stack=self._stack,
        )
        for name in AGENTS:
            self.start_agent(name)
        self._create_topics()

    @property
    def agents(self) -> dict[str, ClusterAgent]:
        return self._cluster.agents

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def http(self) -> str:
        """Of an agent that runs."""
        return next(agent.http for agent in self.agents.values() if agent.process.is_running)

    @property
    def topic_names(self) -> list[str]:
        return [topic_name(number) for number in range(self.topics)]

    @property
    def bucket(self) -> ListedBucket:
        return minio_bucket(self.minio, f"{BUCKET}/{PREFIX}")

    def start_agent(self, name: str) -> None:
        """Start it, or start it again where it was; returns when it serves."""
        self._cluster.start(name, options=self.options, listen=f"127.0.0.1:{self._ports[name]}")

    def restart(self, options: Mapping[str, str]) -> None:
        """All agents stop, one after the other, and begin again with these options."""
        self.options = options
        for name in AGENTS:
            self.agents[name].process.stop()
            self.start_agent(name)

    def kill_at_random(self, chance: random.Random, until_s: float, never: threading.Event) -> None:
        """Until that moment of `time.monotonic`: kill one agent, sometimes two, and start them again."""
        while True:
            never.wait(min(chance.uniform(3, 12), max(0.0, until_s - time.monotonic())))
            if time.monotonic() >= until_s:
                return
            names = chance.sample(AGENTS, 2 if chance.random() < 0.25 else 1)
            print(f"           killed: {', '.join(names)}", flush=True)
            for name in names:
                self.agents[name].process.kill()
                self.kills += 1
            never.wait(chance.uniform(0, 4))
            for name in names:
                self.start_agent(name)

    def died(self) -> list[str]:
        """Agents that do not run, with what they said last; and tracebacks in what they wrote."""
        gone = {name: agent.process for name, agent in self.agents.items() if not agent.process.is_running}
        ended = [str(process.failed(f"agent {name} ended")) for name, process in gone.items()]
        for log in sorted((self.folder / "agents").glob("*.log")):
            _, traceback, rest = log.read_text(errors="replace").partition("Traceback")
            ended += [f"{log.name}: {traceback}{rest[:2000]}"] if traceback else []
        return ended

    def log_ends(self) -> Ends:
        """Every partition's end, once nothing in it waits for a transaction. Raises `AssertionError`."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        deadline_s, never = time.monotonic() + OPEN_SECONDS_MAX, threading.Event()
        while True:
            stable = self._ends(admin, IsolationLevel.READ_COMMITTED)
            ends = self._ends(admin, IsolationLevel.READ_UNCOMMITTED)
            if stable == ends:
                return ends
            waiting = [key for key, end in ends.items() if stable[key] != end]
            assert time.monotonic() < deadline_s, f"transactions stay open in {waiting[:5]}"
            never.wait(1)

    def _ends(self, admin: AdminClient, level: IsolationLevel) -> Ends:
        ends, latest = dict[tuple[str, int], int](), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for name in self.topic_names:
            asked = {TopicPartition(name, partition): latest for partition in range(self.partitions)}
            futures = admin.list_offsets(asked, isolation_level=level, request_timeout=30)
            ends |= {(key.topic, key.partition): future.result().offset for key, future in futures.items()}
        return ends

    def archive(self) -> None:
        """Everything that there is now."""
        for first in range(0, self.topics, TOPICS_AT_ONCE):
            body = json.dumps({"topics": self.topic_names[first : first + TOPICS_AT_ONCE], "wait": True}).encode()
            request = urllib.request.Request(
                f"http://{self.http}/api/archive", body, headers={"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
                answer.read()

    def tables(self) -> list[dict[str, Any]]:
        """What an agent says of the tables, as `penstock lake status` shows it."""
        with urllib.request.urlopen(f"http://{self.http}/api/lake", timeout=ANSWER_SECONDS_MAX) as answer:
            tables: list[dict[str, Any]] = json.load(answer)["tables"]
        return tables

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        for first in range(0, self.topics, TOPICS_AT_ONCE):
            names = self.topic_names[first : first + TOPICS_AT_ONCE]
            for future in admin.create_topics([NewTopic(name, self.partitions) for name in names]).values():
                future.result(ANSWER_SECONDS_MAX)


@dataclass(slots=True, kw_only=True)
class Producers:
    """Processes of producers, until `stop`."""

    processes: list[Process]
    stop_file: Path

    @classmethod
    def start(cls, world: World, stack: ExitStack, name: str, loads: Sequence[Load]) -> Self:
        """A process for each load, whose stop file is the same."""
        folder, root = world.folder / name, Path(__file__).parents[2]
        processes = [
            stack.enter_context(
                Process(
                    [sys.executable, "-m", "tests.agreement.producer", load.to_json()],
                    folder,
                    name=f"producers-{load.producer_first}",
                    env={"PYTHONPATH": str(root)},
                )
            )
            for load in loads
        ]
        return cls(processes=processes, stop_file=Path(loads[0].stop_file))

    def stop(self) -> tuple[pa.Table, list[str]]:
        """What they noted (`TRANSACTIONS`), once they ended, and who did not end in time."""
        self.stop_file.touch()
        deadline_s, never, late = time.monotonic() + STOP_SECONDS_MAX, threading.Event(), list[str]()
        for process in self.processes:
            while process.is_running and time.monotonic() < deadline_s:
                never.wait(0.1)
            if process.is_running:
                late.append(str(process.failed(f"a producer hangs for {STOP_SECONDS_MAX:g} s")))
            if process.kill() and not late:
                late.append(str(process.failed("producers failed")))
        return noted([line for process in self.processes for line in process.stdout.splitlines()]), late


def noted(lines: Sequence[str]) -> pa.Table:
    """What lines of producers tell. What has begun and not ended is unknown."""
    rows: dict[tuple[int, int], dict[str, int]] = {}
    for line in lines:
        told = json.loads(line)
        key = told["producer"], told["transaction"]
        if told.pop("what") == "begin":
            rows[key] = {**told, "outcome": UNKNOWN, "ended_ms": told["began_ms"]}
        else:
            rows[key] |= told
    return pa.Table.from_pylist(list(rows.values()), schema=TRANSACTIONS)
