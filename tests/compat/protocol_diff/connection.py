"""One blocking connection to a broker: dicts out, dicts in."""

import socket
import struct
from typing import Any

from tests.compat.protocol_diff.logins import Login
from tests.compat.protocol_diff.messages import Definitions, Reader, Writer

CLIENT_ID = "protocol-diff"
BODY_OF_VERSIONS = 4
"""Where the body of an ApiVersions response begins: its header has no tagged fields in any version."""


class Connection:
    """`send` and `read`, or `call` for both. One request at a time is awaited."""

    def __init__(
        self,
        bootstrap: str,
        definitions: Definitions,
        timeout_s: float,
        client_id: str = CLIENT_ID,
        login: Login | None = None,
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._definitions = definitions
        self._client_id = client_id.encode()
        self._correlation_id = 0
        if login is not None:
            self._log_in(login)

    def close(self) -> None:
        self._socket.close()

    def _log_in(self, login: Login) -> None:
        for api, version, body in (
            ("SaslHandshake", 1, {"Mechanism": "PLAIN"}),
            ("SaslAuthenticate", 2, {"AuthBytes": login.token}),
        ):
            answer = self.call(api, version, body)
            if answer["ErrorCode"] != 0:
                raise ConnectionError(f"{login.name} cannot log in: {answer}")
        self._correlation_id = 0

    def send(self, api: str, version: int, body: dict[str, Any]) -> None:
        self.send_raw(api, version, Writer(self._definitions.request(api), version).encode(body))

    def send_raw(self, api: str, version: int, payload: bytes, api_key: int | None = None) -> None:
        """Send a body that is encoded already under this API's header, or under another key."""
        self._correlation_id += 1
        key = self._definitions.request(api)["apiKey"] if api_key is None else api_key
        head = struct.pack(">hhih", key, version, self._correlation_id, len(self._client_id)) + self._client_id
        if self._definitions.is_flexible(api, version):
            head += b"\0"
        self._socket.sendall(struct.pack(">i", len(head) + len(payload)) + head + payload)

    def read(self, api: str, version: int) -> dict[str, Any]:
        """The answer to the request sent last. Raises `OSError`, and `ValueError` for what cannot be read."""
        data = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        if struct.unpack(">i", data[:4])[0] != self._correlation_id:
            raise ValueError("another request's answer")
        response = self._definitions.response(api)
        if api != "ApiVersions":
            at = 5 if self._definitions.is_flexible(api, version) else 4
            return Reader(response, version, data, at).decode()
        try:
            return Reader(response, version, data, BODY_OF_VERSIONS).decode()
        except (ValueError, KeyError):  # an unknown version is answered in version 0 (KIP-511)
            return Reader(response, 0, data, BODY_OF_VERSIONS).decode()

    def call(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        self.send(api, version, body)
        return self.read(api, version)

    def _exactly(self, count: int) -> bytes:
        out = bytearray()
        while len(out) < count:
            part = self._socket.recv(count - len(out))
            if not part:
                raise ConnectionError("the broker closed the connection")
            out += part
        return bytes(out)
