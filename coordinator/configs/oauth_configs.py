"""Kafka's broker configs of OAUTHBEARER, and those of Penstock beside them. `agent.config.oauth_settings` reads them.

Each holds for all listeners and the HTTP port, or for one listener behind `listener.name.NAME.`, with or without the
mechanism's prefix `oauthbearer.` behind that (KIP-768).
Source: org.apache.kafka.common.config.SaslConfigs, org.apache.kafka.common.security.oauthbearer.OAuthBearerConfig
(Kafka 4.3). Differs from Kafka: audience and issuer are required, so that no token for another service is accepted.
"""

from collections.abc import Mapping
from typing import Final

from coordinator.configs.config_types import ConfigSpec, ConfigType, Effect, table

PREFIX: Final = "oauthbearer."
"""The mechanism's prefix of a listener's own config."""
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
CLOCK_SKEW: Final = "sasl.oauthbearer.clock.skew.seconds"
SUBJECT_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
SCOPE_CLAIM: Final = "sasl.oauthbearer.scope.claim.name"
REFRESH: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
BACKOFF: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
LONGEST_BACKOFF: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
GROUPS_CLAIM: Final = "penstock.oauthbearer.groups.claim"
JWKS_AUTHORITIES: Final = "penstock.oauthbearer.jwks.ssl.truststore.location"
JWKS_TOKEN_FILE: Final = "penstock.oauthbearer.jwks.token.file"  # noqa: S105 - a config's name


def _spec(name: str, config_type: ConfigType, default: str | None, text: str, *, low: int | None = None) -> ConfigSpec:
    return ConfigSpec(name, config_type, default, text, effect=Effect.HONOURED, low=low, is_read_only=True)


_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
OAUTH_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    _spec(JWKS_URL, _STRING, None, "Where the issuer of tokens has its public keys: an https or a file URL."),
    _spec(AUDIENCE, ConfigType.LIST, "", "Audiences, one of which a token has to be issued for."),
    _spec(ISSUER, _STRING, None, "The issuer that a token has to be from."),
    _spec(CLOCK_SKEW, _INT, "30", "Seconds by which the clocks of issuer and agent may differ.", low=0),
    _spec(SUBJECT_CLAIM, _STRING, "sub", "The claim that names the user."),
    _spec(SCOPE_CLAIM, _STRING, "scope", "The claim of the scopes, which have to be texts without repetition."),
    _spec(REFRESH, _LONG, "3600000", "How often the issuer's keys are read again.", low=1),
    _spec(BACKOFF, _LONG, "100", "The first pause before keys are read again that could not be read.", low=1),
    _spec(LONGEST_BACKOFF, _LONG, "10000", "The longest such pause; each is twice as long as the one before.", low=1),
    _spec(GROUPS_CLAIM, _STRING, None, "The claim of the user's groups, which ACLs name as Group:NAME."),
    _spec(JWKS_AUTHORITIES, _STRING, None, "PEM file of the authorities of the issuer's server, for its keys."),
    _spec(JWKS_TOKEN_FILE, _STRING, None, "File of a token that is sent when keys are read, as Kubernetes may ask."),
)


def without_prefix(name: str) -> str:
    """The config's general name, of the part behind `listener.name.NAME.`."""
    plain = name.removeprefix(PREFIX)
    return plain if plain in OAUTH_CONFIGS else name
