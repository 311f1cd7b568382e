"""JSON Web Tokens in compact form: taken apart, with nothing believed yet. Pure.

Rule: what a stranger sends raises `InvalidToken` or is a `WebToken`; no other error comes out. A name that an object
has twice is rejected, since readers of such an object disagree about its value.
Source: RFC 7515, sections 3.1, 4.1 and 7.1; RFC 7519, section 3; RFC 8725.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from protocol.limits import BEARER_TOKEN_BYTES_MAX

JsonObject = Mapping[str, object]
_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


class InvalidToken(Exception):
    """The token proves nothing. The message is for logs and the audit: it has nothing that the token says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebToken:
    """The parts of a token. Believe `claims` only once its signature is verified."""

    algorithm: str
    key_id: str | None
    """None where the token names no key."""
    claims: JsonObject = field(repr=False)
    signed: bytes = field(repr=False)
    """The bytes that the signature is for."""
    signature: bytes = field(repr=False)


def has_token_form(text: str) -> bool:
    """Whether a text has three parts as a JSON Web Token has."""
    return _COMPACT.fullmatch(text) is not None


def read_web_token(text: str) -> WebToken:
    """Takes a token apart. Raises `InvalidToken`."""
    if len(text) > BEARER_TOKEN_BYTES_MAX:
        raise InvalidToken(f"the token is longer than {BEARER_TOKEN_BYTES_MAX} characters")
    match = _COMPACT.fullmatch(text)
    if match is None:
        raise InvalidToken("the token is no signed JSON Web Token in compact form")
    header = _read_object(match[1], "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise InvalidToken("the token's header has no algorithm")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("the token's header has a key id that is no text")
    if "crit" in header:  # extensions that have to be understood, and none is (RFC 7515, section 4.1.11)
        raise InvalidToken("the token's header names critical extensions")
    if str(header.get("cty")).lower() == "jwt":  # the payload is another token (RFC 7519, section 5.2)
        raise InvalidToken("the token holds another token")
    return WebToken(
        algorithm=algorithm,
        key_id=key_id,
        claims=_read_object(match[2], "payload"),
        signed=f"{match[1]}.{match[2]}".encode(),
        signature=_decode(match[3], "signature"),
    )


def read_json_object(text: str) -> JsonObject:
    """The object of a JSON text. Raises `ValueError`, also for a name that an object has twice."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def _read_object(part: str, name: str) -> JsonObject:
    try:
        return read_json_object(_decode(part, name).decode())
    except ValueError as error:
        raise InvalidToken(f"the token's {name} is no JSON object") from error


def _decode(part: str, name: str) -> bytes:
    if len(part) % 4 == 1:
        raise InvalidToken(f"the token's {name} is not base64url")
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _without_repetition(pairs: list[tuple[str, object]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is there twice")
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
