"""Clients of applications log in with tokens of an issuer, as they do at Apache Kafka, and groups of tokens count."""

import asyncio
import json
import os
import ssl
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError, Producer
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin import AdminClient

from tests.support.auth.token_issuer import CLIENTS, TokenIssuer, token_issuer
from tests.support.auth.wrong_tokens import WRONG_TOKENS
from tests.support.certificates import TestAuthority
from tests.support.processes import provided
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(folder=tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(authority: TestAuthority) -> Iterator[TokenIssuer]:
    with token_issuer(authority) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority, issuer: TokenIssuer
) -> Iterator[Penstock]:
    """A broker whose listener takes tokens. `alice` may do everything; others what ACLs say."""
    provided(PENSTOCK)
    server = authority.issue("server")
    with ExitStack() as stack:
        yield PenstockFactory(folder=tmp_path_factory.mktemp("oauth"), stack=stack)(
            listen="SASL_SSL://127.0.0.1:0",
            options={"tls-cert": str(server.cert), "tls-key": str(server.key), "http": "https://127.0.0.1:0"},
            settings={
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "super.users": "User:alice;Group:operators",
                "penstock.oauthbearer.groups.claim": "groups",
                **issuer.broker_configs(authority),
            },
        )


def confluent(broker: Penstock, authority: TestAuthority, **others: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.ca_path),
        "sasl.mechanism": "OAUTHBEARER",
        "message.timeout.ms": 10_000,
        **others,
    }


def produce(producer: Producer, topic: str) -> KafkaError | None:
    """Sends a record; the error of its delivery."""
    delivered: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
    producer.flush(SECONDS_MAX)
    return delivered[0]


def test_confluent_asks_the_issuer_for_a_token(broker: Penstock, issuer: TokenIssuer, authority: TestAuthority) -> None:
    configs = confluent(
        broker,
        authority,
        **{
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": CLIENTS["alice"],
            "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
            "https.ca.location": str(authority.ca_path),
        },
    )
    issuer.token_requests.clear()
    assert produce(Producer(configs), "confluent-oidc") is None
    assert issuer.token_requests == ["alice"]


@pytest.mark.parametrize("name", ["", "expired", "wrong aud", "another key"])
def test_a_token_of_confluents_callback_is_judged(
    broker: Penstock, issuer: TokenIssuer, authority: TestAuthority, name: str
) -> None:
    token = WRONG_TOKENS[name](issuer, int(time.time())) if name else issuer.token()
    errors: list[KafkaError] = []
    configs = confluent(
        broker, authority, oauth_cb=lambda _: (token, time.time() + 300), error_cb=errors.append, log_level=0
    )
    producer = Producer(configs)
    if not name:
        assert produce(producer, "confluent-callback") is None
        assert errors == []
        return
    began_s = time.monotonic()
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(0.1)
        assert time.monotonic() - began_s < SECONDS_MAX, errors


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """A provider of tokens for aiokafka."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer

    async def token(self) -> str:
        return self._issuer.token()


async def test_aiokafka_produces(broker: Penstock, issuer: TokenIssuer, authority: TestAuthority) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=authority.ca_path),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(issuer),
    )
    async with producer:
        assert (await producer.send_and_wait("aiokafka", b"x")).offset >= 0


def test_kafka_python_produces(broker: Penstock, issuer: TokenIssuer, authority: TestAuthority) -> None:
    class Provider(KafkaPythonTokens):  # type: ignore[misc]  # the library has no types
        def token(self) -> str:
            return issuer.token()

    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=str(authority.ca_path),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert producer.send("kafka-python", b"x").get(SECONDS_MAX).offset >= 0
    producer.close()


@pytest.mark.parametrize("way", ["endpoint", "file"])
def test_kafkas_console_producer_logs_in(
    broker: Penstock,
    issuer: TokenIssuer,
    authority: TestAuthority,
    java: Path,
    kafka_jars: Path,
    tmp_path: Path,
    way: str,
) -> None:
    """By the client credentials of an application, or by a token in a file, as Kubernetes mounts one."""
    token_file = tmp_path / "token"
    token_file.write_text(issuer.token())
    store = f'ssl.truststore.type="PEM" ssl.truststore.location="{authority.ca_path}"'
    login = f'clientId="alice" clientSecret="{CLIENTS["alice"]}" {store}' if way == "endpoint" else ""
    url = issuer.token_url if way == "endpoint" else f"file://{token_file}"
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.ca_path}\n"
        "sasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {login};\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
    files = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token_file}"
    tool = [str(java), "-Xmx256m", *SHORT_LIVED, allowed, files, "-cp", os.path.join(kafka_jars, "*")]
    where = ["--bootstrap-server", broker.bootstrap, "--topic", f"java-{way}", "--command-config", str(config)]
    done = subprocess.run(
        [*tool, "org.apache.kafka.tools.ConsoleProducer", *where],
        input="hello\n",
        text=True,
        timeout=SECONDS_MAX,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr + done.stdout


def ask(broker: Penstock, authority: TestAuthority, path: str, token: str) -> tuple[int, object]:
    """Status and body of an answer over HTTPS."""
    request = Request(f"https://{broker.http}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(request, context=ssl.create_default_context(cafile=authority.ca_path)) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


PATHS = ("/api/topics", "/iceberg/v1/config", "/schema-registry/subjects", "/api/tail/http")


@pytest.mark.parametrize("path", PATHS)
def test_a_token_counts_over_http(broker: Penstock, issuer: TokenIssuer, authority: TestAuthority, path: str) -> None:
    tokens = [issuer.token(), issuer.token("bob", groups=["operators"])]
    statuses = [ask(broker, authority, path, token)[0] for token in tokens]
    assert statuses == [404, 404] if path.startswith("/api/tail") else [200, 200]
    assert ask(broker, authority, path, WRONG_TOKENS["expired"](issuer, int(time.time())))[0] == 401


def test_the_commands_log_in_by_a_token_in_a_file(
    broker: Penstock, issuer: TokenIssuer, authority: TestAuthority, tmp_path: Path
) -> None:
    """At the Kafka listener, which `produce` asks, and over HTTPS."""
    token, config = tmp_path / "token", tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.ca_path}\n"
        f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file://{token}\n"
    )

    def command(*words: str, **others: str) -> subprocess.CompletedProcess[str]:
        server = ["--server", f"https://{broker.http}", "--ca", str(authority.ca_path)]
        login = ["--command-config", str(config)] if not others else ["--token-file", str(token)]
        return subprocess.run(
            [str(PENSTOCK), *words, *server, *login],
            input="hello\n",
            text=True,
            capture_output=True,
            timeout=SECONDS_MAX,
        )

    token.write_text(issuer.token())
    done = command("produce", "commands", "--bootstrap", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    done = command("topics", "list", by="--token-file")
    assert done.returncode == 0, done.stderr
    token.write_text(WRONG_TOKENS["expired"](issuer, int(time.time())))
    done = command("produce", "commands", "--bootstrap", broker.bootstrap)
    assert done.returncode != 0
    assert '{"status":"invalid_token"}' in done.stderr


def test_a_group_is_allowed_what_its_acl_says(broker: Penstock, issuer: TokenIssuer, authority: TestAuthority) -> None:
    def configs(subject: str, *groups: str) -> dict[str, Any]:
        token = issuer.token(subject, groups=list(groups))
        return confluent(broker, authority, oauth_cb=lambda _: (token, time.time() + 300), log_level=0)

    admin = AdminClient(configs("alice"))
    admin.poll(1)
    names: Any = confluent_admin  # its types leave out what it exports
    for operation in (names.AclOperation.WRITE, names.AclOperation.CREATE):
        acl = names.AclBinding(
            names.ResourceType.TOPIC,
            "of-the-team",
            names.ResourcePatternType.LITERAL,
            "Group:team",
            "*",
            operation,
            names.AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([acl]).values():
            future.result(SECONDS_MAX)
    assert produce(Producer(configs("carol", "team")), "of-the-team") is None
    without = Producer(configs("carol", "other") | {"message.timeout.ms": 2_000})
    error = produce(without, "of-the-team")
    assert error is not None
    assert error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._MSG_TIMED_OUT)


async def test_keys_rotate_under_load_without_an_error(
    broker: Penstock, issuer: TokenIssuer, authority: TestAuthority
) -> None:
    """New connections with tokens of the newest key, before and after it changes: the keys are read again once."""

    async def log_in(number: int) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=authority.ca_path),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(issuer),
        )
        async with producer:
            return int((await producer.send_and_wait("rotation", str(number).encode())).offset)

    offsets = list(await asyncio.gather(*(log_in(number) for number in range(8))))
    asked = len(issuer.key_requests)
    issuer.rotate(kept=1)
    offsets += await asyncio.gather(*(log_in(number) for number in range(8)))
    assert sorted(offsets) == list(range(16))
    assert len(issuer.key_requests) == asked + 1


def test_no_log_line_has_a_token(broker: Penstock, issuer: TokenIssuer) -> None:
    assert issuer.token().split(".")[0] not in broker.process.stderr + broker.process.stdout
