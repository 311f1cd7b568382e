"""Configs, partition counts and quotas that are altered through one agent hold for all, for real clients and tools."""

import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.cluster.cluster import ClusterFactory
from tests.support.cluster.shared_agents import SharedCluster
from tests.support.services.local_services import PenstockFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonType
    from kafka.admin import KafkaAdminClient

SECONDS_MAX = 60.0
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
"""Groups of the shared cluster begin without waiting for more members."""
CONFIGS = "kafka.admin.ConfigCommand"
Tool = Callable[..., str]
Operation = tuple[AlterConfigOpType, str, str | None]
SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND


class Admin:
    """An administrator that asks one agent first."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int = 1) -> None:
        for future in self._client.create_topics([NewTopic(topic, partitions)]).values():
            future.result(SECONDS_MAX)

    def grow(self, topic: str, partitions: int) -> None:
        for future in self._client.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(SECONDS_MAX)

    def partitions(self, topic: str) -> int:
        return len(self._client.list_topics(topic, SECONDS_MAX).topics[topic].partitions)

    def alter(self, kind: ResourceType, name: str, *operations: Operation) -> None:
        entries = [ConfigEntry(key, value, incremental_operation=how) for how, key, value in operations]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        for future in self._client.incremental_alter_configs([resource]).values():
            future.result(SECONDS_MAX)

    def described(self, kind: ResourceType, name: str, key: str) -> tuple[str | None, int]:
        """Value and source of one config."""
        (future,) = self._client.describe_configs([ConfigResource(kind, name)]).values()
        entry = future.result(SECONDS_MAX)[key]
        return entry.value, entry.source


def produced(bootstrap: str, topic: str, value: bytes, partition: int = 0) -> Message | KafkaError:
    """The record as it was acknowledged, or why it was not."""
    told: list[Message | KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, message: told.append(error or message)
    )
    assert producer.flush(SECONDS_MAX) == 0
    return told[0]


@pytest.fixture
def tool(java: Path, kafka_jars: Path) -> Tool:
    """Runs a main class of Kafka's tools and returns what it printed."""

    def run(main: str, *arguments: str) -> str:
        command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars}/*", main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 0, f"{main} {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_what_is_altered_through_one_agent_holds_at_all_of_them(shared_cluster: SharedCluster) -> None:
    agents = shared_cluster(settings=AT_ONCE)
    first, second, third = (Admin(agent.bootstrap) for agent in agents)
    first.create("altered")
    for admin in (first, second, third):
        # Describing takes a barrier: from then on the agent acts by what was altered. Produce goes to any of them.
        assert admin.described(ResourceType.TOPIC, "altered", "max.message.bytes") == ("1048588", 5)
    first.alter(ResourceType.TOPIC, "altered", (SET, "max.message.bytes", "200"), (APPEND, "cleanup.policy", "compact"))
    second.alter(ResourceType.TOPIC, "altered", (SET, "message.timestamp.type", "LogAppendTime"))
    for admin in (first, second, third):
        assert admin.described(ResourceType.TOPIC, "altered", "max.message.bytes") == ("200", 1)
        assert admin.described(ResourceType.TOPIC, "altered", "cleanup.policy") == ("delete,compact", 1)
        assert admin.described(ResourceType.TOPIC, "altered", "message.timestamp.type") == ("LogAppendTime", 1)
    for agent in agents:
        refused = produced(agent.bootstrap, "altered", b"x" * 500)
        assert isinstance(refused, KafkaError)
        assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
        keyless = produced(agent.bootstrap, "altered", b"x")
        assert isinstance(keyless, KafkaError)
        assert keyless.code() == KafkaError.INVALID_RECORD
    third.alter(ResourceType.TOPIC, "altered", (DELETE, "max.message.bytes", None), (SET, "cleanup.policy", "delete"))
    for admin in (first, second, third):
        assert admin.described(ResourceType.TOPIC, "altered", "max.message.bytes") == ("1048588", 5)
    for agent in agents:
        taken = produced(agent.bootstrap, "altered", b"x" * 500)
        assert isinstance(taken, Message)
        assert taken.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME


@pytest.mark.slow  # the test before it alters a topic
def test_what_is_altered_for_every_broker_holds_at_all_of_them_and_after_a_restart(
    clusters: ClusterFactory, tool: Tool
) -> None:
    cluster = clusters()
    agents = [cluster.start(name, settings={"message.max.bytes": "300000"}) for name in ("a", "b", "c")]
    admins = [Admin(agent.bootstrap) for agent in agents]
    admins[0].create("t")
    # Of these clients Java's alone lets its users name every broker.
    every = ("--bootstrap-server", agents[1].bootstrap, "--alter", "--entity-type", "brokers", "--entity-default")
    tool(CONFIGS, *every, "--add-config", "message.max.bytes=200")
    for admin in admins:
        assert admin.described(ResourceType.TOPIC, "t", "max.message.bytes") == ("200", 3)
    for agent in agents:
        assert isinstance(produced(agent.bootstrap, "t", b"x" * 500), KafkaError)
    agents[0].process.stop()
    again = cluster.start("a", settings={"message.max.bytes": "300000"})
    assert Admin(again.bootstrap).described(ResourceType.TOPIC, "t", "max.message.bytes") == ("200", 3)
    tool(CONFIGS, *every, "--delete-config", "message.max.bytes")
    for admin in (Admin(again.bootstrap), *admins[1:]):
        assert admin.described(ResourceType.TOPIC, "t", "max.message.bytes") == ("300000", 4)
    assert isinstance(produced(agents[2].bootstrap, "t", b"x" * 500), Message)


@pytest.mark.slow  # kafka-python adds some below
def test_clients_go_on_when_partitions_are_added(shared_cluster: SharedCluster) -> None:
    agents = shared_cluster(settings=AT_ONCE)
    admins = [Admin(agent.bootstrap) for agent in agents]
    admins[0].create("grown")
    producer = Producer({"bootstrap.servers": agents[1].bootstrap, "topic.metadata.refresh.interval.ms": 200})
    consumer = Consumer(
        {
            "bootstrap.servers": agents[2].bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    consumer.subscribe(["grown"])
    producer.produce("grown", b"before", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    assert values(consumer, 1) == {(0, b"before")}
    admins[0].grow("grown", 4)
    for admin in admins:
        admin.described(ResourceType.TOPIC, "grown", "retention.ms")
        assert admin.partitions("grown") == 4
    for partition in range(4):
        taken = produced(agents[partition % 3].bootstrap, "grown", b"after %d" % partition, partition)
        assert isinstance(taken, Message)
        assert taken.offset() == (1 if partition == 0 else 0)
    assert values(consumer, 4) == {(partition, b"after %d" % partition) for partition in range(4)}
    while producer.list_topics("grown", SECONDS_MAX).topics["grown"].partitions.keys() != {0, 1, 2, 3}:
        pass
    producer.produce("grown", b"last", partition=3)
    assert producer.flush(SECONDS_MAX) == 0
    assert values(consumer, 1) == {(3, b"last")}
    consumer.close()
    with pytest.raises(KafkaException) as refused:
        admins[1].grow("grown", 4)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def values(consumer: Consumer, count: int) -> set[tuple[int | None, bytes | None]]:
    """The next records, with their partitions."""
    found: set[tuple[int | None, bytes | None]] = set()
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        found.add((message.partition(), message.value()))
    return found


def test_kafka_python_alters_and_grows(penstock: PenstockFactory) -> None:
    admin = KafkaAdminClient(bootstrap_servers=penstock().bootstrap)
    admin.create_topics({"t": {"num_partitions": 1, "replication_factor": 1}})
    admin.alter_configs([PythonResource(PythonType.TOPIC, "t", configs={"retention.ms": "5"})])
    told = admin.describe_configs([PythonResource(PythonType.TOPIC, "t")])
    assert "retention.ms" in str(told)
    admin.create_partitions({"t": 3})
    (topic,) = admin.describe_topics(["t"])
    assert len(topic["partitions"]) == 3
    admin.close()


@pytest.mark.slow
def test_kafkas_own_tools_alter_and_describe(penstock: PenstockFactory, tool: Tool) -> None:
    server = ("--bootstrap-server", penstock().bootstrap)

    def altered(kind: str, name: str | None, config: str) -> str:
        """What is described of an entity once it was given a config."""
        entity = ("--entity-type", kind, *(("--entity-default",) if name is None else ("--entity-name", name)))
        tool(CONFIGS, *server, "--alter", *entity, "--add-config", config)
        return tool(CONFIGS, *server, "--describe", *entity)

    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7" in altered("brokers", None, "log.retention.ms=7")
    assert "DYNAMIC_BROKER_CONFIG:background.threads=11" in altered("brokers", "1", "background.threads=11")
    assert "producer_byte_rate=1024.0" in altered("users", "ann", "producer_byte_rate=1024")
    session = "consumer.session.timeout.ms=50000"
    assert session in altered("groups", "g", session)
    assert "agent.maintenance.retention=DEBUG" in altered("broker-loggers", "1", "agent.maintenance.retention=DEBUG")
    metrics = "org.apache.kafka.tools.ClientMetricsCommand"
    tool(metrics, *server, "--alter", "--name", "m", "--metrics", "org.apache.kafka.producer.", "--interval", "1000")
    assert "interval.ms=1000" in tool(metrics, *server, "--describe", "--name", "m")
    tool(metrics, *server, "--delete", "--name", "m")
    assert "m" not in tool(metrics, *server, "--list").split()
