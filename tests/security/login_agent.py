"""An agent with a listener of each kind, and users of each kind, for clients that try to get in.

Failures of one address are answered later and later, so each test has an address of its own: `source_of`.
"""

import http.client
import itertools
import re
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.support.auth.token_issuer import TokenKeys
from tests.support.certificates import PemFiles, TestAuthority
from tests.support.clients.login_client import LoginClient
from tests.support.ports import free_port
from tests.support.processes import Process, provided
from tests.support.services.local_services import PENSTOCK, READY

PASSWORD: Final = "wonderland"
SESSION_MS: Final = 1_500
ADMIN_TOKEN: Final = "token-of-the-administrator"
USERS: Final = f"""
[[users]]
name = "alice"
password = "{PASSWORD}"
mechanism = "SCRAM-SHA-256"
[[users]]
name = "bob"
password = "{PASSWORD}"
mechanism = "SCRAM-SHA-512"
"""
"""Alice has a credential of SCRAM-SHA-256 alone, Bob one of SCRAM-SHA-512 alone."""
_ADDRESSES: Final = itertools.count(1)


def source_of_its_own() -> str:
    """An address of this machine that no client has used."""
    number = next(_ADDRESSES)
    return f"127.77.{number // 250}.{number % 250 + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Certificates of clients, by what is wrong with them."""

    authority: TestAuthority
    server: PemFiles
    alice: PemFiles
    crl: Path

    def context(self, client: PemFiles | None) -> ssl.SSLContext:
        """A client's TLS, with its certificate."""
        context = ssl.create_default_context(cafile=self.authority.ca_path)
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context


def make_certificates(folder: Path) -> Certificates:
    """An authority with certificates of the agent and of Alice, and a list that revokes Mallory's."""
    authority = TestAuthority(folder=folder)
    server, alice = authority.issue("server"), authority.issue("alice", "alice@example.org", common_name="alice")
    revoked = authority.issue("revoked", "mallory@example.org", common_name="mallory")
    return Certificates(
        authority=authority, server=server, alice=alice, crl=_revoke(authority, revoked, folder / "crl.pem")
    )


def _revoke(authority: TestAuthority, revoked: PemFiles, path: Path) -> Path:
    """Writes the authority's list, which has one certificate."""
    issuer = x509.load_pem_x509_certificate(authority.ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(authority.ca.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(revoked.cert.read_bytes())
    since, until = issuer.not_valid_before_utc, issuer.not_valid_after_utc
    row = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(since).build()
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject).add_revoked_certificate(row)
    signed = builder.last_update(since).next_update(until).sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAgent:
    """The running agent. `ports` are those of its listeners, by their names."""

    process: Process
    ports: dict[str, int]
    http: str
    certificates: Certificates
    audit: Path
    tokens: TokenKeys
    """The keys of the issuer whose tokens the listener SECURE and the HTTP port take."""

    def connect(self, listener: str = "CLIENTS", client: PemFiles | None = None, source: str = "") -> LoginClient:
        """A connection from an address of its own. Raises `ssl.SSLError` where TLS fails."""
        is_encrypted = listener in ("MUTUAL", "SECURE")
        context = self.certificates.context(client) if is_encrypted else None
        return self.connect_by(listener, context, source)

    def connect_by(self, listener: str, context: ssl.SSLContext | None, source: str = "") -> LoginClient:
        """A connection by this TLS, or by none, whatever the listener speaks."""
        return LoginClient(f"127.0.0.1:{self.ports[listener]}", context, source=source or source_of_its_own())

    def https_status(self, authorization: str) -> int:
        """The status of a request over HTTPS, from an address of its own, with that header."""
        host, _, port = self.http.partition(":")
        connection = http.client.HTTPSConnection(
            host,
            int(port),
            timeout=30,
            context=self.certificates.context(None),
            source_address=(source_of_its_own(), 0),
        )
        with closing(connection):
            connection.request("GET", "/api/topics", headers={"Authorization": authorization})
            return connection.getresponse().status

    def wait_for_line(self, text: str) -> None:
        """Returns once the agent has logged the text."""
        self.process.wait_until(lambda: text in self.process.stderr, f"a log line with {text!r}", seconds_max=10)

    def audited(self, text: str) -> str:
        """All of the audit log, once the text is in it."""

        def written() -> str:
            return self.audit.read_text() if self.audit.exists() else ""

        self.process.wait_until(lambda: text in written(), f"{text!r} in the audit log", seconds_max=10)
        return written()


@contextmanager
def login_agent(folder: Path) -> Iterator[LoginAgent]:
    """Starts the agent."""
    certificates = make_certificates(folder)
    (folder / "users.toml").write_text(USERS)
    (folder / "tokens").write_text(f"User:admin {ADMIN_TOKEN}\n")
    (folder / "secret-key").write_bytes(bytes(range(32)))
    tokens = TokenKeys()
    (folder / "issuer-keys").write_text(tokens.key_set())
    names = ("CLIENTS", "SCRAMONLY", "SHORT", "MUTUAL", "SECURE", "OPEN")
    ports = {name: free_port() for name in names}
    protocols = {"MUTUAL": "SSL", "SECURE": "SASL_SSL", "OPEN": "PLAINTEXT"}
    mapped = ",".join(f"{name}:{protocols.get(name, 'SASL_PLAINTEXT')}" for name in names)
    settings = {
        "listener.security.protocol.map": mapped,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scramonly.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder / 'issuer-keys'}",
        "sasl.oauthbearer.expected.issuer": tokens.issuer,
        "sasl.oauthbearer.expected.audience": tokens.audience,
        "penstock.oauthbearer.groups.claim": "groups",
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.secure.ssl.client.auth": "none",
        "ssl.crl.location": str(certificates.crl),
        "penstock.secret.key.file": str(folder / "secret-key"),
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),OU=Tests.*$/$1/",
        "super.users": "User:admin;User:alice",
        "connection.failed.authentication.delay.ms": "1",
    }
    command: list[str | Path] = [PENSTOCK, "run", "--data-dir", folder / "data", "--http", "https://127.0.0.1:0"]
    for name, port in ports.items():
        command += ["--listen", f"{name}://127.0.0.1:{port}"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    command += ["--tls-cert", certificates.server.cert, "--tls-key", certificates.server.key]
    command += ["--tls-client-ca", certificates.authority.ca_path, "--bootstrap-users", folder / "users.toml"]
    # An archive pass loads libraries of a hundred MiB, which is nothing that clients without a login cause.
    command += ["--archive-interval-s", "3600"]
    command += ["--http-token-file", folder / "tokens", "--audit-log", folder / "audit"]
    provided(PENSTOCK)
    with ExitStack() as stack:
        process = stack.enter_context(Process(command, folder, name="penstock"))
        process.wait_until(lambda: READY.search(process.stdout) is not None, "penstock")
        ready = re.search(r"http=(\S+)", process.stdout)
        assert ready is not None
        agent = LoginAgent(
            process=process,
            ports=ports,
            http=ready[1],
            certificates=certificates,
            audit=folder / "audit",
            tokens=tokens,
        )
        agent.wait_for_line("created the first users")
        yield agent
