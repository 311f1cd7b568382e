"""Certificates for tests: an authority of their own, which issues those of agents and clients as PEM files."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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
        files = self._files(name)
        files.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(files.key))
        leaf.private_key_and_cert_chain_pem.write_to_path(str(files.both))
        return files

    def issue_named(self, name: str, *names: x509.GeneralName, common_name: str) -> PemFiles:
        """The files of a client's certificate with these alternative names; trustme writes no URIs."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        key_pem = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        files = self._files(name)
        files.cert.write_bytes(certificate.public_bytes(encoding))
        files.key.write_bytes(key_pem)
        files.both.write_bytes(key_pem + files.cert.read_bytes())
        return files

    def revocation_list(self, *revoked: PemFiles, ends: datetime | None = None) -> bytes:
        """The authority's list of revoked certificates, as PEM; it ends in a month by default."""
        now = datetime.now(UTC)
        ends = now + timedelta(days=30) if ends is None else ends
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(min(now, ends) - timedelta(days=1))
            .next_update(ends)
        )
        for files in revoked:
            certificate = x509.load_pem_x509_certificate(files.cert.read_bytes())
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(certificate.serial_number)
                .revocation_date(now - timedelta(hours=1))
                .build()
            )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @property
    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())

    @property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def _files(self, name: str) -> PemFiles:
        return PemFiles(
            cert=self.folder / f"{name}.pem", key=self.folder / f"{name}.key", both=self.folder / f"{name}-both.pem"
        )


def java_keystore(files: PemFiles, path: Path) -> Path:
    """A PEM keystore at `path` for Java, which reads keys in PKCS8 only."""
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(pem + files.cert.read_bytes())
    return path
