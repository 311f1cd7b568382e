"""Drawn traffic of ten principals, a third of it denied: SQL over the audit topic counts what the clients counted.

`make audit-traffic`, or `ARGS="--minutes 1 --seed 7"`. The query runs in DuckDB and in Spark (`--without-spark` leaves
that out), over the topic's table. Each client sends one request at a time on one connection, so
each denial that it sees is one event: written, or counted by `penstock_audit_dropped_total`.
"""

import argparse
import random
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyiceberg.catalog.rest import RestCatalog

from coordinator.configs.topic_names import AUDIT_TOPIC
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from tests.support.auth.sasl_frames import authenticate, handshake, read_authenticate_answer
from tests.support.clients.kafka_requests import framed, read_answer, read_frame
from tests.support.lake.archiving import archive_by_http
from tests.support.processes import Process, provided
from tests.support.services.local_services import PENSTOCK, READY, Penstock
from tests.support.services.spark_sessions import spark_over
from tools import jars, java_runtime

PRINCIPALS = 10
PASSWORD = "password-of-drawn-traffic"
TOKEN = "token-of-drawn-traffic"
DENIED = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)
DENIED_RATIO = 1 / 3
DROPPED = "penstock_audit_dropped_total{"
WAITING = "penstock_audit_waiting_events "


class DrawnRequest(NamedTuple):
    """A kind of request about one name, and where its answer has the error code."""

    api_key: ApiKey
    version: int
    values: Callable[[str], Mapping[str, Any]]
    error_code: Callable[[Any], int]


REQUESTS = (
    DrawnRequest(
        ApiKey.DELETE_RECORDS,
        1,
        lambda name: {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": timedelta(seconds=5),
        },
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
    DrawnRequest(
        ApiKey.CREATE_PARTITIONS,
        1,
        lambda name: {
            "topics": [{"name": name, "count": 5, "assignments": None}],
            "timeout": timedelta(seconds=5),
            "validate_only": True,
        },
        lambda answer: answer.results[0].error_code,
    ),
    DrawnRequest(
        ApiKey.DESCRIBE_GROUPS,
        0,
        lambda name: {"groups": [name]},
        lambda answer: answer.groups[0].error_code,
    ),
    DrawnRequest(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        lambda name: {"topics": [{"name": name, "partition_indexes": [0]}]},
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
)


@dataclass
class DrawnClient:
    """One principal on one connection, and how often it was denied something."""

    user: str
    bootstrap: str
    seed: int
    requests_count: int = 0
    denials_count: int = 0

    def run(self, ends_s: float) -> None:
        """Send drawn requests until the monotonic time `ends_s`."""
        drawn = random.Random(self.seed)
        host, _, port = self.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            self._log_in(connection)
            while time.monotonic() < ends_s:
                kind = drawn.choice(REQUESTS)
                name = "others" if drawn.random() < DENIED_RATIO else self.user
                connection.sendall(framed(kind.api_key, kind.version, kind.values(name), self.user))
                answer = read_answer(read_frame(connection), kind.api_key, kind.version)
                self.requests_count += 1
                self.denials_count += kind.error_code(answer) in DENIED

    def _log_in(self, connection: socket.socket) -> None:
        token = f"\0{self.user}\0{PASSWORD}".encode()
        for frame in (handshake("PLAIN"), authenticate(token)):
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            answer = read_frame(connection)
        assert read_authenticate_answer(answer).error_code == 0, f"{self.user} was not let in"


def settings_of(folder: Path, users: list[str]) -> list[str | Path]:
    """Writes the files of an agent for these users; returns its command."""
    (folder / "tokens").write_text(f"User:admin {TOKEN}\n")
    (folder / "users.toml").write_text(
        "".join(
            f'[[users]]\nname = "{user}"\npassword = "{PASSWORD}"\nmechanism = "SCRAM-SHA-256"\n'
            + "".join(
                f'[[users.acls]]\noperation = "ALL"\nresource_type = "{kind}"\nname = "{user}"\n'
                for kind in ("TOPIC", "GROUP")
            )
            for user in users
        )
    )
    command: list[str | Path] = [PENSTOCK, "run", "--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0"]
    command += ["--data-dir", folder / "data", "--audit-log", "topic", "--http-token-file", folder / "tokens"]
    command += ["--bootstrap-users", folder / "users.toml", "--set", "super.users=User:admin"]
    return [*command, "--set", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256"]


def metric(broker: Penstock, prefix: str) -> int:
    """The sum of the agent's metrics whose lines have this prefix."""
    request = urllib.request.Request(f"http://{broker.http}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefix)))


def denied_in_sql(broker: Penstock) -> Counter[str]:
    """The denials of each principal, by SQL over the topic's table."""
    catalog = RestCatalog("penstock", uri=f"http://{broker.http}/iceberg", token=TOKEN)
    with catalog.load_table(f"lake.{AUDIT_TOPIC}").scan().to_duckdb("audit") as connection:
        rows = connection.execute(
            "SELECT value_principal, sum(value_count) FROM audit WHERE value_decision = 'denied' GROUP BY ALL"
        ).fetchall()
    return Counter({principal: int(count) for principal, count in rows})


def denied_in_spark(broker: Penstock, folder: Path) -> Counter[str]:
    """The same in Spark, by the agent's catalog."""
    java = provided(java_runtime.java_home()) / "bin" / "java"
    spark_jars = sorted(provided(jars.jar_folder("spark")).glob("*.jar"))
    with spark_over(java, spark_jars, folder) as spark:
        properties = {"type": "rest", "uri": f"http://{broker.http}/iceberg", "token": TOKEN}
        spark.conf.set("spark.sql.catalog.penstock", "org.apache.iceberg.spark.SparkCatalog")
        for name, value in properties.items():
            spark.conf.set(f"spark.sql.catalog.penstock.{name}", value)
        rows = spark.sql(
            f"SELECT value_principal, sum(value_count) FROM penstock.lake.{AUDIT_TOPIC} "
            "WHERE value_decision = 'denied' GROUP BY value_principal"
        ).collect()
    return Counter({principal: int(count) for principal, count in rows})


def play(folder: Path, seconds: float, seed: int, *, is_spark_asked: bool) -> list[str]:
    """Runs the traffic; returns what does not agree."""
    users = [f"user-{number}" for number in range(PRINCIPALS)]
    with Process(settings_of(folder, users), folder, name="penstock") as process:
        process.wait_until(lambda: READY.search(process.stdout) is not None, "penstock")
        match = READY.search(process.stdout)
        assert match is not None
        broker = Penstock(bootstrap=match[1], http=match[2], data=folder, process=process)
        clients = [DrawnClient(user, broker.bootstrap, seed + number) for number, user in enumerate(users)]
        ends_s = time.monotonic() + seconds
        threads = [threading.Thread(target=client.run, args=(ends_s,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.wait_until(lambda: metric(broker, WAITING) == 0, "the last event's record")
        archive_by_http(broker, AUDIT_TOPIC, TOKEN)
        counted, dropped = denied_in_sql(broker), metric(broker, DROPPED)
        by_spark = denied_in_spark(broker, folder / "spark") if is_spark_asked else counted
    seen = Counter({f"User:{client.user}": client.denials_count for client in clients})
    requests_count = sum(client.requests_count for client in clients)
    print(
        f"{requests_count} requests, {seen.total()} denied, {counted.total()} in the audit topic by DuckDB, "
        f"{by_spark.total() if is_spark_asked else 'not asked'} by Spark, {dropped} dropped"
    )
    problems = [
        f"{principal}: {count} denials seen, {counted[principal]} in SQL"
        for principal, count in seen.items()
        if counted[principal] > count or (counted[principal] < count and not dropped)
    ]
    if by_spark != counted:
        problems.append(f"Spark counts {by_spark}, DuckDB {counted}")
    if seen.total() != counted.total() + dropped:
        problems.append("denials are neither in the audit topic nor counted as dropped")
    if not PRINCIPALS < seen.total() < requests_count:
        problems.append("the traffic was not a mixture of allowed and denied requests")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-spark", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-audit-") as folder:
        problems = play(Path(folder), asked.minutes * 60, asked.seed, is_spark_asked=not asked.without_spark)
    print("\n".join(problems) or "agrees")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
