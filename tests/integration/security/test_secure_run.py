"""`penstock run --secure` is a broker that Kafka's tools administer by the files that it writes."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramMechanism, UserScramCredentialDeletion

from tests.support.cluster.conditions import wait_until
from tests.support.processes import provided
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    provided(PENSTOCK)
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("secure")
        yield PenstockFactory(folder=folder, stack=stack)(env={"PENSTOCK_SECURE": "true"})


def client(broker: Penstock, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.data / "tls" / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def admin_password(broker: Penstock) -> str:
    return (broker.data / "admin.password").read_text().strip()


def test_a_user_made_by_kafkas_tool_is_in_until_it_is_deleted(broker: Penstock, java: Path, kafka_jars: Path) -> None:
    tool = [str(java), "-Xmx256m", *SHORT_LIVED, "-cp", os.path.join(kafka_jars, "*"), "kafka.admin.ConfigCommand"]
    where = ["--bootstrap-server", broker.bootstrap, "--command-config", str(broker.data / "admin.properties")]
    change = ["--alter", "--add-config", "SCRAM-SHA-512=[password=sesame]", "--entity-type", "users"]
    command = [*tool, *where, *change, "--entity-name", "bob"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX)

    errors: list[KafkaError] = []
    producer = Producer({**client(broker, "bob", "sesame"), "error_cb": errors.append})
    producer.list_topics(timeout=SECONDS_MAX)
    assert errors == []
    admin = AdminClient(client(broker, "admin", admin_password(broker)))
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    for done in admin.alter_user_scram_credentials([deletion]).values():
        done.result(SECONDS_MAX)
    for _ in range(20):
        producer.poll(0.1)
        if errors:
            break
    assert errors, "two seconds after the deletion the connection was still open"


def test_the_commands_take_the_files_that_kafkas_tools_take(broker: Penstock) -> None:
    def run(*words: str, records: str = "", configs: str = "admin.properties") -> "subprocess.CompletedProcess[str]":
        flags = ["--server", f"https://{broker.http}", "--ca", str(broker.data / "tls" / "ca.pem")]
        command = [str(PENSTOCK), *words, *flags, "--command-config", str(broker.data / configs)]
        return subprocess.run(command, input=records, capture_output=True, text=True, timeout=SECONDS_MAX)

    assert run("topics", "create", "greetings").returncode == 0
    assert run("produce", "greetings", records="hello\n").returncode == 0
    assert run("consume", "greetings", "--from", "earliest").stdout == "hello\n"
    assert "greetings" in run("topics", "list").stdout
    assert run("users", "create", "carol", records="sesame\n").returncode == 0
    assert run("users", "create", "carol", "--mechanism", "scram-sha-256", records="sesame\n").returncode == 0
    names = [line.split()[:2] for line in run("users", "list").stdout.splitlines()[1:]]
    assert names == [["admin", "SCRAM-SHA-512"], ["carol", "SCRAM-SHA-256"], ["carol", "SCRAM-SHA-512"]]
    Producer(client(broker, "carol", "sesame")).list_topics(timeout=SECONDS_MAX)
    assert run("users", "delete", "carol").returncode == 0
    assert "there is no user carol" in run("users", "delete", "carol").stderr
    assert "the password is empty" in run("users", "create", "carol").stderr
    assert "write SCRAM-SHA-256 or SCRAM-SHA-512" in run("users", "create", "carol", "--mechanism", "PLAIN").stderr
    properties = (broker.data / "admin.properties").read_text().replace(admin_password(broker), "other")
    (broker.data / "other.properties").write_text(properties)
    done = run("produce", "greetings", records="hello\n", configs="other.properties")
    assert done.returncode != 0
    assert "password is wrong" in done.stderr


def test_a_spark_job_asks_the_broker_as_the_user_of_the_properties(broker: Penstock) -> None:
    """A topic without files needs no Spark."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        flags = ["--server", broker.http, "--command-config", str(broker.data / "admin.properties")]
        return subprocess.run([str(PENSTOCK), *words, *flags], capture_output=True, text=True, timeout=SECONDS_MAX)

    assert run("topics", "create", "empty").returncode == 0
    done = run("lake", "rewrite", "empty")
    assert done.returncode == 0, done.stderr


def test_the_doctor_knows_the_running_broker_by_its_properties(broker: Penstock) -> None:
    def doctor(*more: str) -> "subprocess.CompletedProcess[str]":
        where = ["--secure", "--data-dir", str(broker.data), "--listen", broker.bootstrap, "--http", broker.http]
        command = [str(PENSTOCK), "doctor", *where, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)

    done = doctor("--command-config", str(broker.data / "admin.properties"))
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("in use by the agent penstock, which runs with these settings") == 2
    assert "the running broker believes it" in done.stdout
    hidden = doctor()
    assert (hidden.returncode, hidden.stdout.count("-> the agent penstock uses it.")) == (1, 2)
    missing = doctor("--command-config", str(broker.data / "none"))
    assert (missing.returncode, missing.stdout) == (2, "")


def test_log_ins_are_in_the_audit_log_of_the_data_folder(broker: Penstock) -> None:
    Producer(client(broker, "admin", admin_password(broker))).list_topics(timeout=SECONDS_MAX)
    path = broker.data / "audit.log"

    def events() -> list[dict[str, object]]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    wait_until(lambda: any(event["principal"] == "User:admin" for event in events()), "a log-in of admin is recorded")
    assert path.stat().st_mode & 0o077 == 0


def test_an_operator_who_is_locked_out_gets_in_by_a_user_of_a_file(tmp_path: Path) -> None:
    """The steps of docs/operations/security.md, "Locked out"."""
    folder = tmp_path / "data"
    with ExitStack() as stack:
        lost = PenstockFactory(folder=tmp_path, stack=stack)(data=folder, env={"PENSTOCK_SECURE": "true"})
        before = admin_password(lost)
    command = [str(PENSTOCK), "users", "verifier", "rescue"]
    line = subprocess.run(command, input="sesame\n", check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
    (tmp_path / "rescue.users").write_text(line.stdout)
    properties = [each for each in (folder / "admin.properties").read_text().splitlines() if "sasl" not in each]
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties += ["sasl.mechanism=PLAIN", f'sasl.jaas.config={module} required username="rescue" password="sesame";']
    (tmp_path / "rescue.properties").write_text("\n".join(properties))
    with ExitStack() as stack:
        broker = PenstockFactory(folder=tmp_path, stack=stack)(
            data=folder,
            options={"plain-users": str(tmp_path / "rescue.users")},
            settings={"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", "super.users": "User:admin;User:rescue"},
            env={"PENSTOCK_SECURE": "true"},
        )
        flags = ["--server", f"https://{broker.http}", "--command-config", str(tmp_path / "rescue.properties")]
        command = [str(PENSTOCK), "users", "create", "admin", *flags]
        subprocess.run(command, input="new one\n", check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
        AdminClient(client(broker, "admin", "new one")).list_topics(timeout=SECONDS_MAX)
        errors: list[KafkaError] = []
        Producer({**client(broker, "admin", before), "error_cb": errors.append}).poll(2)
        assert errors, "the lost password still opens"


def test_no_file_or_log_line_has_a_password(broker: Penstock) -> None:
    password = admin_password(broker).encode()
    with_password = {path.name for path in broker.data.rglob("*") if path.is_file() and password in path.read_bytes()}
    assert with_password == {"admin.password", "admin.properties"}
    assert admin_password(broker) not in broker.process.stderr + broker.process.stdout
