"""A password, token or key that an agent was given stands in no command line, log, metric, page or answer."""

import contextlib
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import grpc.aio
import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.processes import Process
from tests.support.security.secret_texts import Secrets, look_at_process
from tests.support.services.etcd import Etcd
from tests.support.services.etcd_tls import PASSWORD, USER
from tests.support.services.etcd_users import require_password
from tests.support.services.local_services import PENSTOCK, READY, Minio

PAGES = ("/metrics", "/api/status", "/api/state", "/api/topics", "/api/lake", "/iceberg/v1/config")
TOKEN = "hush-http-token-of-a-client"


def look_at_pages(secrets: Secrets, http: str) -> None:
    for page in PAGES:
        for token in (TOKEN, "hush-wrong-token-of-a-client"):
            request = urllib.request.Request(f"http://{http}{page}", headers={"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    secrets.look_in(page, answer.read().decode())
            except urllib.error.HTTPError as error:
                secrets.look_in(page, error.read().decode())


def look_at_configs(secrets: Secrets, bootstrap: str, *, node_id: str | None = None) -> dict[str, str | None]:
    """Looks at all configs of the agent as a Kafka client gets them, and returns them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    node_id = node_id or str(next(iter(admin.list_topics(timeout=10).brokers)))
    ((resource, answer),) = admin.describe_configs([ConfigResource("broker", node_id)]).items()
    configs = {name: entry.value for name, entry in answer.result(timeout=10).items()}
    secrets.look_in(f"DescribeConfigs of {resource}", repr(configs))
    return configs


@pytest.fixture
def secrets() -> Iterator[Secrets]:
    secrets = Secrets()
    secrets.add(TOKEN, "a token of HTTP")
    secrets.add("hush-wrong-token-of-a-client", "a client's wrong token")
    yield secrets
    assert secrets.texts
    assert not secrets.leaks, "\n".join(secrets.leaks)


def test_secrets_from_files_configuration_and_environment(secrets: Secrets, tmp_path: Path) -> None:
    password_file = tmp_path / "key-password"
    password_file.write_text(secrets.add("hush-key-file", "a password of NAME.file") + "\n")
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    catalogs = tmp_path / "catalogs.toml"
    catalogs.write_text(
        "[database]\n"
        'type = "sql"\n'
        f'uri = "postgresql://penstock:{secrets.add("hush-uri", "a password in a URI")}@127.0.0.1:1/lake"\n'
        "[others]\n"
        'type = "rest"\n'
        'uri = "http://127.0.0.1:1/"\n'
        'token = { env = "CATALOG_TOKEN" }\n'
        f'credential = "id:{secrets.add("hush-credential", "a credential in TOML")}"\n'
    )
    keystore, truststore = keystores(
        tmp_path,
        keystore_password=secrets.add("hush-toml", "a password in TOML"),
        truststore_password=secrets.add("hush-environment", "a password in the environment"),
    )
    config = tmp_path / "penstock.toml"
    config.write_text(
        'log-level = "debug"\n'
        'listen = ["PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0"]\n'
        f'http-token-file = "{tokens}"\n'
        f'external-catalogs = "{catalogs}"\n'
        "[set]\n"
        '"ssl.keystore.type" = "PKCS12"\n'
        f'"ssl.keystore.location" = "{keystore}"\n'
        '"ssl.keystore.password" = "hush-toml"\n'
        '"ssl.truststore.type" = "PKCS12"\n'
        f'"ssl.truststore.location" = "{truststore}"\n'
        f'"ssl.key.password.file" = "{password_file}"\n'
    )
    environment = {
        "CATALOG_TOKEN": secrets.add("hush-catalog-token", "a token in the environment"),
        "PENSTOCK_SET": "ssl.truststore.password=hush-environment",
        "AWS_SECRET_ACCESS_KEY": secrets.add("hush-aws", "an AWS key in the environment"),
    }
    data = tmp_path / "data"
    command: list[str | Path] = [PENSTOCK, "run", "--config", config, "--http", "127.0.0.1:0", "--data-dir", data]
    with Process(command, tmp_path, name="penstock", env=environment) as broker:
        broker.wait_until(broker.has_line, "penstock")
        bootstrap, http = serving_at(broker)
        configs = look_at_configs(secrets, bootstrap)
        assert configs.get("ssl.keystore.password") is None
        look_at_pages(secrets, http)
        broker.wait_until(lambda: "catalog" in broker.stderr, "a line on an external catalog")
        look_at_process(secrets, broker)
        look_at_commands(secrets, ["run", "--config", config, "--data-dir", data], environment)
    look_at_commands(secrets, ["inspect", "ledger", "--data-dir", data], environment)


def serving_at(process: Process) -> tuple[str, str]:
    """The addresses of the first listener and of HTTP, once the process serves."""
    match = READY.search(process.stdout)
    assert match is not None
    return match[1], match[2]


def look_at_commands(secrets: Secrets, command: list[str | Path], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [PENSTOCK, *command], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )
    secrets.look_in(f"penstock {command[0]}", done.stdout + done.stderr)


def keystores(folder: Path, *, keystore_password: str, truststore_password: str) -> tuple[Path, Path]:
    """A PKCS12 file with a key and its certificate, and one with the authority that signed it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    trusted = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    keystore, truststore = folder / "keystore.p12", folder / "truststore.p12"
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    encryption = serialization.BestAvailableEncryption
    keystore.write_bytes(
        pkcs12.serialize_key_and_certificates(b"key", key, certificate, None, encryption(keystore_password.encode()))
    )
    truststore.write_bytes(
        pkcs12.serialize_key_and_certificates(None, None, None, [trusted], encryption(truststore_password.encode()))
    )
    return keystore, truststore


def has_begun(agent: Process, awaited: str) -> bool:
    """Whether the agent serves, or logged the awaited text."""
    return awaited in agent.stderr if awaited else agent.has_line()


async def test_secrets_of_ledger_and_bucket(secrets: Secrets, minio: Minio, tmp_path: Path) -> None:
    secrets.add(PASSWORD, "the password of etcd")
    secrets.add(minio.secret_key, "the key of the bucket")
    bucket = minio.make_bucket("penstock-sweep")
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD + "\n")
    with Etcd(tmp_path / "etcd") as etcd:
        async with grpc.aio.insecure_channel(etcd.endpoints[0]) as channel:
            await require_password(channel, users={USER: (PASSWORD, b"/penstock/c/")})
        command: list[str | Path] = [
            PENSTOCK,
            "agent",
            "--ledger",
            f"etcd://{etcd.endpoints[0]}/c",
            "--store",
            f"s3://{bucket}/data",
        ]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ledger-user", USER, "--log-level", "debug"]
        given: tuple[dict[str, str], ...] = (
            {"PENSTOCK_LEDGER_PASSWORD": PASSWORD},
            {},
            {"PENSTOCK_LEDGER_PASSWORD": "hush-wrong-password"},
        )
        secrets.add("hush-wrong-password", "a wrong password of etcd")
        for number, environment in enumerate(given):
            flags = [] if environment else ["--ledger-password-file", str(password_file)]
            env = {**minio.settings, **environment}
            with Process([*command, *flags], tmp_path, name=f"agent-{number}", env=env) as agent:
                awaited = "check user and password" if "hush-wrong-password" in environment.values() else ""
                agent.wait_until(partial(has_begun, agent, awaited), "the agent")
                look_at_process(secrets, agent)
            with contextlib.suppress(FileNotFoundError):
                secrets.look_in("stderr", agent.stderr)
