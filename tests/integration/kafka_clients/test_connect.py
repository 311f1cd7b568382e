"""Kafka Connect's exactly-once sources (KIP-618): workers and agents die, and no record is lost or written twice.

Rule: distributed workers of Apache Kafka with a source of our own (`CountingSource.java`), whose records can be told
apart. Connect reads its three compacted topics from their beginnings at each start, writes to two of them in
transactions, and fences the tasks of before by Admin.fenceProducers.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.clients.committed_output import CommittedOutput
from tests.support.cluster.cluster import ClusterFactory
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.java import KAFKA_LOGGING, JavaProgram
from tests.support.services.local_services import PenstockFactory

SOURCE: Final = Path(__file__).parents[1] / "java" / "CountingSource.java"
CONNECTOR: Final = "counting"
TOPIC: Final = "numbers"
TASKS: Final = 2
AGENTS: Final = ("a", "b", "c")
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "3000"}
NUMBERS: Final = 8_000
"""Of each task, in the longer run."""
SECONDS_MAX: Final = 180.0
RESTART_SECONDS: Final = 3.0
INTERNAL_TOPICS: Final = ("connect-configs", "connect-offsets", "connect-status")
NOT_YET: Final = (404, 409, 500, 503)
"""Answers of a worker that starts, or that waits for its group."""
WORKER: Final = {
    "group.id": "connect",
    "exactly.once.source.support": "enabled",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "5",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "1000",
}


@dataclass(slots=True, kw_only=True)
class Workers:
    """Workers of one Connect cluster, each in a process."""

    program: JavaProgram
    bootstrap: str
    folder: Path
    stack: ExitStack
    ports: dict[str, int] = field(default_factory=dict[str, int])
    processes: dict[str, Process] = field(default_factory=dict[str, Process])

    def start(self, name: str) -> None:
        port = self.ports.setdefault(name, free_port())
        settings = {**WORKER, "bootstrap.servers": self.bootstrap, "listeners": f"http://127.0.0.1:{port}"}
        properties, logging = self.folder / f"{name}.properties", self.folder / "log4j2.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        logging.write_text(KAFKA_LOGGING, encoding="utf-8")
        java, *words = self.program.command(str(properties))
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}"]
        worker = Process([java, *options, *words], self.folder, name=f"worker-{name}")
        self.processes[name] = self.stack.enter_context(worker)

    def kill(self, name: str) -> None:
        """Kill a worker, and start it again."""
        self.processes[name].kill()
        self.start(name)

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Create the connector at a worker, as soon as it serves and is in the group."""
        deadline = time.monotonic() + SECONDS_MAX
        while not self._is_put(name, settings):
            assert self.processes[name].is_running, self.processes[name].stderr[-3000:]
            assert time.monotonic() < deadline, f"the connector is not taken: {self.processes[name].stderr[-3000:]}"

    def wait_for(self, output: CommittedOutput, count: int) -> None:
        """Returns when the output has so many records; an operator starts failed tasks again meanwhile.

        A task fails for good where it cannot have its predecessors fenced, since the leader was killed that moment.
        """
        deadline = time.monotonic() + SECONDS_MAX
        while output.count < count:
            assert time.monotonic() < deadline, f"{output.count} of {count} records came in {SECONDS_MAX} s"
            for port in self.ports.values():
                url = f"http://127.0.0.1:{port}/connectors/{CONNECTOR}/restart?includeTasks=true&onlyFailed=true"
                with suppress(URLError, ConnectionError, TimeoutError):
                    urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=RESTART_SECONDS).close()
            output.read(RESTART_SECONDS)

    def _is_put(self, name: str, settings: Mapping[str, str]) -> bool:
        url = f"http://127.0.0.1:{self.ports[name]}/connectors/{CONNECTOR}/config"
        request = urllib.request.Request(url, json.dumps(settings).encode(), method="PUT")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                return answer.status in {200, 201}
        except HTTPError as refused:
            if refused.code not in NOT_YET:
                pytest.fail(f"the connector is refused: {refused.code} {refused.read().decode()}")
        except (URLError, ConnectionError):
            pass
        return False


def policy(bootstrap: str, topic: str) -> str:
    """The topic's cleanup.policy."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    value: str = admin.describe_configs([resource])[resource].result(SECONDS_MAX)["cleanup.policy"].value
    return value


@pytest.fixture
def connect(compile_java: Callable[[Path], JavaProgram]) -> JavaProgram:
    """The worker, with the source of our own among its plugins."""
    source = compile_java(SOURCE)
    services = source.folder / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text("CountingSource\n", encoding="utf-8")
    return replace(source, main="org.apache.kafka.connect.cli.ConnectDistributed")


def run_source(workers: Workers, numbers: int, faults: Callable[[CommittedOutput], None]) -> CommittedOutput:
    """Workers run a source of two tasks to its end, under `faults`; each number must be there once, in order."""
    admin = AdminClient({"bootstrap.servers": workers.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, TASKS)])[TOPIC].result(SECONDS_MAX)
    output = CommittedOutput(bootstrap=workers.bootstrap, topic=TOPIC, partitions=TASKS)
    settings = {"connector.class": "CountingSource", "tasks.max": str(TASKS), "topic": TOPIC, "numbers": str(numbers)}
    # A worker that starts reads all of the topic of offsets, so it waits for what a dead task's producer has open.
    settings |= {"exactly.once.support": "required", "producer.override.transaction.timeout.ms": "10000"}
    workers.create("one", settings)
    workers.wait_for(output, 100)
    faults(output)
    workers.wait_for(output, TASKS * numbers)
    output.close()
    assert output.by_key == {str(task): [str(number) for number in range(numbers)] for task in range(TASKS)}
    return output


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_worker_that_is_killed_loses_and_repeats_nothing(
    penstock: PenstockFactory, connect: JavaProgram, tmp_path: Path
) -> None:
    bootstrap = penstock(settings=SETTINGS).bootstrap
    with ExitStack() as stack:
        workers = Workers(program=connect, bootstrap=bootstrap, folder=tmp_path, stack=stack)
        workers.start("one")
        run_source(workers, 1_000, lambda _output: workers.kill("one"))
    assert {policy(bootstrap, topic) for topic in INTERNAL_TOPICS} == {"compact"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_workers_and_agents_that_are_killed_lose_and_repeat_nothing(
    clusters: ClusterFactory, connect: JavaProgram, tmp_path: Path
) -> None:
    cluster = clusters()
    bootstrap = ",".join(cluster.start(name, settings=SETTINGS).bootstrap for name in AGENTS)
    with ExitStack() as stack:
        workers = Workers(program=connect, bootstrap=bootstrap, folder=tmp_path, stack=stack)
        for worker in ("one", "two"):
            workers.start(worker)

        def kill_all_in_turn(output: CommittedOutput) -> None:
            for turn, name in enumerate((*AGENTS, *AGENTS)):
                agent = cluster.agents[name]
                agent.process.kill()
                workers.kill(("one", "two")[turn % 2])
                cluster.start(name, listen=agent.bootstrap, settings=SETTINGS)
                workers.wait_for(output, min(output.count + 100, TASKS * NUMBERS))

        output = run_source(workers, NUMBERS, kill_all_in_turn)
    print(f"{output.count} records over six kills of agents and of workers")
