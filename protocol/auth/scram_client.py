"""SCRAM, the client's side: what the commands log in with. The nonce is given.

Source: RFC 5802; org.apache.kafka.common.security.scram.internals.ScramSaslClient (Kafka 4.3).
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode

from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import salt_password
from protocol.limits import SCRAM_ITERATIONS_MAX

_CHANNEL_BINDING = "c=" + b64encode(b"n,,").decode()


class ServerRejected(ValueError):
    """The server's message is malformed, or it does not prove that the server knows the user's credential."""


class ScramClient:
    """One exchange: `first`, then `final` with the answer to it, then `check` with the answer to that."""

    def __init__(self, mechanism: ScramMechanism, *, user: str, password: str, nonce: str) -> None:
        """`nonce`: printable characters without a comma, drawn for this exchange alone."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The message that proves the password; takes 2 to 10 ms. Raises `ServerRejected`."""
        attributes = _attributes(server_first)
        nonce, salt, iterations = attributes.get("r", ""), attributes.get("s", ""), attributes.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not iterations.isdecimal():
            raise ServerRejected("the server's first SCRAM message is malformed")
        if int(iterations) > SCRAM_ITERATIONS_MAX:
            raise ServerRejected(f"the server asks for {iterations} iterations, more than {SCRAM_ITERATIONS_MAX}")
        salted = salt_password(
            self._password, salt=_base64(salt), iterations=int(iterations), mechanism=self._mechanism
        )
        name = self._mechanism.hash_name
        without_proof = f"{_CHANNEL_BINDING},r={nonce}"
        auth_message = b",".join((self._bare.encode(), server_first, without_proof.encode()))
        client_key = hmac.digest(salted, b"Client Key", name)
        client_signature = hmac.digest(hashlib.new(name, client_key).digest(), auth_message, name)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), auth_message, name)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Raises `ServerRejected` where the server does not know the user's credential."""
        attributes = _attributes(server_final)
        if "e" in attributes:
            raise ServerRejected(attributes["e"])
        if not hmac.compare_digest(_base64(attributes.get("v", "")), self._signature):
            raise ServerRejected("the server does not prove that it knows the user's credential")


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = str(message, "utf-8").split(",")
    except UnicodeDecodeError as error:
        raise ServerRejected("a SCRAM message of the server is not UTF-8") from error
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ServerRejected("a SCRAM message of the server has invalid base64") from error
