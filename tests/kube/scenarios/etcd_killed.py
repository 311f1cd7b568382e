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
    victims = kafka.pods("etcd")[:count]
    assert len(victims) == count
    kafka.kill(victims)

    def are_back() -> bool:
        found = {pod.name: pod for pod in kafka.pods("etcd")}
        return all(
            victim.name in found and found[victim.name].is_ready and found[victim.name].restarts > victim.restarts
            for victim in victims
        )

    wait_until(are_back, "members of etcd", seconds_max=120)
    kafka.wait_until_ready()
