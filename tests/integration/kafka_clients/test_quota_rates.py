"""Over ten windows no client gets a tenth more than its quota, and clients of other projects are told to wait.

A client that was idle has ten windows of its quota at once, so what it got is counted from its first request on. Ten
windows and a half lie between that burst and the next one.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.clients.kafka_requests import ask
from tests.support.clients.quota_loads import (
    SECONDS_MAX,
    Load,
    kafka_python_consumer,
    kafka_python_creator,
    kafka_python_producer,
    librdkafka_consumer,
    librdkafka_creator,
    librdkafka_producer,
    metadata_reader,
    run_together,
)
from tests.support.cluster.cluster import Cluster, ClusterFactory
from tests.support.cluster.conditions import wait_until
from tests.support.services.local_services import Penstock, PenstockFactory

ALTER_CLIENT_QUOTAS = 49
TEN_WINDOWS = 10.5
"""Seconds."""
FORTY_WINDOWS = 44.0
"""Four times of all eleven windows: a quota allows eleven windows' worth within each eleven."""
BYTES = 50_000.0
"""A second: so few that a busy machine reaches it, too."""
STEP_BYTES = 5_000
"""What clients take at once where ten windows are looked at. Each wait lets one step more through. In the first eleven
windows a rate covers ten to eleven of them, however long was waited, so a dozen steps come on top of the quota. With
steps of 10,000 bytes that was above a tenth in 39 of 3,000 runs computed with `CountedRate`, with 5,000 in none.
"""
PARTITIONS = 20.0
CLOCK_TICKS = 100
"""Of the processor time in /proc, a second."""
FAST = {"flush-interval-ms": "20"}
Creator = Callable[..., Load]
CLUSTER_SCOPE = {"penstock.quota.scope": "cluster"}


def set_quotas(bootstrap: str, client_id: str, **quotas: float) -> None:
    ops = [{"key": name, "value": value, "remove": False} for name, value in quotas.items()]
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    entries = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    assert ask(bootstrap, ALTER_CLIENT_QUOTAS, 1, entries).entries[0].error_code == 0


def fill(bootstrap: str, topic: str, records: int, *, value_bytes: int = 10_000) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(records):
        producer.produce(topic, bytes(value_bytes), partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def assert_held(load: Load, limit: float) -> None:
    assert 0.9 * limit <= load.rate <= 1.1 * limit, f"{load.rate:.0f} a second of {limit:.0f}"
    assert max(load.throttles) > 0.01


def test_each_quota_is_held_over_ten_windows(penstock: PenstockFactory) -> None:
    broker, limit = penstock(), BYTES
    fill(broker.bootstrap, "filled", 160, value_bytes=STEP_BYTES)
    quotas = {"producer_byte_rate": limit, "consumer_byte_rate": limit, "controller_mutation_rate": PARTITIONS}
    for client_id in ("a", "b", "c"):
        set_quotas(broker.bootstrap, client_id, **quotas)
    set_quotas(broker.bootstrap, "d", request_percentage=0.5)
    producer = librdkafka_producer(broker.bootstrap, "a", "t", value_bytes=STEP_BYTES)
    consumer = kafka_python_consumer(broker.bootstrap, "b", "filled", fetch_bytes=STEP_BYTES)
    creator = kafka_python_creator(broker.bootstrap, "c", prefix="made")
    reader, free = metadata_reader(broker.bootstrap, "d"), librdkafka_producer(broker.bootstrap, "free", "t")
    run_together([producer, consumer, creator, reader, free], TEN_WINDOWS)
    assert_held(producer, limit)
    assert_held(consumer, limit)
    # A budget of eleven windows may be spent at once.
    assert creator.amount == pytest.approx((11 + TEN_WINDOWS) * PARTITIONS, rel=0.1)
    assert creator.throttles
    # It would use many times of what it may, so it waits for nearly all of the time.
    assert sum(reader.throttles) > 0.5 * TEN_WINDOWS
    assert not free.throttles


@pytest.mark.slow
class TestEachQuotaAlone:
    def test_of_producers(self, penstock: PenstockFactory) -> None:
        broker = penstock()
        for client_id in ("rdkafka", "python"):
            set_quotas(broker.bootstrap, client_id, producer_byte_rate=BYTES)
        loads = [
            librdkafka_producer(broker.bootstrap, "rdkafka", "t"),
            kafka_python_producer(broker.bootstrap, "python", "t"),
        ]
        run_together(loads, FORTY_WINDOWS)
        for load in loads:
            assert_held(load, BYTES)

    def test_of_two_producers_that_share_one(self, penstock: PenstockFactory) -> None:
        broker = penstock()
        set_quotas(broker.bootstrap, "held", producer_byte_rate=BYTES)
        loads = [librdkafka_producer(broker.bootstrap, "held", "t", partition=0) for _ in range(2)]
        run_together(loads, FORTY_WINDOWS)
        assert 0.9 * BYTES <= sum(load.rate for load in loads) <= 1.1 * BYTES

    def test_of_consumers(self, penstock: PenstockFactory) -> None:
        broker = penstock()
        fill(broker.bootstrap, "filled", 300)
        for client_id in ("rdkafka", "python"):
            set_quotas(broker.bootstrap, client_id, consumer_byte_rate=BYTES)
        loads = [
            librdkafka_consumer(broker.bootstrap, "rdkafka", "filled"),
            kafka_python_consumer(broker.bootstrap, "python", "filled"),
        ]
        run_together(loads, FORTY_WINDOWS)
        for load in loads:
            assert_held(load, BYTES)

    @pytest.mark.parametrize("creator", [librdkafka_creator, kafka_python_creator])
    def test_of_mutations(self, penstock: PenstockFactory, creator: Creator) -> None:
        broker = penstock()
        set_quotas(broker.bootstrap, "held", controller_mutation_rate=PARTITIONS)
        burst, held = (creator(broker.bootstrap, "held", prefix=name) for name in ("burst", "held"))
        began_s = time.monotonic()
        while not burst.throttles:
            burst.amount += burst.step()
        # A budget of eleven windows may be spent at once.
        assert burst.amount == pytest.approx((11 + time.monotonic() - began_s) * PARTITIONS, rel=0.1)
        burst.close()
        held.run(FORTY_WINDOWS)
        assert_held(held, PARTITIONS)

    @pytest.mark.parametrize("percent", [2.0, 6.0])
    def test_of_the_time_of_requests(self, penstock: PenstockFactory, percent: float) -> None:
        """By the processor time of the agent's process, less what it takes when nobody asks.

        The quota counts handlers. What the process does around them, such as sending an answer, comes on top.
        """
        broker = penstock()
        make_topics(broker.bootstrap, 500)
        wait_until(lambda: cpu_ratio(broker, 2.0) < 0.05, "a quiet agent")
        idle = cpu_ratio(broker, 5.0)
        set_quotas(broker.bootstrap, "held", request_percentage=percent)
        load = metadata_reader(broker.bootstrap, "held")
        began_s, began = time.monotonic(), cpu_seconds(broker)
        load.run(FORTY_WINDOWS)
        used = (cpu_seconds(broker) - began) / (time.monotonic() - began_s) - idle
        assert max(load.throttles) > 0.01
        assert max(load.throttles) <= 1.0
        assert 0.9 * percent <= 100 * used <= 1.3 * percent


def make_topics(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(f"topic-{number}", 4) for number in range(count)]).values():
        made.result(SECONDS_MAX)


def cpu_seconds(broker: Penstock) -> float:
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def cpu_ratio(broker: Penstock, seconds: float) -> float:
    """What the agent takes of a processor while nobody asks it, measured for so long."""
    began_s, began = time.monotonic(), cpu_seconds(broker)
    wait_until(lambda: time.monotonic() - began_s >= seconds, "the time of a measurement")
    return (cpu_seconds(broker) - began) / (time.monotonic() - began_s)


def leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    """A partition of each leader, by the leader's id, once every agent leads one."""
    bootstrap = next(iter(cluster.agents.values())).bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 12)])[topic].result(SECONDS_MAX)
    found: dict[int, int] = {}

    def all_lead() -> bool:
        partitions = admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions
        found.update({row.leader: index for index, row in partitions.items()})
        return len(found) == len(cluster.agents)

    wait_until(all_lead, "partitions of every agent")
    return found


@pytest.mark.slow
class TestThreeAgents:
    @pytest.mark.parametrize(("settings", "share"), [(CLUSTER_SCOPE, 1), ({}, 3)])
    def test_of_producers(self, clusters: ClusterFactory, settings: dict[str, str], share: int) -> None:
        """With the scope of the cluster three producers at three agents have one quota, else each has its own."""
        cluster = clusters()
        agents = [cluster.start(name, settings=settings, options=FAST) for name in ("a", "b", "c")]
        partitions = leaders(cluster, "t")
        set_quotas(agents[0].bootstrap, "held", producer_byte_rate=BYTES)
        bootstrap = ",".join(agent.bootstrap for agent in agents)
        loads = [
            librdkafka_producer(bootstrap, "held", "t", partition=partition, value_bytes=4_000)
            for partition in partitions.values()
        ]
        run_together(loads, FORTY_WINDOWS)
        total = sum(load.rate for load in loads)
        assert 0.9 * share * BYTES <= total <= 1.1 * share * BYTES, [load.rate for load in loads]
        assert all(max(load.throttles) > 0.01 for load in loads)

    def test_one_producer_that_moves_from_agent_to_agent(self, clusters: ClusterFactory) -> None:
        cluster = clusters()
        agents = [cluster.start(name, settings=CLUSTER_SCOPE, options=FAST) for name in ("a", "b", "c")]
        partitions = leaders(cluster, "t")
        set_quotas(agents[0].bootstrap, "held", producer_byte_rate=BYTES)
        bootstrap = ",".join(agent.bootstrap for agent in agents)
        amount, began_s = 0.0, time.monotonic()
        for partition in partitions.values():
            load = librdkafka_producer(bootstrap, "held", "t", partition=partition)
            load.run(TEN_WINDOWS / 3)
            amount += load.amount
        assert amount / (time.monotonic() - began_s) == pytest.approx(BYTES, rel=0.1)

    def test_of_consumers(self, clusters: ClusterFactory) -> None:
        """Three consumers at three agents have a third each."""
        cluster = clusters()
        agents = [cluster.start(name, settings=CLUSTER_SCOPE, options=FAST) for name in ("a", "b", "c")]
        fill(agents[0].bootstrap, "filled", 300)
        set_quotas(agents[0].bootstrap, "held", consumer_byte_rate=BYTES)
        load = librdkafka_consumer(",".join(agent.bootstrap for agent in agents), "held", "filled")
        load.run(FORTY_WINDOWS)
        assert_held(load, BYTES / 3)
