"""etcd wiped, and etcd restored from an older copy: agents refuse, nothing is deleted, and a recovery brings all back.

Rule: real agents over an etcd of this test's own and MinIO; what the bucket holds is read from MinIO's folder.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.etcd_service import Etcd
from tests.services import PENSTOCK, Minio

SECONDS_MAX = 60.0
LEASE_SECONDS_MAX = 40.0
OPTIONS = {"snapshot-entries": "10", "archive-interval-s": "3600", "flush-interval-ms": "0"}


def produce(agent: ClusterAgent, topic: str, values: list[bytes]) -> None:
    """One after the other, so that each is an entry of its own."""
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0


def consume(agent: ClusterAgent, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(value)
    consumer.close()
    return found


def keys(minio: Minio, cluster: Cluster) -> set[str]:
    """The bucket's keys: MinIO keeps an object as a folder with one file of this name."""
    root = minio.data / cluster.store.removeprefix("s3://").partition("/")[0] / "data"
    return {path.parent.relative_to(root).as_posix() for path in root.rglob("xl.meta")}


def marks(minio: Minio, cluster: Cluster) -> set[str]:
    return {key for key in keys(minio, cluster) if key.startswith("ledger/reached/")}


def recover(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [PENSTOCK, "recover", "--ledger", cluster.ledger, "--store", cluster.store, *options]
    return subprocess.run(
        command, env={**cluster.env, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False, timeout=60
    )


def recovered(cluster: Cluster) -> dict[str, object]:
    """The report of a recovery, which waits for the leases of agents that are gone."""
    deadline = time.monotonic() + LEASE_SECONDS_MAX
    while True:
        done = recover(cluster, "--json")
        if done.returncode == 0:
            told = json.loads(done.stdout)
            assert isinstance(told, dict)
            return told
        assert "agents run on this ledger" in done.stderr, done.stderr
        assert time.monotonic() < deadline, done.stderr


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path / "etcd") as running:
        yield running


def exit_of(agent: ClusterAgent) -> str:
    """What an agent wrote that has ended by itself, with a status that says that it failed."""
    assert agent.process.wait_for_end(seconds_max=SECONDS_MAX) == 1
    return agent.process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_wiped", [True, False], ids=["wiped", "restored from an older copy"])
def test_s9_agents_refuse_nothing_is_deleted_and_a_recovery_brings_back_everything(
    own_etcd: Etcd, minio: Minio, tmp_path: Path, *, is_wiped: bool
) -> None:
    member = own_etcd.members[0]
    with ExitStack() as stack:
        cluster = ClusterFactory(etcd=own_etcd, minio=minio, folder=tmp_path, stack=stack)()
        agents = [cluster.start(name, options=OPTIONS) for name in ("a", "b")]
        values = [b"%d" % row for row in range(60)]
        produce(agents[0], "kept", values[:15])
        produce(agents[1], "kept", values[15:30])

        member.kill()
        shutil.copytree(member.data, tmp_path / "older")
        marks_then = marks(minio, cluster)
        member.start(own_etcd.members)
        member.wait()
        produce(agents[0], "kept", values[30:45])
        produce(agents[1], "kept", values[45:])
        agents[0].process.wait_until(lambda: not marks(minio, cluster) & marks_then, "a mark of what followed")

        member.kill()
        before = keys(minio, cluster)
        shutil.rmtree(member.data)
        if not is_wiped:
            shutil.copytree(tmp_path / "older", member.data)
        member.start(own_etcd.members)
        member.wait()
        for agent in agents:
            assert "penstock recover" in exit_of(agent)
        late = cluster.start("c", options=OPTIONS, is_waited_for=False)
        assert "penstock recover" in exit_of(late)
        assert before <= keys(minio, cluster)

        planned = recover(cluster, "--dry-run")
        told = recovered(cluster)
        assert planned.returncode in {0, 2}, planned.stderr  # 2 while leases last
        assert told["missing"] == told["damaged"] == []
        assert before <= keys(minio, cluster)
        again = [cluster.start(name, options=OPTIONS) for name in ("a", "b")]
        for agent in again:
            assert sorted(consume(agent, "kept", len(values)), key=int) == values
        produce(again[0], "kept", [b"60"])
        assert consume(again[1], "kept", 61)[-1] == b"60"
