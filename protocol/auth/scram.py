"""SCRAM, the server's side: two messages of the client, two answers. Keys, salts and nonces are given.

An unknown user has an account with a made-up credential and fails at the last step, with the same work as one whose
password is wrong. Differs from Kafka, which fails at the first step, so that anybody can find out who exists.

Also differs from Kafka: the flag `y` is accepted, user names may have any character of Unicode, the channel binding of
the last message is compared, and extensions that the client calls mandatory (`m=`) are rejected, all as RFC 5802 says.
Source: RFC 5802; Kafka's extension `tokenauth` (KIP-48); org.apache.kafka.common.security.scram.internals.
ScramSaslServer and ScramMessages (Kafka 4.3).
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.auth.sasl_exchange import Accepted, Challenge, SaslIdentity, SaslRejection, Step
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.limits import SASL_NAME_CHARS_MAX

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
"""Printable characters but the comma."""
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[^\x00,]+")
OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramAccount:
    """The knowledge that the server has of a user, or of a delegation token."""

    credential: ScramCredential
    identity: SaslIdentity | None
    """Who the client is once it has proved that it has the password; None for a user that is not known."""


FindAccount = Callable[[str, bool], ScramAccount]
"""Takes a user's name, or a token's id where the flag is true. It finds an account for each, made up where needed."""


class _Malformed(ValueError):
    """The message is not of the form that RFC 5802 gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """The client's first message."""

    gs2_header: str
    authorization_id: str
    bare: str
    user: str
    nonce: str
    is_token: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnsweredFirst:
    """An exchange whose first message was answered."""

    first: _First
    account: ScramAccount
    answer: str


class ScramExchange:
    """The exchange of one client."""

    def __init__(self, mechanism: ScramMechanism, *, find_account: FindAccount, server_nonce: str) -> None:
        """Begin an exchange.

        Args:
            mechanism: names the hash.
            find_account: called once, with the name that the client gives.
            server_nonce: printable characters without a comma, drawn for this exchange alone.
        """
        self._hash_name = mechanism.hash_name
        self._find_account = find_account
        self._server_nonce = server_nonce
        self._pending: _AnsweredFirst | None = None

    def receive(self, token: bytes) -> Step:
        """The answer to the client's first message, then to its last one."""
        user = "" if self._pending is None else self._pending.first.user
        try:
            text = str(token, "utf-8")
            return self._answer_first(text) if self._pending is None else self._answer_final(text, self._pending)
        except UnicodeDecodeError:
            return SaslRejection(reason="a SCRAM message is not UTF-8", user=user)
        except _Malformed as error:
            return SaslRejection(reason=str(error), user=user)

    def checked(self, identity: SaslIdentity | None, reason: str = "") -> Step:
        """Raises `AssertionError`: SCRAM returns no check."""
        del reason
        raise AssertionError(f"SCRAM needs no check; {identity is None}")

    def _answer_first(self, text: str) -> Step:
        first = _read_first(text)
        # As in Kafka: a client may name the user that it acts for, and that is always itself.
        if first.authorization_id not in ("", first.user):
            reason = "the client names another user to act for"
            return SaslRejection(reason=reason, user=first.user, message=OTHER_AUTHORIZATION_ID)
        account = self._find_account(first.user, first.is_token)
        salt = b64encode(account.credential.salt).decode()
        answer = f"r={first.nonce}{self._server_nonce},s={salt},i={account.credential.iterations}"
        self._pending = _AnsweredFirst(first=first, account=account, answer=answer)
        return Challenge(answer.encode())

    def _answer_final(self, text: str, pending: _AnsweredFirst) -> Step:
        first, account = pending.first, pending.account
        without_proof, proof = _read_final(text, first.gs2_header, first.nonce + self._server_nonce)
        auth_message = f"{first.bare},{pending.answer},{without_proof}".encode()
        stored_key = account.credential.stored_key
        is_proved = self._is_proved(stored_key, auth_message, proof)
        signature = hmac.digest(account.credential.server_key, auth_message, self._hash_name)
        if account.identity is None:
            return SaslRejection(reason="the user is not known", user=first.user)
        if not is_proved:
            return SaslRejection(reason="the password is wrong", user=first.user)
        return Accepted(account.identity, b"v=" + b64encode(signature))

    def _is_proved(self, stored_key: bytes, auth_message: bytes, proof: bytes) -> bool:
        client_signature = hmac.digest(stored_key, auth_message, self._hash_name)
        if len(proof) != len(client_signature):
            return False
        client_key = (int.from_bytes(proof) ^ int.from_bytes(client_signature)).to_bytes(len(proof))
        return hmac.compare_digest(hashlib.new(self._hash_name, client_key).digest(), stored_key)


def _read_first(text: str) -> _First:
    flag, _, behind_flag = text.partition(",")
    if flag.startswith("p="):
        raise _Malformed("the client demands channel binding (p=), which no mechanism here has")
    authorization, comma, bare = behind_flag.partition(",")
    if flag not in ("n", "y") or not comma or not (authorization == "" or authorization.startswith("a=")):
        raise _Malformed("a SCRAM exchange does not begin with n, or y,")
    attributes = bare.split(",")
    if attributes[0].startswith("m="):
        raise _Malformed("the client demands an extension (m=), and none is known")
    if len(attributes) < 2 or not attributes[0].startswith("n=") or not attributes[1].startswith("r="):
        raise _Malformed("a SCRAM exchange does not begin with a user and a nonce")
    nonce = attributes[1][2:]
    if not _NONCE.fullmatch(nonce):
        raise _Malformed("a nonce of SCRAM has other than printable characters")
    extensions = _extensions(attributes[2:])
    return _First(
        gs2_header=f"{flag},{authorization},",
        authorization_id=_read_name(authorization[2:]) if authorization else "",
        bare=bare,
        user=_read_name(attributes[0][2:]),
        nonce=nonce,
        is_token=extensions.get("tokenauth", "").lower() == "true",
    )


def _read_final(text: str, gs2_header: str, nonce: str) -> tuple[str, bytes]:
    """The last message without its proof, and the proof."""
    without_proof, marker, proof_text = text.rpartition(",p=")
    attributes = without_proof.split(",")
    channel_binding = "c=" + b64encode(gs2_header.encode()).decode()
    if not marker or attributes[0] != channel_binding:
        raise _Malformed("the last message of SCRAM does not repeat how the exchange began")
    # The nonce is new in each exchange, so a message that was recorded in another one fails here.
    if len(attributes) < 2 or attributes[1] != "r=" + nonce:
        raise _Malformed("the last message of SCRAM has not the nonce of this exchange")
    _extensions(attributes[2:])
    try:
        return without_proof, b64decode(proof_text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise _Malformed("the proof of SCRAM is not base64") from error


def _extensions(attributes: Sequence[str]) -> dict[str, str]:
    """The extensions by their names. Unknown ones are ignored, as RFC 5802 says."""
    extensions: dict[str, str] = {}
    for attribute in attributes:
        if not _EXTENSION.fullmatch(attribute):
            raise _Malformed("an extension of SCRAM is not NAME=VALUE")
        name, _, value = attribute.partition("=")
        extensions[name] = value
    return extensions


def _read_name(text: str) -> str:
    """The name behind a `saslname`, in which =2C is a comma and =3D an equals sign."""
    if not text or len(text) > SASL_NAME_CHARS_MAX or "\0" in text:
        raise _Malformed("a name of SCRAM is empty, or too long")
    if text.count("=") != text.count("=2C") + text.count("=3D"):
        raise _Malformed("a name of SCRAM has an equals sign that is not escaped")
    return text.replace("=2C", ",").replace("=3D", "=")
