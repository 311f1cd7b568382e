"""Transactions whose producers are gone end by themselves, and operators find and end them with Kafka's own tool."""

import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.services.java import JavaProgram

TOOL = "org.apache.kafka.tools.TransactionsCommand"
TOPIC = "t"
SECONDS_MAX = 100.0
QUIET_SECONDS = 2.0
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def started(clusters: ClusterFactory) -> Cluster:
    """Three agents, and a topic of two partitions."""
    cluster = clusters()
    for name in ("a", "b", "c"):
        cluster.start(name, settings=SETTINGS)
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    for future in admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)]).values():
        future.result(SECONDS_MAX)
    return cluster


def bootstrap(cluster: Cluster) -> str:
    return ",".join(agent.bootstrap for agent in cluster.agents.values() if agent.process.is_running)


def left_open(cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> Producer:
    """A producer with a record in each partition, in a transaction that it does not end."""
    settings = {
        "bootstrap.servers": bootstrap(cluster),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
    }
    producer = Producer(settings)
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(TOPIC, b"open", partition=partition)
    assert producer.flush(SECONDS_MAX) == 0
    return producer


def produce(cluster: Cluster, value: bytes) -> None:
    """The same value to both partitions, outside transactions."""
    producer = Producer({"bootstrap.servers": bootstrap(cluster)})
    for partition in (0, 1):
        producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(SECONDS_MAX) == 0


def committed(cluster: Cluster, count: int) -> list[bytes]:
    """The first `count` values that read_committed shows, or what comes until it is quiet."""
    settings = {
        "bootstrap.servers": bootstrap(cluster),
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in (0, 1)])
    values: list[bytes] = []
    quiet_until_s = time.monotonic() + (SECONDS_MAX if count else QUIET_SECONDS)
    while time.monotonic() < quiet_until_s and not 0 < count <= len(values):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def metrics(agent: ClusterAgent) -> Mapping[str, float]:
    """Values of an agent's metrics, by name and labels."""
    with urlopen(f"http://{agent.http}/metrics", timeout=SECONDS_MAX) as response:
        text: str = response.read().decode()
    return {name: float(value) for name, value in re.findall(r"(?m)^(penstock_\S+) (\S+)$", text)}


EXPIRED = 'penstock_transactions_ended_total{how="expired"}'


def has_expired(agent: ClusterAgent) -> bool:
    """Whether an agent knows of a transaction that took too long."""
    return metrics(agent)[EXPIRED] == 1


def exposing_leader(cluster: Cluster) -> ClusterAgent:
    """The agent whose metrics say that it is the maintenance leader."""
    (leader,) = [agent for agent in cluster.agents.values() if metrics(agent)["penstock_maintenance_leader"] == 1]
    return leader


def maintenance_leaders(cluster: Cluster) -> list[ClusterAgent]:
    """The running agents that logged that they are the maintenance leader."""
    agents = [agent for agent in cluster.agents.values() if agent.process.is_running]
    return [agent for agent in agents if "this agent is now the maintenance leader" in agent.process.stderr]


class Tool:
    """kafka-transactions.sh, asked through one agent."""

    def __init__(self, agent: ClusterAgent, java: Path, kafka_jars: Path, folder: Path) -> None:
        self._program = JavaProgram(java=java, class_path=f"{kafka_jars}/*", main=TOOL, folder=folder)
        self._bootstrap = agent.bootstrap

    def rows(self, *words: str) -> list[dict[str, str]]:
        """What it prints, by the names of its columns."""
        text = self._program.run("--bootstrap-server", self._bootstrap, *words)
        lines = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines() if line.strip()]
        return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


@pytest.mark.slow
def test_kafkas_tool_finds_a_transaction_that_hangs_and_aborts_all_of_it(
    clusters: ClusterFactory, java: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    cluster = started(clusters)
    tool = Tool(cluster.agents["b"], java, kafka_jars, tmp_path)
    producer = left_open(cluster, "hangs", timeout_ms=600_000)
    produce(cluster, b"behind")
    assert committed(cluster, 0) == []
    (listed,) = tool.rows("list")
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("hangs", "Ongoing")
    (described,) = tool.rows("describe", "--transactional-id", "hangs")
    assert set(described["TopicPartitions"].split(",")) == {f"{TOPIC}-0", f"{TOPIC}-1"}
    assert int(described["TransactionDurationMs"]) > 0
    partition = ("--topic", TOPIC, "--partition", "1")
    (writer,) = [
        row for row in tool.rows("describe-producers", *partition) if row["ProducerId"] == listed["ProducerId"]
    ]
    assert writer["CurrentTransactionStartOffset"] == "0"
    assert tool.rows("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0") == []
    tool.rows("abort", *partition, "--start-offset", "0")
    assert committed(cluster, 2) == [b"behind", b"behind"]
    (ended,) = tool.rows("list")
    assert ended["TransactionState"] == "CompleteAbort"
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS_MAX)
    assert committed(cluster, 2) == [b"behind", b"behind"]


@pytest.mark.slow
def test_kafkas_tool_ends_a_transaction_by_its_id_alone(
    clusters: ClusterFactory, java: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    cluster = started(clusters)
    tool = Tool(cluster.agents["c"], java, kafka_jars, tmp_path)
    left_open(cluster, "hangs", timeout_ms=600_000)
    produce(cluster, b"behind")
    tool.rows("forceTerminateTransaction", "--transactionalId", "hangs")
    assert committed(cluster, 2) == [b"behind", b"behind"]
    logs = "".join(agent.process.stderr for agent in cluster.agents.values())
    assert "fenced the one before it and aborted what that had open" in logs


@pytest.mark.slow  # so does tests/scenarios/test_transaction_promises.py
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(clusters: ClusterFactory) -> None:
    cluster = started(clusters)
    producer = left_open(cluster, "slow", timeout_ms=1_500)
    produce(cluster, b"behind")
    assert committed(cluster, 2) == [b"behind", b"behind"]
    leader = exposing_leader(cluster)
    leader.process.wait_until(partial(has_expired, leader), "the end of the transaction", seconds_max=SECONDS_MAX)
    assert metrics(leader)["penstock_transactions_open"] == 0
    assert metrics(leader)['penstock_last_stable_offset_lag{topic="t"}'] == 0
    (told,) = [
        agent for agent in cluster.agents.values() if "open for longer than its time-out" in agent.process.stderr
    ]
    assert told in maintenance_leaders(cluster)
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS_MAX)


@pytest.mark.slow
def test_another_agent_aborts_it_where_the_one_that_kept_house_was_killed(clusters: ClusterFactory) -> None:
    cluster = started(clusters)
    first = cluster.agents["a"].process
    first.wait_until(lambda: bool(maintenance_leaders(cluster)), "a maintenance leader", seconds_max=SECONDS_MAX)
    (killed,) = maintenance_leaders(cluster)
    left_open(cluster, "hangs", timeout_ms=3_000)
    killed.process.kill()
    produce(cluster, b"behind")
    assert committed(cluster, 2) == [b"behind", b"behind"]
    (told,) = maintenance_leaders(cluster)
    assert "open for longer than its time-out" in told.process.stderr
    assert has_expired(told)
