"""The chart is installed where pods may do least: its agents are ready, one in each zone, and its own tests pass."""

from tests.kube.release import Release


def test_agents_are_ready_in_a_restricted_namespace_one_in_each_zone(kafka: Release) -> None:
    labels = kafka.lab.get("namespace", kafka.namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    agents = kafka.agents()
    assert all(agent.is_ready for agent in agents)
    assert sorted(agent.node for agent in agents) == sorted(kafka.lab.nodes)
    assert not any(agent.restarts for agent in agents)
    listed = kafka.in_agent("agents", "list")
    for agent in agents:
        (line,) = (line for line in listed.splitlines() if agent.name in line)
        assert kafka.lab.nodes[agent.node].zone in line


def test_helm_test_passes(kafka: Release) -> None:
    report = kafka.lab.helm("test", kafka.name, "--namespace", kafka.namespace, "--timeout=3m")
    assert report.count("Succeeded") == 2, report
