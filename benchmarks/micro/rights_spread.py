"""How soon other agents know an ACL: three agents over etcd and MinIO, with many ACLs there.

Run: `.venv/bin/python -m benchmarks.micro.rights_spread [--acls 49000] [--grants 300]`. One JSON line a row on stdout.
Goal: an ACL is seen by other agents within 1 s (p99), counted from the answer to CreateAcls. What it allows is allowed
at every agent at once, because an agent asks the ledger before it denies (safety rule S16): the second row is how long
that request takes, the third how many were denied. The last row is how long another agent takes to apply the ACL
without being asked: its metric of the ledger position, looked at without pause.
"""

import argparse
import http.client
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from benchmarks.measure.exposition import read_samples, total
from tests.compat.protocol_diff.connection import Connection
from tests.compat.protocol_diff.logins import Login
from tests.compat.protocol_diff.messages import kafka_definitions
from tests.support.auth.plain_users import plain_user
from tests.support.cluster.cluster import Cluster, ClusterFactory
from tests.support.processes import provided
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import MinioProcess
from tools import jars

ADMIN, ALICE = Login("admin", "admin-password"), Login("alice", "alice-password")
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    # Metrics are read without a login.
    "super.users": f"User:{ADMIN.name};User:ANONYMOUS",
}
ACLS_OF_A_REQUEST: Final = 2_000
PAUSE_S: Final = 0.03
"""Before each grant, so that the agents have nothing left to do."""
SECONDS_MAX: Final = 60.0
UNKNOWN_TOPIC, DENIED = 3, 29


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, its answer's error, and how long it took."""

    error: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """An agent's ledger position, and when it was known (monotonic seconds)."""

    position: float
    at_s: float


class MetricsOfAgent:
    """One connection to the HTTP port of an agent."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)

    def look(self) -> Look:
        """Raises `AssertionError` where the agent does not answer with its metrics."""
        self._connection.request("GET", "/metrics")
        answer = self._connection.getresponse()
        text = answer.read().decode()
        at_s = time.perf_counter()
        assert answer.status == HTTPStatus.OK, text
        return Look(position=total(read_samples(text), "penstock_ledger_position"), at_s=at_s)

    def close(self) -> None:
        self._connection.close()


def spread_s(granted_s: float, look: Callable[[], Look], position: Callable[[], float]) -> float:
    """Seconds from `granted_s` until a look shows the position, which is asked for behind the first look."""
    seen = look()
    wanted = position()
    while seen.position < wanted:
        assert seen.at_s - granted_s < SECONDS_MAX, f"position {wanted} is not seen"
        seen = look()
    return seen.at_s - granted_s


def acl(name: str, user: str) -> Mapping[str, object]:
    """A row of CreateAcls: a user may read a topic."""
    return {
        "ResourceType": 2, "ResourceName": name, "ResourcePatternType": 3, "Principal": f"User:{user}", "Host": "*",
        "Operation": 3, "PermissionType": 3,
    }  # fmt: skip


def create(administrator: Connection, acls: Sequence[Mapping[str, object]]) -> None:
    """Create ACLs in one request. Raises `AssertionError` where one is rejected."""
    results = administrator.call("CreateAcls", 3, {"Creations": list(acls)})["Results"]
    assert not any(result["ErrorCode"] for result in results), results


def ask(client: Connection, topic: str) -> Asked:
    """The end of a partition of a topic that does not exist: denied, or unknown to who may read it."""
    partition = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}
    body = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [partition]}]}
    began_s = time.perf_counter()
    (answer,) = client.call("ListOffsets", 7, body)["Topics"]
    taken_s = time.perf_counter() - began_s
    error = answer["Partitions"][0]["ErrorCode"]
    assert error in (UNKNOWN_TOPIC, DENIED), answer
    return Asked(error=error, seconds=taken_s)


def show(what: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    figures = {f"p{share}_ms": ordered[int(len(ordered) * share / 100)] for share in (50, 99)} | {"max_ms": ordered[-1]}
    rounded = {name: round(value * 1e3, 2) for name, value in figures.items()}
    print(json.dumps({"what": what, "count": len(seconds), **rounded}), flush=True)


def measure(cluster: Cluster, acls: int, grants: int) -> None:
    """Print the rows."""
    definitions = kafka_definitions(provided(jars.jar_folder("kafka")))
    near, far, idle = (cluster.agents[name] for name in ("near", "far", "idle"))
    with (
        closing(Connection(near.bootstrap, definitions, SECONDS_MAX, login=ADMIN)) as administrator,
        closing(Connection(far.bootstrap, definitions, SECONDS_MAX, login=ALICE)) as alice,
        closing(MetricsOfAgent(near.http)) as near_metrics,
        closing(MetricsOfAgent(idle.http)) as idle_metrics,
    ):
        others = [
            acl(f"team{number % 1_000}.topic{number // 1_000}", f"team{number % 1_000}") for number in range(acls)
        ]
        for first in range(0, acls, ACLS_OF_A_REQUEST):
            create(administrator, others[first : first + ACLS_OF_A_REQUEST])
        assert ask(alice, "topic-0").error == DENIED
        created: list[float] = []
        asked: list[Asked] = []
        spread: list[float] = []
        for number in range(grants):
            time.sleep(PAUSE_S)
            began_s = time.perf_counter()
            create(administrator, [acl(f"topic-{number}", ALICE.name)])
            created.append(time.perf_counter() - began_s)
            asked.append(ask(alice, f"topic-{number}"))
        for number in range(grants):
            time.sleep(PAUSE_S)
            create(administrator, [acl(f"more-{number}", ALICE.name)])
            spread.append(spread_s(time.perf_counter(), idle_metrics.look, lambda: near_metrics.look().position))
    show(f"CreateAcls of one ACL, {acls} there", created)
    show("the request that it allows, at another agent at once", [each.seconds for each in asked])
    denied = sum(each.error == DENIED for each in asked)
    print(json.dumps({"what": "... denied", "count": len(asked), "value": denied}), flush=True)
    show("until another agent, which gets no requests, has applied it", spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acls", type=int, default=49_000)
    parser.add_argument("--grants", type=int, default=300)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-rights-")))
        (folder / "etcd").mkdir()
        etcd = stack.enter_context(Etcd(folder / "etcd"))
        minio = MinioProcess(folder / "minio")
        minio.wait(stack.enter_context(minio.start()))
        users = folder / "users"
        users.write_text("\n".join(plain_user(each.name, each.password) for each in (ADMIN, ALICE)))
        cluster = ClusterFactory(etcd=etcd, minio=minio.server, folder=folder, stack=stack)()
        for name in ("near", "far", "idle"):
            listen = "SASL_PLAINTEXT://127.0.0.1:0"
            cluster.start(name, listen=listen, options={"plain-users": str(users)}, settings=SETTINGS)
        measure(cluster, options.acls, options.grants)


if __name__ == "__main__":
    main()
