"""The network between agents and etcd is cut, as by a wrong NetworkPolicy: for one agent, then for all of them.

The lab's network enforces no policy. Rules of its own iptables drop the packets instead, for connections that are open,
too.
"""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.kube.conftest import StartLoad
from tests.kube.release import Pod, Release
from tests.support.cluster.conditions import wait_until

CUT_S = 30.0
"""Three times the lease of an agent's session."""
LEASE_S = 10.0
ETCD_PORT = 2379


def test_one_agent_cut_off_from_etcd(kafka: Release, start_load: StartLoad, note: Callable[[str], None]) -> None:
    victim, other, _ = kafka.agents()

    def members() -> set[str]:
        answer = kafka.kubectl("exec", other.name, "--", "/usr/bin/penstock", "agents", "list", "--json")
        return {agent["name"] for agent in json.loads(answer)["agents"]}

    with start_load(kafka) as load:
        with cut_off([victim]):
            seconds = wait_until(lambda: victim.name not in members(), "the end of a session")
            note(f"an agent without etcd has left the cluster after {seconds:.0f} s")
            threading.Event().wait(CUT_S)
            assert all(agent.is_ready for agent in kafka.agents()), "an outage takes no agent from its Service"
            # Its clients have gone to the others, those whose records it had taken in after their requests' time-out.
            load.wait_for_records()
        wait_until(lambda: victim.name in members(), "the agent's next session")
        load.wait_for_records()


def test_all_agents_cut_off_from_etcd(kafka: Release, start_load: StartLoad) -> None:
    with start_load(kafka) as load:
        with cut_off(kafka.agents()):
            threading.Event().wait(LEASE_S)
            acknowledged = load.acknowledged_count
            threading.Event().wait(CUT_S)
            assert load.acknowledged_count == acknowledged, "records were acknowledged, and etcd has not ordered them"
        load.wait_for_records()


@contextmanager
def cut_off(agents: Sequence[Pod]) -> Iterator[None]:
    """Drop what agents send to etcd, while the block lasts."""
    rules = [
        ["FORWARD", "--source", agent.address, "--protocol", "tcp", "--dport", str(ETCD_PORT), "--jump", "DROP"]
        for agent in agents
    ]
    for rule in rules:
        subprocess.run(["iptables", "--wait", "--insert", *rule], check=True)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "--wait", "--delete", *rule], check=True)
