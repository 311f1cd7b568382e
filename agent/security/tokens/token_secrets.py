"""The secrets of delegation tokens: HMACs of their ids by a key that all agents share, and what follows from them.

A client that logs in by SCRAM has the HMAC's base64 text as its password. Over HTTP it shows id and HMAC.
Source: org.apache.kafka.security.DelegationTokenManager.createHmac and prepareScramCredentials, Kafka 4.3.
"""

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

from protocol.auth.decoy_credentials import CredentialShape, decoy
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.limits import SCRAM_ITERATIONS_MIN

SEPARATOR: Final = "~"
"""Between id and HMAC over HTTP: RFC 6750 allows it, and neither part, no JSON Web Token and no base64 has it."""
_SHAPES: Final = (CredentialShape(iterations=SCRAM_ITERATIONS_MIN),)


@dataclass(frozen=True, slots=True)
class TokenSecrets:
    """The secrets under one key."""

    key: bytes = field(repr=False)

    def hmac(self, token_id: str) -> bytes:
        """The HMAC of a token, 64 bytes."""
        return hmac.digest(self.key, token_id.encode(), "sha512")

    def decoy(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """The credential of an id that is no token's: its salt is that of the token, and no password fits it."""
        return decoy(self.key, f"token\0{token_id}", mechanism, _SHAPES)

    def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """The SCRAM credential of a token: 2 to 3 ms of PBKDF2.

        Differs from Kafka: the salt follows from id and key, so all agents have the same one.
        """
        salt = self.decoy(token_id, mechanism).salt
        password = b64encode(self.hmac(token_id)).decode()
        salted = salt_password(password, salt=salt, iterations=SCRAM_ITERATIONS_MIN, mechanism=mechanism)
        return credential_of(salted, salt=salt, iterations=SCRAM_ITERATIONS_MIN, mechanism=mechanism)

    def shown_id(self, text: str) -> str | None:
        """The id in `ID~HMAC` (base64) where the HMAC is that of the id; None for any other text.

        Compared in constant time. Whether there is such a token is the caller's question.
        """
        token_id, separator, shown = text.partition(SEPARATOR)
        if not separator or not token_id or not text.isascii():
            return None
        expected = b64encode(self.hmac(token_id))
        return token_id if hmac.compare_digest(expected, shown.encode()) else None
