"""How clients reach a broker whose listener is protected: the files and words that each client, and the broker, needs.

Rule: nothing here is Penstock's own: authority, certificates and passwords are made for one run, in its folder, and a
broker of Apache Kafka gets the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.auth.token_issuer import CLIENTS, TokenIssuer
from tests.support.certificates import PemFiles, TestAuthority, java_keystore

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
ADMIN, PASSWORD = "admin", "admin-secret"
KEY_PASSWORD: Final = "key-secret"
MECHANISM = "SCRAM-SHA-512"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", MECHANISM)
"""What a listener with SASL takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a client of a protected listener has: by SSL a certificate, by SASL a password."""

    protocol: str
    """`SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    folder: Path
    authority: TestAuthority
    client: PemFiles
    server: PemFiles
    issuer: TokenIssuer | None = None
    """Of the tokens that clients of librdkafka bring instead of a password."""
    user: str = ADMIN
    password: str = PASSWORD
    mechanism: str = MECHANISM

    @property
    def ca(self) -> Path:
        return self.authority.ca_path

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def as_user(self, user: str, password: str, mechanism: str = MECHANISM) -> "Access":
        return replace(self, user=user, password=password, mechanism=mechanism)

    def librdkafka(self) -> dict[str, str]:
        """The properties of a client of librdkafka, which are also confluent-kafka's."""
        found = {"security.protocol": self.protocol}
        if self.is_encrypted:
            found |= {"ssl.ca.location": str(self.ca)}
        if self.protocol == SSL:
            key, cert = self.folder / "client-encrypted.key", self.client.cert
            found |= {"ssl.certificate.location": str(cert), "ssl.key.location": str(key)}
            found |= {"ssl.key.password": KEY_PASSWORD}
        if self.issuer is not None:
            client, secret = next(iter(CLIENTS.items()))
            oauth = "sasl.oauthbearer"
            found |= {"sasl.mechanism": "OAUTHBEARER", f"{oauth}.method": "oidc", "https.ca.location": str(self.ca)}
            found |= {f"{oauth}.client.id": client, f"{oauth}.client.secret": secret}
            found[f"{oauth}.token.endpoint.url"] = self.issuer.token_url
        elif self.has_sasl:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return found

    def java(self) -> dict[str, str]:
        """The properties of a client in Java."""
        found = {"security.protocol": self.protocol}
        if self.is_encrypted:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.protocol == SSL:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.folder / "client-java.pem")}
        if self.has_sasl:
            kind = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
            login = f"org.apache.kafka.common.security.{kind}LoginModule required"
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = f'{login} username="{self.user}" password="{self.password}";'
        return found

    def write_java(self) -> Path:
        """The file of `java`, for `--command-config`; one for each user and mechanism."""
        file = self.folder / f"{self.user}-{self.mechanism}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.java().items()), encoding="utf-8")
        return file

    def trivup(self) -> dict[str, str]:
        """The variables by which librdkafka's tests find the client's files, as its own set-up (trivup) names them."""
        names = {
            "SSL_ca_pem": "ca.pem",
            "SSL_ca_der": "ca.der",
            "SSL_all_cas_pem": "all-cas.pem",
            "SSL_pkcs": "client.p12",
            "SSL_pub_pem": "client.pem",
            "SSL_pub_der": "client.der",
            "SSL_priv_pem": "client-encrypted.key",
        }
        found = {name: str(self.folder / file) for name, file in names.items()}
        found |= {"SSL_password": KEY_PASSWORD, "SSL_client_auth": "required"}
        if self.issuer is not None:
            found["VALID_OIDC_URL"] = self.issuer.token_url
            found |= {"INVALID_OIDC_URL": f"{self.issuer.url}/malformed"}
            found |= {"EXPIRED_TOKEN_OIDC_URL": f"{self.issuer.url}/expired"}
        return found

    def penstock_options(self) -> dict[str, str]:
        """Of an agent: its certificate, and the first users."""
        found: dict[str, str] = {}
        if self.is_encrypted:
            found |= {"tls-cert": str(self.server.cert), "tls-key": str(self.server.key)}
        if self.protocol == SSL:
            found["tls-client-ca"] = str(self.ca)
        if self.has_sasl:
            rows = (
                f'[[users]]\nname = "{ADMIN}"\npassword = "{PASSWORD}"\nmechanism = "{mechanism}"\n'
                for mechanism in MECHANISMS
                if mechanism != "PLAIN"
            )
            users = self.folder / "users.toml"
            users.write_text("".join(rows), encoding="utf-8")
            users.chmod(0o600)
            found["bootstrap-users"] = str(users)
        return found

    def penstock_settings(self) -> Mapping[str, str]:
        if self.issuer is not None:
            return {"sasl.enabled.mechanisms": "OAUTHBEARER", **self.issuer.broker_configs(self.authority)}
        return {"sasl.enabled.mechanisms": ",".join(MECHANISMS)} if self.has_sasl else {}

    def for_one_listener(
        self, options: Mapping[str, str], settings: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """An agent's options and broker configs, whose certificate then is that of clients' listener alone."""
        left = {name: value for name, value in options.items() if not name.startswith("tls-")}
        prefix, found = f"listener.name.{self.protocol.lower()}", dict(settings)
        if self.is_encrypted:
            found[f"{prefix}.ssl.keystore.location"] = str(self.server.both)
        if self.protocol == SSL:
            found[f"{prefix}.ssl.truststore.location"] = str(self.ca)
            found[f"{prefix}.ssl.client.auth"] = found.pop("ssl.client.auth", "required")
        return left, found

    def kafka_settings(self) -> Mapping[str, str]:
        """Of a broker of Apache Kafka whose listener for clients has the name CLIENT."""
        found: dict[str, str] = {}
        if self.is_encrypted:
            keystore = java_keystore(self.server, self.folder / "server-java.pem")
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
            found["ssl.client.auth"] = "required" if self.protocol == SSL else "none"
        if self.has_sasl:
            security, prefix = "org.apache.kafka.common.security", "listener.name.client"
            found["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            plain = f'{security}.plain.PlainLoginModule required user_{ADMIN}="{PASSWORD}";'
            found[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                found[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{security}.scram.ScramLoginModule required;"
        return found

    def kafka_users(self) -> Iterator[str]:
        """Words of Kafka's storage tool that make the first user."""
        for mechanism in MECHANISMS if self.has_sasl else ():
            if mechanism != "PLAIN":
                yield from ("--add-scram", f"{mechanism}=[name={ADMIN},password={PASSWORD}]")


def make_access(protocol: str, folder: Path) -> Access | None:
    """An authority and its certificates in `folder`; None where the protocol is `PLAINTEXT`."""
    if protocol == PLAINTEXT:
        return None
    folder.mkdir(parents=True)
    authority = TestAuthority(folder=folder)
    client = authority.issue("client", "client@example.org", common_name="client", key_type=trustme.KeyType.RSA)
    access = Access(
        protocol=protocol,
        folder=folder,
        authority=authority,
        client=client,
        server=authority.issue("server", key_type=trustme.KeyType.RSA),
    )
    java_keystore(client, folder / "client-java.pem")
    _write_forms(access)
    return access


def _write_forms(access: Access) -> None:
    """The client's files in the other forms that librdkafka's tests read."""
    encryption = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
    key = serialization.load_pem_private_key(access.client.key.read_bytes(), None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (access.folder / "client-encrypted.key").write_bytes(key.private_bytes(pem, pkcs8, encryption))
    cert, ca = (x509.load_pem_x509_certificate(path.read_bytes()) for path in (access.client.cert, access.ca))
    for name, each in (("client", cert), ("ca", ca)):
        (access.folder / f"{name}.der").write_bytes(each.public_bytes(serialization.Encoding.DER))
    stranger = trustme.CA(key_type=trustme.KeyType.RSA)
    (access.folder / "all-cas.pem").write_bytes(stranger.cert_pem.bytes() + access.ca.read_bytes())
    if not isinstance(key, rsa.RSAPrivateKey):
        raise TypeError(f"no key of RSA: {type(key)}")
    store = pkcs12.serialize_key_and_certificates(b"client", key, cert, [ca], encryption)
    (access.folder / "client.p12").write_bytes(store)
