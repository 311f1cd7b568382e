"""Client certificates that prove nobody, on a Kafka listener that requires one and over HTTPS, which asks for one."""

import http.client
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from protocol.api_versions import ApiKey
from tests.security.login_agent import LoginAgent
from tests.support.certificates import PemFiles, TestAuthority
from tests.support.clients.kafka_requests import Broken

pytestmark = pytest.mark.xdist_group("login agent")
CASES = {
    "expired": "certificate has expired",
    "revoked": "certificate revoked",
    "self-signed": "self-signed certificate",
    "of another authority": "unable to get local issuer certificate",
}


@pytest.fixture(scope="module")
def wrong(logins: LoginAgent, tmp_path_factory: pytest.TempPathFactory) -> dict[str, PemFiles]:
    """Certificates that must not be believed, all with the name of the super user."""
    authority, folder = logins.certificates.authority, tmp_path_factory.mktemp("strangers")
    other = TestAuthority(folder=folder)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    revoked = PemFiles(
        cert=authority.folder / "revoked.pem", key=authority.folder / "revoked.key", both=authority.folder / "x"
    )
    return {
        "expired": authority.issue("expired", "a@example.org", common_name="alice", expires=yesterday),
        "revoked": revoked,
        "of another authority": other.issue("other", "a@example.org", common_name="alice"),
        "self-signed": _self_signed(other, folder),
    }


def _self_signed(authority: TestAuthority, folder: Path) -> PemFiles:
    """The authority's own certificate, as a client's."""
    cert, key = folder / "self.pem", folder / "self.key"
    cert.write_bytes(authority.ca.cert_pem.bytes())
    key.write_bytes(authority.ca.private_key_pem.bytes())
    return PemFiles(cert=cert, key=key, both=cert)


def serves(logins: LoginAgent, client: PemFiles | None) -> bool:
    """Whether the listener that requires certificates serves a client."""
    try:
        with logins.connect("MUTUAL", client) as connection:
            return connection.is_served
    except (ssl.SSLError, ConnectionError, Broken):
        return False


def https_status(logins: LoginAgent, client: PemFiles | None) -> int:
    """The status of a request that needs rights; 0 where the connection is closed instead."""
    host, _, port = logins.http.rpartition(":")
    context = logins.certificates.context(client)
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    try:
        connection.request("GET", "/api/state")
        return connection.getresponse().status
    except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected):
        return 0
    finally:
        connection.close()


def test_a_certificate_of_the_authority_is_believed(logins: LoginAgent) -> None:
    assert serves(logins, logins.certificates.alice)
    assert https_status(logins, logins.certificates.alice) == 200


@pytest.mark.parametrize("kind", CASES)
def test_a_certificate_that_proves_nobody(logins: LoginAgent, wrong: dict[str, PemFiles], kind: str) -> None:
    assert not serves(logins, wrong[kind])
    assert https_status(logins, wrong[kind]) == 0
    logins.wait_for_line(CASES[kind])


def test_no_certificate(logins: LoginAgent) -> None:
    assert not serves(logins, None)
    assert https_status(logins, None) == 401


def test_a_certificate_that_no_rule_maps(logins: LoginAgent) -> None:
    nameless = logins.certificates.authority.issue("nameless", "n@example.org", common_name="17")
    assert not serves(logins, nameless)
    assert https_status(logins, nameless) in (0, 401)
    logins.wait_for_line("no rule of ssl.principal.mapping.rules")


def test_a_certificate_without_rights(logins: LoginAgent) -> None:
    bob = logins.certificates.authority.issue("bob", "b@example.org", common_name="bob")
    with logins.connect("MUTUAL", bob) as client:
        answer = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        assert answer.error_code == 31
    assert https_status(logins, bob) == 403


def test_the_private_key_of_another(logins: LoginAgent) -> None:
    """The certificate alone is public: without its key nobody has it."""
    bob = logins.certificates.authority.issue("bob2", "b@example.org", common_name="bob")
    stolen = PemFiles(cert=logins.certificates.alice.cert, key=bob.key, both=bob.both)
    with pytest.raises(ssl.SSLError):
        logins.certificates.context(stolen)
