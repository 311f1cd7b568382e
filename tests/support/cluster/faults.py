"""What scenarios of faults share: agents that write soon, processes that stand still, clients that ask again.

Rule: as a client does, something is asked again only where the answer says so, or where the connection ended.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.errors import ErrorCode
from tests.support.clients.kafka_requests import Broken
from tests.support.clients.transactional_client import Connection, Script, connected
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.processes import provided, stand_still
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, Minio, Penstock

SECONDS_MAX = 60.0
TRIES_MAX = 100


def start(
    cluster: Cluster, name: str, options: Mapping[str, str] | None = None, listen: str = "127.0.0.1:0"
) -> ClusterAgent:
    """Start an agent that writes intake objects soon, and aborts what takes too long soon."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    return cluster.start(name, options={"flush-interval-ms": "10", **(options or {})}, settings=settings, listen=listen)


@contextmanager
def three_agents(etcd: Etcd, minio: Minio, folder: Path) -> Iterator[list[ClusterAgent]]:
    """A cluster of three, for several tests."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        cluster = ClusterFactory(etcd=etcd, minio=minio, folder=folder, stack=stack)()
        yield [start(cluster, name) for name in ("a", "b", "c")]


def create_topic(agent: ClusterAgent | Penstock, topic: str, partitions: int, **configs: str) -> None:
    """Create a topic that keeps its records, unless `configs` say otherwise: those of tests are years old."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    kept = {"retention.ms": "-1", **configs}
    for future in admin.create_topics([NewTopic(topic, partitions, config=kept)]).values():
        future.result(SECONDS_MAX)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """They stand still, with their connections open."""
    for pid in pids:
        stand_still(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def wait_alone(agent: ClusterAgent) -> None:
    """Until the agent tells clients of no other one."""
    wait_agents(agent, 1)


def wait_agents(agent: ClusterAgent, count: int) -> None:
    """Until the agent tells clients of so many, itself among them: the sessions of those that died have ended."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    agent.process.wait_until(
        lambda: len(admin.list_topics(timeout=SECONDS_MAX).brokers) == count, f"{count} agents in all"
    )


def wait_state(agent: ClusterAgent, through: Connection, transactional_id: str, state: str) -> None:
    """Until a transactional id is in this state."""
    agent.process.wait_until(lambda: through.state_of(transactional_id) == state, f"{transactional_id} in {state}")


def end_anew(stack: ExitStack, agent: ClusterAgent, script: Script, *, is_commit: bool) -> Connection:
    """End the transaction on a new connection, and on another new one where that is closed or the answer says so; the
    connection on which it was answered."""
    for _ in range(TRIES_MAX):
        through = stack.enter_context(connected(agent.bootstrap, script.topic))
        try:
            told = through.end(script.producer, is_commit=is_commit, version=script.versions.end)
        except Broken:
            continue
        if told.error_code is ErrorCode.none:
            script.ended(told)
            return through
        assert told.error_code.retriable, told
    raise AssertionError(f"{script.producer} cannot end its transaction through {agent.name}")


def metric(agent: ClusterAgent, name: str) -> float:
    """A metric without labels."""
    with urlopen(f"http://{agent.http}/metrics", timeout=SECONDS_MAX) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))
