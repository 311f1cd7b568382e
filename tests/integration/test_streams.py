"""A Kafka Streams application that counts, exactly once, while its instances and the agents are killed.

Rule: the output tells each record that came in (`CountingStreams.java`), so it is held against all that was sent: in
each group the counts are 1, 2, 3, ..., and what the sums grow by are the numbers that were sent, each as often.
"""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.java_services import KAFKA_LOGGING, JavaProgram, compile_source
from tests.processes import Process
from tests.rolling_load import SteadyProducer

APPLICATION: Final = "counting"
REPARTITION: Final = f"{APPLICATION}-by-digit-repartition"
CHANGELOG: Final = f"{APPLICATION}-sums-changelog"
PARTITIONS: Final = 2
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "3000"}
SECONDS_MAX: Final = 90.0
NEW_OUTPUT: Final = 200
"""So much output must come after a fault before the next."""


@pytest.fixture(scope="session")
def counting_streams(
    java: Path, kafka_jars: Path, streams_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> JavaProgram:
    source = Path(__file__).parent / "java" / "CountingStreams.java"
    folder = tmp_path_factory.mktemp("streams")
    return compile_source(source, folder, java=java, kafka_jars=kafka_jars, more_jars=[streams_jars])


@dataclass(slots=True, kw_only=True)
class Application:
    """Instances of the application, each in a process with its own folder for state."""

    program: JavaProgram
    bootstrap: str
    folder: Path
    stack: ExitStack
    instances: dict[str, Process] = field(default_factory=dict[str, Process])

    def start(self, name: str) -> Process:
        """Start an instance, with the state that it left behind if it ran before."""
        logging = self.folder / "log4j2.properties"
        logging.write_text(KAFKA_LOGGING, encoding="utf-8")
        state = self.folder / f"state-{name}"
        java, *words = self.program.command(self.bootstrap, APPLICATION, "numbers", "sums", str(state))
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}"]
        process = self.stack.enter_context(Process([java, *options, *words], self.folder, name=f"instance-{name}"))
        self.instances[name] = process
        return process

    def kill(self, name: str) -> None:
        """Kill an instance, and start it again."""
        self.instances[name].kill()
        self.start(name)

    def stop(self) -> None:
        for name, instance in self.instances.items():
            assert instance.is_running, f"instance {name} gave up: {instance.stderr[-3000:]}"
            instance.stop()


@dataclass(slots=True)
class Outputs:
    """What the application put out so far, as one reads it who is shown committed records alone."""

    bootstrap: str
    by_group: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    _consumer: Consumer = field(init=False)

    def __post_init__(self) -> None:
        settings = {"group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.auto.commit": False, **settings})
        self._consumer.assign([TopicPartition("sums", partition, 0) for partition in range(PARTITIONS)])

    def wait_for(self, count: int) -> None:
        """Returns when so many records were read in all."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} records came in {SECONDS_MAX} s"
            self._read(0.1)

    def close(self) -> None:
        """Reads what there may be beyond what was waited for, and closes."""
        while self._read(2.0):
            pass
        self._consumer.close()

    def _read(self, seconds_max: float) -> int:
        messages = [message for message in self._consumer.consume(500, timeout=seconds_max) if not message.error()]
        for message in messages:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            count, total = value.split()
            self.by_group[key.decode()].append((int(count), int(total)))
        self.count += len(messages)
        return len(messages)


@dataclass(slots=True, kw_only=True)
class Run:
    """The application, what is sent to it, and what it made of it."""

    application: Application
    producer: SteadyProducer
    outputs: Outputs

    def wait_for_more(self) -> None:
        """Returns when there is new output: the application works."""
        self.outputs.wait_for(self.outputs.count + NEW_OUTPUT)

    def check(self) -> None:
        """All that was sent is in the output, once, and in one order."""
        self.outputs.close()
        sent: dict[str, Counter[int]] = defaultdict(Counter)
        for place in range(self.producer.sent):
            number = place // PARTITIONS
            sent[str(number)[-1]][number] += 1
        for group, rows in self.outputs.by_group.items():
            assert [count for count, _total in rows] == list(range(1, len(rows) + 1)), group
            totals = [0, *(total for _count, total in rows)]
            assert Counter(after - before for before, after in itertools.pairwise(totals)) == sent[group]
        assert self.outputs.count == self.producer.sent


def running(bootstrap: str, program: JavaProgram, folder: Path, faults: Callable[[Run], None]) -> Run:
    """Two instances count what is sent meanwhile, until `faults` returns; all of it is awaited."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in ("numbers", "sums")]).values():
        made.result(SECONDS_MAX)
    with ExitStack() as stack:
        application = Application(program=program, bootstrap=bootstrap, folder=folder, stack=stack)
        settings = {"enable.idempotence": True, "message.timeout.ms": 120_000}
        producer = SteadyProducer(bootstrap=bootstrap, topic="numbers", partitions=PARTITIONS, settings=settings)
        run = Run(application=application, producer=producer, outputs=Outputs(bootstrap))
        for name in ("one", "two"):
            application.start(name)
        with producer:
            run.wait_for_more()
            faults(run)
        run.outputs.wait_for(producer.sent)
        application.stop()
    assert producer.errors == []
    run.check()
    return run


def first_offsets(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "offsets", "log_level": 0})
    marks = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        for partition in range(PARTITIONS)
    ]
    consumer.close()
    return [low for low, _high in marks]


def configs(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(30).items()}


@pytest.mark.timeout(240)
def test_an_instance_that_is_killed_changes_no_result(
    clusters: ClusterFactory, counting_streams: JavaProgram, tmp_path: Path
) -> None:
    cluster = clusters()
    bootstrap = ",".join(cluster.start(name, settings=SETTINGS).bootstrap for name in ("a", "b", "c"))

    def kill_one(run: Run) -> None:
        run.application.kill("one")
        run.wait_for_more()

    running(bootstrap, counting_streams, tmp_path, kill_one)
    # Streams made its topics as it needs them, and deleted what it had read from the one in the middle.
    assert configs(bootstrap, CHANGELOG)["cleanup.policy"] == "compact"
    assert configs(bootstrap, REPARTITION)["cleanup.policy"] == "delete"
    assert sum(first_offsets(bootstrap, REPARTITION)) > 0


def each_in_turn(names: Sequence[str], times: int) -> Iterator[str]:
    for turn in range(times):
        yield names[turn % len(names)]


def restart(cluster: Cluster, agent: ClusterAgent) -> None:
    cluster.start(agent.name, listen=agent.bootstrap, settings=SETTINGS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_instances_and_agents_that_are_killed_change_no_result(
    clusters: ClusterFactory, counting_streams: JavaProgram, tmp_path: Path
) -> None:
    cluster = clusters()
    bootstrap = ",".join(cluster.start(name, settings=SETTINGS).bootstrap for name in ("a", "b", "c"))

    def kill_all_in_turn(run: Run) -> None:
        for name in each_in_turn(("a", "b", "c"), 6):
            agent = cluster.agents[name]
            agent.process.kill()
            run.application.kill("one" if name == "b" else "two")
            restart(cluster, agent)
            run.wait_for_more()

    run = running(bootstrap, counting_streams, tmp_path, kill_all_in_turn)
    print(f"{run.outputs.count} records counted over six kills of agents and of instances")
