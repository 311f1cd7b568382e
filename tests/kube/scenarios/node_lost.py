"""A node is gone with all that ran on it: its agent comes up elsewhere, and the node is used again when it is back."""

import time
from collections.abc import Callable

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until

LOST_SECONDS_MAX = 120.0


def test_a_lost_node(kafka: Release, start_load: StartLoad, note: Callable[[str], None]) -> None:
    node = kafka.agents()[0].node

    def is_replaced() -> bool:
        agents = [agent for agent in kafka.agents() if agent.node != node and agent.is_ready]
        return len(agents) == 3

    def is_ready() -> bool:
        conditions = kafka.lab.get("node", node)["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    with start_load(kafka, limit_s=15) as load:
        began_s = time.monotonic()
        kafka.lab.lose_node(node)
        wait_until(is_replaced, "an agent elsewhere", seconds_max=LOST_SECONDS_MAX)
        note(f"lost node: its agent was replaced after {time.monotonic() - began_s:.0f} s")
        kafka.lab.return_node(node)
        wait_until(is_ready, "the node", seconds_max=LOST_SECONDS_MAX)
        kafka.wait_until_ready()
    assert load.rebalances == 0
