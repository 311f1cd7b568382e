"""Agents are restarted one after the other under load, and no client notices but by a slower answer.

Rule: real agents, real clients with their own defaults for errors and retries. How slow the slowest answers were is
printed, never asserted.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.load import consume_all
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.rolling_restart_load import Latencies, SteadyConsumer, SteadyProducer
from tests.support.processes import Process
from tests.support.services.java import JavaProgram

NAMES = ("a", "b", "c")
PARTITIONS = 6
READ_SECONDS_MAX = 60.0


def create_topics(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        created.result(30)


def restart(cluster: Cluster, agent: ClusterAgent) -> ClusterAgent:
    """Stop it as an orderly deployment does, and start it where it was."""
    assert agent.process.stop() == 0, agent.process.stderr
    return cluster.start(agent.name, listen=agent.bootstrap)


def numbers_at(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    found = consume_all(bootstrap, topic, PARTITIONS)
    return {partition: [(offset, int(value)) for offset, _, value in rows] for partition, rows in found.items()}


@pytest.mark.slow
def test_a_rolling_restart_costs_clients_no_error_and_no_record(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = [cluster.start(name) for name in NAMES]
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    create_topics(bootstrap, "idempotent", "one-in-flight")
    with ExitStack() as stack:
        producers = [
            SteadyProducer(
                bootstrap=bootstrap,
                topic="idempotent",
                partitions=PARTITIONS,
                settings={"enable.idempotence": True},
            ),
            SteadyProducer(
                bootstrap=bootstrap,
                topic="one-in-flight",
                partitions=PARTITIONS,
                settings={"max.in.flight.requests.per.connection": 1},
            ),
        ]
        readers = [
            stack.enter_context(SteadyConsumer(bootstrap=bootstrap, topic=producer.topic, partitions=PARTITIONS))
            for producer in producers
        ]
        with ExitStack() as producing:
            for producer in producers:
                producing.enter_context(producer)
            for agent in agents:
                restart(cluster, agent)
        for producer, reader in zip(producers, readers, strict=True):
            assert reader.wait_for(producer.sent, READ_SECONDS_MAX), f"{reader.read_count} of {producer.sent} were read"
    for producer, reader in zip(producers, readers, strict=True):
        print(f"{producer.topic}: {Latencies.of(producer.latencies_s)}")
        assert producer.errors == []
        assert reader.errors == []
        stored = numbers_at(bootstrap, producer.topic)
        for partition in range(PARTITIONS):
            count = len(range(partition, producer.sent, PARTITIONS))
            assert stored[partition] == [(number, number) for number in range(count)]
            assert reader.read[partition] == stored[partition]
            assert producer.acknowledged[partition] == stored[partition]


@pytest.mark.slow
def test_a_rolling_restart_costs_java_clients_nothing(
    clusters: ClusterFactory, compile_java: Callable[[Path], JavaProgram], tmp_path: Path
) -> None:
    client = compile_java(Path(__file__).parents[1] / "java" / "SteadyClient.java")
    cluster = clusters()
    agents = [cluster.start(name) for name in NAMES]
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    create_topics(bootstrap, "t")
    stop = tmp_path / "stop"
    command = client.command(bootstrap, "t", str(PARTITIONS), "200", str(stop))
    with Process(command, tmp_path, name="steady-client") as process:
        assert process.read_line() == "sending"
        for agent in agents:
            restart(cluster, agent)
        stop.touch()
        process.wait_until(lambda: "done" in process.stdout, "the last record", seconds_max=120)
        *errors, done = process.read_lines()
    assert errors == []
    _, sent, read, p50_ms, p99_ms, max_ms = done.split()
    print(f"Java: {sent} records, p50 {p50_ms} ms, p99 {p99_ms} ms, max {max_ms} ms")
    assert int(read) == int(sent) > 0
    assert not [line for line in process.stderr.splitlines() if " ERROR " in line]
