"""All agents are replaced, one after the other: no client notices but by a slower answer."""

from tests.kube.conftest import StartLoad
from tests.kube.release import Release


def test_a_rolling_restart(kafka: Release, start_load: StartLoad) -> None:
    with start_load(kafka, limit_s=3) as load:
        kafka.restart_agents()
    assert load.rebalances == 0
