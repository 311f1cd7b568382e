"""Safety rule S16 on a real ledger: what one agent was told to allow, another does not deny a moment later."""

import hashlib
import itertools
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.auth.scram_credentials import ScramMechanism
from protocol.wire import INT32
from tests.compat.protocol_diff.connection import Connection
from tests.compat.protocol_diff.logins import Login
from tests.compat.protocol_diff.messages import Definitions, kafka_definitions
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.plain_users import plain_user
from tests.support.auth.sasl_frames import authenticate, handshake, read_authenticate_answer
from tests.support.clients.kafka_requests import read_frame
from tests.support.cluster.cluster import ClusterFactory

ADMIN, ALICE = Login("admin", "admin-password"), Login("alice", "alice-password")
SECONDS_MAX = 20.0
UNKNOWN_TOPIC, DENIED = 3, 29
ASKED_BEFORE = 20
"""Of so many grants one is asked for before, so that a denial is known to come where there is none."""
ITERATIONS = 4_096
TRIES = [40, pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
GRANTS = [200, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])]


@dataclass(frozen=True, slots=True)
class TwoAgents:
    """An administrator at one agent, and the address of the other."""

    administrator: Connection
    other: str
    definitions: Definitions

    def grant(self, topic: str) -> None:
        """Alice may read a topic, by the word of the first agent."""
        acl = {
            "ResourceType": 2, "ResourceName": topic, "ResourcePatternType": 3, "Principal": f"User:{ALICE.name}",
            "Host": "*", "Operation": 3, "PermissionType": 3,
        }  # fmt: skip
        (result,) = self.administrator.call("CreateAcls", 3, {"Creations": [acl]})["Results"]
        assert result["ErrorCode"] == 0, result

    def create_user(self, client: DrawnScramClient, salt: bytes) -> None:
        """Create a user, by the word of the first agent."""
        salted = hashlib.pbkdf2_hmac(client.mechanism.hash_name, client.password.encode(), salt, ITERATIONS)
        user = {
            "Name": client.user, "Mechanism": client.mechanism.value, "Iterations": ITERATIONS, "Salt": salt,
            "SaltedPassword": salted,
        }  # fmt: skip
        body = {"Deletions": [], "Upsertions": [user]}
        (result,) = self.administrator.call("AlterUserScramCredentials", 0, body)["Results"]
        assert result["ErrorCode"] == 0, result


@pytest.fixture
def agents(clusters: ClusterFactory, kafka_jars: Path, tmp_path: Path) -> Iterator[TwoAgents]:
    users = tmp_path / "users"
    users.write_text("\n".join(plain_user(each.name, each.password) for each in (ADMIN, ALICE)))
    cluster, definitions = clusters(), kafka_definitions(kafka_jars)
    for name in ("near", "far"):
        cluster.start(
            name,
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"plain-users": str(users)},
            settings={"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "super.users": f"User:{ADMIN.name}"},
        )
    near, far = cluster.agents["near"].bootstrap, cluster.agents["far"].bootstrap
    with closing(Connection(near, definitions, SECONDS_MAX, login=ADMIN)) as administrator:
        yield TwoAgents(administrator, far, definitions)


@pytest.mark.parametrize("grants", GRANTS)
def test_s16_an_acl_granted_on_one_agent_is_never_denied_on_another(agents: TwoAgents, grants: int) -> None:
    with closing(Connection(agents.other, agents.definitions, SECONDS_MAX, login=ALICE)) as alice:
        denied = []
        for number in range(grants):
            topic = f"topic-{number}"
            if not number % ASKED_BEFORE:
                assert _error(alice, topic) == DENIED
            agents.grant(topic)
            error = _error(alice, topic)
            if error == DENIED:
                denied.append(topic)
            else:
                assert error == UNKNOWN_TOPIC
        assert denied == []


def _error(client: Connection, topic: str) -> int:
    """The error of the end of a partition that does not exist."""
    partition = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}
    body = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [partition]}]}
    (answer,) = client.call("ListOffsets", 7, body)["Topics"]
    error: int = answer["Partitions"][0]["ErrorCode"]
    return error


@pytest.mark.parametrize("tries", TRIES)
def test_s16_a_user_created_on_one_agent_is_never_rejected_by_another(agents: TwoAgents, tries: int) -> None:
    assert not _logs_in(agents.other, DrawnScramClient(user="nobody"), "PLAIN")
    rejected = []
    for number, mechanism in zip(range(tries), itertools.cycle(("SCRAM-SHA-256", "PLAIN")), strict=False):
        client = DrawnScramClient(mechanism=ScramMechanism.SCRAM_SHA_256, user=f"user-{number}")
        agents.create_user(client, salt=b"salt of %d" % number)
        if not _logs_in(agents.other, client, mechanism):
            rejected.append((client.user, mechanism))
    assert rejected == []


def _logs_in(bootstrap: str, client: DrawnScramClient, mechanism: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS_MAX) as connection:

        def ask(frame: memoryview) -> bytes:
            connection.sendall(INT32.pack(len(frame)) + frame)
            return read_frame(connection)

        ask(handshake(mechanism))
        token = f"\0{client.user}\0{client.password}".encode()
        if mechanism != "PLAIN":
            token = client.final(read_authenticate_answer(ask(authenticate(client.first()))).token)
        return read_authenticate_answer(ask(authenticate(token))).error_code == 0
