"""etcd wiped, and etcd restored from an older copy: agents refuse, nothing is deleted, and a recovery brings all back.

Rule: real agents over an etcd of this test's own and MinIO; what the bucket holds is read from MinIO's folder. And one
broker with a folder of its own, whose ledger is gone.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster, ClusterFactory
from tests.support.cluster.recovery import (
    COMMAND_SECONDS_MAX,
    REQUEST,
    consume,
    exit_of,
    keys,
    offline,
    produce,
    recovered,
    root,
)
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, Minio, PenstockFactory

OPTIONS = {"snapshot-entries": "10", "archive-interval-s": "3600", "flush-interval-ms": "0"}


def has_snapshot(minio: Minio, cluster: Cluster) -> bool:
    return any(key.startswith("ledger/snapshots/") for key in keys(minio, cluster))


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path / "etcd") as running:
        yield running


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
    broker = penstock(has_journal=False)
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
    assert needless.returncode == 3
    assert "start the agents" in needless.stderr
    for path in broker.data.glob("ledger.sqlite*"):
        path.unlink()
    done = recover("--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["is_carried_out"], told["incarnation"], told["missing"], told["damaged"]) == (True, 2, [], [])
    (topic,) = told["topics"]
    assert topic["records"] == len(values)
    again = penstock(data=broker.data)  # with the ledger where the recovery has made it
    assert sorted(consume(again, topic["topic"], len(values)), key=int) == values
