"""Frames that a client sends before it has authenticated, without their size, and the answers that it reads."""

import struct
from dataclasses import dataclass

from protocol.wire import pack_length, pack_string, pack_tagged_fields, read_bytes, read_nullable_string

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 18, 17, 36, 3
CORRELATION_ID = 7


def header(api_key: int, version: int, *, is_flexible: bool = False) -> bytes:
    """A request header, of the client "c"."""
    start = struct.pack(">hhi", api_key, version, CORRELATION_ID) + pack_string("c", is_flexible=False)
    return start + (pack_tagged_fields([]) if is_flexible else b"")


def api_versions(version: int = 3, name: str = "test-client") -> memoryview:
    """An ApiVersions request."""
    if version < 3:
        return memoryview(header(API_VERSIONS, version))
    names = pack_string(name, is_flexible=True) + pack_string("1.0", is_flexible=True)
    return memoryview(header(API_VERSIONS, version, is_flexible=True) + names + pack_tagged_fields([]))


def handshake(mechanism: str, version: int = 1) -> memoryview:
    """A SaslHandshake request."""
    return memoryview(header(SASL_HANDSHAKE, version) + pack_string(mechanism, is_flexible=False))


def authenticate(token: bytes, version: int = 2) -> memoryview:
    """A SaslAuthenticate request."""
    is_flexible = version >= 2
    body = pack_length(len(token), is_flexible=is_flexible) + token
    end = pack_tagged_fields([]) if is_flexible else b""
    return memoryview(header(SASL_AUTHENTICATE, version, is_flexible=is_flexible) + body + end)


def metadata() -> memoryview:
    """A Metadata request for all topics."""
    return memoryview(header(METADATA, 1) + struct.pack(">i", -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeAnswer:
    """What a client reads of SaslHandshake."""

    error_code: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateAnswer:
    """What a client reads of SaslAuthenticate."""

    error_code: int
    message: str | None
    token: bytes
    lifetime_ms: int


def read_handshake_answer(answer: bytes) -> HandshakeAnswer:
    """Reads an answer to SaslHandshake, with its header."""
    correlation_id, error_code, count = struct.unpack_from(">ihi", answer)
    assert correlation_id == CORRELATION_ID
    position, mechanisms = 10, list[str]()
    for _ in range(count):
        mechanism, position = read_nullable_string(memoryview(answer), position, is_flexible=False)
        assert mechanism is not None
        mechanisms.append(mechanism)
    assert position == len(answer)
    return HandshakeAnswer(error_code=error_code, mechanisms=tuple(mechanisms))


def read_authenticate_answer(answer: bytes, version: int = 2) -> AuthenticateAnswer:
    """Reads an answer to SaslAuthenticate, with its header."""
    is_flexible = version >= 2
    view = memoryview(answer)
    assert struct.unpack_from(">i", view) == (CORRELATION_ID,)
    position = 5 if is_flexible else 4
    (error_code,) = struct.unpack_from(">h", view, position)
    message, position = read_nullable_string(view, position + 2, is_flexible=is_flexible)
    token, position = read_bytes(view, position, is_flexible=is_flexible)
    lifetime_ms = 0
    if version >= 1:
        (lifetime_ms,) = struct.unpack_from(">q", view, position)
        position += 8
    assert token is not None
    assert position + is_flexible == len(answer)
    return AuthenticateAnswer(error_code=error_code, message=message, token=bytes(token), lifetime_ms=lifetime_ms)
