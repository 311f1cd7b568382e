"""`penstock agent --processes N`: several agents under one command."""

import os
import signal

from tests.support.cluster.cluster import ClusterFactory
from tests.support.cluster.conditions import brokers_of, wait_until
from tests.support.processes import Process
from tests.support.services.local_services import READY


def ready_lines(process: Process) -> list[tuple[str, str]]:
    return READY.findall(process.stdout)


def test_each_process_is_an_agent_and_one_that_is_killed_returns(clusters: ClusterFactory) -> None:
    agent = clusters().start("n", options={"processes": "2"})
    process = agent.process
    process.wait_until(lambda: len(ready_lines(process)) == 2, "two agents")
    addresses = {kafka for kafka, _ in ready_lines(process)}
    wait_until(lambda: set(brokers_of(agent).values()) == addresses, "two brokers")
    assert len(addresses) == 2

    killed, *_ = children_of(process.pid)
    os.kill(killed, signal.SIGKILL)
    process.wait_until(lambda: len(ready_lines(process)) == 3, "the agent that was started again")
    assert process.stop() == 0, process.stderr
    assert children_of(process.pid) == []
    stopping = [line for line in process.stderr.splitlines() if "stopping: accepted" in line]
    assert sorted(line.rpartition(" ")[2] for line in stopping) == ["process=n-0", "process=n-1"], process.stderr


def test_processes_that_cannot_have_their_ports_say_so_and_end(clusters: ClusterFactory) -> None:
    cluster = clusters()
    taken = cluster.start("other").bootstrap
    process = cluster.start("n", options={"processes": "2"}, listen=taken, is_waited_for=False).process
    wait_until(lambda: not process.is_running, "the end of all processes")
    # The second process has the next port, which may be taken too, and then says so before the first one has tried.
    host, port = taken.split(":")
    assert taken in process.stderr or f"{host}:{int(port) + 1}" in process.stderr
    assert "address already in use" in process.stderr
    assert process.stop() != 0


def children_of(pid: int) -> list[int]:
    """Ids of the processes that this one started and that were not collected."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []
