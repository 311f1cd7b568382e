"""A Kafka Streams application that counts, exactly once, while its instances and the agents are killed.

Rule: the output tells each record that came in (`CountingStreams.java`), so it is held against all that was sent: in
each group the counts are 1, 2, 3, ..., and what the sums grow by are the numbers that were sent, each as often.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
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

from tests.support.clients.committed_output import CommittedOutput
from tests.support.cluster.cluster import ClusterFactory
from tests.support.cluster.rolling_restart_load import SteadyProducer
from tests.support.processes import Process
from tests.support.services.java import KAFKA_LOGGING, JavaProgram, compile_source

APPLICATION: Final = "counting"
REPARTITION: Final = f"{APPLICATION}-by-digit-repartition"
CHANGELOG: Final = f"{APPLICATION}-sums-changelog"
PARTITIONS: Final = 2
AGENTS: Final = ("a", "b", "c")
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "3000"}
PLACEMENT: Final = "penstock.transaction.placement"
SECONDS_MAX: Final = 90.0
NEW_OUTPUT: Final = 200
"""So much output must come after a fault before the next."""


@pytest.fixture(scope="session")
def counting_streams(
    java: Path, kafka_jars: Path, streams_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> JavaProgram:
    source = Path(__file__).parents[1] / "java" / "CountingStreams.java"
    folder = tmp_path_factory.mktemp("streams")
    return compile_source(source, folder, java=java, kafka_jars=kafka_jars, more_jars=[streams_jars])


@dataclass(slots=True, kw_only=True)
class Application:
    """Instances of the application, each in a process with its own folder for state."""

    program: JavaProgram
    bootstrap: str
    folder: Path
    stack: ExitStack
    placement: str
    """Of the topics that Streams makes: penstock.transaction.placement."""
    instances: dict[str, Process] = field(default_factory=dict[str, Process])

    def start(self, name: str) -> Process:
        """Start an instance, with the state that it left behind if it ran before."""
        logging = self.folder / "log4j2.properties"
        logging.write_text(KAFKA_LOGGING, encoding="utf-8")
        state = self.folder / f"state-{name}"
        java, *words = self.program.command(self.bootstrap, APPLICATION, "numbers", "sums", str(state), self.placement)
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


@dataclass(slots=True, kw_only=True)
class Run:
    """The application, what is sent to it, and what it made of it."""

    application: Application
    producer: SteadyProducer
    output: CommittedOutput

    def wait_for_more(self) -> None:
        """Returns when there is new output: the application works."""
        self.output.wait_for(self.output.count + NEW_OUTPUT, seconds_max=SECONDS_MAX)

    def check(self) -> None:
        """All that was sent is in the output, once, and in one order."""
        self.output.close()
        sent: dict[str, Counter[int]] = defaultdict(Counter)
        for place in range(self.producer.sent):
            number = place // PARTITIONS
            sent[str(number)[-1]][number] += 1
        for group, values in self.output.by_key.items():
            rows = [(int(count), int(total)) for count, total in (value.split() for value in values)]
            assert [count for count, _total in rows] == list(range(1, len(rows) + 1)), group
            totals = [0, *(total for _count, total in rows)]
            assert Counter(after - before for before, after in itertools.pairwise(totals)) == sent[group]
        assert self.output.count == self.producer.sent


def running(
    bootstrap: str, program: JavaProgram, folder: Path, faults: Callable[[Run], None], *, placement: str = "produce"
) -> Run:
    """Two instances count what is sent meanwhile, until `faults` returns; all of it is awaited.

    `placement`: of the output and of the topics that Streams makes.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    output_topic = NewTopic("sums", PARTITIONS, config={PLACEMENT: placement})
    for made in admin.create_topics([NewTopic("numbers", PARTITIONS), output_topic]).values():
        made.result(SECONDS_MAX)
    with ExitStack() as stack:
        application = Application(program=program, bootstrap=bootstrap, folder=folder, stack=stack, placement=placement)
        settings = {"enable.idempotence": True, "message.timeout.ms": 120_000}
        producer = SteadyProducer(bootstrap=bootstrap, topic="numbers", partitions=PARTITIONS, settings=settings)
        output = CommittedOutput(bootstrap=bootstrap, topic="sums", partitions=PARTITIONS)
        run = Run(application=application, producer=producer, output=output)
        for name in ("one", "two"):
            application.start(name)
        with producer:
            run.wait_for_more()
            faults(run)
        output.wait_for(producer.sent, seconds_max=SECONDS_MAX)
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


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_instance_that_is_killed_changes_no_result(
    clusters: ClusterFactory, counting_streams: JavaProgram, tmp_path: Path
) -> None:
    cluster = clusters()
    bootstrap = ",".join(cluster.start(name, settings=SETTINGS).bootstrap for name in AGENTS)

    def kill_one(run: Run) -> None:
        run.application.kill("one")
        run.wait_for_more()

    running(bootstrap, counting_streams, tmp_path, kill_one)
    # Streams made its topics as it needs them, and deleted what it had read from the one in the middle.
    assert configs(bootstrap, CHANGELOG)["cleanup.policy"] == "compact"
    assert configs(bootstrap, REPARTITION)["cleanup.policy"] == "delete"
    assert sum(first_offsets(bootstrap, REPARTITION)) > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("placement", ["produce", "commit"])
def test_instances_and_agents_that_are_killed_change_no_result(
    clusters: ClusterFactory, counting_streams: JavaProgram, tmp_path: Path, placement: str
) -> None:
    cluster = clusters()
    bootstrap = ",".join(cluster.start(name, settings=SETTINGS).bootstrap for name in AGENTS)

    def kill_all_in_turn(run: Run) -> None:
        for turn, name in enumerate((*AGENTS, *AGENTS)):
            agent = cluster.agents[name]
            agent.process.kill()
            run.application.kill(("one", "two")[turn % 2])
            cluster.start(name, listen=agent.bootstrap, settings=SETTINGS)
            run.wait_for_more()

    run = running(bootstrap, counting_streams, tmp_path, kill_all_in_turn, placement=placement)
    for topic in ("sums", CHANGELOG, REPARTITION):
        assert configs(bootstrap, topic)[PLACEMENT] == placement
    print(f"{run.output.count} records counted over six kills of agents and of instances")
