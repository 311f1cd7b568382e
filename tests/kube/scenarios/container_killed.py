"""An agent's container ends without a word, and starts again in its pod, under the same name."""

from collections.abc import Callable

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until


def test_a_killed_container(kafka: Release, start_load: StartLoad, note: Callable[[str], None]) -> None:
    victim = kafka.agents()[0]

    def is_back() -> bool:
        return any(
            agent.name == victim.name and agent.is_ready and agent.restarts == victim.restarts + 1
            for agent in kafka.agents()
        )

    with start_load(kafka, restarts=1) as load:
        kafka.kill([victim])
        note(f"killed container: ready again after {wait_until(is_back, 'the container'):.1f} s")
    assert load.rebalances == 0
