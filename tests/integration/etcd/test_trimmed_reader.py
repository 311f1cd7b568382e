"""An agent that was stopped while the ledger was trimmed past it loads the state again and serves (rules S1 and S9)."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from protocol.types import Position
from storage.refs import snapshot_key
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.recovery import consume, keys, produce
from tests.support.processes import stand_still
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import Minio

OPTIONS = {"snapshot-entries": "10", "archive-interval-s": "3600", "flush-interval-ms": "0"}


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path / "etcd") as running:
        yield running


def newest_snapshot(minio: Minio, cluster: Cluster) -> str:
    return max((key for key in keys(minio, cluster) if key.startswith("ledger/snapshots/")), default="")


def position_of(agent: ClusterAgent) -> Position:
    with urlopen(f"http://{agent.http}/api/status", timeout=30) as response:
        return Position(json.load(response)["position"])


@pytest.mark.slow
def test_an_agent_that_was_stopped_while_the_ledger_was_trimmed_serves_everything(
    own_etcd: Etcd, minio: Minio, tmp_path: Path
) -> None:
    member = own_etcd.members[0]
    with ExitStack() as stack:
        cluster = ClusterFactory(etcd=own_etcd, minio=minio, folder=tmp_path, stack=stack)()
        writing, stopped = (cluster.start(name, options=OPTIONS) for name in ("a", "b"))
        values = [b"%d" % row for row in range(50)]
        produce(stopped, "kept", values[:10])
        # One that was begun before may still be waiting for what the stopped agent says of it (S3).
        before = snapshot_key(position_of(stopped))
        stand_still(stopped.process.pid)
        try:
            produce(writing, "kept", values[10:40])
            writing.process.wait_until(lambda: newest_snapshot(minio, cluster) > before, "a snapshot of what followed")
            member.kill()  # and with it what it had sent to the stopped agent's watch
            member.start(own_etcd.members)
            member.wait()
            produce(writing, "kept", values[40:])
        finally:
            os.kill(stopped.process.pid, signal.SIGCONT)
        assert consume(stopped, "kept", len(values)) == values
        assert "fell behind the ledger" in stopped.process.stderr
        produce(stopped, "kept", [b"50"])
        assert consume(writing, "kept", 51)[-1] == b"50"
