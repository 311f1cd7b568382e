"""A client that logs in, or tries to, and then asks anything: blocking, one request at a time, nothing is repeated.

`ask` takes and gives messages as `tests.support.clients.kafka_requests` does. A `Broken` is a closed connection.
"""

import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from protocol.api_versions import ApiKey
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import (
    AuthenticateAnswer,
    HandshakeAnswer,
    authenticate,
    handshake,
    read_authenticate_answer,
    read_handshake_answer,
)
from tests.support.clients.kafka_requests import Broken, Entity, framed, read_answer, read_frame

ANSWER_SECONDS_MAX = 30.0
ERROR_CODE_AT = 5
"""In an answer whose first field is the code, behind a flexible header."""


@dataclass(frozen=True, slots=True)
class RejectedToken:
    """The answer to CreateDelegationToken where it has an error: its times are -1, which kio does not read."""

    error_code: int


class LoginClient:
    """One connection. With a context it speaks TLS."""

    def __init__(self, bootstrap: str, context: ssl.SSLContext | None = None, *, source: str = "") -> None:
        """`source` is the client's own address. Raises `ssl.SSLError` where TLS fails."""
        host, _, port = bootstrap.rpartition(":")
        own = (source, 0) if source else None
        raw = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX, source_address=own)
        try:
            self.connection = raw if context is None else context.wrap_socket(raw, server_hostname=host)
        except BaseException:
            raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def send(self, frame: bytes | memoryview) -> None:
        """Sends a request that has no length in front."""
        with suppress(BrokenPipeError, ConnectionResetError):  # what was sent before may have been answered
            self.connection.sendall(struct.pack(">i", len(frame)) + bytes(frame))

    def receive(self) -> bytes:
        """The next answer. Raises `Broken`."""
        try:
            return read_frame(self.connection)
        except (ssl.SSLError, ConnectionError) as error:
            raise Broken(f"the connection was closed: {error}") from error

    def exchange(self, frame: bytes | memoryview) -> bytes:
        """The answer to a request that has no length in front. Raises `Broken`."""
        self.send(frame)
        return self.receive()

    def is_closed(self) -> bool:
        """Whether the agent closes the connection without a further answer."""
        try:
            self.receive()
        except Broken:
            return True
        return False

    def shake_hands(self, mechanism: str, version: int = 1) -> HandshakeAnswer:
        """SaslHandshake. Raises `Broken`."""
        return read_handshake_answer(self.exchange(handshake(mechanism, version)))

    def authenticate(self, token: bytes) -> AuthenticateAnswer:
        """SaslAuthenticate. Raises `Broken`."""
        return read_authenticate_answer(self.exchange(authenticate(token)))

    def log_in(self, user: str, password: str | None = None) -> AuthenticateAnswer:
        """The answer to a login by PLAIN. A password that is not given is the name."""
        assert self.shake_hands("PLAIN").error_code == 0
        return self.authenticate(plain_token(user, user if password is None else password))

    def log_in_by_scram(self, client: DrawnScramClient) -> AuthenticateAnswer:
        """The last answer to a login by SCRAM."""
        assert self.shake_hands(client.mechanism.sasl_name).error_code == 0
        return self.log_in_by_scram_started(client)

    def log_in_by_scram_started(self, client: DrawnScramClient) -> AuthenticateAnswer:
        """The last answer to SCRAM behind SaslHandshake."""
        first = self.authenticate(client.first())
        return first if first.error_code else self.authenticate(client.final(first.token))

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Entity:
        """The answer, as kio's entity. Raises `Broken`."""
        self.send_request(api_key, version, values)
        return self.receive_answer(api_key, version)

    def send_request(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        """Sends a request whose answer is read later."""
        self.connection.sendall(framed(api_key, version, values))

    def receive_answer(self, api_key: int, version: int) -> Entity:
        """The answer to a request that was sent. Raises `Broken`."""
        return decode_answer(self.receive(), api_key, version)

    @property
    def is_served(self) -> bool:
        """Whether the agent answers a request that only clients who are logged in may send."""
        try:
            self.ask(ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False})
        except Broken:
            return False
        return True


def decode_answer(frame: bytes, api_key: int, version: int) -> Entity:
    """The answer in a frame, as kio's entity."""
    if api_key == ApiKey.CREATE_DELEGATION_TOKEN:
        (error_code,) = struct.unpack_from(">h", frame, ERROR_CODE_AT)
        if error_code:
            return RejectedToken(error_code)
    return read_answer(frame, api_key, version)


def plain_token(user: str, password: str, authorized: str = "") -> bytes:
    """The message of PLAIN (RFC 4616)."""
    return f"{authorized}\0{user}\0{password}".encode()


def error_codes(answer: Entity) -> list[int]:
    """All error codes in an answer, the outer ones first."""
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return [code for each in answer for code in error_codes(each)]
    fields = getattr(answer, "__dataclass_fields__", {})
    own = [int(getattr(answer, name)) for name in fields if name.endswith("error_code")]
    inner = [name for name in fields if not name.endswith("error_code")]
    return own + [code for name in inner for code in error_codes(getattr(answer, name))]
