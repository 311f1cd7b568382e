"""Sends drawn handshakes and records to `TlsSession`: it fails by `TlsFailed` alone, and makes up no byte.

Rules: what is decrypted is the beginning of what the client wrote; what is sent for one flight is bounded; sessions
that are over leave no memory behind. OpenSSL's memory is no Python object, so the process's is measured.
"""

import ssl
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocol.auth.tls_session import TlsFailed, TlsSession
from protocol.limits import MIB
from tests.logins.tls_draw import TlsDrawing
from tests.support.certificates import TestAuthority
from tests.support.processes import resident_bytes
from tests.support.tls_clients import MemoryClient

ANSWER_BYTES_MAX: Final = 16 * 1024
"""For one flight: the certificates, two tickets and alerts."""
HELD_BYTES_MAX: Final = 48 * MIB
"""What the process may have grown by, between the first thousandth of the exchanges and the last."""
FLIGHTS_MAX: Final = 12
"""Of one exchange."""


class TlsFault(AssertionError):
    """A session broke a rule."""


def _contexts(folder: Path) -> tuple[ssl.SSLContext, tuple[ssl.SSLContext, ...]]:
    """A server's context, which asks for certificates, and those of clients."""
    authority = TestAuthority(folder=folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = authority.issue("server")
    server.load_cert_chain(files.cert, files.key)
    server.load_verify_locations(authority.ca_path)
    server.verify_mode = ssl.CERT_OPTIONAL
    client_files = authority.issue("client", "client@example.org", common_name="client")
    clients: list[ssl.SSLContext] = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for has_certificate in (False, True):
            context = ssl.create_default_context(cafile=authority.ca_path)
            context.maximum_version = version
            if has_certificate:
                context.load_cert_chain(client_files.cert, client_files.key)
            clients.append(context)
    return server, tuple(clients)


@dataclass(slots=True)
class TlsSweep:
    """The exchanges of one seed."""

    seed: int
    frames_count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, frames: int) -> str:
        """Sends so many flights and records. Raises `TlsFault`; returns what came of them."""
        with tempfile.TemporaryDirectory() as folder:
            server, clients = _contexts(Path(folder))
        drawing, exchanges, before = TlsDrawing(self.seed, clients), 0, 0
        while self.frames_count < frames:
            if not before and self.frames_count >= frames // 10:
                before = resident_bytes()
            self._exchange(server, drawing)
            exchanges += 1
        grown = resident_bytes() - before
        if grown > HELD_BYTES_MAX:
            raise TlsFault(f"seed {self.seed}: {exchanges} exchanges left {grown} bytes behind")
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.outcomes.items()))
        text = f"{self.frames_count} flights of TLS in {exchanges} exchanges, seed {self.seed}: {counts}"
        return f"{text}; {grown >> 10} KiB more in memory"

    def _exchange(self, server: ssl.SSLContext, drawing: TlsDrawing) -> None:
        session, client = TlsSession(server), drawing.client()
        written = received = b""
        is_done = False
        buffer = memoryview(bytearray(1 << 16))
        for _ in range(FLIGHTS_MAX):
            if is_done and drawing.chance(2):
                payload = drawing.payload()
                flight = self._written(client, payload)
                written += payload
            else:
                flight = self._shaken(client)
            session.receive_data(drawing.mutated(flight))
            self.frames_count += 1
            try:
                is_done = is_done or session.shake_hands()
                while is_done and (count := session.read_into(buffer)):
                    received += buffer[:count]
                if is_done and drawing.chance(3):
                    session.write(b"answer")
            except TlsFailed as failure:
                self.outcomes["failed"] += bool(str(failure))
                self._sent(session)
                break
            except Exception as error:
                raise TlsFault(f"seed {self.seed}, flight {self.frames_count}: {error!r}") from error
            if not written.startswith(received):
                raise TlsFault(f"seed {self.seed}, flight {self.frames_count}: bytes were decrypted that nobody wrote")
            client.take(self._sent(session))
            if session.is_ended or drawing.chance(8):
                break
        self.outcomes["shaken" if is_done else "not shaken"] += 1
        session.close()
        self._sent(session)

    def _sent(self, session: TlsSession) -> bytes:
        answer = session.data_to_send()
        if len(answer) > ANSWER_BYTES_MAX:
            raise TlsFault(f"seed {self.seed}, flight {self.frames_count}: {len(answer)} bytes for one flight")
        return answer

    @staticmethod
    def _shaken(client: MemoryClient) -> bytes:
        """What the client sends next; nothing where it has failed."""
        try:
            client.shake_hands()
        except ssl.SSLError:
            return b""
        return client.sent()

    @staticmethod
    def _written(client: MemoryClient, payload: bytes) -> bytes:
        try:
            return client.write(payload)
        except ssl.SSLError:
            return b""
