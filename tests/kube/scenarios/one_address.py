"""All agents behind one address, that of a node's port: groups form, and outlive a restart."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.kube.conftest import StartLoad
from tests.kube.load import PARTITIONS
from tests.kube.release import Release
from tests.kube.verdict import Position
from tests.support.client_libraries.groups_by_client import JAVA_SOURCE, LibraryGroup, library_groups
from tests.support.cluster.conditions import wait_until
from tests.support.processes import provided
from tests.support.services.java import compile_source
from tools import jars, java_runtime
from tools.kube_lab.lab import Lab

NODE = "b"
NODE_PORT = 30094
SHARED_OUT_SECONDS_MAX = {"classic": 10.0, "consumer": 15.0}
"""Since its programs began, by a group's protocol. In the newer one a member gives partitions up at one of its
heartbeats, each 5 s, and the other one gets them at one of its own; Java takes 3 s to begin beside the load."""


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


def test_groups_of_four_libraries_outlive_a_rolling_restart(
    behind_a_node: Release, start_load: StartLoad, tmp_path: Path, note: Callable[[str], None], *, is_idle: bool
) -> None:
    """Without a limit of pauses: programs of Java begin beside the load."""
    java, kafka_jars = provided(java_runtime.java_home()) / "bin" / "java", provided(jars.jar_folder("kafka"))
    program = compile_source(JAVA_SOURCE, tmp_path, java=java, kafka_jars=kafka_jars)
    with start_load(behind_a_node) as load:
        producer = load.producer
        groups = library_groups(
            behind_a_node.bootstrap, producer.topic, producer.partitions, program=program, folder=tmp_path
        )
        with ExitStack() as stack:
            for group in groups:  # one after the other: two cores would start them all at once more slowly
                began_s = time.monotonic()
                for member in group.members:
                    stack.enter_context(member)
                wait_until(group.is_shared_out, f"the shares of {group.name}")
                seconds = time.monotonic() - began_s
                note(f"one address: {group.name} shared its partitions {seconds:.1f} s after its programs began")
                protocol = "consumer" if group.name.endswith("-consumer") else "classic"
                assert seconds < SHARED_OUT_SECONDS_MAX[protocol] or not is_idle, group.name
            losses = {group.name: group.losses_count for group in groups}
            behind_a_node.restart_agents()
            load.wait_for_records()
            positions = {
                (partition, offset)
                for partition in range(PARTITIONS)
                for offset, _number in tuple(producer.acknowledged[partition])
            }
            for group in groups:
                wait_until(partial(_has_read, group, positions), f"all records of {group.name}")
                assert len(group.read) == len(set(group.read)), f"{group.name} read records twice"
                assert group.losses_count == losses[group.name], f"{group.name} was rebalanced"


def _has_read(group: LibraryGroup, positions: set[Position]) -> bool:
    return positions <= set(group.read)
