"""All agents are replaced, one after the other: no client notices but by a slower answer."""

from tests.kube.conftest import StartLoad
from tests.kube.release import Release


def test_a_rolling_restart(kafka: Release, start_load: StartLoad) -> None:
    before = {agent.name for agent in kafka.agents()}
    with start_load(kafka, limit_s=3) as load:
        kafka.kubectl("rollout", "restart", f"deployment/{kafka.full_name}")
        kafka.kubectl("rollout", "status", f"deployment/{kafka.full_name}", "--timeout=300s")
        kafka.wait_until_ready()
    assert before.isdisjoint(agent.name for agent in kafka.agents())
    assert load.rebalances == 0
