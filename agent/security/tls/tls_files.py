"""TLS of one listener as its files say it now: the certificate for new connections, and what clients are checked by.

`reload` compares the content of the files, not their times: Kubernetes swaps a secret by a symlink. A new certificate
is checked before it is used; connections that are there go on. Files that do not fit each other yet, for one of two was
written, are tried again; an error of TLS_RELOAD_FAILED_SECONDS is reported, and the certificate before stays in use.
Source: org.apache.kafka.common.security.ssl.SslFactory, DefaultSslEngineFactory (Kafka 4.3); KIP-226 and KIP-978 for
what may change.
"""

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from agent.config.listener_security import RELAY_LISTENER
from agent.config.option_sources import InvalidSettings
from agent.config.tls_settings import ClientAuth, KeyPair, TlsSettings
from agent.security.tls.certificates import (
    CertificateNames,
    InvalidCertificate,
    KeyAndChain,
    authorities_of_pkcs12,
    check_identity,
    check_revocation_lists,
    identity_of_pkcs12,
    load_authorities,
    load_identity,
    names_of,
    reject_jks,
)
from agent.security.tls.cipher_suites import openssl_ciphers
from agent.security.tls.principal_rules import InvalidRules, PrincipalRules, read_rules
from protocol.limits import CERTIFICATE_FILE_BYTES_MAX, TLS_RELOAD_FAILED_SECONDS

log = logging.getLogger(__name__)

_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTls:
    """TLS made of one content of the files."""

    digest: bytes
    context: ssl.SSLContext
    expires_s: float
    """When the first of the certificates expires, in seconds since 1970."""
    names: CertificateNames
    lists_end_s: float = float("inf")
    """When the first of the revocation lists ends."""
    client_context: ssl.SSLContext | None = None
    """That of connections to the same listener of other agents; None where there are none."""


class ListenerTls:
    """The TLS of one listener. `context` is replaced by `reload`, and read for each connection."""

    def __init__(self, settings: TlsSettings, now_s: float) -> None:
        """Read the files; `now_s` is in seconds since 1970. Raises `InvalidSettings`."""
        self.settings = settings
        self.rules = _rules(settings)
        try:
            self._loaded = _load(settings, _read(settings), now_s)
        except InvalidCertificate as error:
            raise InvalidSettings(f"listener {settings.listener}: {error}") from error
        self._failing_since_s: float | None = None
        self._is_reported = False

    @property
    def context(self) -> ssl.SSLContext:
        return self._loaded.context

    @property
    def client_context(self) -> ssl.SSLContext | None:
        """TLS of this agent as a client of the same listener of other agents, with the same certificate."""
        return self._loaded.client_context

    @property
    def expires_s(self) -> float:
        return self._loaded.expires_s

    @property
    def lists_end_s(self) -> float:
        return self._loaded.lists_end_s

    def reload(self, now_s: float) -> bool:
        """Use the files as they are now. False where they have not fitted for TLS_RELOAD_FAILED_SECONDS.

        It is called in a thread: reading and checking takes some milliseconds. True means that they are in use, or
        may fit soon.
        """
        try:
            contents = _read(self.settings)
            if _digest(contents) == self._loaded.digest:
                self._failing_since_s, self._is_reported = None, False
                return True
            loaded = _load(self.settings, contents, now_s)
            self._check_names(loaded.names)
        except (InvalidCertificate, InvalidSettings) as error:
            return self._keep(str(error), now_s)
        self._loaded = loaded
        self._failing_since_s, self._is_reported = None, False
        log.info("new certificate", extra={"listener": self.settings.listener})
        return True

    def _keep(self, reason: str, now_s: float) -> bool:
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        if now_s - self._failing_since_s < TLS_RELOAD_FAILED_SECONDS:
            return True
        if not self._is_reported:
            log.error(
                "the new certificate cannot be used; the one before stays in use",
                extra={"listener": self.settings.listener, "reason": reason},
            )
            self._is_reported = True
        return False

    def _check_names(self, names: CertificateNames) -> None:
        before = self._loaded.names
        if not self.settings.may_change_subject and names.subject != before.subject:
            raise InvalidCertificate("the new certificate has another subject, and ssl.allow.dn.changes is false")
        if not self.settings.may_change_names and not names.alternative >= before.alternative:
            lost = ", ".join(sorted(before.alternative - names.alternative))
            raise InvalidCertificate(f"the new certificate lacks the names {lost}, and ssl.allow.san.changes is false")


def _rules(settings: TlsSettings) -> PrincipalRules:
    try:
        return read_rules(settings.principal_rules)
    except InvalidRules as error:
        raise InvalidSettings(f"ssl.principal.mapping.rules of listener {settings.listener}: {error}") from error


def _files(settings: TlsSettings) -> list[Path]:
    pairs = [*([settings.key_pair] if settings.key_pair else []), *(pair for _, pair in settings.sni)]
    secrets = [settings.keystore_password, settings.key_password, settings.truststore_password]
    paths = [
        settings.keystore,
        settings.truststore,
        settings.revocation_lists,
        *(path for pair in pairs for path in (pair.chain_path, pair.key_path, pair.key.path if pair.key else None)),
        *(secret.path for secret in secrets if secret is not None),
    ]
    return list(dict.fromkeys(path for path in paths if path is not None))


def _read(settings: TlsSettings) -> dict[Path, bytes]:
    """The content of all files. Raises `InvalidCertificate`."""
    contents: dict[Path, bytes] = {}
    for path in _files(settings):
        try:
            with path.open("rb") as file:
                contents[path] = file.read(CERTIFICATE_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidCertificate(f"{path} cannot be read: {error.strerror}") from error
        if len(contents[path]) > CERTIFICATE_FILE_BYTES_MAX:
            raise InvalidCertificate(f"{path} is larger than {CERTIFICATE_FILE_BYTES_MAX} bytes: is it the right file?")
    return contents


def _digest(contents: Mapping[Path, bytes]) -> bytes:
    digest = sha256()
    for content in contents.values():
        digest.update(sha256(content).digest())
    return digest.digest()


def _load(settings: TlsSettings, contents: Mapping[Path, bytes], now_s: float) -> LoadedTls:
    """TLS from the content of the files. Raises `InvalidCertificate` or `InvalidSettings`."""
    if settings.keystore is not None:
        password = settings.keystore_password.read() if settings.keystore_password else ""
        identity = identity_of_pkcs12(contents[settings.keystore], password, settings.keystore)
    else:
        assert settings.key_pair is not None, "a listener that encrypts has a certificate"
        identity = _identity(settings, settings.key_pair, contents)
    context, certificate_expires_s, names = _context(settings, identity, contents, now_s)
    expires_s = [certificate_expires_s]
    by_host: dict[str, ssl.SSLContext] = {}
    for host, pair in settings.sni:
        by_host[host], other_expires_s, _ = _context(settings, _identity(settings, pair, contents), contents, now_s)
        expires_s.append(other_expires_s)
    if by_host:
        _choose_by_host(context, by_host)
    lists, lists_end_s = settings.revocation_lists, float("inf")
    if lists is not None:
        lists_end_s = check_revocation_lists(contents[lists], str(lists), now_s)
    return LoadedTls(
        digest=_digest(contents),
        context=context,
        expires_s=min(expires_s),
        names=names,
        lists_end_s=lists_end_s,
        client_context=_client_context(settings, identity, contents) if settings.listener == RELAY_LISTENER else None,
    )


def _identity(settings: TlsSettings, pair: KeyPair, contents: Mapping[Path, bytes]) -> KeyAndChain:
    password = settings.key_password.read() if settings.key_password else ""
    if pair.chain_path is None:
        assert pair.key is not None, "a chain as text has a key"
        return KeyAndChain(
            origin="ssl.keystore.certificate.chain",
            chain_pem=pair.chain_text.encode(),
            key_pem=pair.key.read().encode(),
            key_password=password,
        )
    chain = contents[pair.chain_path]
    reject_jks(chain, pair.chain_path)
    key = chain if pair.key_path is None else contents[pair.key_path]
    return KeyAndChain(origin=str(pair.chain_path), chain_pem=chain, key_pem=key, key_password=password)


def _context(
    settings: TlsSettings, identity: KeyAndChain, contents: Mapping[Path, bytes], now_s: float
) -> tuple[ssl.SSLContext, float, CertificateNames]:
    certificate = check_identity(identity, now_s)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    load_identity(context, identity)
    if settings.has_client_authorities:
        context.verify_mode = _VERIFY_MODES[settings.client_auth]
        _load_authorities(context, settings, contents)
    return context, certificate.not_valid_after_utc.timestamp(), names_of(certificate)


def _client_context(
    settings: TlsSettings, identity: KeyAndChain, contents: Mapping[Path, bytes]
) -> ssl.SSLContext | None:
    """The context of an agent that is the client of another one; None where nothing verifies certificates.

    The other agent's certificate has to name the host that it advertises.
    """
    if not settings.has_client_authorities:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    load_identity(context, identity)
    _load_authorities(context, settings, contents)
    return context


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Allow the versions and cipher suites of the settings alone."""
    versions = [_VERSIONS[each] for each in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    ciphers = openssl_ciphers(settings.cipher_suites)
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise InvalidSettings(
                f"ssl.cipher.suites of listener {settings.listener}: none of {', '.join(settings.cipher_suites)} is "
                "known"
            ) from error


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings, contents: Mapping[Path, bytes]) -> None:
    if settings.truststore is None:
        load_authorities(context, settings.truststore_text.encode(), "ssl.truststore.certificates")
    else:
        pem = contents[settings.truststore]
        reject_jks(pem, settings.truststore)
        if settings.is_truststore_pkcs12:
            password = settings.truststore_password.read() if settings.truststore_password else ""
            pem = authorities_of_pkcs12(pem, password, settings.truststore)
        load_authorities(context, pem, str(settings.truststore))
    if settings.revocation_lists is not None:
        load_authorities(context, contents[settings.revocation_lists], str(settings.revocation_lists))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _choose_by_host(context: ssl.SSLContext, by_host: Mapping[str, ssl.SSLContext]) -> None:
    def choose(connection: ssl.SSLObject | ssl.SSLSocket, host: str | None, _: ssl.SSLContext) -> None:
        name = (host or "").lower()
        chosen = by_host.get(name) or by_host.get(f"*.{name.partition('.')[2]}")
        if chosen is not None:
            connection.context = chosen

    context.sni_callback = choose
