"""TLS by certificates that change all the time, and users from Secrets: install, rolling restart, a node lost."""

import base64
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from cryptography import x509

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.certificates import TestAuthority
from tests.support.cluster.conditions import wait_until
from tools.kube_lab.lab import Lab

PASSWORDS = {"admin": "the admin's word", "load": "the load's word"}
CHANGE_SECONDS = 20.0
REPLACE_SECONDS_MAX = 120.0
"""The kubelet writes a Secret's new content within its sync period of a minute, and a bit."""
SECRETS = {"admin": "admin-password", "load": "load-password"}
EVERYTHING = [
    {"operation": "ALL", "resourceType": kind, "name": "*"} for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
]


@dataclass(frozen=True, slots=True)
class Certificates:
    """The Secret with the certificate of a release's agents, which is replaced by a new one again and again."""

    lab: Lab
    authority: TestAuthority
    namespace: str
    names: tuple[str, ...]
    serial_numbers: list[int]
    """Of all certificates, the newest last."""

    def replace(self) -> None:
        files = self.authority.issue("agents", *self.names)
        certificate = files.cert.read_bytes()
        self.serial_numbers.append(x509.load_pem_x509_certificate(certificate).serial_number)
        data = {
            "tls.crt": certificate,
            "tls.key": files.key.read_bytes(),
            "ca.crt": self.authority.ca_path.read_bytes(),
        }
        self.lab.apply(secret("certificate", self.namespace, data, kind="kubernetes.io/tls"))

    @contextmanager
    def replacing(self) -> Iterator[set[int]]:
        """Replace it at once, and then every 20 s while the block lasts. Yields the serial numbers that came before."""
        before = set(self.serial_numbers)
        self.replace()
        stopping = threading.Event()
        errors: list[Exception] = []

        def run() -> None:
            try:
                while not stopping.wait(CHANGE_SECONDS):
                    self.replace()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="certificates")
        thread.start()
        try:
            yield before
        finally:
            stopping.set()
            thread.join()
        assert errors == []


@pytest.fixture(scope="module")
def certificates(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    service = "secured-penstock"
    names = (
        *(f"{service}.secured.svc", f"{service}.secured", service, "localhost"),
        f"*.{service}-agents.secured.svc",
    )
    return Certificates(lab, TestAuthority(folder=tmp_path_factory.mktemp("secured")), "secured", names, [])


@pytest.fixture(scope="module")
def secured(lab: Lab, certificates: Certificates) -> Iterator[Release]:
    lab.create_namespace("secured")
    certificates.replace()
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": str(certificates.authority.ca_path),
        "sasl.username": "load",
        "sasl.password": PASSWORDS["load"],
    }
    release = Release(lab, "secured", "secured", tuple(values()), client)
    properties = "\n".join(
        [
            "security.protocol=SASL_SSL",
            "sasl.mechanism=SCRAM-SHA-512",
            "ssl.truststore.type=PEM",
            "ssl.truststore.location=/etc/penstock/tls/ca.crt",
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="load" password="{PASSWORDS["load"]}";',
        ]
    )
    lab.apply(
        secret("secret-key", "secured", {"secret.key": os.urandom(32)}),
        secret("client", "secured", {"client.properties": properties.encode()}),
        *(secret(SECRETS[name], "secured", {"password": word.encode()}) for name, word in PASSWORDS.items()),
    )
    release.install()
    yield release
    release.uninstall()


def test_an_install_with_tls_and_users_passes_its_own_tests(secured: Release) -> None:
    report = secured.lab.helm("test", secured.name, "--namespace", secured.namespace, "--timeout=3m")
    assert report.count("Succeeded") == 2, report


def test_certificates_change_under_load_without_a_restart(
    secured: Release, certificates: Certificates, start_load: StartLoad, note: Callable[[str], None]
) -> None:
    with start_load(secured) as load:
        certificates.replace()
        newest = certificates.serial_numbers[-1]

        def are_replaced() -> bool:
            return {serial_number(agent.address) for agent in secured.agents()} == {newest}

        seconds = wait_until(are_replaced, "the new certificate", seconds_max=REPLACE_SECONDS_MAX)
        note(f"a certificate replaced in its Secret is served by all agents {seconds:.0f} s later")
        load.wait_for_records()
    assert load.rebalances == 0


def test_a_rolling_restart_while_certificates_change(
    secured: Release, certificates: Certificates, start_load: StartLoad
) -> None:
    with start_load(secured, limit_s=3) as load, certificates.replacing() as before:
        secured.restart_agents()
        load.wait_for_records()
        assert before.isdisjoint(serial_number(agent.address) for agent in secured.agents())
    assert load.rebalances == 0


def test_a_node_is_lost_while_certificates_change(
    secured: Release, certificates: Certificates, start_load: StartLoad
) -> None:
    with start_load(secured, limit_s=15) as load, certificates.replacing() as before:
        secured.lose_and_return_node()
        load.wait_for_records()
        served = {serial_number(agent.address) for agent in secured.agents()}
        assert served & set(certificates.serial_numbers) - before, "no agent has met a certificate of this time"
    assert load.rebalances == 0


def values() -> list[str]:
    """Options of helm: TLS, users with passwords from Secrets, and a client of `helm test`."""
    users = [
        {"name": name, "passwordSecret": {"name": SECRETS[name]}, **({} if name == "admin" else {"acls": EVERYTHING})}
        for name in PASSWORDS
    ]
    return [
        "--set",
        "tls.enabled=true,tls.existingSecret=certificate,authentication.enabled=true,"
        "authentication.secretKey.name=secret-key,tests.clientConfigSecret.name=client",
        "--set-json",
        f"authentication.users={json.dumps(users)}",
        "--set-json",
        'authentication.superUsers=["User:admin"]',
    ]


def secret(name: str, namespace: str, data: dict[str, bytes], *, kind: str = "Opaque") -> dict[str, object]:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": encoded}


def serial_number(address: str) -> int:
    """Of the certificate that an agent shows now; 0 if it does not answer."""
    try:
        pem = ssl.get_server_certificate((address, 9092), timeout=5)
    except OSError:
        return 0
    return x509.load_pem_x509_certificate(pem.encode()).serial_number
