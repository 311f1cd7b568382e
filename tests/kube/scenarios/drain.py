"""Each node in turn is drained, as before its maintenance: its agent comes up elsewhere before another one may go."""

import pytest

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tools.kube_lab.nodes import NODES


@pytest.mark.parametrize("node", NODES)
def test_a_drained_node(kafka: Release, start_load: StartLoad, node: str) -> None:
    assert node in {agent.node for agent in kafka.agents()}, "a node without an agent shows nothing"
    with start_load(kafka, limit_s=3) as load:
        try:
            kafka.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
            kafka.wait_until_ready(members=2)
            assert node not in {agent.node for agent in kafka.agents()}
        finally:
            kafka.kubectl("uncordon", node)
        kafka.wait_until_ready()
    assert load.rebalances == 0
