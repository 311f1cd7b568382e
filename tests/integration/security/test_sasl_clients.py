"""The clients of applications authenticate by SCRAM and PLAIN, as they do at Apache Kafka."""

import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer

from tests.support.processes import provided
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka import KafkaProducer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = """
[[users]]
name = "alice"
password = "wonderland"
mechanism = "SCRAM-SHA-256"
[[users]]
name = "alice"
password = "wonderland"
mechanism = "SCRAM-SHA-512"
"""
SECONDS_MAX = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A broker whose only listener authenticates, with one user. Sessions last 2 s."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "users.toml").write_text(USERS)
    (folder / "key").write_bytes(os.urandom(32))
    with ExitStack() as stack:
        yield PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"bootstrap-users": str(folder / "users.toml")},
            settings={
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "connections.max.reauth.ms": "2000",
                "super.users": "User:alice",
                "penstock.secret.key.file": str(folder / "key"),
            },
        )


def by_confluent(bootstrap: str, mechanism: str, password: str) -> str:
    """Sends a record; the name of the error that ends it, "" where there is none."""
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "error_cb": errors.append,
            "message.timeout.ms": 3_000,
        }
    )
    delivered: list[KafkaError | None] = []
    producer.produce("confluent", b"x", on_delivery=lambda error, _: delivered.append(error))
    while not delivered and not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(0.1)
    names = [error.name() for error in errors if error.code() == KafkaError._AUTHENTICATION]
    producer.purge()
    producer.flush(SECONDS_MAX)
    return names[0] if names else ""


def by_kafka_python(bootstrap: str, mechanism: str) -> None:
    """Sends a record."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="wonderland",
    )
    producer.send("kafka-python", b"x").get(SECONDS_MAX)
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_with_the_password_produces(broker: Penstock, mechanism: str) -> None:
    assert by_confluent(broker.bootstrap, mechanism, "wonderland") == ""
    by_kafka_python(broker.bootstrap, mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_with_another_password_learns_that_it_failed(broker: Penstock, mechanism: str) -> None:
    assert by_confluent(broker.bootstrap, mechanism, "other") == "_AUTHENTICATION"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_produces(broker: Penstock, mechanism: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="wonderland",
    )
    async with producer:
        assert (await producer.send_and_wait("aiokafka", b"x")).offset >= 0


@pytest.mark.slow  # test_tls has them
def test_kafkas_console_clients_produce_and_consume(
    broker: Penstock, java: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="wonderland";\n'
    )
    tool = [str(java), "-Xmx256m", *SHORT_LIVED, "-cp", os.path.join(kafka_jars, "*")]
    where = ["--bootstrap-server", broker.bootstrap, "--topic", "console", "--command-config", str(config)]
    produce = [*tool, "org.apache.kafka.tools.ConsoleProducer", *where]
    subprocess.run(produce, input="hello\n", text=True, check=True, timeout=SECONDS_MAX, capture_output=True)
    consume = [*tool, "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--from-beginning"]
    done = subprocess.run(
        [*consume, "--max-messages", "1", "--timeout-ms", "20000"],
        text=True,
        check=True,
        timeout=SECONDS_MAX,
        capture_output=True,
    )
    assert done.stdout.splitlines() == ["hello"]


def test_a_client_authenticates_again_before_its_session_ends(broker: Penstock) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "wonderland",
            "error_cb": errors.append,
        }
    )
    offsets: list[int | None] = []
    for _ in range(9):
        producer.produce("again", b"x", on_delivery=lambda error, message: offsets.append(message.offset()))
        assert producer.flush(SECONDS_MAX) == 0
        producer.poll(0.5)  # it has nothing to report: half a second passes
    assert offsets == list(range(9))
    assert errors == []


def test_no_log_line_has_a_password(broker: Penstock) -> None:
    assert "wonderland" not in broker.process.stderr + broker.process.stdout
