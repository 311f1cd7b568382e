"""What users log in with stands in no log, page, answer, entry or file, nor in the traceback of an agent that ends."""

import subprocess
import sys
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

import tests
from protocol.api_versions import ApiKey
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.plain_users import plain_user
from tests.support.clients.http_client import ask_http
from tests.support.clients.kafka_requests import Broken
from tests.support.clients.login_client import LoginClient, error_codes
from tests.support.modified_agents.crashing_agent import USER as CRASHING
from tests.support.processes import provided
from tests.support.security.secret_texts import Secrets, look_at_process
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

CRASHING_AGENT = (sys.executable, Path(tests.__path__[0]) / "support" / "modified_agents" / "crashing_agent.py")
TOKEN = "hush-http-token-of-an-administrator"
PASSWORD = "hush-first-password"
WRONG, OF_CRASH, BOBS = "hush-wrong-password", "hush-crash-password", "hush-password-of-bob"
SHA_256 = ScramMechanism.SCRAM_SHA_256
PAGES = (
    "/metrics",
    "/api/status",
    "/api/state",
    "/api/topics",
    "/api/inspect/state",
    "/api/inspect/ledger",
    "/api/inspect/objects",
)


def add_bytes(secrets: Secrets, secret: bytes, how: str) -> None:
    """Adds bytes in each form in which a text may have them."""
    for text in (secret.hex(), b64encode(secret).decode(), urlsafe_b64encode(secret).decode(), repr(secret)[2:-1]):
        secrets.add(text.rstrip("="), how)


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    secrets = Secrets()
    secrets.add(TOKEN, "a token of HTTP")
    for text, how in ((PASSWORD, "a password"), (WRONG, "a wrong one"), (OF_CRASH, "one in a crash"), (BOBS, "Bob's")):
        secrets.add(text, how)
    for salt in (b"salt of bob", b"salt of crash"):
        salted = salt_password(BOBS, salt=salt, iterations=4096, mechanism=SHA_256)
        credential = credential_of(salted, salt=salt, iterations=4096, mechanism=SHA_256)
        add_bytes(secrets, salted, "a salted password")
        add_bytes(secrets, credential.stored_key, "a stored key")
        add_bytes(secrets, credential.server_key, "a server key")
    return secrets


@pytest.fixture(scope="module")
def broker(secrets: Secrets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """An agent that tells all it does, with users of both kinds; it shows everything if it crashes."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("users")
    (folder / "users.toml").write_text(
        f'[[users]]\nname = "admin"\npassword = "{PASSWORD}"\nmechanism = "SCRAM-SHA-256"\n'
    )
    dave = plain_user("dave", "hush-password-of-dave")
    (folder / "plain").write_text(dave + "\n")
    for part in dave.partition("$")[2].replace(":", "$").split("$")[2:]:
        secrets.add(part.rstrip("="), "a verifier of the file of users")
    key = bytes(range(100, 132))
    (folder / "key").write_bytes(key)
    add_bytes(secrets, key, "the secret key")
    (folder / "tokens").write_text(f"User:admin {TOKEN}\n")
    with ExitStack() as stack:
        yield PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={
                "bootstrap-users": str(folder / "users.toml"),
                "plain-users": str(folder / "plain"),
                "http-token-file": str(folder / "tokens"),
                "audit-log": str(folder / "audit"),
                "log-level": "debug",
            },
            settings={
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "super.users": "User:admin",
                "penstock.secret.key.file": str(folder / "key"),
            },
            program=CRASHING_AGENT,
        )


def alteration(user: str) -> dict[str, object]:
    """A request that sets the user's credential, as Kafka's tools send it: with the salted password."""
    salt = f"salt of {user}".encode()
    salted = salt_password(BOBS, salt=salt, iterations=4096, mechanism=SHA_256)
    row = {"name": user, "mechanism": 1, "iterations": 4096, "salt": salt, "salted_password": salted}
    return {"deletions": [], "upsertions": [row]}


def log_in_as_admin(broker: Penstock) -> LoginClient:
    client = LoginClient(broker.bootstrap)
    deadline = time.monotonic() + 30
    while client.log_in("admin", PASSWORD).error_code:  # the first users are created behind the start
        assert time.monotonic() < deadline
        client.close()
        client = LoginClient(broker.bootstrap)
    return client


def test_users_and_a_crash_show_no_secret(broker: Penstock, secrets: Secrets) -> None:
    with log_in_as_admin(broker) as admin:
        assert set(error_codes(admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, alteration("bob")))) == {0}
        shown = admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        secrets.look_in("DescribeUserScramCredentials", repr(shown))
        for user, password in (("admin", WRONG), ("dave", WRONG), ("nobody", WRONG)):
            with LoginClient(broker.bootstrap) as other:
                secrets.look_in("the answer to a login", repr(other.log_in(user, password)))
        with LoginClient(broker.bootstrap) as scram:
            made = DrawnScramClient(mechanism=SHA_256, user="bob", password=BOBS)
            assert scram.log_in_by_scram(made).error_code == 0
        look_at_pages(broker, secrets)
        look_at_configs(broker, secrets)
        look_at_crashes(broker, secrets, admin)
    command: list[str | Path] = [PENSTOCK, "inspect", "ledger", "--data-dir", broker.data]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "AlterScram" in done.stdout + done.stderr
    secrets.look_in("penstock inspect ledger", done.stdout + done.stderr)
    secrets.look_in("the audit log", (broker.data.parent / "audit").read_text())
    look_at_process_files(broker, secrets)
    assert not secrets.leaks, "\n".join(secrets.leaks)


def look_at_pages(broker: Penstock, secrets: Secrets) -> None:
    basic, wrong = (b64encode(f"admin:{text}".encode()).decode() for text in (PASSWORD, WRONG))
    secrets.add(basic, "a password of Basic")
    for shown in (f"Bearer {TOKEN}", f"Basic {basic}"):
        for page in PAGES:
            answer = ask_http(broker.http, "GET", page, authorization=shown)
            assert answer.status == 200, answer
            secrets.look_in(page, answer.text)
    for shown in (f"Bearer {TOKEN}x", f"Basic {wrong}"):
        secrets.look_in("a rejection", ask_http(broker.http, "GET", PAGES[0], authorization=shown).text)


def look_at_configs(broker: Penstock, secrets: Secrets) -> None:
    """Looks at all configs as an administrator gets them."""
    configs: dict[str, str | int | float | bool] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": PASSWORD,
    }
    client = AdminClient(configs)
    node_id = next(iter(client.list_topics(timeout=30).brokers))
    ((_, answer),) = client.describe_configs([ConfigResource("broker", str(node_id))]).items()
    entries = answer.result(timeout=30)
    secrets.look_in("DescribeConfigs", repr({name: entry.value for name, entry in entries.items()}))


def look_at_crashes(broker: Penstock, secrets: Secrets, admin: LoginClient) -> None:
    """Makes the agent crash in a login, and in an entry; it ends by the second."""
    secrets.look_in("ps", Path(f"/proc/{broker.process.pid}/cmdline").read_text())
    with LoginClient(broker.bootstrap) as crashing, suppress(Broken):
        crashing.log_in(CRASHING, OF_CRASH)
    broker.process.wait_until(lambda: "cannot check" in broker.process.stderr, "the crash of a login")
    with suppress(Broken):
        admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, alteration(CRASHING))
    assert broker.process.wait_ended(seconds_max=60) != 0
    assert "Traceback" in broker.process.stderr
    assert "cannot apply AlterScram" in broker.process.stderr


def look_at_process_files(broker: Penstock, secrets: Secrets) -> None:
    """The logs, and every byte of the data folder."""
    with suppress(FileNotFoundError):  # of /proc, as the agent has ended
        look_at_process(secrets, broker.process)
    secrets.look_in("stderr", broker.process.stderr)
    files = [path for path in broker.data.rglob("*") if path.is_file()]
    assert files
    for path in files:
        secrets.look_in(path.name, path.read_bytes().decode("latin-1"))
