"""Recovery of a cluster: its records, the keys of its bucket, and commands without an agent."""

import json
import subprocess
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster.cluster import Cluster, ClusterAgent
from tests.support.services.local_services import PENSTOCK, Minio, Penstock

SECONDS_MAX = 60.0
LEASE_SECONDS_MAX = 40.0
COMMAND_SECONDS_MAX = 120.0
"""A recovery watches the bucket, and waits for a lease and a request to the store."""
REQUEST = ("--store-timeout-s", "5")
"""No request to the store takes longer here, and a recovery waits for one."""


def produce(agent: ClusterAgent | Penstock, topic: str, values: list[bytes]) -> None:
    """Produces the values one after the other, so that each has an entry of its own."""
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0


def consume(agent: ClusterAgent | Penstock, topic: str, count: int) -> list[bytes]:
    """The values of the first `count` records of partition 0."""
    consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(values)} of {count} records came"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        values.append(value)
    consumer.close()
    return values


def root(minio: Minio, cluster: Cluster) -> Path:
    """The folder in which MinIO keeps the cluster's objects."""
    return minio.data / cluster.store.removeprefix("s3://").partition("/")[0] / "data"


def keys(minio: Minio, cluster: Cluster) -> set[str]:
    """The keys of the bucket, without marks of progress, which newer ones replace."""
    folder = root(minio, cluster)
    # MinIO keeps an object as a folder with such a file.
    keys_all = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("xl.meta")}
    return {key for key in keys_all if not key.startswith("ledger/reached/")}


def offline(cluster: Cluster, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that opens ledger and bucket itself."""
    command: list[str | Path] = [PENSTOCK, name, "--ledger", cluster.ledger, "--store", cluster.store, *options]
    return subprocess.run(
        command,
        env={**cluster.env, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS_MAX,
    )


def recovered(cluster: Cluster) -> dict[str, object]:
    """The report of a recovery, which waits for the leases of agents that are gone."""
    deadline = time.monotonic() + LEASE_SECONDS_MAX
    while True:
        done = offline(cluster, "recover", "--json", *REQUEST)
        if done.returncode == 0:
            report = json.loads(done.stdout)
            assert isinstance(report, dict)
            return report
        # The command failed before it fenced anything.
        assert "agents run on this ledger" in done.stderr, done.stderr
        assert time.monotonic() < deadline, done.stderr


def exit_of(agent: ClusterAgent) -> str:
    """Waits until an agent has ended by itself with status 1; what it wrote to standard error."""
    assert agent.process.wait_ended(seconds_max=SECONDS_MAX) == 1
    return agent.process.stderr
