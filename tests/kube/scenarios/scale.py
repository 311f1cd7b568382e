"""The number of agents grows from three to eight, and falls to two."""

from collections.abc import Callable

from tests.kube.conftest import StartLoad
from tests.kube.release import Release


def test_more_agents_then_fewer(kafka: Release, start_load: StartLoad, note: Callable[[str], None]) -> None:
    try:
        with start_load(kafka, limit_s=3) as load:
            for count in (8, 2):
                kafka.lab.install(kafka.name, kafka.namespace, "--set", f"replicas={count}")
                kafka.wait_until_ready(count)
                note(f"memory of the lab with {count} agents: {kafka.lab.memory_bytes() / 1e6:.0f} MB")
        assert load.rebalances == 0
    finally:
        kafka.install()
