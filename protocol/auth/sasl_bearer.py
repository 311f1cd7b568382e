"""OAUTHBEARER, the server's side: one message with a token; or an error, and the client's byte that ends the exchange.

What a token is worth is found out by the caller. Source: RFC 7628, sections 3.1 and 3.2; org.apache.kafka.common.
security.oauthbearer.internals.OAuthBearerSaslServer and OAuthBearerClientInitialResponse (Kafka 4.3).
"""

import re
from typing import Final

from protocol.auth.sasl_exchange import Accepted, BearerCheck, Challenge, SaslIdentity, SaslRejection, Step
from protocol.limits import BEARER_TOKEN_BYTES_MAX

REJECTION: Final = '{"status":"invalid_token"}'
"""The error of RFC 7628, section 3.2.2."""
_CLIENT_ENDS: Final = b"\x01"
"""The answer of a client to an error, so that the exchange can fail."""
_SEPARATOR: Final = "\x01"
_HEADER: Final = re.compile(r"n,(?:a=((?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class BearerExchange:
    """The exchange of one client."""

    def __init__(self) -> None:
        self._authorization_id = ""
        self._is_rejected = False
        self._reason = "the token is not accepted"

    def receive(self, token: bytes) -> Step:
        """The token to check; after an error, the end of the exchange."""
        if self._is_rejected:
            reason = self._reason if token == _CLIENT_ENDS else "the client went on after an error"
            return SaslRejection(reason=reason, message=REJECTION)
        if len(token) > BEARER_TOKEN_BYTES_MAX:
            return SaslRejection(reason=f"a message of OAUTHBEARER is longer than {BEARER_TOKEN_BYTES_MAX} bytes")
        try:
            text = str(token, "ascii")
        except UnicodeDecodeError:
            return SaslRejection(reason="a message of OAUTHBEARER is not ASCII")
        header, *pairs = text.split(_SEPARATOR)
        match = _HEADER.fullmatch(header)
        # The message ends with two separators: one of the last pair, and one of its own.
        if match is None or len(pairs) < 3 or pairs[-2:] != ["", ""]:
            return SaslRejection(reason="a message of OAUTHBEARER has not the form of RFC 7628")
        self._authorization_id = (match[1] or "").replace("=2C", ",").replace("=3D", "=")
        return _read_pairs(pairs[:-2])

    def checked(self, identity: SaslIdentity | None, reason: str = "") -> Step:
        """The end of the exchange, or the error that the client has to answer."""
        if identity is None:
            self._is_rejected = True
            self._reason = reason or self._reason
            return Challenge(REJECTION.encode())
        if self._authorization_id not in ("", identity.name):
            # Kafka's text names both users; what the token says is the client's own, but is kept out of answers here.
            text = "Authentication failed: Client requested an authorization id that is different from the token's user"
            return SaslRejection(reason="the client names another user to act for", user=identity.name, message=text)
        return Accepted(identity)


def _read_pairs(pairs: list[str]) -> Step:
    """The check of the token among the pairs. Others are extensions, which Kafka's broker ignores, too (KIP-342)."""
    bearer = None
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None:
            return SaslRejection(reason="an extension of OAUTHBEARER is not NAME=VALUE")
        if match[1] == "auth":
            bearer = _BEARER.fullmatch(match[2])
    if bearer is None:
        return SaslRejection(reason="a message of OAUTHBEARER has no bearer token")
    return BearerCheck(token=bearer[1])
