"""Certificates and private keys as TLS needs them: read from PEM or PKCS12, and checked. `cryptography` is used here.

A keystore in Java's own form (JKS) is rejected with the line of `keytool` that converts it. `ssl` reads keys from files
only: PEM goes to it through a file in memory, so what was checked is what is used, and no key is written to a disk.
Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory, SslFactory.CertificateEntries (Kafka 4.3).
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

JKS_MAGIC = b"\xfe\xed\xfe\xed"
_REVOCATION_LIST = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class InvalidCertificate(Exception):
    """A certificate or key cannot be used. The message has its file, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAndChain:
    """A private key and its certificates, the own one first."""

    origin: str
    """The file or config that they are from, for messages."""
    chain_pem: bytes
    key_pem: bytes = field(repr=False)
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateNames:
    """The names of a certificate: what clients know an agent by."""

    subject: bytes
    alternative: frozenset[str]


def identity_of_pkcs12(data: bytes, password: str, path: Path) -> KeyAndChain:
    """The key and the certificates of a PKCS12 keystore. Raises `InvalidCertificate`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    reject_jks(data, path)
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise InvalidCertificate(f"{path} is no PKCS12 keystore, or its password is another one: {error}") from error
    if store.key is None or store.cert is None:
        raise InvalidCertificate(f"{path} has no private key with a certificate")
    certificates = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    encoding = serialization.Encoding.PEM
    key_pem = store.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain_pem = b"".join(each.public_bytes(encoding) for each in _in_order(certificates))
    return KeyAndChain(origin=str(path), chain_pem=chain_pem, key_pem=key_pem)


def authorities_of_pkcs12(data: bytes, password: str, path: Path) -> bytes:
    """The certificates of a PKCS12 truststore, as PEM. Raises `InvalidCertificate`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    reject_jks(data, path)
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise InvalidCertificate(f"{path} is no PKCS12 truststore, or its password is another one: {error}") from error
    certificates = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    return b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in certificates)


def reject_jks(data: bytes, path: Path) -> None:
    """Raise `InvalidCertificate` for a keystore in Java's own form."""
    if data.startswith(JKS_MAGIC):
        raise InvalidCertificate(
            f"{path} is a JKS keystore, which only Java reads. Convert it: keytool -importkeystore -srckeystore {path} "
            f"-destkeystore {path.with_suffix('.p12')} -deststoretype PKCS12; then set ssl.keystore.type=PKCS12"
        )


def check_identity(identity: KeyAndChain, now_s: float) -> "x509.Certificate":
    """The identity's own certificate. Raises `InvalidCertificate`.

    The certificates are valid now, and each is issued by the next; that the key fits is checked by `load_identity`.
    """
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    certificates_pem = _CERTIFICATE.findall(identity.chain_pem)
    if not certificates_pem:
        raise InvalidCertificate(f"{identity.origin} has no certificate in PEM")
    try:
        chain = [x509.load_pem_x509_certificate(pem) for pem in certificates_pem]
    except ValueError as error:
        raise InvalidCertificate(f"{identity.origin} has a certificate that cannot be read: {error}") from error
    now = datetime.fromtimestamp(now_s, UTC)
    for certificate in chain:
        name = certificate.subject.rfc4514_string()
        if certificate.not_valid_after_utc < now:
            raise InvalidCertificate(
                f"{identity.origin}: the certificate of {name!r} expired on "
                f"{certificate.not_valid_after_utc:%Y-%m-%d}: renew it"
            )
        if certificate.not_valid_before_utc > now:
            raise InvalidCertificate(
                f"{identity.origin}: the certificate of {name!r} is valid from "
                f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on: check this machine's clock"
            )
    for issued, issuer in pairwise(chain):
        try:
            issued.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise InvalidCertificate(
                f"{identity.origin}: the certificate of {issuer.subject.rfc4514_string()!r} did not issue the one "
                "before it: write the agent's certificate first, then its issuer's, and so on"
            ) from error
    return chain[0]


def names_of(certificate: "x509.Certificate") -> CertificateNames:
    """The names of a certificate."""
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        alternative = frozenset(f"{type(name).__name__}:{name.value}" for name in extension)
    except x509.ExtensionNotFound:
        alternative = frozenset()
    return CertificateNames(subject=certificate.subject.public_bytes(), alternative=alternative)


def check_revocation_lists(pem: bytes, origin: str, now_s: float) -> float:
    """When the first of the lists ends, in seconds since 1970; infinity if none does. Raises `InvalidCertificate`.

    OpenSSL rejects every certificate of an issuer whose list has ended, or is missing.
    """
    from cryptography import x509

    blocks = _REVOCATION_LIST.findall(pem)
    if not blocks:
        raise InvalidCertificate(
            f"{origin} has no revocation list in PEM. A list in DER is converted by: openssl crl -inform DER -in LIST"
        )
    ends_s = float("inf")
    for block in blocks:
        try:
            revocation_list = x509.load_pem_x509_crl(block)
        except ValueError as error:
            raise InvalidCertificate(f"{origin} has a revocation list that cannot be read: {error}") from error
        end = revocation_list.next_update_utc
        if end is None:
            continue
        if end.timestamp() < now_s:
            raise InvalidCertificate(
                f"{origin}: the revocation list of {revocation_list.issuer.rfc4514_string()!r} ended on "
                f"{end:%Y-%m-%d %H:%M} UTC, so every client would be rejected: write the authority's newer one there"
            )
        ends_s = min(ends_s, end.timestamp())
    return ends_s


def load_identity(context: ssl.SSLContext, identity: KeyAndChain) -> None:
    """Give a context its key and certificates. Raises `InvalidCertificate` where they do not fit each other."""
    with file_of(identity.key_pem + b"\n" + identity.chain_pem) as path:
        try:
            # The password is never empty: OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, password=identity.key_password or " ")
        except (ssl.SSLError, ValueError) as error:
            raise InvalidCertificate(_reason(identity, error)) from error


def load_authorities(context: ssl.SSLContext, pem: bytes, origin: str) -> None:
    """Give a context the authorities, or revocation lists, of clients. Raises `InvalidCertificate`."""
    with file_of(pem) as path:
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidCertificate(f"{origin} has no certificate or revocation list in PEM: {error}") from error


def _reason(identity: KeyAndChain, error: Exception) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{identity.origin}: the private key is not that of the certificate"
    if b"ENCRYPTED" in identity.key_pem:  # OpenSSL 3 says "PEM lib" for another password
        return f"{identity.origin}: the private key is encrypted by another password: set ssl.key.password.file=PATH"
    return f"{identity.origin}: the private key or the certificate is not PEM: {reason or error}"


def _in_order(certificates: Sequence["x509.Certificate"]) -> "Iterator[x509.Certificate]":
    """The first certificate, and behind each one its issuer: a PKCS12 file has the others in any order."""
    others = list(certificates[1:])
    current: x509.Certificate | None = certificates[0]
    while current is not None:
        yield current
        issuer = current.issuer
        following = next((each for each in others if each.subject == issuer), None)
        if following is not None:
            others.remove(following)
        current = following


@contextmanager
def file_of(content: bytes) -> Iterator[str]:
    """The path of a file with this content, for a library that takes paths only; where Linux has them, in memory."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("tls")
        try:
            os.write(number, content)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    handle, path = tempfile.mkstemp()  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        Path(path).unlink()
