"""What a relay adds: heartbeats and commits of one member to its coordinator, and through another agent.

Rule: in turns, one request at a time, over connections to each agent's own port; so both ways meet the same machine.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from benchmarks.measure import group_frames as frames
from benchmarks.measure.exposition import Samples, increase
from benchmarks.measure.rows import Bench
from benchmarks.peers.cluster import ClusterServices, RunningCluster
from tests.support.cluster.cluster import ClusterAgent
from tests.support.cluster.one_address import one_address
from tests.support.cluster.relay_listener import RELAY_LISTEN

GROUP = "measured"
SESSION_MS, REBALANCE_MS = 60_000, 60_000
WARM_UP_ROUNDS = 100
RELAYED = "penstock_relayed_requests_total"
TIMEOUT_SECONDS = 30.0
RETRY_SECONDS = 0.2
RETRIED = {14, 15, 16, 79}
"""Answers upon which the member joins again: the coordinator is not ready, or tells the member its id."""


class Connection:
    """One request at a time."""

    def __init__(self, agent: ClusterAgent) -> None:
        host, _, port = agent.bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> bytes:
        """What follows the answer's correlation id."""
        self._socket.sendall(frame)
        (answer_bytes,) = struct.unpack(">i", self._receive(4))
        return self._receive(answer_bytes)[4:]

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            if not part:
                raise ConnectionError("the agent closed the connection")
            received += part
        return bytes(received)


@contextmanager
def sharing(services: ClusterServices, agents_count: int) -> Iterator[RunningCluster]:
    """A cluster whose agents advertise one address and relay requests of groups."""
    with one_address() as address:
        options = {"listen": RELAY_LISTEN, "advertise": address.bootstrap}
        with services.running(agents_count, 0, options=options) as cluster:
            address.agents = [agent.bootstrap for agent in cluster.agents]
            yield cluster


def measure(bench: Bench, cluster: RunningCluster) -> dict[str, float]:
    """CLUSTER_RELAY: percentiles of both ways, and what the relay adds to the median."""
    with cluster.topic(1) as topic, ExitStack() as stack:
        connections = [stack.enter_context(closing(Connection(agent))) for agent in cluster.agents]
        member_id, generation = _join(connections[0], topic)
        ways = _ways(cluster, connections, frames.heartbeat(GROUP, generation, member_id))
        commit = frames.CommitFrame(GROUP, generation, member_id, topic, 0)
        times: dict[str, list[float]] = {}
        for number in range(WARM_UP_ROUNDS + bench.scale.relay_rounds):
            is_counted = number >= WARM_UP_ROUNDS
            for way, connection in ways.items():
                for what, request, error_of in (
                    ("heartbeat", frames.heartbeat(GROUP, generation, member_id), frames.read_error),
                    ("commit", commit.with_offset(number), frames.read_commit_error),
                ):
                    seconds = _timed(connection, request, error_of)
                    if is_counted:
                        times.setdefault(f"{what}_{way}", []).append(seconds)
        connections[0].ask(frames.leave(GROUP, [member_id]))
    return figures_of(times)


def figures_of(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Milliseconds, by what was asked and how it went."""
    figures: dict[str, float] = {}
    for name, seconds in times.items():
        ordered = sorted(seconds)
        figures[f"{name}_p50_ms"] = ordered[len(ordered) // 2] * 1000
        figures[f"{name}_p99_ms"] = ordered[int(len(ordered) * 0.99)] * 1000
    for what in ("heartbeat", "commit"):
        added_ms = figures[f"{what}_relayed_p50_ms"] - figures[f"{what}_direct_p50_ms"]
        figures[f"{what}_added_ms"] = added_ms
    return figures


def _join(connection: Connection, topic: str) -> tuple[str, int]:
    """The only member's id and generation, once the group is formed."""
    member_id, ends_s = "", time.monotonic() + TIMEOUT_SECONDS
    while True:
        times = {"session_ms": SESSION_MS, "rebalance_ms": REBALANCE_MS}
        joined = frames.read_joined(connection.ask(frames.join(GROUP, member_id, topic, **times)))
        member_id = joined.member_id or member_id
        if not joined.error_code:
            break
        if joined.error_code not in RETRIED or time.monotonic() > ends_s:
            raise ConnectionError(f"the member may not join: error {joined.error_code}")
        time.sleep(RETRY_SECONDS)
    told = connection.ask(frames.sync(GROUP, joined.generation, member_id, topic, [member_id]))
    if frames.read_error(told):
        raise ConnectionError(f"the member got no partitions: error {frames.read_error(told)}")
    return member_id, joined.generation


def _ways(cluster: RunningCluster, connections: Sequence[Connection], heartbeat: bytes) -> dict[str, Connection]:
    """The connection to the coordinator, and one to an agent that relays the heartbeat, which counts it."""
    before = cluster.scrape()
    for connection in connections:
        connection.ask(heartbeat)
    relayed = [_relayed(*pair) for pair in zip(before, cluster.scrape(), strict=True)]
    return {"direct": connections[relayed.index(0.0)], "relayed": connections[relayed.index(1.0)]}


def _relayed(before: Samples, after: Samples) -> float:
    return increase(before, after, RELAYED)


def _timed(connection: Connection, request: bytes, error_of: Callable[[bytes], int]) -> float:
    began_s = time.perf_counter()
    answer = connection.ask(request)
    seconds = time.perf_counter() - began_s
    if error_of(answer):
        raise ConnectionError(f"a request failed: error {error_of(answer)}")
    return seconds
