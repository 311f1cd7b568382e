"""Kafka's tool manages delegation tokens, and clients of Kafka and HTTP are their owners until they end (KIP-48)."""

import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.support.auth.plain_users import plain_user
from tests.support.processes import provided
from tests.support.services.java import SHORT_LIVED, JavaProgram
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

TOOLS = Path(__file__).parents[1] / "java" / "SecurityTools.java"
SECONDS_MAX = 60
ROW = re.compile(r"^(\S{22})\s+(\S+==)\s+User:(\w+)\s+User:(\w+)\s+\[(.*?)\]\s+(\S+)\s+(\S+)\s+(\S+)\s*$", re.MULTILINE)
"""Id, HMAC, owner, requester, renewers, issue, expiry and longest life, as `printToken` writes them."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A broker whose only listener authenticates, with an authorizer, the super user alice, and the user bob."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "users").write_text("\n".join(plain_user(name, f"{name}-secret") for name in ("alice", "bob")))
    (folder / "key").write_bytes(os.urandom(32))
    with ExitStack() as stack:
        yield PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"plain-users": str(folder / "users")},
            settings={
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "super.users": "User:alice",
                "penstock.secret.key.file": str(folder / "key"),
            },
        )


@pytest.fixture
def tool(broker: Penstock, compile_java: Callable[[Path], JavaProgram], tmp_path: Path) -> Callable[..., Sequence[str]]:
    """Runs `kafka-delegation-tokens` with each line of options as a user of PLAIN, and returns what each prints."""

    def run(user: str, *commands: str) -> Sequence[str]:
        config = tmp_path / f"{user}.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security."
            f'plain.PlainLoginModule required username="{user}" password="{user}-secret";\n'
        )
        script = tmp_path / "tools.txt"
        common = ["delegation-tokens", "--bootstrap-server", broker.bootstrap, "--command-config", str(config)]
        script.write_text("".join("\t".join([*common, *command.split()]) + "\n" for command in commands))
        return compile_java(TOOLS).run(str(script)).split("\f")[1:]

    return run


def produce_by_token(broker: Penstock, java: Path, kafka_jars: Path, folder: Path, token: tuple[str, str]) -> str:
    """What Kafka's console producer prints that sends a record as the token's owner."""
    token_id, hmac = token
    config = folder / "token.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nmax.block.ms=8000\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token_id}" password="{hmac}" tokenauth="true";\n'
    )
    producer = [str(java), "-Xmx256m", *SHORT_LIVED, "-cp", os.path.join(kafka_jars, "*")]
    producer += ["org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", broker.bootstrap]
    producer += ["--topic", "tokens", "--command-config", str(config)]
    done = subprocess.run(producer, input="by a token\n", text=True, timeout=SECONDS_MAX, capture_output=True)
    return done.stdout + done.stderr


def topics_by_token(broker: Penstock, token: tuple[str, str]) -> int:
    """The status of a request to the API with the token as a bearer token."""
    request = urllib.request.Request(
        f"http://{broker.http}/api/topics", headers={"Authorization": f"Bearer {'~'.join(token)}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_token_from_its_creation_to_its_end(
    broker: Penstock, tool: Callable[..., Sequence[str]], java: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    created, described = tool(
        "alice",
        "--create --max-life-time-period -1 --renewer-principal User:bob",
        "--describe --owner-principal User:alice",
    )
    ((token_id, hmac, owner, requester, renewers, issue, expiry, most),) = ROW.findall(created)
    assert (owner, requester, renewers) == ("alice", "alice", "User:bob")
    assert issue < expiry < most
    assert ROW.findall(described) == [(token_id, hmac, owner, requester, renewers, issue, expiry, most)]
    token = (token_id, hmac)
    assert "ERROR" not in produce_by_token(broker, java, kafka_jars, tmp_path, token)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["tokens"])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.value() == b"by a token"
    consumer.close()
    assert topics_by_token(broker, token) == 200
    assert topics_by_token(broker, (token_id, hmac.swapcase())) == 401
    renewed, of_another, of_bob, removed, gone = tool(
        "bob",
        f"--renew --renew-time-period 60000 --hmac {hmac}",
        "--create --max-life-time-period -1 --owner-principal User:alice",
        "--describe --owner-principal User:bob",
        f"--expire --expiry-time-period -1 --hmac {hmac}",
        f"--renew --renew-time-period -1 --hmac {hmac}",
    )
    assert "Completed renew operation" in renewed
    assert "DelegationTokenAuthorizationException" in of_another
    assert ROW.findall(of_bob)[0][:2] == token, "bob is its renewer"
    assert "Completed expire operation" in removed
    assert "DelegationTokenNotFoundException" in gone
    assert topics_by_token(broker, token) == 401
