"""The protection of listeners: the security protocol and the TLS of each. Pure.

A listener's protocol is the one that `listener.security.protocol.map` gives to its name. Without a map it is the one
that the listener is named for, and PLAINTEXT for every other name. With a map every other name needs a row, as in
Kafka.
Source: org.apache.kafka.common.security.auth.SecurityProtocol, org.apache.kafka.network.SocketServerConfigs (4.3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from agent.config.addresses import HostPort, ListenerAddress, is_loopback
from agent.config.option_sources import InvalidSettings, Value
from agent.config.sasl_settings import SaslSettings, read_sasl
from agent.config.tls_settings import SHORTHAND, ClientAuth, TlsSettings, read_tls
from protocol.suggestions import nearest

HTTPS_LISTENER = "HTTPS"
"""The name of the HTTP port where it encrypts: its own configs begin with `listener.name.https.`."""
RELAY_LISTENER = "RELAY"
"""The name of the listener on which agents relay requests of groups to each other."""
PROTOCOL_MAP = "listener.security.protocol.map"


class SecurityProtocol(Enum):
    """How a listener's connections are protected. Values are Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The protection of one listener."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings | None = None
    """Set where the protocol encrypts."""
    sasl: SaslSettings | None = None
    """Set where clients authenticate by SASL."""

    @property
    def is_authenticating(self) -> bool:
        """Whether clients say who they are: by SASL or by a certificate."""
        return self.protocol.has_sasl or (self.tls is not None and self.tls.client_auth is not ClientAuth.NONE)


PLAINTEXT = ListenerSecurity()


def read_listener_security(
    listeners: Sequence[ListenerAddress], pairs: Mapping[str, str], values: Mapping[str, Value]
) -> dict[str, ListenerSecurity]:
    """The protection of each listener, by its name. Raises `InvalidSettings`.

    Args:
        listeners: the addresses that are listened on.
        pairs: all broker configs that are set, with secrets.
        values: the values of options.
    """
    protocols = _protocols(pairs.get(PROTOCOL_MAP))
    security: dict[str, ListenerSecurity] = {}
    for listener in listeners:
        protocol = _protocol_of(listener.name, protocols)
        tls = read_tls(listener.name, pairs, values) if protocol.is_encrypted else None
        sasl = read_sasl(listener.name, pairs) if protocol.has_sasl else None
        security[listener.name] = ListenerSecurity(protocol=protocol, tls=tls, sasl=sasl)
    return security


def read_http_tls(pairs: Mapping[str, str], values: Mapping[str, Value], *, is_https: bool) -> TlsSettings | None:
    """The TLS of the HTTP port; None where it does not encrypt. Raises `InvalidSettings`.

    Health probes have no certificate: where listeners require one, the HTTP port asks for it, and answers without it.
    `listener.name.https.ssl.client.auth` decides otherwise.
    """
    if not is_https:
        return None
    own = f"listener.name.{HTTPS_LISTENER.lower()}.ssl.client.auth"
    tls = read_tls(HTTPS_LISTENER, pairs, values)
    if own not in pairs and tls.client_auth is ClientAuth.REQUIRED:
        return read_tls(HTTPS_LISTENER, {**pairs, own: ClientAuth.REQUESTED.value}, values)
    return tls


def check_configs_are_used(
    security: Mapping[str, ListenerSecurity],
    http_tls: TlsSettings | None,
    pairs: Mapping[str, str],
    values: Mapping[str, Value],
) -> None:
    """Raise `InvalidSettings` where a setting protects no address: it would promise what does not happen."""
    from coordinator.configs.security_configs import listener_config  # late: importing the room takes time

    names = {name.lower(): name for name in security} | ({} if http_tls is None else {"https": HTTPS_LISTENER})
    for name in pairs:
        own = listener_config(name)
        if own is not None and own[0] not in names:
            raise InvalidSettings(
                f"{name}: no listener has the name {own[0]}; the names are {', '.join(names)}{nearest(own[0], names)}"
            )
    is_encrypted = http_tls is not None or any(each.tls is not None for each in security.values())
    for name in [*(f"--{option}" for option in SHORTHAND if option in values), *(n for n in pairs if n[:4] == "ssl.")]:
        if not is_encrypted:
            raise InvalidSettings(
                f"{name}: nothing encrypts. Name a listener SSL, as in --listen SSL://127.0.0.1:9093, or give it that "
                f"protocol with --set {PROTOCOL_MAP}=NAME:SSL, or use --http https://HOST:PORT"
            )


def check_relay(security: Mapping[str, ListenerSecurity], *, is_authorizer_enabled: bool) -> None:
    """Raise `InvalidSettings` where a listener RELAY would believe agents that it does not know.

    An agent says on it who its clients are. So it asks agents for certificates wherever that gives rights.
    """
    relay = security.get(RELAY_LISTENER)
    if relay is None:
        return
    if len(security) == 1:
        raise InvalidSettings(f"listener {RELAY_LISTENER} is for agents alone: add a listener for clients")
    if relay.protocol.has_sasl:
        raise InvalidSettings(
            f"listener {RELAY_LISTENER}: agents know each other by certificates; set {PROTOCOL_MAP} to "
            f"{RELAY_LISTENER}:SSL instead of {relay.protocol.value}"
        )
    is_needed = is_authorizer_enabled or any(each.is_authenticating for each in security.values())
    if relay.tls is None:
        if is_needed:
            raise InvalidSettings(
                f"listener {RELAY_LISTENER}: clients authenticate, or have ACLs, and agents pass on who they are: set "
                f"{PROTOCOL_MAP} to {RELAY_LISTENER}:SSL, and listener.name.relay.ssl.client.auth=required"
            )
    elif relay.tls.client_auth is not ClientAuth.REQUIRED:
        raise InvalidSettings(
            f"listener {RELAY_LISTENER}: set listener.name.relay.ssl.client.auth=required, and with "
            "listener.name.relay.ssl.truststore.location=FILE the authority of the agents' certificates"
        )


def check_is_protected(option: str, address: ListenerAddress | HostPort, *, is_encrypted: bool) -> None:
    """Raise `InvalidSettings` for an address that other machines can reach without encryption."""
    if is_encrypted or is_loopback(address.host):
        return
    host_port = HostPort(host=address.host, port=address.port)
    encrypted = f"--listen SSL://{host_port}" if option == "listen" else f"--http https://{host_port}"
    raise InvalidSettings(
        f"--{option} {address}: other machines can reach this address, and it does not encrypt. Encrypt it with "
        f"{encrypted} --tls-cert FILE --tls-key FILE, or listen on 127.0.0.1, or add --insecure in a network that you "
        "trust"
    )


def _protocols(text: str | None) -> Mapping[str, SecurityProtocol] | None:
    """The rows of the map by listener name; None where it is not set."""
    if text is None:
        return None
    rows: dict[str, SecurityProtocol] = {}
    for row in (part.strip() for part in text.split(",") if part.strip()):
        name, colon, protocol = row.partition(":")
        names = [each.value for each in SecurityProtocol]
        if not colon or protocol.strip().upper() not in names:
            raise InvalidSettings(
                f"{PROTOCOL_MAP}: {row!r} is not NAME:PROTOCOL with one of {', '.join(names)}{nearest(protocol, names)}"
            )
        if name.strip().upper() in rows:
            raise InvalidSettings(f"{PROTOCOL_MAP}: {name.strip()} is there twice")
        rows[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
    return rows


def _protocol_of(name: str, protocols: Mapping[str, SecurityProtocol] | None) -> SecurityProtocol:
    if protocols is not None and name in protocols:
        return protocols[name]
    if name in SecurityProtocol.__members__:
        return SecurityProtocol[name]
    if protocols is None:
        return SecurityProtocol.PLAINTEXT
    raise InvalidSettings(f"{PROTOCOL_MAP}: listener {name} has no row; add {name}:SSL, or another protocol")
