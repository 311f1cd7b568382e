"""The whole etcd stands still for longer than a lease: members of groups go on afterwards, each of them.

librdkafka gives up brokers that metadata leaves out. Where agents came and went there, a third of its members never
sent a heartbeat again, nor returned from a call (2.16).
"""

import os
import signal
import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import LEDGER_SESSION_SECONDS
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import brokers_of, wait_until
from tests.support.services.etcd import Etcd

TOPIC = "outage"
PARTITIONS = 6
GROUPS = 8
MEMBERS = 2
OUTAGE_S = 3.0 * LEDGER_SESSION_SECONDS
END_SECONDS_MAX = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class OutageMember:
    """A member of a group of the consumer protocol, which commits every second and reads until it is to end."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.read_count = 0
        self._is_ending = threading.Event()
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
            "log_level": 0,
        }
        self._thread = threading.Thread(target=self._run, daemon=True)  # one that hangs must not keep the test
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC])
        while not self._is_ending.is_set():
            self.read_count += len(consumer.consume(500, timeout=0.2))
        consumer.close()

    def end(self) -> None:
        self._is_ending.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()


def write(producer: Producer) -> None:
    """A record to each partition."""
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"v", partition=partition)
    assert producer.flush(END_SECONDS_MAX) == 0


def have_all_brokers(agents: list[ClusterAgent]) -> bool:
    return all(len(brokers_of(agent)) == len(agents) for agent in agents)


def test_each_member_goes_on_after_an_outage_of_the_whole_ledger(clusters: ClusterFactory, etcd: Etcd) -> None:
    cluster = clusters()
    agents = [cluster.start(name) for name in ("a", "b", "c")]
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    members = [OutageMember(bootstrap, f"g{group}") for group in range(GROUPS) for _ in range(MEMBERS)]
    write(producer)
    wait_until(lambda: all(member.read_count for member in members), "each member has partitions")

    (process,) = (member.pid for member in etcd.members)
    os.kill(process, signal.SIGSTOP)
    try:
        threading.Event().wait(OUTAGE_S)
        assert have_all_brokers(agents), "each agent names all, itself too"
    finally:
        os.kill(process, signal.SIGCONT)

    write(producer)
    before = [member.read_count for member in members]
    assert have_all_brokers(agents), "none left metadata when they returned"
    write(producer)
    wait_until(
        lambda: all(member.read_count > count for member, count in zip(members, before, strict=True)),
        "new records at each member",
        seconds_max=END_SECONDS_MAX,
    )
    for member in members:
        member.end()
    wait_until(lambda: not any(member.is_alive for member in members), "the end", seconds_max=END_SECONDS_MAX)
