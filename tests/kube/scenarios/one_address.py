"""All agents behind one address, of a node's port and of `kubectl port-forward`: groups form, and outlive a restart."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until
from tests.support.processes import is_listening
from tools.helm import kubectl_program
from tools.kube_lab.lab import Lab, environment

NODE = "b"
NODE_PORT, FORWARDED_PORT = 30094, 9094


@pytest.fixture(scope="module")
def behind_a_node(lab: Lab) -> Iterator[Release]:
    """A release whose clients know the address of one node, and no agent's."""
    host = lab.nodes[NODE].address
    values = f"external.enabled=true,external.type=NodePort,external.host={host},external.nodePort={NODE_PORT}"
    release = Release(lab, "one-address", "one-address", ("--set", values), address=f"{host}:{NODE_PORT}")
    lab.create_namespace(release.namespace)
    release.install()
    yield release
    release.uninstall()


def test_groups_form_through_a_nodes_port_and_outlive_a_rolling_restart(
    behind_a_node: Release, start_load: StartLoad
) -> None:
    with start_load(behind_a_node, limit_s=3) as load:
        behind_a_node.restart_agents()
        load.wait_for_records()
        assert behind_a_node.broker_addresses() == {behind_a_node.address}, "clients know other ways"
    assert load.rebalances == 0


def test_groups_form_through_kubectl_port_forward(behind_a_node: Release, start_load: StartLoad) -> None:
    values = f"external.enabled=true,external.type=ClusterIP,external.host=127.0.0.1,external.port={FORWARDED_PORT}"
    release = replace(behind_a_node, options=("--set", values), address=f"127.0.0.1:{FORWARDED_PORT}")
    release.install()
    service = f"service/{release.full_name}-external"
    command = [*release.lab.programs.cgroups.joining(), str(kubectl_program()), "port-forward"]
    command += ["--namespace", release.namespace, service, str(FORWARDED_PORT)]
    with subprocess.Popen(command, env=environment(release.lab.folder), stdout=subprocess.DEVNULL) as forwarding:
        try:
            wait_until(lambda: is_listening(FORWARDED_PORT), "the forwarded port")
            with start_load(release) as load:
                load.wait_for_records(500)
                assert release.broker_addresses() == {release.address}, "clients know other ways"
            assert forwarding.poll() is None
        finally:
            forwarding.terminate()
