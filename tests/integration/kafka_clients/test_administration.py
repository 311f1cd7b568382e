"""What administrators ask of a cluster, by Java's own client over three agents, and metrics that clients push."""

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.services.java import JavaProgram

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

PARTITIONS = 12
SECONDS_MAX = 60


def read(agent: ClusterAgent, path: str) -> str:
    with urlopen(f"http://{agent.http}{path}", timeout=SECONDS_MAX) as response:
        text: str = response.read().decode()
    return text


def shown(cluster: Cluster, client_id: str) -> Mapping[str, float]:
    """The metrics of a client by name, that any agent shows."""
    values: dict[str, float] = {}
    for agent in cluster.agents.values():
        found = re.findall(rf'(?m)^(kafka_client_\w+)\{{.*client_id="{client_id}".*\}} (\S+)$', read(agent, "/metrics"))
        for name, value in found:
            values[name] = values.get(name, 0.0) + float(value)
    return values


@pytest.mark.slow  # test_protocol_diff has their requests
def test_what_administrators_ask_is_answered_by_a_cluster_of_three(
    clusters: ClusterFactory, compile_java: Callable[[Path], JavaProgram]
) -> None:
    cluster = clusters()
    agents = [cluster.start(name) for name in ("a", "b", "c")]
    program = compile_java(Path(__file__).parents[1] / "java" / "AdminAnswers.java")
    lines = program.run(agents[1].bootstrap, "orders", str(PARTITIONS)).splitlines()
    told = dict(line.split(": ", 1) for line in lines)
    assert len(told.pop("client instance")) == 22
    assert told == {
        "brokers": "3",
        "quorum": "1 and 2",
        "log dirs": f"1 told {PARTITIONS} different {PARTITIONS} with bytes true",
        "producers": "1",
        "elected": "ElectionNotNeededException",
        "elected of all": "0",
        "moved": "null",
        "moved elsewhere": "InvalidReplicaAssignmentException",
        "cancelled": "NoReassignmentInProgressException",
        "moving": "0",
        "directory": "LogDirNotFoundException",
        "acls": "SecurityDisabledException",
        "acls deleted": "SecurityDisabledException",
        "token": "UnsupportedByAuthenticationException",
        "tokens": "UnsupportedByAuthenticationException",
        "users": "0",
        "user set": "null",
        "user deleted": "null",
        "feature": "InvalidUpdateVersionException",
    }
    # Java's client leaves out of a sum what it counted before its first push.
    assert 0 <= shown(cluster, "pushing")["kafka_client_producer_topic_record_send_total"] <= PARTITIONS


@pytest.mark.slow
def test_a_producer_of_librdkafka_pushes_what_it_is_asked_for(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = [cluster.start(name) for name in ("a", "b", "c")]
    admin = KafkaAdminClient(bootstrap_servers=agents[0].bootstrap)
    configs = {"metrics": "*", "interval.ms": "100", "match": "client_software_name=confluent-kafka-.*,client_id=asked"}
    admin.alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, "some", configs=configs)])
    admin.close()
    for agent in agents:
        read(agent, "/api/topics")  # behind a barrier: each has applied it then, and the first question is answered so
    asked, other = (
        Producer({"bootstrap.servers": agents[2].bootstrap, "client.id": name, "enable.metrics.push": True})
        for name in ("asked", "other")
    )
    for producer in (asked, other):
        producer.produce("t", b"value")
        assert producer.flush(SECONDS_MAX) == 0
    agents[2].process.wait_until(
        lambda: "kafka_client_producer_connection_creation_total" in shown(cluster, "asked"),
        "metrics of the client",
        seconds_max=SECONDS_MAX,
    )
    assert not shown(cluster, "other")
