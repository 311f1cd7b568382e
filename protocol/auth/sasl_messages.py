"""SaslHandshake and SaslAuthenticate: requests read and responses written, without the schemas of all messages.

These are the only bodies that are read before a client has authenticated, besides ApiVersions.
Specification: https://kafka.apache.org/protocol#The_Messages_SaslHandshake and The_Messages_SaslAuthenticate (KIP-43,
KIP-152, KIP-368).
"""

from collections.abc import Sequence
from typing import Final

from protocol.api_versions import ApiKey, range_of
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode, MalformedRequest
from protocol.wire import (
    INT16,
    INT32,
    INT64,
    UNREADABLE,
    pack_length,
    pack_string,
    pack_tagged_fields,
    read_bytes,
    read_string,
    read_tagged_fields,
)

FIRST_WITH_LIFETIME: Final = 1
"""The first version of SaslAuthenticate whose response has the lifetime of the session."""


def read_handshake(frame: RequestFrame) -> str:
    """The mechanism that a SaslHandshake asks for. Raises `MalformedRequest`."""
    try:
        mechanism, _ = read_string(frame.body, 0, is_flexible=False)
    except UNREADABLE as error:
        raise MalformedRequest(f"SaslHandshake cannot be read: {error}") from error
    return mechanism


def read_authenticate(frame: RequestFrame) -> bytes:
    """The token of a SaslAuthenticate. Raises `MalformedRequest`."""
    is_flexible = _is_flexible(frame)
    try:
        token, position = read_bytes(frame.body, 0, is_flexible=is_flexible)
        if token is None:
            raise MalformedRequest("SaslAuthenticate has null instead of a token")
        if is_flexible:
            read_tagged_fields(frame.body, position)
    except UNREADABLE as error:
        raise MalformedRequest(f"SaslAuthenticate cannot be read: {error}") from error
    return bytes(token)


def write_handshake(frame: RequestFrame, error_code: ErrorCode, mechanisms: Sequence[str]) -> bytes:
    """The response to a SaslHandshake, with its header."""
    names = b"".join(pack_string(mechanism, is_flexible=False) for mechanism in mechanisms)
    return INT32.pack(frame.correlation_id) + INT16.pack(error_code) + INT32.pack(len(mechanisms)) + names


def write_authenticate(
    frame: RequestFrame, error_code: ErrorCode, *, message: str | None = None, token: bytes = b"", lifetime_ms: int = 0
) -> bytes:
    """The response to a SaslAuthenticate, with its header.

    `lifetime_ms` is for how long the session lasts; 0 where the exchange goes on, or the session has no end.
    """
    is_flexible = _is_flexible(frame)
    return b"".join(
        (
            INT32.pack(frame.correlation_id),
            pack_tagged_fields([]) if is_flexible else b"",
            INT16.pack(error_code),
            pack_string(message, is_flexible=is_flexible),
            pack_length(len(token), is_flexible=is_flexible),
            token,
            INT64.pack(lifetime_ms) if frame.api_version >= FIRST_WITH_LIFETIME else b"",
            pack_tagged_fields([]) if is_flexible else b"",
        )
    )


def _is_flexible(frame: RequestFrame) -> bool:
    served = range_of(ApiKey.SASL_AUTHENTICATE)
    assert served is not None
    return served.is_flexible(frame.api_version)
