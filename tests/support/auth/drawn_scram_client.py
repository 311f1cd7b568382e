"""A SCRAM client that tests can lead astray: each part of its messages can be given.

Source: RFC 5802, section 5.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass

from protocol.auth.scram_credentials import ScramMechanism


@dataclass(slots=True, kw_only=True)
class DrawnScramClient:
    """The client's side of one exchange."""

    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
    user: str = "alice"
    password: str = "wonderland"
    nonce: str = "clientnonce"
    gs2_header: str = "n,,"
    extensions: str = ""
    """Behind the nonce of the first message, each with its comma."""

    @property
    def bare(self) -> str:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}{self.extensions}"

    def first(self) -> bytes:
        """The first message."""
        return (self.gs2_header + self.bare).encode()

    def final(self, server_first: bytes, *, channel: str | None = None, extensions: str = "") -> bytes:
        """The last message, for the server's answer to the first."""
        without_proof = self._without_proof(server_first, channel, extensions)
        key = self._client_key(server_first)
        stored_key = hashlib.new(self.mechanism.hash_name, key).digest()
        message = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(stored_key, message, self.mechanism.hash_name)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _without_proof(self, server_first: bytes, channel: str | None, extensions: str) -> str:
        nonce = server_first.decode().split(",")[0]
        binding = channel if channel is not None else b64encode(self.gs2_header.encode()).decode()
        return f"c={binding},{nonce}{extensions}"

    def _client_key(self, server_first: bytes) -> bytes:
        return hmac.digest(self.salted(server_first), b"Client Key", self.mechanism.hash_name)

    def salted(self, server_first: bytes) -> bytes:
        _, salt, iterations = server_first.decode().split(",")[:3]
        return hashlib.pbkdf2_hmac(
            self.mechanism.hash_name, self.password.encode(), b64decode(salt[2:]), int(iterations[2:])
        )
