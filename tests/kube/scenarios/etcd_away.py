"""Agents start while etcd is away for three minutes: they wait for it, and Kubernetes starts none of them again."""

import threading
from collections.abc import Callable

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until

AWAY_S = 180.0


def test_etcd_away_while_agents_start(kafka: Release, start_load: StartLoad, note: Callable[[str], None]) -> None:
    kafka.kubectl("scale", f"statefulset/{kafka.full_name}-etcd", "--replicas=0")
    wait_until(lambda: not kafka.pods("etcd"), "an end of etcd")
    kafka.kubectl("delete", "pods", "--selector=app.kubernetes.io/component=agent", "--wait=true")
    wait_until(lambda: all(agent.container for agent in kafka.agents()), "containers of agents")
    threading.Event().wait(AWAY_S)
    agents = kafka.agents()
    assert len(agents) == 3
    assert not any(agent.is_ready or agent.restarts for agent in agents)
    kafka.kubectl("scale", f"statefulset/{kafka.full_name}-etcd", "--replicas=3")
    wait_until(lambda: sum(pod.is_ready for pod in kafka.pods("etcd")) >= 2, "a majority of etcd")
    seconds = kafka.wait_until_ready()
    note(f"etcd away for {AWAY_S:.0f} s while agents started: all ready {seconds:.1f} s after its majority")
    assert kafka.restarts() == {agent.name: 0 for agent in agents}
    with start_load(kafka):
        pass
