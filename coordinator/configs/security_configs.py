"""Kafka's broker configs of security: which ones there are, which may be set for one listener, and which are secret.

A listener's own value has the prefix `listener.name.NAME.`, with the listener's name in lower case (KIP-103). A secret
is a config of type PASSWORD: it is never shown, and `NAME.file` names a file that has it. `agent.config` reads the
values. Configs that start with `penstock.`, and `ssl.crl.location`, are not Kafka's.
Source: org.apache.kafka.common.config.SslConfigs, BrokerSecurityConfigs, SocketServerConfigs (Kafka 4.3).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from coordinator.configs.config_types import ConfigSpec, ConfigType, Effect, table
from coordinator.configs.oauth_configs import OAUTH_CONFIGS, without_prefix
from protocol.limits import SASL_FRAME_BYTES_HIGHEST, SASL_FRAME_BYTES_MAX

FILE_SUFFIX: Final = ".file"
"""Behind the name of a secret: the config names a file with the value."""
HIDDEN: Final = "[hidden]"
"""The text that replaces a secret wherever configs are kept (org.apache.kafka.common.config.types.Password)."""
_REAUTH: Final = "connections.max.reauth.ms"
_MECHANISM_REAUTH: Final = re.compile(r"(?:scram-sha-256|scram-sha-512|plain|oauthbearer)\." + re.escape(_REAUTH))
"""The same for one mechanism, in lower case (KIP-368). It has to name a listener, too."""
_LISTENER: Final = re.compile(r"listener\.name\.([a-z0-9_]+)\.(.+)")
_SNI: Final = re.compile(r"penstock\.sni\.([A-Za-z0-9*_.-]+)\.(cert|key)")


def _spec(
    name: str,
    config_type: ConfigType,
    default: str | None,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    low: int | None = None,
    high: int | None = None,
) -> ConfigSpec:
    return ConfigSpec(
        name,
        config_type,
        default,
        text,
        effect=Effect.HONOURED,
        choices=choices,
        low=low,
        high=high,
        is_read_only=True,
    )


_STRING, _LIST, _PASSWORD = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
LISTENER_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    _spec(
        "ssl.keystore.type",
        _STRING,
        "PEM",
        "The form of the keystore. Java's own form, JKS, is not read.",
        choices=("PEM", "PKCS12"),
    ),
    _spec("ssl.keystore.location", _STRING, None, "File of the private key and the certificates behind it."),
    _spec("ssl.keystore.password", _PASSWORD, None, "Password of a PKCS12 keystore."),
    _spec("ssl.keystore.key", _PASSWORD, None, "The private key as PEM text, instead of a keystore file."),
    _spec("ssl.keystore.certificate.chain", _STRING, None, "The certificates as PEM text, the listener's own first."),
    _spec("ssl.key.password", _PASSWORD, None, "Password of an encrypted private key."),
    _spec(
        "ssl.truststore.type",
        _STRING,
        "PEM",
        "The form of the truststore. Java's own form, JKS, is not read.",
        choices=("PEM", "PKCS12"),
    ),
    _spec("ssl.truststore.location", _STRING, None, "File of the authorities that sign the certificates of clients."),
    _spec("ssl.truststore.password", _PASSWORD, None, "Password of a PKCS12 truststore."),
    _spec("ssl.truststore.certificates", _STRING, None, "Those authorities as PEM text, instead of a file."),
    _spec(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients are asked for a certificate.",
        choices=("none", "requested", "required"),
    ),
    _spec(
        "ssl.enabled.protocols",
        _LIST,
        "TLSv1.2,TLSv1.3",
        "Versions of TLS that clients may use. Older ones are not supported.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    _spec("ssl.cipher.suites", _LIST, "", "Cipher suites of TLS 1.2. Those of TLS 1.3 are always enabled."),
    _spec(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "Rules that make the name of a principal from a certificate's subject (KIP-371).",
    ),
    _spec("ssl.allow.dn.changes", ConfigType.BOOLEAN, "false", "Whether a new certificate may have another subject."),
    _spec("ssl.allow.san.changes", ConfigType.BOOLEAN, "false", "Whether a new certificate may have other names."),
    _spec("ssl.crl.location", _STRING, None, "PEM file of revocation lists. A revoked client certificate is rejected."),
    _spec(
        "penstock.ssl.principal.source",
        _STRING,
        "SUBJECT",
        "Where a certificate names its principal: in its subject, or in a URI or DNS name of its alternative names.",
        choices=("SUBJECT", "SAN_URI", "SAN_DNS"),
    ),
    _spec(
        "sasl.enabled.mechanisms",
        _LIST,
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "Mechanisms by which clients may authenticate on a listener with SASL.",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
    ),
    _spec(
        _REAUTH,
        ConfigType.LONG,
        "0",
        "How long a session lasts before its client has to authenticate again. 0 sets no end (KIP-368).",
        low=0,
    ),
    _spec(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        str(SASL_FRAME_BYTES_MAX),
        "Largest request of a client that has not authenticated.",
        low=0,
        high=SASL_FRAME_BYTES_HIGHEST,
    ),
    *OAUTH_CONFIGS.values(),
)
"""The configs that hold for all listeners, or for one behind `listener.name.NAME.`."""
_OF_ONE_LISTENER: Final[Mapping[str, ConfigSpec]] = table(
    _spec("max.connections", ConfigType.INT, None, "The largest number of connections to this listener.", low=0),
    _spec(
        "max.connection.creation.rate",
        ConfigType.INT,
        None,
        "Connections that this listener accepts in a second. Further ones are held and closed.",
        low=0,
    ),
)
"""Further configs of a listener, beside those that hold for the whole agent."""

SECURITY_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    _spec(
        "listener.security.protocol.map",
        _STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener's name.",
    ),
    _spec(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        "100",
        "How long the answer to a failed authentication waits. Failures that repeat wait longer.",
        low=0,
        high=60_000,
    ),
    _spec(
        "authorizer.class.name",
        _STRING,
        "",
        "The authorizer: empty for none, or org.apache.kafka.metadata.authorizer.StandardAuthorizer. Without this "
        "config it is on where a listener authenticates its clients.",
    ),
    _spec("super.users", _STRING, "", "Principals that may do everything, as in User:alice;User:bob."),
    _spec(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        "false",
        "Whether everybody may do everything on a resource that no ACL names.",
    ),
    ConfigSpec(
        "authorizer.stale.max.ms",
        ConfigType.LONG,
        None,
        "The age of an agent's ACLs beyond which it allows nothing before the ledger confirms them.",
        effect=Effect.HONOURED,
        low=100,
        is_read_only=True,
    ),
    _spec(
        "penstock.secret.key.file",
        _STRING,
        None,
        "File of 32 random bytes, the same for all agents, by which the keys of SCRAM credentials are encrypted, and "
        "delegation tokens have their HMACs.",
    ),
    _spec(
        "delegation.token.secret.key",
        _PASSWORD,
        None,
        "Key of the HMACs of delegation tokens, the same for all agents. Without it penstock.secret.key.file serves.",
    ),
    _spec(
        "delegation.token.max.lifetime.ms",
        ConfigType.LONG,
        "604800000",
        "How long a delegation token may be renewed at most.",
        low=1,
    ),
    _spec(
        "delegation.token.expiry.time.ms",
        ConfigType.LONG,
        "86400000",
        "How long a delegation token lasts before it has to be renewed.",
        low=1,
    ),
    _spec(
        "delegation.token.expiry.check.interval.ms",
        ConfigType.LONG,
        "3600000",
        "How often expired delegation tokens are removed.",
        low=1,
    ),
    *LISTENER_CONFIGS.values(),
)


def listener_config(name: str) -> tuple[str, str] | None:
    """The listener's name in lower case, and the config, of `listener.name.NAME.CONFIG`; None for another name."""
    match = _LISTENER.fullmatch(name)
    return None if match is None else (match[1], match[2])


def sni_config(name: str) -> tuple[str, str] | None:
    """The host name, and `cert` or `key`, of `penstock.sni.HOST.cert`; None for another name."""
    match = _SNI.fullmatch(name)
    return None if match is None else (match[1].lower(), match[2])


def security_spec(name: str) -> ConfigSpec | None:
    """The description of a config by its full name: one of SECURITY_CONFIGS, one of a listener, or the file of a
    secret. None where no such config exists.
    """
    own = listener_config(name)
    plain = name if own is None else without_prefix(own[1])
    spec = (SECURITY_CONFIGS if own is None else LISTENER_CONFIGS).get(plain)
    if spec is not None:
        return spec if own is None else replace(spec, name=name, default=None)
    if own is not None and plain in _OF_ONE_LISTENER:
        return replace(_OF_ONE_LISTENER[plain], name=name)
    if own is not None and _MECHANISM_REAUTH.fullmatch(plain):
        return replace(LISTENER_CONFIGS[_REAUTH], name=name, default=None)
    if own is not None and sni_config(plain) is not None:
        return _spec(name, _STRING, None, "PEM file of a certificate, or its key, for clients that ask for this host.")
    secret = security_spec(name.removesuffix(FILE_SUFFIX)) if name.endswith(FILE_SUFFIX) else None
    if secret is None or secret.type is not ConfigType.PASSWORD:
        return None
    return _spec(name, _STRING, None, f"File that has the value of {secret.name}.")


def is_secret(name: str) -> bool:
    """Whether the value of a config must not be shown."""
    spec = security_spec(name)
    return spec is not None and spec.type is ConfigType.PASSWORD


def without_secrets(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs with HIDDEN as the value of each secret."""
    return {name: HIDDEN if is_secret(name) else value for name, value in configs.items()}
