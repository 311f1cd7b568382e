"""The key by which agents encrypt what they keep of passwords: a file of 32 random bytes, the same for all agents.

In: the broker config `penstock.secret.key.file`. Out: the key, or None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.config.option_sources import InvalidSettings

NAME: Final = "penstock.secret.key.file"
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SecretKey:
    """32 bytes that nothing shows."""

    value: bytes = field(repr=False)


def read_secret_key(pairs: Mapping[str, str]) -> SecretKey | None:
    """The key in the file that the config names; None without the config. Raises `InvalidSettings`."""
    path = pairs.get(NAME)
    if path is None:
        return None
    try:
        value = Path(path).read_bytes()
    except OSError as error:
        raise InvalidSettings(f"{NAME}={path} cannot be read: {error.strerror}") from error
    if len(value) != KEY_BYTES:
        raise InvalidSettings(
            f"{NAME}={path} has {len(value)} bytes instead of {KEY_BYTES}: make one with "
            f"`(umask 077; head -c {KEY_BYTES} /dev/urandom > FILE)`, and give all agents the same"
        )
    return SecretKey(value)
