"""SCRAM credentials as a broker keeps them: keys that check a password without containing it.

Source: RFC 5802, sections 3 and 5; org.apache.kafka.common.security.scram.ScramCredential, and
org.apache.kafka.clients.admin.ScramMechanism for the codes (Kafka 4.3).
"""

from dataclasses import dataclass, field
from enum import IntEnum


class ScramMechanism(IntEnum):
    """The mechanisms, by their codes in AlterUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SaslHandshake: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash's name in `hashlib`: `sha256`."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The keys derived from one user's password, for one mechanism.

    A thief of `stored_key` and `server_key` can impersonate the server, and try passwords offline.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int
