"""etcd wiped, and etcd restored from an older copy: agents refuse, nothing is deleted, and a recovery brings all back.

Rule: real agents over an etcd of this test's own and MinIO; what the bucket holds is read from MinIO's folder. And one
broker with a folder of its own, whose ledger is gone.
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

from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

SECONDS_MAX = 60.0
LEASE_SECONDS_MAX = 40.0
COMMAND_SECONDS_MAX = 120.0
"""A recovery watches the bucket, and waits for a lease and a request to the store."""
REQUEST = ("--store-timeout-s", "5")
"""No request to the store takes longer here, and a recovery waits for one."""
OPTIONS = {"snapshot-entries": "10", "archive-interval-s": "3600", "flush-interval-ms": "0"}


def produce(agent: ClusterAgent | Penstock, topic: str, values: list[bytes]) -> None:
    """One after the other, so that each is an entry of its own."""
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0


def consume(agent: ClusterAgent | Penstock, topic: str, count: int) -> list[bytes]:
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


def root(minio: Minio, cluster: Cluster) -> Path:
    return minio.data / cluster.store.removeprefix("s3://").partition("/")[0] / "data"


def keys(minio: Minio, cluster: Cluster) -> set[str]:
    """The bucket's keys but for marks, which newer ones replace: MinIO keeps an object as a folder with such a file."""
    folder = root(minio, cluster)
    found = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("xl.meta")}
    return {key for key in found if not key.startswith("ledger/reached/")}


def has_snapshot(minio: Minio, cluster: Cluster) -> bool:
    return any(key.startswith("ledger/snapshots/") for key in keys(minio, cluster))


def offline(cluster: Cluster, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A command that opens ledger and bucket itself."""
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
            told = json.loads(done.stdout)
            assert isinstance(told, dict)
            return told
        # It was refused, before anything was fenced.
        assert "agents run on this ledger" in done.stderr, done.stderr
        assert time.monotonic() < deadline, done.stderr


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path / "etcd") as running:
        yield running


def exit_of(agent: ClusterAgent) -> str:
    """What an agent wrote that has ended by itself, with a status that says that it failed."""
    assert agent.process.wait_ended(seconds_max=SECONDS_MAX) == 1
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
        # The topic's name stands in snapshots alone.
        agents[0].process.wait_until(lambda: has_snapshot(minio, cluster), "the first snapshot")

        member.kill()
        shutil.copytree(member.data, tmp_path / "older")
        member.start(own_etcd.members)
        member.wait()
        produce(agents[0], "kept", values[30:45])
        produce(agents[1], "kept", values[45:])

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

        planned = offline(cluster, "recover", "--dry-run")
        told = recovered(cluster)
        assert planned.returncode in {0, 2}, planned.stderr  # 2 while leases last
        assert told["missing"] == told["damaged"] == []
        assert before <= keys(minio, cluster)
        again = [cluster.start(name, options=OPTIONS) for name in ("a", "b")]
        for agent in again:
            assert sorted(consume(agent, "kept", len(values)), key=int) == values
        produce(again[0], "kept", [b"60"])
        assert consume(again[1], "kept", 61)[-1] == b"60"

        asked = subprocess.run(
            [PENSTOCK, "audit", "--server", again[0].http], capture_output=True, text=True, check=False, timeout=60
        )
        assert asked.returncode == 0, asked.stdout + asked.stderr
        intake = max(key for key in keys(minio, cluster) if key.startswith("intake/"))
        shutil.rmtree(root(minio, cluster) / intake)
        found = offline(cluster, "audit", "--json")
        assert found.returncode == 1
        told = json.loads(found.stdout)
        assert [(fault["what"], fault["subject"]) for fault in told["disagreements"]] == [("missing", intake)]


@pytest.mark.slow
def test_s9_a_broker_whose_ledger_file_is_gone_gets_its_records_back(penstock: PenstockFactory) -> None:
    broker = penstock()
    values = [b"%d" % row for row in range(20)]
    produce(broker, "kept", values)
    assert broker.process.stop() == 0

    def recover(*options: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [PENSTOCK, "recover", "--data-dir", broker.data, *REQUEST, *options]
        env = {"PATH": "/usr/bin:/bin"}
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS_MAX
        )

    needless = recover("--json")
    assert needless.returncode == 2
    assert "start the agents" in needless.stderr
    for path in broker.data.glob("ledger.sqlite*"):
        path.unlink()
    done = recover("--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["is_carried_out"], told["incarnation"], told["missing"], told["damaged"]) == (True, 2, [], [])
    (topic,) = told["topics"]
    assert topic["records"] == len(values)
    again = penstock(data=broker.data)
    assert sorted(consume(again, topic["topic"], len(values)), key=int) == values
