"""A listener of a broker that encrypts, with a certificate of its own, and what clients need for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import PemFiles, TestAuthority, java_keystore


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsListener:
    """The listener SSL at `bootstrap`. `keystore` is one PEM file with its key, in the form that Java reads."""

    bootstrap: str
    files: PemFiles
    keystore: Path
    ca_path: Path
    client: PemFiles
    client_keystore: Path
    """A client's certificate and key, where the listener asks for them."""

    @classmethod
    def make(cls, folder: Path, port: int) -> "TlsListener":
        """A listener on that port of loopback; its certificate has an ECDSA key, as cert-manager's usually have."""
        authority = TestAuthority(folder=folder)
        files = authority.issue("server")
        client = authority.issue("client", "client@example.org", common_name="client")
        return cls(
            bootstrap=f"127.0.0.1:{port}",
            files=files,
            keystore=java_keystore(files, folder / "keystore.pem"),
            ca_path=authority.ca_path,
            client=client,
            client_keystore=java_keystore(client, folder / "client-keystore.pem"),
        )

    @property
    def port(self) -> str:
        return self.bootstrap.rpartition(":")[2]

    @property
    def client_configs(self) -> Mapping[str, str]:
        """The configs of Kafka's clients."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_path),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.client_keystore),
        }
