"""Creates the files of `penstock run --secure`: an authority of its own, the agent's certificate, and admin's password.

What is there is kept; a certificate that ends soon, or lacks a name, is made again with the same authority. Files with
secrets have the mode 0600, and a data folder that is created here has 0700: the ledger has keys of users, too.
Rule: a kill or a loss of power at any point leaves files that the next start completes. A file that somebody has
damaged or emptied is an error with its name: nothing is replaced that clients trust, and no password is empty.
"""

import datetime
import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.config.option_sources import InvalidSettings
from agent.config.secure_options import ADMIN, SecureFiles
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids, uuid_text

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 397
"""The longest that browsers accept."""
RENEWAL_DAYS: Final = 30
_SECRET_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OTHER_AUTHORITY: Final = (
    "restore the folder tls from a backup, or remove it. A start then makes a new one, and clients need its ca.pem"
)
_NOT_IN_PROPERTIES: Final = frozenset('"\\')
_NAME: Final = re.compile(r"(?!0\.0\.0\.0$|::$)[A-Za-z0-9:._-]+")
"""A host that a client may connect to: `""`, `0.0.0.0` and `::` are every interface, `{name}` is no host yet."""


def create_secure_files(files: SecureFiles, hosts: Sequence[str], *, clock: Clock, ids: Ids) -> str:
    """Create what is missing, and return admin's password.

    Raises `InvalidSettings` for a file that cannot be used.

    Args:
        files: where they are.
        hosts: names and addresses by which clients connect; this machine's own are added.
        clock: the wall clock decides whether a certificate ends soon.
        ids: the source of the password.
    """
    for folder in (files.data_dir, files.authority.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
    if not files.password.exists():
        _write(files.password, f"{uuid_text(ids.new_uuid())}{uuid_text(ids.new_uuid())}\n".encode())
    password = _read_password(files.password)
    now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    _create_certificates(files, _names(hosts), now)
    _write(files.properties, _properties(files, password).encode())
    return password


def _read_password(path: Path) -> str:
    """Admin's password. Raises `InvalidSettings` for one that is empty, or that `admin.properties` could not hold."""
    try:
        password = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        password = ""
    if not password or not password.isprintable() or not _NOT_IN_PROPERTIES.isdisjoint(password):
        raise InvalidSettings(
            f"{path} is empty, or has characters that admin.properties cannot hold: write the password of "
            f"User:{ADMIN} into it, in one line of ASCII without quotes and backslashes"
        )
    return password


def _properties(files: SecureFiles, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{ADMIN}" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={files.authority}\n"
    )


def _names(hosts: Sequence[str]) -> Sequence[str]:
    own = ("localhost", "127.0.0.1", "::1", socket.gethostname())
    return list(dict.fromkeys(host for host in (*own, *hosts) if _NAME.fullmatch(host)))


def _create_certificates(files: SecureFiles, names: Sequence[str], now: datetime.datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not (files.authority.exists() and files.authority_key.exists()):
        files.certificate.unlink(missing_ok=True)
        files.authority.unlink(missing_ok=True)  # a kill between the two files is to leave no pair that does not fit
        key = ec.generate_private_key(ec.SECP256R1())
        _write(files.authority_key, _pem(key))
        _write(files.authority, _authority(key, now), mode=0o644)
    elif files.certificate.exists() and files.key.exists():
        current = _read_certificate(files.certificate)
        ends_later = current.not_valid_after_utc - now > datetime.timedelta(days=RENEWAL_DAYS)
        alternatives = current.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if ends_later and {_general_name(name) for name in names} <= set(alternatives):
            return
    authority = _read_certificate(files.authority)
    try:
        authority_key = serialization.load_pem_private_key(files.authority_key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise InvalidSettings(f"{files.authority_key} is no private key in PEM: {_OTHER_AUTHORITY}") from error
    if (
        not isinstance(authority_key, ec.EllipticCurvePrivateKey)
        or authority_key.public_key() != authority.public_key()
    ):
        raise InvalidSettings(f"{files.authority_key} is not the key of {files.authority}: {_OTHER_AUTHORITY}")
    files.certificate.unlink(missing_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    _write(files.key, _pem(key))
    _write(files.certificate, _certificate(authority, authority_key, key, names, now), mode=0o644)


def _read_certificate(path: Path) -> "x509.Certificate":
    """The certificate in a file. Raises `InvalidSettings`."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise InvalidSettings(f"{path} is no certificate in PEM: {_OTHER_AUTHORITY}") from error


def _authority(key: "ec.EllipticCurvePrivateKey", now: datetime.datetime) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Penstock authority of this data folder")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _certificate(
    authority: "x509.Certificate",
    authority_key: "ec.EllipticCurvePrivateKey",
    key: "ec.EllipticCurvePrivateKey",
    names: Sequence[str],
    now: datetime.datetime,
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, *, mode: int = _SECRET_MODE) -> None:
    """Replace a file as a whole. It has its mode before it has its content."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # or a loss of power could leave an empty file under the name
    new.replace(path)
