"""Other people's clients over TLS: they produce and consume, show certificates, and are rejected where they must be."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import PemFiles, TestAuthority, java_keystore
from tests.support.cluster.conditions import wait_until
from tests.support.processes import provided
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaConsumer, KafkaProducer

VALUES = [b"small", b"x" * 900_000, *(f"value {number}".encode() for number in range(50))]
SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(folder=tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: TestAuthority) -> PemFiles:
    return authority.issue("server")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockFactory]:
    provided(PENSTOCK)
    with ExitStack() as stack:
        yield PenstockFactory(folder=tmp_path_factory.mktemp("brokers"), stack=stack)


@pytest.fixture(scope="module")
def broker(start: PenstockFactory, server: PemFiles) -> Penstock:
    options = {"tls-cert": str(server.cert), "tls-key": str(server.key), "http": "https://127.0.0.1:0"}
    return start(listen="SSL://127.0.0.1:0", options=options)


@pytest.fixture(scope="module")
def mutual(start: PenstockFactory, server: PemFiles, authority: TestAuthority) -> Penstock:
    options = {"tls-cert": str(server.cert), "tls-key": str(server.key), "tls-client-ca": str(authority.ca_path)}
    settings = {
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),OU=Tests.*$/$1/",
        "super.users": "User:alice;User:bob",
    }
    return start(listen="SSL://127.0.0.1:0", options=options, settings=settings)


def confluent_configs(
    bootstrap: str, authority: TestAuthority, client: PemFiles | None = None
) -> dict[str, str | int | float | bool]:
    configs: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.ca_path),
        "log_level": 0,
    }
    if client is not None:
        configs |= {"ssl.certificate.location": str(client.cert), "ssl.key.location": str(client.key)}
    return configs


def test_librdkafka_produces_and_consumes(broker: Penstock, authority: TestAuthority) -> None:
    configs = confluent_configs(broker.bootstrap, authority)
    producer = Producer(configs)
    for value in VALUES:
        producer.produce("confluent", value)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer({**configs, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    received: list[bytes | None] = []
    while len(received) < len(VALUES):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(received)} of {len(VALUES)} arrived"
        assert message.error() is None
        received.append(message.value())
    consumer.close()
    assert received == VALUES


def test_kafka_python_produces_and_consumes(broker: Penstock, authority: TestAuthority) -> None:
    configs = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.ca_path),
    }
    producer = KafkaProducer(**configs)
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", group_id="kp", **configs)
    received: list[bytes] = []
    while len(received) < len(VALUES):
        batches = consumer.poll(SECONDS_MAX * 1000)
        assert batches, f"{len(received)} of {len(VALUES)} arrived"
        received += [record.value for records in batches.values() for record in records]
    consumer.close()
    assert received == VALUES


async def test_aiokafka_produces_and_consumes(broker: Penstock, authority: TestAuthority) -> None:
    context = ssl.create_default_context(cafile=authority.ca_path)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, security_protocol="SSL", ssl_context=context)
    await producer.start()
    for value in VALUES:
        await producer.send_and_wait("aiokafka", value)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "aiokafka",
        bootstrap_servers=broker.bootstrap,
        security_protocol="SSL",
        ssl_context=context,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    async with asyncio.timeout(SECONDS_MAX):
        received = [(await consumer.getone()).value for _ in VALUES]
    await consumer.stop()
    assert received == VALUES


def test_kafkas_console_clients_produce_and_consume(
    mutual: Penstock, authority: TestAuthority, java: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    client = authority.issue("java", "bob@example.org", common_name="bob")
    keystore = java_keystore(client, tmp_path / "keystore.pem")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={authority.ca_path}\nssl.keystore.location={keystore}\n",
        encoding="utf-8",
    )
    common = ["--bootstrap-server", mutual.bootstrap, "--topic", "java", "--command-config", str(properties)]
    run = [str(java), *SHORT_LIVED, "-cp", f"{kafka_jars}/*"]
    values = [f"line {number}" for number in range(20)]
    produced = subprocess.run(
        [*run, "org.apache.kafka.tools.ConsoleProducer", *common],
        input="\n".join(values) + "\n",
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert produced.returncode == 0, produced.stderr
    consumed = subprocess.run(
        [
            *run,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *common,
            "--from-beginning",
            "--max-messages",
            str(len(values)),
            "--timeout-ms",
            "30000",
        ],
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert consumed.stdout.splitlines() == values, consumed.stderr


def lists_topics(bootstrap: str, authority: TestAuthority, client: PemFiles | None = None) -> bool:
    try:
        AdminClient(confluent_configs(bootstrap, authority, client)).list_topics(timeout=1.5)
    except KafkaException:
        return False
    return True


def test_a_client_needs_a_certificate_that_a_rule_names(
    mutual: Penstock, authority: TestAuthority, tmp_path: Path
) -> None:
    assert lists_topics(mutual.bootstrap, authority, authority.issue("alice", "a@example.org", common_name="alice"))
    for client, reason in [
        (None, "the client has no certificate"),
        (authority.issue("nameless", "n@example.org", common_name="17"), "no rule of ssl.principal.mapping.rules"),
        (_stranger(tmp_path), "the client's certificate is not valid: unable to get local issuer"),
    ]:
        assert not lists_topics(mutual.bootstrap, authority, client)
        wait_for_line(mutual, reason)


def _stranger(folder: Path) -> PemFiles:
    return TestAuthority(folder=folder).issue("stranger", "s@example.org", common_name="alice")


def wait_for_line(penstock: Penstock, text: str) -> None:
    """The client sees that it is rejected before the agent has logged why."""
    wait_until(lambda: text in penstock.process.stderr, f"a log line with {text!r}")


def connect(penstock: Penstock) -> socket.socket:
    host, _, port = penstock.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS_MAX)


def test_tls_1_1_is_rejected(broker: Penstock) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):  # Python deprecates what is tried here
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with connect(broker) as raw, pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
        context.wrap_socket(raw)
    wait_for_line(broker, "the client speaks an older version of TLS")


def test_plaintext_on_a_tls_port_is_closed(broker: Penstock) -> None:
    with connect(broker) as raw:
        raw.sendall(b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01a\x00" + bytes(20))
        received = raw.recv(100)
        assert received[:1] in (b"", b"\x15")  # closed, or a TLS alert
    wait_for_line(broker, "the client does not speak TLS")


def test_tls_on_a_plaintext_port_is_closed(start: PenstockFactory, authority: TestAuthority) -> None:
    plain = start()
    context = ssl.create_default_context(cafile=authority.ca_path)
    with connect(plain) as raw, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(raw, server_hostname="localhost")
    wait_for_line(plain, "the client speaks TLS")


def test_silent_strangers_keep_nobody_out(broker: Penstock, authority: TestAuthority) -> None:
    with ExitStack() as stack:
        for number in range(600):
            stranger = stack.enter_context(connect(broker))
            stranger.sendall(b"\x16\x03\x01\x02\x00"[: number % 6])
        assert lists_topics(broker.bootstrap, authority)


def test_agents_behind_one_router_are_told_apart_by_their_host_names(
    start: PenstockFactory, authority: TestAuthority, server: PemFiles
) -> None:
    own = authority.issue("a1", "a1.kafka.example")
    options = {
        "name": "a1",
        "advertise": "EXTERNAL://{name}.kafka.example:9094",
        "tls-cert": str(server.cert),
        "tls-key": str(server.key),
    }
    settings = {
        "listener.security.protocol.map": "EXTERNAL:SSL",
        "listener.name.external.penstock.sni.a1.kafka.example.cert": str(own.cert),
        "listener.name.external.penstock.sni.a1.kafka.example.key": str(own.key),
    }
    broker = start(listen="EXTERNAL://127.0.0.1:0", options=options, settings=settings)
    admin = AdminClient(confluent_configs(broker.bootstrap, authority))
    (node,) = admin.list_topics(timeout=SECONDS_MAX).brokers.values()
    assert (node.host, node.port) == ("a1.kafka.example", 9094)
    assert serial(broker.bootstrap, authority, "a1.kafka.example") != serial(broker.bootstrap, authority)


def serial(bootstrap: str, authority: TestAuthority, host: str = "127.0.0.1") -> object:
    address, _, port = bootstrap.rpartition(":")
    context = ssl.create_default_context(cafile=authority.ca_path)
    with (
        socket.create_connection((address, int(port)), timeout=SECONDS_MAX) as raw,
        context.wrap_socket(raw, server_hostname=host) as connection,
    ):
        certificate = connection.getpeercert()
    assert certificate is not None
    return certificate["serialNumber"]


@pytest.mark.parametrize("renewals", [1, pytest.param(4, marks=pytest.mark.slow)], ids=["once", "four times"])
def test_a_swapped_secret_is_served_within_15_seconds_and_no_client_notices(
    start: PenstockFactory, authority: TestAuthority, tmp_path: Path, renewals: int
) -> None:
    secret = KubernetesSecret(tmp_path / "secret")
    secret.write(authority.issue("first"))
    options = {"tls-cert": str(secret.folder / "tls.crt"), "tls-key": str(secret.folder / "tls.key")}
    broker = start(listen="SSL://127.0.0.1:0", options=options)
    load = ClientsUnderLoad(broker.bootstrap, authority)
    with load.running():
        for number in range(renewals):
            before = serial(broker.bootstrap, authority)
            secret.write(authority.issue(f"renewed-{number}"))
            began_s = time.monotonic()
            while serial(broker.bootstrap, authority) == before:
                assert time.monotonic() - began_s < 15, "the new certificate is not served"
                load.stopped.wait(0.1)
    assert load.errors == []
    assert load.sent_count == load.received_count > 0


class ClientsUnderLoad:
    """Three producers, of which one connects again and again, and a consumer, all over TLS."""

    def __init__(self, bootstrap: str, authority: TestAuthority) -> None:
        self.stopped = threading.Event()
        self.errors: list[object] = []
        self.sent_count = self.received_count = 0
        self._delivered = threading.Lock()
        self._base_configs = confluent_configs(bootstrap, authority)
        self._configs = {**self._base_configs, "error_cb": self.errors.append}
        self._is_all_sent = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        admin = AdminClient(self._base_configs)
        admin.create_topics([NewTopic("load", 1)])["load"].result(SECONDS_MAX)
        producers = [threading.Thread(target=self._produce, args=(is_new,)) for is_new in (False, False, True)]
        consumer = threading.Thread(target=self._consume)
        for thread in (*producers, consumer):
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in producers:
                thread.join(SECONDS_MAX)
            self._is_all_sent.set()
            consumer.join(SECONDS_MAX)

    def _produce(self, is_new_each_second: bool) -> None:
        while not self.stopped.is_set():
            producer = Producer({**self._configs, "message.timeout.ms": 20_000})
            end_s = time.monotonic() + (1.0 if is_new_each_second else 3_600.0)
            while not self.stopped.is_set() and time.monotonic() < end_s:
                producer.produce("load", bytes(1000), on_delivery=self._on_delivery)
                producer.poll(0.002)
            if producer.flush(SECONDS_MAX):
                self.errors.append("records were not delivered")

    def _on_delivery(self, error: object, _: object) -> None:
        with self._delivered:
            self.sent_count += 1
        if error is not None:
            self.errors.append(error)

    def _consume(self) -> None:
        consumer = Consumer({**self._configs, "group.id": "load", "auto.offset.reset": "earliest"})
        consumer.subscribe(["load"])
        deadline_s = float("inf")
        while not (self._is_all_sent.is_set() and self.received_count >= self.sent_count):
            if self._is_all_sent.is_set():
                deadline_s = min(deadline_s, time.monotonic() + SECONDS_MAX)
            if time.monotonic() > deadline_s:
                break
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    self.errors.append(message.error())
                self.received_count += 1
        consumer.close()


class KubernetesSecret:
    """A folder as the kubelet mounts a secret: files are links through `..data`, which is swapped by a rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        folder.mkdir()
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data") / name)

    def write(self, files: PemFiles) -> None:
        self._count += 1
        version = self.folder / f"..{self._count}"
        version.mkdir()
        shutil.copy(files.cert, version / "tls.crt")
        shutil.copy(files.key, version / "tls.key")
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        os.replace(link, self.folder / "..data")


def test_commands_and_the_http_port_work_over_tls(broker: Penstock, authority: TestAuthority, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=authority.ca_path)
    with urlopen(f"https://{broker.http}/ready", context=context, timeout=SECONDS_MAX) as response:
        assert response.status == 200
    with pytest.raises((URLError, OSError)):
        urlopen(f"http://{broker.http}/ready", timeout=SECONDS_MAX)

    def penstock(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(PENSTOCK), *words, "--server", f"https://{broker.http}"]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)

    ca = ("--ca", str(authority.ca_path))
    produced = penstock("produce", "commands", *ca, text="one\ntwo\n")
    assert produced.returncode == 0, produced.stderr
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.ca_path}\n",
        encoding="utf-8",
    )
    consumed = penstock("consume", "commands", "--from", "earliest", "--command-config", str(properties))
    assert consumed.stdout.splitlines() == ["one", "two"], consumed.stderr
    untrusted = penstock("topics", "list")
    assert untrusted.returncode == 1
    assert "is not trusted" in untrusted.stderr
