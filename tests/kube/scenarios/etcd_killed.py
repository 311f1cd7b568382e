"""The members of etcd are killed: one of them, then all of them at once."""

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until


def test_a_killed_member_of_etcd(kafka: Release, start_load: StartLoad) -> None:
    with start_load(kafka) as load:
        _kill(kafka, 1)
    assert load.rebalances == 0


def test_all_members_of_etcd_killed(kafka: Release, start_load: StartLoad) -> None:
    with start_load(kafka):
        _kill(kafka, 3)


def _kill(kafka: Release, count: int) -> None:
    victims = {pod.name: pod.restarts for pod in kafka.pods("etcd")[:count]}
    kafka.kill(kafka.pods("etcd")[:count])

    def are_back() -> bool:
        return all(pod.is_ready and pod.restarts > victims.get(pod.name, -1) for pod in kafka.pods("etcd"))

    wait_until(are_back, "members of etcd", seconds_max=120)
    kafka.wait_until_ready()
