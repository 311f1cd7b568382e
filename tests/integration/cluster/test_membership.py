"""Who is in the cluster, as clients see it: agents that come, go, die and return, and in which zone each is.

Rule: real agents; clients ask those that stay.
"""

import time
import zlib
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from benchmarks.measure.exposition import scrape
from protocol.limits import LEDGER_SESSION_SECONDS
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import SECONDS_MAX, brokers_of, wait_until

PARTITIONS = 60
"""So many that it is no chance where each of three agents leads some."""


def leaders_of(agent: ClusterAgent, topic: str, client_id: str = "") -> dict[int, tuple[int, list[int]]]:
    """Leader and replicas of each partition, as this agent tells them."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap, "client.id": client_id or "any", "log_level": 0})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {number: (partition.leader, list(partition.replicas)) for number, partition in partitions.items()}


def create_topic(agent: ClusterAgent, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)


def node_id(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def fetch_bytes(agent: ClusterAgent) -> float:
    """Bytes of records that this agent has given to consumers."""
    return scrape(agent.http)["penstock_fetch_bytes_total"]


def test_agents_come_drain_die_and_return_under_their_node_ids(clusters: ClusterFactory) -> None:
    cluster = clusters()
    a, b, c = (cluster.start(name) for name in ("a", "b", "c"))
    create_topic(a, "t")
    everybody = {node_id(agent.name): agent.bootstrap for agent in (a, b, c)}
    wait_until(lambda: all(brokers_of(agent) == everybody for agent in (a, b, c)), "three brokers")
    led = leaders_of(a, "t")
    assert {leader for leader, _ in led.values()} == set(everybody)
    assert led == leaders_of(b, "t") == leaders_of(c, "t")

    assert c.process.stop() == 0
    assert brokers_of(a) == brokers_of(b) == {n: where for n, where in everybody.items() if n != node_id("c")}
    for partition, (leader, _) in leaders_of(a, "t").items():
        assert leader == led[partition][0] or led[partition][0] == node_id("c")

    c = cluster.start("c", listen=c.bootstrap)
    wait_until(lambda: brokers_of(a) == everybody, "the agent that returned")
    assert leaders_of(a, "t") == led

    b.process.kill()
    gone_s = wait_until(lambda: node_id("b") not in brokers_of(a), "the end of the dead agent's session")
    print(f"a killed agent was out after {gone_s:.1f} s, its lease lasts {LEDGER_SESSION_SECONDS} s")
    assert node_id("b") not in brokers_of(c)
    b = cluster.start("b")
    wait_until(lambda: brokers_of(c).get(node_id("b")) == b.bootstrap, "the agent that returned at another port")


@pytest.mark.slow  # in one process: test_rendezvous, test_topics
def test_replicas_by_hand_are_reported_as_they_were_given_and_led_by_the_first_that_lives(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters()
    a, b, c = (cluster.start(name) for name in ("a", "b", "c"))
    everybody = {node_id(agent.name) for agent in (a, b, c)}
    wait_until(lambda: set(brokers_of(a)) == everybody, "three brokers")
    by_hand = [[node_id("c"), node_id("a")], [node_id("b")], [node_id("a"), node_id("b"), node_id("c")]]
    admin = AdminClient({"bootstrap.servers": a.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 2, replica_assignment=by_hand[:2])])["t"].result(30)
    admin.create_partitions([NewPartitions("t", 3, by_hand[2:])])["t"].result(30)
    told = {partition: (replicas[0], replicas) for partition, replicas in enumerate(by_hand)}

    def is_told(agent: ClusterAgent) -> bool:
        return leaders_of(agent, "t") == told

    for agent in (a, b, c):
        wait_until(partial(is_told, agent), "the replicas that were given")

    assert c.process.stop() == 0
    assert leaders_of(a, "t") == {**told, 0: (node_id("a"), by_hand[0])}
    assert b.process.stop() == 0
    assert leaders_of(a, "t") == {0: (node_id("a"), by_hand[0]), 1: (node_id("a"), by_hand[1]), 2: told[2]}


def test_clients_are_led_within_their_zone_and_consumers_read_there(clusters: ClusterFactory) -> None:
    cluster = clusters()
    a, b, c = (cluster.start(name, options={"zone": zone}) for name, zone in (("a", "x"), ("b", "y"), ("c", "y")))
    create_topic(a, "t")
    nodes = {agent.name: node_id(agent.name) for agent in (a, b, c)}
    wait_until(lambda: len(brokers_of(a)) == 3, "three brokers")
    anywhere = leaders_of(a, "t")
    assert {leader for leader, _ in anywhere.values()} == set(nodes.values())
    for leader, replicas in anywhere.values():
        assert replicas[0] == leader
        assert len(replicas) == 2
        assert nodes["a"] in replicas
    assert {leader for leader, _ in leaders_of(b, "t", "writer,zone=x").values()} == {nodes["a"]}
    assert {leader for leader, _ in leaders_of(a, "t", "zone=y,writer").values()} == {nodes["b"], nodes["c"]}

    producer = Producer({"bootstrap.servers": a.bootstrap, "linger.ms": 0})
    for partition in range(PARTITIONS):
        producer.produce("t", b"v", partition=partition)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer(
        {"bootstrap.servers": a.bootstrap, "group.id": "g", "client.rack": "x", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    read: set[int | None] = set()
    deadline_s = time.monotonic() + SECONDS_MAX
    while len(read) < PARTITIONS and time.monotonic() < deadline_s:
        for message in consumer.consume(100, timeout=0.2):
            assert message.error() is None, message.error()
            read.add(message.partition())
    consumer.close()
    assert read == set(range(PARTITIONS))
    served = {agent.name: fetch_bytes(agent) for agent in (a, b, c)}
    assert served["a"] > 0
    assert served["b"] == served["c"] == 0
