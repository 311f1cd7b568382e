"""etcd loses all that it had while agents run: none of them serves, the chart's Job recovers, no record is lost.

docs/operations/recovery.md, by the chart's values.
"""

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kube.clients import read_all
from tests.kube.conftest import StartLoad
from tests.kube.load import PARTITIONS
from tests.kube.release import ETCD_MEMBERS, Release
from tests.support.cluster.conditions import wait_until
from tools.kube_lab.lab import Lab


@pytest.fixture
def wiped(lab: Lab) -> Iterator[Release]:
    """A release for this module alone: transactions of its last seconds may be lost."""
    release = Release(lab, "wiped", "wiped")
    lab.create_namespace(release.namespace)
    release.install()
    yield release
    release.uninstall()


def test_a_wiped_etcd_is_recovered_by_the_job(
    wiped: Release, start_load: StartLoad, note: Callable[[str], None]
) -> None:
    with start_load(wiped) as load:
        pass
    wipe(wiped)
    wait_until(lambda: not any(agent.is_ready for agent in wiped.agents()), "agents that do not serve")
    wait_until(lambda: "was etcd wiped" in refusal(wiped), "an agent that says why it ended")
    plain, transactional = load.producer.topic, load.transactions.topic
    report, seconds = recover(wiped)
    assert plain in report
    assert "nothing was changed: this was a dry run" in report
    note(f"a dry run of the recovery by its Job took {seconds:.0f} s")
    _report, seconds = recover(wiped, "recover.dryRun=false,recover.acceptLoss=true")
    note(f"recovered by the Job in {seconds:.0f} s")
    wiped.install("--set", "recover.enabled=false")
    wiped.audit()
    stored = read_all(wiped.bootstrap, plain, PARTITIONS, {})
    assert {position: b"%d" % number for position, number in acknowledged(load.producer.acknowledged)} == stored
    kept = {value.decode() for value in read_all(wiped.bootstrap, transactional, PARTITIONS, {}).values()}
    assert not kept & load.transactions.aborted
    lost = {transaction(value) for _position, value in load.transactions.acknowledged if value not in kept}
    assert not lost & {transaction(value) for value in kept}, "a transaction came back in part"
    assert min(lost, default=math.inf) > max(map(transaction, kept), default=0), "others than the newest ones are lost"
    note(f"{len(lost)} of {len(load.transactions.seconds)} transactions lost with etcd, the newest ones")
    with start_load(wiped):
        pass


def transaction(value: str) -> int:
    """The number of the transaction that wrote a value."""
    return int(value.partition(".")[0])


def acknowledged(rows: dict[int, list[tuple[int, int]]]) -> list[tuple[tuple[int, int], int]]:
    """Position and number of each acknowledged record."""
    return [((partition, offset), number) for partition, found in rows.items() for offset, number in found]


def wipe(release: Release) -> None:
    """Remove all files of the release's etcd, and start it again."""
    members = f"statefulset/{release.full_name}-etcd"
    release.kubectl("scale", members, "--replicas=0")
    wait_until(lambda: not release.pods("etcd"), "an end of etcd")
    release.kubectl("wait", "pods", "--selector=app.kubernetes.io/component=etcd", "--for=delete", "--timeout=60s")
    for volume in release.lab.get("persistentvolumes")["items"]:
        if volume["spec"].get("claimRef", {}).get("namespace") == release.namespace:
            for path in Path(volume["spec"]["hostPath"]["path"]).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    release.kubectl("scale", members, f"--replicas={ETCD_MEMBERS}")
    wait_until(lambda: sum(pod.is_ready for pod in release.pods("etcd")) == ETCD_MEMBERS, "three empty members")


def refusal(release: Release) -> str:
    """What agents have written since etcd is empty."""
    texts = [release.kubectl("logs", agent.name, "--previous") for agent in release.agents() if agent.restarts]
    return "\n".join(texts)


def recover(release: Release, *values: str) -> tuple[str, float]:
    """Stop the agents, and let the chart's Job recover. What it has written, and the seconds until it succeeded."""
    began_s = time.monotonic()
    done = release.lab.install(
        release.name, release.namespace, "--set", ",".join(["recover.enabled=true", *values]), "--wait-for-jobs"
    )
    (job,) = re.findall(r"the Job (\S+) runs", done)
    return release.kubectl("logs", f"job/{job}"), time.monotonic() - began_s
