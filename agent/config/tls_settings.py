"""TLS of one listener, or of the HTTP port, as its settings describe it. No file is read here.

In: Kafka's configs with the listener's own before the general ones, and the options `--tls-cert`, `--tls-key` and
`--tls-client-ca`, which are shorthand for three general ones. Out: `TlsSettings`. `agent.security.tls.tls_files` reads
the files.
Source: org.apache.kafka.common.config.SslConfigs (Kafka 4.3); KIP-651 for PEM.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.config.option_sources import InvalidSettings, Value
from agent.config.secret_values import Secret

SHORTHAND = {
    "tls-cert": ("ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.type"),
    "tls-key": ("ssl.keystore.key", "ssl.keystore.key.file", "ssl.keystore.location"),
    "tls-client-ca": ("ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.type"),
}
"""The options of certificates, each with the general configs that it must not be given beside."""
OVERRIDDEN_BY = {"tls-cert": "ssl.keystore.", "tls-key": "ssl.keystore.", "tls-client-ca": "ssl.truststore."}
"""How a listener's own configs begin that hold for it in place of the option."""


class ClientAuth(Enum):
    """Whether a client is asked for a certificate (ssl.client.auth)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class PrincipalSource(Enum):
    """Where a client's certificate names its principal (penstock.ssl.principal.source)."""

    SUBJECT = "SUBJECT"
    SAN_URI = "SAN_URI"
    SAN_DNS = "SAN_DNS"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A private key and its certificates in PEM: each a file, or a text of the configuration.

    The key is in `chain_path` too where neither `key` nor `key_path` is set, as in a PEM keystore.
    """

    chain_path: Path | None = None
    chain_text: str = ""
    key_path: Path | None = None
    key: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS of one listener. Paths are absolute."""

    listener: str
    """The listener's name, for messages and metrics."""
    key_pair: KeyPair | None = None
    keystore: Path | None = None
    """A PKCS12 keystore, in place of `key_pair`."""
    keystore_password: Secret | None = None
    key_password: Secret | None = None
    truststore: Path | None = None
    is_truststore_pkcs12: bool = False
    truststore_password: Secret | None = None
    truststore_text: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    principal_rules: str = "DEFAULT"
    principal_source: PrincipalSource = PrincipalSource.SUBJECT
    may_change_subject: bool = False
    may_change_names: bool = False
    revocation_lists: Path | None = None
    sni: tuple[tuple[str, KeyPair], ...] = ()
    """Further certificates, by the host name that a client asks for."""

    @property
    def has_client_authorities(self) -> bool:
        """Whether certificates of clients can be verified."""
        return self.truststore is not None or bool(self.truststore_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfigs:
    """The configs as they hold for one listener: its own, behind `listener.name.NAME.`, before the general ones."""

    listener: str
    pairs: Mapping[str, str]

    def full_name(self, name: str) -> str:
        """The name under which the value is set: the listener's own, or the general one."""
        own = f"listener.name.{self.listener.lower()}.{name}"
        return own if own in self.pairs or f"{own}.file" in self.pairs else name

    def has_own(self, prefix: str) -> bool:
        """Whether the listener has a config of its own that begins so."""
        own = f"listener.name.{self.listener.lower()}.{prefix}"
        return any(name.startswith(own) for name in self.pairs)

    def get(self, name: str, default: str = "") -> str:
        return self.pairs.get(self.full_name(name), default).strip()

    def list_of(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.get(name).split(",") if part.strip())

    def flag(self, name: str) -> bool:
        return self.get(name).lower() == "true"

    def path(self, name: str) -> Path | None:
        return absolute(self.get(name))

    def secret(self, name: str) -> Secret | None:
        """The secret of that name, as a text or from `NAME.file`. Raises `InvalidSettings` where both are set."""
        full = self.full_name(name)
        text, path = self.pairs.get(full), self.pairs.get(f"{full}.file")
        if text is not None and path is not None:
            raise InvalidSettings(f"{full} and {full}.file are both set: remove one of them")
        if path is not None:
            return Secret(name=full, path=absolute(path))
        return None if text is None else Secret(name=full, text=text)

    def of_prefix(self, prefix: str) -> Iterator[tuple[str, str]]:
        """The listener's own configs that begin so: the rest of the name, and the value."""
        own = f"listener.name.{self.listener.lower()}.{prefix}"
        for name, value in self.pairs.items():
            if name.startswith(own):
                yield name.removeprefix(own), value


def read_tls(listener: str, pairs: Mapping[str, str], values: Mapping[str, Value]) -> TlsSettings:
    """The TLS of a listener that encrypts. Raises `InvalidSettings`.

    Args:
        listener: its name.
        pairs: all broker configs that are set, with secrets.
        values: the values of options, for the shorthand.
    """
    configs = ListenerConfigs(listener=listener, pairs=pairs)
    options = {
        name: absolute(str(values[name]))
        for name in SHORTHAND
        if name in values and not configs.has_own(OVERRIDDEN_BY[name])
    }
    for option in options:
        for name in SHORTHAND[option]:
            if name in pairs:
                raise InvalidSettings(f"--{option} and {name} are both set for listener {listener}: remove one of them")
    is_pkcs12 = configs.get("ssl.keystore.type") == "PKCS12"
    keystore = configs.path("ssl.keystore.location") if is_pkcs12 else None
    key_pair = None if is_pkcs12 else _key_pair(configs, options)
    if keystore is None and key_pair is None:
        raise InvalidSettings(
            f"listener {listener} encrypts and has no certificate: give it with --tls-cert and --tls-key, or with "
            "--set ssl.keystore.location=FILE, a PEM file with the private key and its certificates"
        )
    tls = TlsSettings(
        listener=listener,
        key_pair=key_pair,
        keystore=keystore,
        keystore_password=configs.secret("ssl.keystore.password"),
        key_password=configs.secret("ssl.key.password"),
        truststore=options.get("tls-client-ca") or configs.path("ssl.truststore.location"),
        is_truststore_pkcs12=configs.get("ssl.truststore.type") == "PKCS12",
        truststore_password=configs.secret("ssl.truststore.password"),
        truststore_text=configs.get("ssl.truststore.certificates"),
        client_auth=_client_auth(configs, values),
        protocols=configs.list_of("ssl.enabled.protocols") or ("TLSv1.2", "TLSv1.3"),
        cipher_suites=configs.list_of("ssl.cipher.suites"),
        principal_rules=configs.get("ssl.principal.mapping.rules", "DEFAULT"),
        principal_source=PrincipalSource(configs.get("penstock.ssl.principal.source", "SUBJECT")),
        may_change_subject=configs.flag("ssl.allow.dn.changes"),
        may_change_names=configs.flag("ssl.allow.san.changes"),
        revocation_lists=configs.path("ssl.crl.location"),
        sni=_sni(configs),
    )
    if tls.client_auth is not ClientAuth.NONE and not tls.has_client_authorities:
        raise InvalidSettings(
            f"ssl.client.auth={tls.client_auth.value} of listener {listener} needs the authorities of the clients' "
            "certificates: --tls-client-ca FILE, or --set ssl.truststore.location=FILE"
        )
    return tls


def _client_auth(configs: ListenerConfigs, values: Mapping[str, Value]) -> ClientAuth:
    """The setting; `--tls-client-ca` alone requires certificates: without that it would change nothing."""
    return ClientAuth(configs.get("ssl.client.auth", "required" if "tls-client-ca" in values else "none"))


def _key_pair(configs: ListenerConfigs, options: Mapping[str, Path | None]) -> KeyPair | None:
    if options.get("tls-cert") is not None:
        if "tls-key" not in options:
            raise InvalidSettings("--tls-cert needs --tls-key, the certificate's private key")
        return KeyPair(chain_path=options["tls-cert"], key_path=options["tls-key"])
    if "tls-key" in options:
        raise InvalidSettings("--tls-key needs --tls-cert, the key's certificate")
    location = configs.path("ssl.keystore.location")
    chain, key = configs.get("ssl.keystore.certificate.chain"), configs.secret("ssl.keystore.key")
    if location is not None:
        if chain or (key is not None and key.path is None):
            raise InvalidSettings(
                f"ssl.keystore.location of listener {configs.listener} has key and certificates: remove "
                "ssl.keystore.key and ssl.keystore.certificate.chain, or the location"
            )
        return KeyPair(chain_path=location, key_path=None if key is None else key.path)
    if bool(chain) != (key is not None):
        present, missing = ("ssl.keystore.certificate.chain", "ssl.keystore.key")[:: 1 if chain else -1]
        raise InvalidSettings(f"{present} of listener {configs.listener} needs {missing}")
    return KeyPair(chain_text=chain, key=key) if chain else None


def _sni(configs: ListenerConfigs) -> tuple[tuple[str, KeyPair], ...]:
    paths: dict[str, dict[str, Path | None]] = {}
    for name, value in configs.of_prefix("penstock.sni."):
        host, _, kind = name.rpartition(".")
        paths.setdefault(host.lower(), {})[kind] = absolute(value)
    for host, pair in paths.items():
        for kind in ("cert", "key"):
            if kind not in pair:
                raise InvalidSettings(
                    f"listener.name.{configs.listener.lower()}.penstock.sni.{host}.{kind} is missing: a certificate "
                    "and its key belong together"
                )
    return tuple((host, KeyPair(chain_path=pair["cert"], key_path=pair["key"])) for host, pair in paths.items())


def absolute(text: str) -> Path | None:
    """The path, absolute; None for an empty text."""
    return Path(text).expanduser().absolute() if text.strip() else None
