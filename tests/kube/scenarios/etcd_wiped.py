"""etcd loses all that it had while agents run: none of them serves, the chart's Job recovers, no record is lost.

docs/operations/recovery.md, by the chart's values.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kube.clients import read_all
from tests.kube.conftest import StartLoad
from tests.kube.load import PARTITIONS
from tests.kube.release import ETCD_MEMBERS, Release
from tests.support.cluster.conditions import wait_until
from tools.kube_lab.lab import Lab

RECOVER_SECONDS_MAX = 180.0


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
    assert "was etcd wiped" in refusal(wiped)
    wiped.lab.install(wiped.name, wiped.namespace, "--set", "recover.enabled=true,recover.dryRun=false")
    seconds = wait_for_job(wiped)
    note(f"recovered by the Job {seconds:.0f} s after helm upgrade")
    wiped.install("--set", "recover.enabled=false")
    wiped.audit()
    plain, transactional = load.producer.topic, load.transactions.topic
    stored = read_all(wiped.bootstrap, plain, PARTITIONS, {})
    assert {position: b"%d" % number for position, number in acknowledged(load.producer.acknowledged)} == stored
    kept = {value.decode() for value in read_all(wiped.bootstrap, transactional, PARTITIONS, {}).values()}
    assert not kept & load.transactions.aborted
    lost = {value.partition(".")[0] for value in {*load.transactions.acknowledged.values()} - kept}
    assert not lost & {value.partition(".")[0] for value in kept}, "a transaction came back in part"
    note(f"{len(lost)} of {len(load.transactions.seconds)} transactions lost with etcd, the newest ones")
    with start_load(wiped):
        pass


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


def wait_for_job(release: Release) -> float:
    """Return when the newest recovery has succeeded. The seconds that passed."""

    def has_succeeded() -> bool:
        jobs = release.lab.get(
            "jobs", "--namespace", release.namespace, "--selector=app.kubernetes.io/component=recover"
        )
        return any(job["status"].get("succeeded") for job in jobs["items"])

    return wait_until(has_succeeded, "the recovery", seconds_max=RECOVER_SECONDS_MAX)
