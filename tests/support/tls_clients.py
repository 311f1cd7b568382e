"""The client's side of TLS without sockets, for tests of the server's side."""

import ssl
from contextlib import suppress

from protocol.auth.tls_session import TlsSession


class MemoryClient:
    """A client between two BIOs: what it sends is in `sent`, what it receives goes through `receive`."""

    def __init__(self, context: ssl.SSLContext, host: str = "localhost") -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def shake_hands(self) -> bool:
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def write(self, data: bytes) -> bytes:
        """The encrypted bytes."""
        view = memoryview(data)
        while view:
            view = view[self.ssl_object.write(view) :]
        return self.sent()

    def sent(self) -> bytes:
        return self._outgoing.read()

    def close(self) -> bytes:
        """The encrypted end."""
        with suppress(ssl.SSLError):
            self.ssl_object.unwrap()
        return self.sent()

    def receive(self, data: bytes) -> bytes:
        """The decrypted bytes that are there now."""
        self._incoming.write(data)
        parts = []
        try:
            while part := self.ssl_object.read(1 << 16):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(parts)

    def take(self, data: bytes) -> None:
        self._incoming.write(data)


def shake_hands(client: MemoryClient, session: TlsSession) -> None:
    """Do the whole handshake of both sides."""
    is_client_done = is_server_done = False
    while not (is_client_done and is_server_done):
        is_client_done = is_client_done or client.shake_hands()
        session.receive_data(client.sent())
        is_server_done = is_server_done or session.shake_hands()
        client.take(session.data_to_send())
