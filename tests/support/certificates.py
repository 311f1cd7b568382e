"""Certificates for tests: an authority of their own, which issues those of agents and clients as PEM files."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PemFiles:
    """The files of one certificate: certificates, key, and both in one."""

    cert: Path
    key: Path
    both: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TestAuthority:
    """An authority. Its files lie in `folder`."""

    __test__ = False  # no class of tests, for pytest

    folder: Path
    ca: trustme.CA = field(default_factory=lambda: trustme.CA(key_type=trustme.KeyType.ECDSA))

    @property
    def ca_path(self) -> Path:
        path = self.folder / "ca.pem"
        if not path.exists():
            self.ca.cert_pem.write_to_path(str(path))
        return path

    def issue(
        self,
        name: str,
        *identities: str,
        common_name: str | None = None,
        expires: datetime | None = None,
        key_type: trustme.KeyType = trustme.KeyType.ECDSA,
    ) -> PemFiles:
        """The files NAME.pem, NAME.key and NAME-both.pem; the certificate is for loopback where nothing is named."""
        leaf = self.ca.issue_cert(
            *(identities or LOOPBACK),
            common_name=common_name,
            organization_unit_name="Tests",  # else each certificate has another subject
            not_after=expires,
            key_type=key_type,
        )
        return self.write(name, leaf)

    def write(self, name: str, leaf: trustme.LeafCert) -> PemFiles:
        files = PemFiles(
            cert=self.folder / f"{name}.pem", key=self.folder / f"{name}.key", both=self.folder / f"{name}-both.pem"
        )
        files.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(files.key))
        leaf.private_key_and_cert_chain_pem.write_to_path(str(files.both))
        return files


def java_keystore(files: PemFiles, path: Path) -> Path:
    """A PEM keystore at `path` for Java, which reads keys in PKCS8 only."""
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(pem + files.cert.read_bytes())
    return path
