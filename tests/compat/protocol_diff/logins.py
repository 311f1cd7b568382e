"""The users of conversations over SASL: an administrator prepares, and clients are judged.

They log in by SASL/PLAIN: the client that has no rights, and the administrator, whose are the quiet steps that are
awaited. Clients with delegation tokens log in by the steps of their conversations, which make the users, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORDED_DENIED: Final = Path(__file__).parent / "kafka-4.3.1-denied.json"
"""What Kafka answered to a client without rights."""
RECORDED_TOKENS: Final = Path(__file__).parent / "kafka-4.3.1-tokens.json"
"""What Kafka answered about delegation tokens, and to clients that logged in with them."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user of SASL/PLAIN."""

    name: str
    password: str

    @property
    def token(self) -> bytes:
        """The message of RFC 4616."""
        return b"\0" + self.name.encode() + b"\0" + self.password.encode()


@dataclass(frozen=True, slots=True)
class Logins:
    """The users of a conversation."""

    administrator: Login
    client: Login | None
    """None: the steps of the conversation log its clients in."""

    @property
    def is_without_rights(self) -> bool:
        """Whether most of what the client asks is denied."""
        return self.client is not None


ADMIN: Final = Login("admin", "admin-password")
DENIED_CLIENT: Final = Login("denied", "denied-password")
DENIED: Final = Logins(ADMIN, DENIED_CLIENT)
TOKENS: Final = Logins(ADMIN, None)


def kafka_settings(clients: Sequence[Login]) -> dict[str, str]:
    """The settings of the broker that is recorded. Its controller is ANONYMOUS."""
    administrator = ADMIN
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{administrator.name}" password="{administrator.password}" '
            + " ".join(f'user_{each.name}="{each.password}"' for each in (administrator, *clients))
            + ";"
        ),
        "super.users": f"User:{administrator.name};User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }


PENSTOCK_SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "super.users": f"User:{ADMIN.name}",
}
_TOKEN_SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms": "1",
}
TOKEN_KEY: Final = "key-of-recorded-tokens"


def kafka_token_settings() -> dict[str, str]:
    """The settings of the broker that is recorded about delegation tokens."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    mechanisms = ("scram-sha-256", "scram-sha-512")
    by_scram = {f"listener.name.plaintext.{mechanism}.sasl.jaas.config": module for mechanism in mechanisms}
    return {**kafka_settings([]), **_TOKEN_SETTINGS, "delegation.token.secret.key": TOKEN_KEY, **by_scram}


def penstock_token_settings(folder: Path) -> dict[str, str]:
    """The settings of the agent that is compared with it. Writes the key, which no command line may have."""
    key = folder / "token-key"
    key.write_text(TOKEN_KEY)
    return {**PENSTOCK_SETTINGS, **_TOKEN_SETTINGS, "delegation.token.secret.key.file": str(key)}
