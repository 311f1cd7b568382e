"""One of two agents loses its way to etcd. Clients still reach it, and go to the other one; later it serves again.

A black hole between agent and etcd, as a firewall that drops packets: nothing is reset or answered.
"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import LEDGER_SESSION_SECONDS
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import brokers_of, wait_until
from tests.support.services.etcd import Etcd
from tests.torture.link import LinkFault
from tests.torture.proxy_control import ProxyControl

TOPIC = "cut"
PARTITIONS = 12
"""By so many each of two agents leads some."""
REQUEST_SECONDS = 5
"""A producer waits for as long for records that the agent had taken in before."""
GAP_SECONDS_MAX = LEDGER_SESSION_SECONDS + REQUEST_SECONDS + 8
"""Between two acknowledgements: the session is unconfirmed, requests time out and are held; and a slow machine."""

pytestmark = pytest.mark.timeout(120)


class Load:
    """A producer that writes numbers to all partitions in turn, and a consumer that reads them from the first on."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.read: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.sent_count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "request.timeout.ms": REQUEST_SECONDS * 1_000,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "alone", "log_level": 0})
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])

    def step(self) -> None:
        """Write a record to each partition, and read what there is."""
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, str(self.sent_count), partition=partition, on_delivery=self._delivered)
        self.sent_count += 1
        self._producer.poll(0)
        for message in self._consumer.consume(num_messages=500, timeout=0.1):
            assert message.error() is None, message.error()
            self.read[self._partition(message)].append(self._number(message))

    def finish(self) -> None:
        assert self._producer.flush(60) == 0
        wait_until(self._has_read_all, "all records at the consumer")
        self._consumer.close()

    def _has_read_all(self) -> bool:
        for message in self._consumer.consume(num_messages=500, timeout=0.1):
            self.read[self._partition(message)].append(self._number(message))
        return all(len(self.read[partition]) >= self.sent_count for partition in self.read)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged[self._partition(message)].append(self._number(message))

    @staticmethod
    def _partition(message: Message) -> int:
        partition = message.partition()
        assert partition is not None
        return partition

    @staticmethod
    def _number(message: Message) -> int:
        return int(message.value() or b"")


def behind_link(factory: ClusterFactory, etcd: Etcd, folder: Path) -> tuple[Cluster, ProxyControl]:
    """Two agents; the way of agent `a` to etcd leads through the link "etcd"."""
    cluster = factory()
    proxy = cluster.stack.enter_context(ProxyControl(folder, seed=0))  # until both agents have stopped
    (direct,) = etcd.endpoints
    through = proxy.open("etcd", etcd.members[0].client_port)
    ledger = cluster.ledger
    cluster.ledger = ledger.replace(direct, f"127.0.0.1:{through}")
    cluster.start("a")
    cluster.ledger = ledger
    cluster.start("b")
    return cluster, proxy


def create_topic(agent: ClusterAgent) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        created.result(30)


def leaders_of(agent: ClusterAgent) -> set[int]:
    """The node ids that lead the topic, as one agent says it."""
    metadata = AdminClient({"bootstrap.servers": agent.bootstrap, "log_level": 0}).list_topics(TOPIC, timeout=30)
    return {partition.leader for partition in metadata.topics[TOPIC].partitions.values()}


def test_clients_of_an_agent_that_loses_etcd_go_to_the_other_one(
    clusters: ClusterFactory, etcd: Etcd, tmp_path: Path
) -> None:
    cluster, proxy = behind_link(clusters, etcd, tmp_path)
    victim, other = cluster.agents["a"], cluster.agents["b"]
    create_topic(victim)
    assert len(leaders_of(victim)) == 2, "the cut must concern some partitions"
    load = Load(f"{victim.bootstrap},{other.bootstrap}")
    wait_until(lambda: grown(load, 0), "records before the cut")

    proxy.set("etcd", LinkFault(kind="hole"))
    sent_count = load.sent_count
    wait_until(lambda: grown(load, sent_count), "records after the cut", seconds_max=GAP_SECONDS_MAX)
    assert len(brokers_of(victim)) == 2, "clients keep what they know of it"
    assert leaders_of(victim) == {id_ for id_, address in brokers_of(victim).items() if address == other.bootstrap}

    # What the hole has held arrives late now, an append of the session that has ended among it.
    proxy.set("etcd", None)
    wait_until(lambda: len(brokers_of(victim)) == len(brokers_of(other)) == 2, "the agent in Metadata")
    sent_count = load.sent_count
    wait_until(lambda: grown(load, sent_count), "records after the cut is over")
    load.finish()
    for partition in range(PARTITIONS):
        expected = list(range(load.sent_count))
        assert load.acknowledged[partition] == expected, partition
        assert load.read[partition] == expected, partition


def grown(load: Load, number: int) -> bool:
    """Step, and return whether a record beyond `number` is acknowledged and read in every partition."""
    load.step()
    return all(
        load.acknowledged[partition][-1:] > [number] and load.read[partition][-1:] > [number]
        for partition in range(PARTITIONS)
    )
