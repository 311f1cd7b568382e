"""Clients that show certificates: who they are by alternative names, who is revoked, and their rights over HTTP."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.support.certificates import PemFiles, TestAuthority
from tests.support.cluster.conditions import wait_until
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

SECONDS_MAX = 30.0
SPIFFE = "spiffe://example.org/orders"
HOST = "orders.example.org"

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
"""PyIceberg leaves sockets open, and uses deprecated parts of other libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedBroker:
    """A broker that takes principals from URIs, on the listener WIRE, and from DNS names over HTTPS."""

    penstock: Penstock
    authority: TestAuthority
    lists: Path
    orders: PemFiles
    """Has one URI and one DNS name."""
    admin: PemFiles

    def configs(self, client: PemFiles) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.penstock.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.ca_path),
            "ssl.certificate.location": str(client.cert),
            "ssl.key.location": str(client.key),
            "log_level": 0,
        }

    def request(self, method: str, path: str, client: PemFiles | None, body: bytes | None = None) -> tuple[int, str]:
        """The status and the body of a response over HTTPS."""
        context = ssl.create_default_context(cafile=self.authority.ca_path)
        if client is not None:
            context.load_cert_chain(client.both)
        host, _, port = self.penstock.http.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=SECONDS_MAX, context=context)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertifiedBroker]:
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("certificates")
    authority = TestAuthority(folder=folder)
    server = authority.issue("server")
    orders = authority.issue_named(
        "orders", x509.UniformResourceIdentifier(SPIFFE), x509.DNSName(HOST), common_name="orders"
    )
    admin_names = x509.UniformResourceIdentifier("spiffe://example.org/admin"), x509.DNSName("admin.example.org")
    admin = authority.issue_named("admin", *admin_names, common_name="admin")
    lists = folder / "crl.pem"
    lists.write_bytes(authority.revocation_list())
    with ExitStack() as stack:
        penstock = PenstockFactory(folder=folder, stack=stack)(
            listen="WIRE://127.0.0.1:0",
            options={
                "tls-cert": str(server.cert),
                "tls-key": str(server.key),
                "tls-client-ca": str(authority.ca_path),
                "http": "https://127.0.0.1:0",
            },
            settings={
                "listener.security.protocol.map": "WIRE:SSL",
                "listener.name.wire.penstock.ssl.principal.source": "SAN_URI",
                "listener.name.wire.ssl.crl.location": str(lists),
                "listener.name.https.penstock.ssl.principal.source": "SAN_DNS",
                "super.users": "User:spiffe://example.org/admin;User:admin.example.org",
            },
        )
        by_admin = AdminClient(
            CertifiedBroker(penstock=penstock, authority=authority, lists=lists, orders=orders, admin=admin).configs(
                admin
            )
        )
        for future in by_admin.create_topics([NewTopic(name, 1) for name in ("orders", "payments")]).values():
            future.result(SECONDS_MAX)
        acls = [
            acl(f"User:{SPIFFE}", AclOperation.WRITE),
            *(acl(f"User:{HOST}", operation) for operation in (AclOperation.READ, AclOperation.WRITE)),
        ]
        for future in by_admin.create_acls(acls).values():
            future.result(SECONDS_MAX)
        yield CertifiedBroker(penstock=penstock, authority=authority, lists=lists, orders=orders, admin=admin)


def acl(principal: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def produced(broker: CertifiedBroker, client: PemFiles, topic: str) -> object:
    """The error of a record, or None."""
    errors: list[object] = []
    producer = Producer({**broker.configs(client), "message.timeout.ms": 20_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    return errors[0]


def test_a_uri_of_the_certificate_is_the_principal(broker: CertifiedBroker) -> None:
    assert produced(broker, broker.orders, "orders") is None
    error = produced(broker, broker.orders, "payments")
    assert isinstance(error, KafkaError)
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_certificate_without_one_uri_is_disconnected(broker: CertifiedBroker) -> None:
    nameless = broker.authority.issue_named("nameless", x509.DNSName(HOST), common_name="orders")
    assert not lists_topics(broker, nameless)
    line = "has 0 alternative names of type URI, and penstock.ssl.principal.source=SAN_URI needs exactly one"
    wait_until(lambda: line in broker.penstock.process.stderr, "a line that says why")


def lists_topics(broker: CertifiedBroker, client: PemFiles) -> bool:
    try:
        AdminClient(broker.configs(client)).list_topics(timeout=1.5)
    except KafkaException:
        return False
    return True


def test_a_certificate_is_out_within_seconds_of_its_revocation(broker: CertifiedBroker) -> None:
    former = broker.authority.issue_named("former", x509.UniformResourceIdentifier(SPIFFE), common_name="former")
    assert lists_topics(broker, former)
    broker.lists.write_bytes(broker.authority.revocation_list(former))
    log = broker.penstock.process
    before = log.stderr.count("new certificate")
    seconds = wait_until(lambda: log.stderr.count("new certificate") > before, "use of the new list")
    assert seconds < 15
    assert not lists_topics(broker, former)
    wait_until(lambda: "certificate is not valid: certificate revoked" in log.stderr, "a line that says why")
    assert lists_topics(broker, broker.orders)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/topics/orders", 200),
        ("GET", "/api/topics/payments", 404),
        ("GET", "/api/state", 403),
        ("GET", "/metrics", 403),
        ("POST", "/api/lake/orders/rebuild", 403),
        ("POST", "/api/lake/payments/rebuild", 404),
        ("GET", "/schema-registry/subjects/payments-value/versions", 404),
        ("GET", "/schema-registry/config", 403),
        ("POST", "/schema-registry/subjects/payments-value/versions", 404),
        ("POST", "/schema-registry/subjects/orders-value/versions", 200),
        ("GET", "/iceberg/v1/namespaces/lake/tables/payments", 404),
    ],
)
def test_a_certificate_has_the_rights_of_its_name_over_http(
    broker: CertifiedBroker, method: str, path: str, status: int
) -> None:
    body = json.dumps({"schema": '"string"'}).encode() if method == "POST" else None
    answered, text = broker.request(method, path, broker.orders, body)
    assert answered == status, text
    assert broker.request(method, path, None, body)[0] == 401


def test_a_certificate_lists_what_it_may_describe(broker: CertifiedBroker) -> None:
    _, text = broker.request("GET", "/api/topics", broker.orders)
    assert [row["name"] for row in json.loads(text)["topics"]] == ["orders"]
    _, text = broker.request("GET", "/api/topics", broker.admin)
    assert [row["name"] for row in json.loads(text)["topics"]] == ["orders", "payments"]


def test_pyiceberg_logs_in_by_a_certificate(broker: CertifiedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers them to what the catalog is given
        monkeypatch.delenv(variable, raising=False)
    ssl_properties = {
        "cabundle": str(broker.authority.ca_path),
        "client": {"cert": str(broker.orders.cert), "key": str(broker.orders.key)},
    }
    properties: dict[str, object] = {"uri": f"https://{broker.penstock.http}/iceberg", "ssl": ssl_properties}
    catalog = RestCatalog("penstock", **properties)  # type: ignore[arg-type]  # nested properties are taken, too
    with pytest.raises(NoSuchTableError):
        catalog.load_table("lake.payments")
    assert catalog.list_tables("lake") in ([], [("lake", "orders")])
