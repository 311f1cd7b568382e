"""Transactions of Kafka's clients against one broker, and against a cluster of three agents, of V1 and of V2.

Rule: every producer, and every reader, goes to another agent than the one before it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.client_libraries.interface import SECONDS_MAX, Place
from tests.support.client_libraries.transactional_producers import (
    TIMEOUT_MS,
    AioKafka,
    Confluent,
    Java,
    KafkaPython,
    OpenProducer,
    StepFailed,
    TransactionalProducer,
)
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.processes import provided
from tests.support.services.etcd import Etcd
from tests.support.services.java import JavaProgram
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

NAMES = ("confluent", "kafka-python", "aiokafka", "java")
PARTITIONS = 3
END = "the end"
"""How the values begin that are written by readers; each is another one."""
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
SHORT_MS = 1_000
COUNTED = re.compile(r'^penstock_requests_total\{api="(\w+)",version="(\d+)"\} ([\d.e+]+)$', re.MULTILINE)
STALE = re.compile(r"^penstock_transactions_fenced_requests_total ([\d.]+)$", re.MULTILINE)

pytestmark = pytest.mark.timeout(300)


@dataclass(slots=True)
class BrokerAddresses:
    """What is under test, by the addresses of its agents: each is used in turn."""

    agents: Sequence[Penstock | ClusterAgent]
    used_count: int = 0

    @property
    def bootstrap(self) -> str:
        self.used_count += 1
        return self.agents[self.used_count % len(self.agents)].bootstrap

    def requests(self) -> dict[tuple[str, int], int]:
        """How many were answered by all agents together, of each API and version."""
        counts: dict[tuple[str, int], int] = {}
        for text in self._metrics():
            for name, version, count in COUNTED.findall(text):
                key = (name, int(version))
                counts[key] = counts.get(key, 0) + int(float(count))
        return counts

    def stale_count(self) -> float:
        return sum(float(count) for text in self._metrics() for count in STALE.findall(text))

    def _metrics(self) -> Iterator[str]:
        for agent in self.agents:
            with urlopen(f"http://{agent.http}/metrics", timeout=SECONDS_MAX) as answer:
                yield answer.read().decode()


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.slow)], ids=["one broker", "three agents"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, etcd: Etcd, minio: Minio
) -> Iterator[BrokerAddresses]:
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("transactions")
    with ExitStack() as stack:
        if request.param == 1:
            yield BrokerAddresses([PenstockFactory(folder=folder, stack=stack)(settings=SETTINGS)])
        else:
            cluster = ClusterFactory(etcd=etcd, minio=minio, folder=folder, stack=stack)()
            yield BrokerAddresses([cluster.start(name, settings=SETTINGS) for name in ("a", "b", "c")])


@pytest.fixture(scope="module")
def producers(compile_java: Callable[[Path], JavaProgram]) -> dict[str, OpenProducer]:
    program = compile_java(Path(__file__).parents[1] / "java" / "TransactionalProducer.java")
    return {
        "confluent": Confluent,
        "kafka-python": KafkaPython,
        "aiokafka": AioKafka,
        "java": partial(Java, program),
    }


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_producer(name: str, producers: Mapping[str, OpenProducer]) -> OpenProducer:
    return producers[name]


@pytest.fixture
def topic(broker: BrokerAddresses, name: str, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, by whose name its producers are called, too."""
    topic = re.sub(r"\W+", "-", f"{request.function.__name__}-{name}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(SECONDS_MAX)
    return topic


def write(producer: TransactionalProducer, topic: str, value: str) -> None:
    """A transaction's records: one for each partition."""
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send((topic, partition), value)


def read(broker: BrokerAddresses, topic: str, *, isolation: str = "read_committed") -> dict[Place, list[str]]:
    """What a consumer is given of each partition until an end that is written now."""
    end = f"{END} {broker.used_count}"
    _write(broker, topic, end)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    places = [(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign([TopicPartition(*place, 0) for place in places])
    values: dict[Place, list[str]] = {place: [] for place in places}
    unended = set(places)
    while unended:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"nothing more came, and of {unended} the end is missing; so far: {values}"
        assert message.error() is None, message.error()
        place, value = (topic, message.partition() or 0), (message.value() or b"").decode()
        if value == end:
            unended.discard(place)
        elif not value.startswith(END):
            values[place].append(value)
    consumer.close()
    return values


def _write(broker: BrokerAddresses, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(SECONDS_MAX) == 0


def everywhere(topic: str, *values: str) -> dict[Place, list[str]]:
    return {(topic, partition): list(values) for partition in range(PARTITIONS)}


def test_consumers_are_given_what_was_committed_and_nothing_else(
    broker: BrokerAddresses, topic: str, open_producer: OpenProducer
) -> None:
    stale_count = broker.stale_count()
    with open_producer(broker.bootstrap, topic, TIMEOUT_MS) as producer:
        for value in ("a", "b", "c", "d"):
            write(producer, topic, value)
            if value in "bd":
                producer.abort()
            else:
                producer.commit()
    assert read(broker, topic) == everywhere(topic, "a", "c")
    assert read(broker, topic, isolation="read_uncommitted") == everywhere(topic, "a", "b", "c", "d")
    assert broker.stale_count() == stale_count, "no client was taken for one that had left its connection"


def test_a_transaction_of_one_partition_leaves_the_others_alone(
    broker: BrokerAddresses, topic: str, open_producer: OpenProducer
) -> None:
    with open_producer(broker.bootstrap, topic, TIMEOUT_MS) as producer:
        for partition in range(PARTITIONS):
            producer.begin()
            producer.send((topic, partition), f"of-{partition}")
            producer.commit()
    assert read(broker, topic) == {(topic, partition): [f"of-{partition}"] for partition in range(PARTITIONS)}


def test_a_second_instance_fences_the_first_and_aborts_what_it_has_open(
    broker: BrokerAddresses, topic: str, open_producer: OpenProducer
) -> None:
    with open_producer(broker.bootstrap, topic, TIMEOUT_MS) as first:
        write(first, topic, "of-the-first")
        with open_producer(broker.bootstrap, topic, TIMEOUT_MS) as second:
            write(second, topic, "of-the-second")
            with pytest.raises(StepFailed):
                first.commit()
            second.commit()
    assert read(broker, topic) == everywhere(topic, "of-the-second")


def test_a_transaction_that_takes_too_long_is_aborted_and_the_next_instance_goes_on(
    broker: BrokerAddresses, topic: str, open_producer: OpenProducer
) -> None:
    with open_producer(broker.bootstrap, topic, SHORT_MS) as slow:
        write(slow, topic, "late")
        assert read(broker, topic) == everywhere(topic), "the end is readable once the transaction is aborted"
        with pytest.raises(StepFailed):
            slow.commit()
    with open_producer(broker.bootstrap, topic, TIMEOUT_MS) as next_instance:
        write(next_instance, topic, "in-time")
        next_instance.commit()
    assert read(broker, topic) == everywhere(topic, "in-time")


def test_java_speaks_kip_890_and_the_others_add_partitions_first(
    broker: BrokerAddresses, topic: str, name: str, open_producer: OpenProducer
) -> None:
    before = broker.requests()
    with open_producer(broker.bootstrap, topic, TIMEOUT_MS) as producer:
        write(producer, topic, "a")
        producer.commit()
    asked = {key for key, count in broker.requests().items() if count > before.get(key, 0)}
    ends = {version for api, version in asked if api == "EndTxn"}
    has_added = any(api == "AddPartitionsToTxn" for api, _ in asked)
    assert (ends == {5}, has_added) == (name == "java", name != "java")


@pytest.mark.slow
def test_java_goes_back_to_v1_where_the_transaction_version_is_lowered(
    tmp_path: Path, penstock: PenstockFactory, producers: Mapping[str, OpenProducer], java: Path, kafka_jars: Path
) -> None:
    broker = BrokerAddresses([penstock()])
    tool = JavaProgram(
        java=java, class_path=f"{kafka_jars}/*", main="org.apache.kafka.tools.FeatureCommand", folder=tmp_path
    )
    change = ("downgrade", "--feature", "transaction.version=1")
    assert "transaction.version was downgraded to 1" in tool.run("--bootstrap-server", broker.bootstrap, *change)
    told = tool.run("--bootstrap-server", broker.bootstrap, "describe")
    (line,) = [line.split() for line in told.splitlines() if "transaction.version" in line]
    assert line[line.index("FinalizedVersionLevel:") + 1] == "1"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", num_partitions=PARTITIONS)])["t"].result(SECONDS_MAX)
    with producers["java"](broker.bootstrap, "x", TIMEOUT_MS) as producer:
        write(producer, "t", "a")
        producer.commit()
    assert read(broker, "t") == everywhere("t", "a")
    assert not {version for api, version in broker.requests() if api == "EndTxn"} & {5}
    assert any(api == "AddPartitionsToTxn" for api, _ in broker.requests())
