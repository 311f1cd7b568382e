"""PLAIN, the server's side: one message with the user and the password.

Source: RFC 4616; org.apache.kafka.common.security.plain.internals.PlainSaslServer (Kafka 4.3), whose texts these are.
"""

from typing import Final

from protocol.auth.sasl_exchange import Accepted, PasswordCheck, SaslIdentity, SaslRejection, Step
from protocol.auth.scram import OTHER_AUTHORIZATION_ID
from protocol.limits import SASL_NAME_CHARS_MAX

_TOKENS: Final = 3
"""The user to act for, the user, the password."""


class PlainExchange:
    """The exchange of one client."""

    def __init__(self) -> None:
        self._authorization_id = ""
        self._user = ""

    def receive(self, token: bytes) -> Step:
        """The password to check."""
        try:
            tokens = str(token, "utf-8").split("\0")
        except UnicodeDecodeError:
            return SaslRejection(reason="a message of PLAIN is not UTF-8")
        if len(tokens) != _TOKENS:
            # Kafka counts no further than four.
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(tokens), _TOKENS + 1)}"
            return SaslRejection(reason="a message of PLAIN has not three parts", message=text)
        self._authorization_id, self._user, password = tokens
        if not self._user:
            return SaslRejection(reason="no user is named", message="Authentication failed: username not specified")
        if len(self._user) > SASL_NAME_CHARS_MAX:
            return SaslRejection(reason="the user's name is too long")
        if not password:
            text = "Authentication failed: password not specified"
            return SaslRejection(reason="no password is given", user=self._user, message=text)
        return PasswordCheck(user=self._user, password=password)

    def checked(self, identity: SaslIdentity | None, reason: str = "") -> Step:
        """The end of the exchange. Why a password is wrong is not said."""
        del reason
        if identity is None:
            text = "Authentication failed: Invalid username or password"
            return SaslRejection(reason="the user is not known or the password is wrong", user=self._user, message=text)
        # Compared after the password, as in Kafka: before it, the answer is the same for all.
        if self._authorization_id not in ("", self._user):
            reason = "the client names another user to act for"
            return SaslRejection(reason=reason, user=self._user, message=OTHER_AUTHORIZATION_ID)
        return Accepted(identity)
