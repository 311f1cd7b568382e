"""The settings of delegation tokens: the key of their HMACs, and how long they last. Pure but for the key's file.

Source: org.apache.kafka.server.config.DelegationTokenManagerConfigs (Kafka 4.3). Differs from Kafka: without
`delegation.token.secret.key` the key of `penstock.secret.key.file` serves, under a purpose of its own.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.config.option_sources import InvalidSettings
from agent.config.secret_key import SecretKey
from agent.config.secret_values import Secret
from coordinator.configs.broker_configs import broker_value
from coordinator.configs.security_configs import FILE_SUFFIX

KEY: Final = "delegation.token.secret.key"
LIFETIME: Final = "delegation.token.max.lifetime.ms"
RENEWAL: Final = "delegation.token.expiry.time.ms"
CHECK_INTERVAL: Final = "delegation.token.expiry.check.interval.ms"
_PURPOSE: Final = b"HMACs of delegation tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """The delegation tokens of one agent. All agents of a cluster need the same key."""

    key: bytes | None = field(default=None, repr=False)
    """The key of the HMACs; None where there are no delegation tokens."""
    lifetime_ms: int = 7 * 24 * 3_600_000
    """How long a token may be renewed at most."""
    renewal_ms: int = 24 * 3_600_000
    """How long a token lasts before it has to be renewed."""
    check_interval_s: float = 3_600.0
    """How often expired tokens are removed."""


def read_token_settings(pairs: Mapping[str, str], secret_key: SecretKey | None) -> TokenSettings:
    """The settings among all broker configs that are set. Raises `InvalidSettings` for a key that cannot be read."""
    return TokenSettings(
        key=_key(pairs, secret_key),
        lifetime_ms=int(broker_value(pairs, LIFETIME)),
        renewal_ms=int(broker_value(pairs, RENEWAL)),
        check_interval_s=int(broker_value(pairs, CHECK_INTERVAL)) / 1000,
    )


def _key(pairs: Mapping[str, str], secret_key: SecretKey | None) -> bytes | None:
    """Kafka's key as it is, so that both compute the same HMACs; an empty one turns tokens off, as in Kafka."""
    text, path = pairs.get(KEY), pairs.get(KEY + FILE_SUFFIX)
    if text is not None and path is not None:
        raise InvalidSettings(f"{KEY} and {KEY}{FILE_SUFFIX} are both set: remove one of them")
    if path is not None:
        secret = Secret(name=KEY, path=Path(path).expanduser().absolute())
        text = secret.read()
        if not text:
            raise InvalidSettings(f"{KEY}{FILE_SUFFIX}={path} is empty: write a long random text into it")
    if text is not None:
        return text.encode() or None
    return None if secret_key is None else hmac.digest(secret_key.value, _PURPOSE, "sha512")
