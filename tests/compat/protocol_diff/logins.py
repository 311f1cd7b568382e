"""The users of conversations in which the client has no rights: one administrator prepares, another client is judged.

Both log in by SASL/PLAIN. Quiet steps that are awaited are the administrator's: they prepare what the judged steps ask.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORDED_DENIED: Final = Path(__file__).parent / "kafka-4.3.1-denied.json"
"""What Kafka answered to a client without rights."""


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
    """The two users of a conversation."""

    administrator: Login
    client: Login


DENIED: Final = Logins(Login("admin", "admin-password"), Login("denied", "denied-password"))
KAFKA_SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{DENIED.administrator.name}" password="{DENIED.administrator.password}" '
        + " ".join(f'user_{each.name}="{each.password}"' for each in (DENIED.administrator, DENIED.client))
        + ";"
    ),
    "super.users": f"User:{DENIED.administrator.name};User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
}
"""The settings of the broker that was recorded. Its controller is ANONYMOUS."""
PENSTOCK_SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "super.users": f"User:{DENIED.administrator.name}",
}
