"""The SASL of a listener: its mechanisms, limits, and for how long a session lasts. Pure.

Source: org.apache.kafka.common.config.internals.BrokerSecurityConfigs, KIP-368 (Kafka 4.3). Differs from Kafka: without
`sasl.enabled.mechanisms` both mechanisms of SCRAM are enabled, since GSSAPI, Kafka's default, is not supported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.config.oauth_settings import OAUTHBEARER, OauthSettings, read_oauth
from agent.config.option_sources import InvalidSettings
from protocol.limits import SASL_FRAME_BYTES_HIGHEST, SASL_FRAME_BYTES_MAX
from protocol.suggestions import nearest

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*SCRAM_MECHANISMS, PLAIN, OAUTHBEARER)
CLEAR_TEXT_MECHANISMS: Final = frozenset({PLAIN, OAUTHBEARER})
"""Mechanisms that send a secret as it is, so that they need an encrypted connection."""
UNSUPPORTED: Final[Mapping[str, str]] = {
    "GSSAPI": "it needs a Kerberos library, and none is pure Python",
    "AWS_MSK_IAM": "it is Amazon's own, and only Amazon can check its signatures",
}
ENABLED: Final = "sasl.enabled.mechanisms"
REAUTH: Final = "connections.max.reauth.ms"
FRAME_BYTES: Final = "sasl.server.max.receive.size"
FAILURE_DELAY: Final = "connection.failed.authentication.delay.ms"
FAILURE_DELAY_MS_DEFAULT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """The SASL of one listener."""

    mechanisms: tuple[str, ...] = SCRAM_MECHANISMS
    reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """How long a session of a mechanism lasts, in milliseconds; 0 for no end."""
    frame_bytes_max: int = SASL_FRAME_BYTES_MAX
    failure_delay_ms: int = FAILURE_DELAY_MS_DEFAULT
    oauth: OauthSettings | None = None
    """The tokens that are accepted, where OAUTHBEARER is enabled."""

    @property
    def sends_secrets(self) -> bool:
        """Whether a client of an enabled mechanism sends its secret as it is."""
        return not CLEAR_TEXT_MECHANISMS.isdisjoint(self.mechanisms)


def read_sasl(listener: str, pairs: Mapping[str, str]) -> SaslSettings:
    """The SASL of a listener by its name. Raises `InvalidSettings`.

    Args:
        listener: the name, in upper case as settings have it.
        pairs: all broker configs that are set.
    """
    prefix = f"listener.name.{listener.lower()}."

    def text(name: str, default: str) -> tuple[str, str]:
        own = prefix + name
        return (own, pairs[own]) if own in pairs else (name, pairs.get(name, default))

    mechanisms = _mechanisms(*text(ENABLED, ",".join(SCRAM_MECHANISMS)))
    general = text(REAUTH, "0")
    reauth_ms = {
        mechanism: _number(*_of_mechanism(pairs, prefix, mechanism, general), high=(1 << 63) - 1)
        for mechanism in mechanisms
    }
    frame_bytes = _number(*text(FRAME_BYTES, str(SASL_FRAME_BYTES_MAX)), high=SASL_FRAME_BYTES_HIGHEST)
    delay_ms = _number(FAILURE_DELAY, pairs.get(FAILURE_DELAY, str(FAILURE_DELAY_MS_DEFAULT)), high=60_000)
    return SaslSettings(
        mechanisms=mechanisms,
        reauth_ms=reauth_ms,
        frame_bytes_max=frame_bytes,
        failure_delay_ms=delay_ms,
        oauth=_oauth(listener, pairs) if OAUTHBEARER in mechanisms else None,
    )


def _oauth(listener: str, pairs: Mapping[str, str]) -> OauthSettings:
    oauth = read_oauth(listener, pairs)
    if oauth is None:
        raise InvalidSettings(
            f"listener {listener} has the mechanism {OAUTHBEARER}, and nothing says where the keys of the issuer of "
            "tokens are: set sasl.oauthbearer.jwks.endpoint.url, sasl.oauthbearer.expected.issuer and "
            "sasl.oauthbearer.expected.audience. Unsecured tokens are not accepted"
        )
    return oauth


def _of_mechanism(pairs: Mapping[str, str], prefix: str, mechanism: str, general: tuple[str, str]) -> tuple[str, str]:
    """The name and text of the config for one mechanism, which goes before the listener's (KIP-368)."""
    own = f"{prefix}{mechanism.lower()}.{REAUTH}"
    return (own, pairs[own]) if own in pairs else general


def _mechanisms(name: str, text: str) -> tuple[str, ...]:
    mechanisms = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not mechanisms:
        raise InvalidSettings(f"{name} is empty; name one or more of {', '.join(MECHANISMS)}")
    for mechanism in mechanisms:
        if mechanism in UNSUPPORTED:
            raise InvalidSettings(f"{name}: {mechanism} is not there: {UNSUPPORTED[mechanism]}")
        if mechanism not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise InvalidSettings(
                f"{name}: {mechanism!r} is no mechanism; there are {known}{nearest(mechanism, MECHANISMS)}"
            )
    return mechanisms


def _number(name: str, text: str, *, high: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > high:
        raise InvalidSettings(f"{name}: {text!r} is not a number from 0 to {high}")
    return int(text)
