"""TLS between sockets and a connection's protocol, with Python's own TLS client on the other side."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agent.config.tls_settings import read_tls
from agent.runtime.clock import SystemClock
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_events import AuditEvent, AuditSource, AuthenticationEvent
from agent.security.connections.fair_places import FairPlaces
from agent.security.tls.certificate_principals import UnnamedPrincipal
from agent.security.tls.tls_files import ListenerTls
from agent.security.tls.tls_handshakes import TlsHandshakes
from agent.security.tls.tls_transport import TlsTransport
from protocol.auth.tls_session import TlsSession
from tests.support.agent.server_peers import until
from tests.support.certificates import TestAuthority

MIB = 1 << 20


class Echo(asyncio.BufferedProtocol):
    """Sends back all that it receives, in parts of several sizes; counts how it is called."""

    def __init__(self) -> None:
        self.buffer = bytearray(1000)
        self.events: list[str] = []
        self.transport: asyncio.Transport | None = None
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        self.received += nbytes
        data = bytes(self.buffer[:nbytes])
        self.transport.writelines([data[:3], data[3:10], data[10:]])

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Listener:
    """A listener that encrypts; `apps` are the protocols of its connections."""

    def __init__(self, authority: TestAuthority, new_app: Callable[[], asyncio.BaseProtocol], places_max: int) -> None:
        files = authority.issue("server")
        tls = read_tls("SSL", {}, {"tls-cert": str(files.cert), "tls-key": str(files.key)})
        self.tls = ListenerTls(tls, SystemClock().now_ms() / 1000)
        self.metrics = Metrics()
        self.handshakes = TlsHandshakes(self.metrics, FairPlaces(places_max))
        self.new_app = new_app
        self.apps: list[asyncio.BaseProtocol] = []
        self.transports: list[TlsTransport] = []
        self.sessions_made = 0
        self.port = 0
        self.client = ssl.create_default_context(cafile=authority.ca_path)

    def accept(self) -> TlsTransport:
        def make(_: ssl.SSLObject) -> asyncio.BufferedProtocol:
            app = self.new_app()
            self.apps.append(app)
            return app  # type: ignore[return-value]

        def new_session() -> TlsSession:
            self.sessions_made += 1
            return TlsSession(self.tls.context)

        transport = TlsTransport(make, new_session, self.handshakes, listener="SSL")
        self.transports.append(transport)
        return transport

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.client, server_hostname="localhost", limit=MIB
        )

    def failures(self, reason: str = "handshake") -> float:
        name = "penstock_connections_closed_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason}) or 0.0


@asynccontextmanager
async def listening(
    tmp_path: Path, new_app: Callable[[], asyncio.BaseProtocol] = Echo, *, places_max: int = 100
) -> AsyncIterator[Listener]:
    listener = Listener(TestAuthority(folder=tmp_path), new_app, places_max)
    server = await asyncio.get_running_loop().create_server(listener.accept, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
        for transport in listener.transports:
            transport.abort()
        listener.handshakes.abort()
        await asyncio.wait_for(server.wait_closed(), 10)


async def test_bytes_come_back_in_order(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        reader, writer = await listener.connect()
        for data in (b"x", bytes(range(256)) * 3, b"ab" * 200_000):
            writer.write(data)
            async with asyncio.timeout(10):
                assert await reader.readexactly(len(data)) == data
        app = listener.apps[0]
        assert isinstance(app, Echo)
        assert app.transport is not None
        assert app.transport.get_extra_info("peername")[0] == "127.0.0.1"
        assert app.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()
        await until(lambda: "lost" in app.events)
        assert app.events[0] == "made"


class Lines(asyncio.Protocol):
    """A protocol of the other kind, which gets bytes; it closes after one answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())  # type: ignore[attr-defined]
        self.transport.close()


async def test_a_protocol_that_takes_bytes_is_served_and_a_close_sends_what_was_written(tmp_path: Path) -> None:
    async with listening(tmp_path, Lines) as listener:
        reader, writer = await listener.connect()
        writer.write(b"hello")
        async with asyncio.timeout(10):
            assert await reader.read() == b"HELLO"
        writer.close()


class Source(Echo):
    """Sends a large answer at once, then closes."""

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        self.transport.writelines([b"head", bytes(8 * MIB)])
        self.unread = self.transport.get_write_buffer_size()
        self.transport.close()


async def test_what_the_peer_does_not_read_counts_and_is_sent_before_a_close(tmp_path: Path) -> None:
    async with listening(tmp_path, Source) as listener:
        reader, writer = await listener.connect()
        writer.write(b"?")
        await until(lambda: bool(listener.apps) and hasattr(listener.apps[0], "unread"))
        app = listener.apps[0]
        assert isinstance(app, Source)
        assert "pause" in app.events
        transport = listener.transports[0]
        assert 0 < transport.get_write_buffer_size() <= 9 * MIB
        assert app.unread == transport._backlog_bytes + transport._tcp.get_write_buffer_size()
        received = 0
        async with asyncio.timeout(20):
            while data := await reader.read(MIB):
                received += len(data)
        assert received == 8 * MIB + 4
        await until(lambda: "lost" in app.events)
        assert transport.get_write_buffer_size() == 0


async def test_a_paused_connection_gets_nothing_and_goes_on_when_it_reads_again(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        reader, writer = await listener.connect()
        writer.write(b"1")
        assert await reader.readexactly(1) == b"1"
        app = listener.apps[0]
        assert isinstance(app, Echo)
        assert app.transport is not None
        app.transport.pause_reading()
        writer.write(b"2" * 100_000)
        await writer.drain()
        assert app.received == 1
        app.transport.resume_reading()
        app.transport.resume_reading()
        async with asyncio.timeout(10):
            assert await reader.readexactly(100_000) == b"2" * 100_000
        writer.close()


class OneByOne(Echo):
    """Pauses within each delivery: the rest waits, decrypted or not, until it reads again."""

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        super().buffer_updated(nbytes)
        self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self.transport.resume_reading)


async def test_a_connection_that_pauses_within_a_delivery_loses_nothing(tmp_path: Path) -> None:
    async with listening(tmp_path, OneByOne) as listener:
        reader, writer = await listener.connect()
        data = bytes(range(256)) * 200
        writer.write(data)
        async with asyncio.timeout(10):
            assert await reader.readexactly(len(data)) == data
        writer.close()


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(99)]
)
async def test_a_stranger_is_closed_and_counted(tmp_path: Path, data: bytes) -> None:
    async with listening(tmp_path) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(10):
            await reader.read()
        await until(lambda: bool(listener.transports) and listener.transports[0].is_closing())
        assert listener.apps == []
        writer.close()


async def test_a_handshake_that_takes_too_long_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TlsTransport, "handshake_seconds_max", 0.05)
    async with listening(tmp_path) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        assert listener.failures() == 1
        assert listener.handshakes.open_count == 0
        writer.close()


async def closed_at_once(listener: Listener, sent: bytes = b"") -> None:
    """Passes where a new connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    with suppress(ConnectionError):
        writer.write(sent)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    writer.close()


async def test_a_stranger_beyond_all_places_is_closed(tmp_path: Path) -> None:
    async with listening(tmp_path, places_max=1) as listener:
        _, silent = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: len(listener.transports) == 1)
        await closed_at_once(listener)
        assert listener.failures() == 1
        assert listener.handshakes.strangers.count == 1
        silent.close()
        await until(lambda: listener.handshakes.strangers.count == 0)


async def test_handshakes_that_have_begun_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.security.tls.tls_handshakes.TLS_HANDSHAKES_BEGUN_MAX", 1)
    async with listening(tmp_path) as listener:
        _, silent = await asyncio.open_connection("127.0.0.1", listener.port)
        _, slow = await asyncio.open_connection("127.0.0.1", listener.port)
        first_byte = b"\x16"
        slow.write(first_byte)
        await until(lambda: listener.sessions_made == 1)
        await closed_at_once(listener, first_byte)
        assert listener.failures() == 1
        slow.close()
        await until(lambda: listener.handshakes.open_count == 1)
        reader, writer = await listener.connect()
        writer.write(b"hello")
        async with asyncio.timeout(10):
            assert await reader.readexactly(5) == b"hello"
        for each in (silent, writer):
            each.close()


def test_what_is_not_done_is_counted_and_ends_with_the_agent() -> None:
    class Shaking:
        address = "192.0.2.1"
        is_open = True

        def abort(self) -> None:
            self.is_open = False

        def give_way(self) -> None: ...

    metrics = Metrics()
    handshakes = TlsHandshakes(metrics, FairPlaces(2))
    shaking = [Shaking() for _ in range(3)]
    assert [handshakes.begin(each) for each in shaking] == [True, True, False]
    assert metrics.registry.get_sample_value("penstock_tls_handshakes_unfinished") == 2
    handshakes.abort()
    assert [each.is_open for each in shaking] == [False, False, True]


async def test_a_handshake_that_failed_is_an_event(tmp_path: Path) -> None:
    events: list[AuditEvent] = []
    async with listening(tmp_path) as listener:
        listener.handshakes.record = events.append
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.read()
        await until(lambda: bool(events))
        writer.close()
    source = AuditSource(mechanism="TLS", host="127.0.0.1", listener="SSL")
    reason = "the client speaks HTTP without TLS"
    assert events == [AuthenticationEvent(source=source, api="TLS handshake", is_success=False, reason=reason)]


async def test_steps_beyond_the_queue_are_closed_and_those_in_it_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.security.tls.tls_handshakes.TLS_HANDSHAKES_UNDER_WAY_MAX", 1)
    async with listening(tmp_path) as listener:
        pairs = await asyncio.gather(*(listener.connect() for _ in range(5)))
        await until(lambda: len(listener.apps) == 5)
        for _, writer in pairs:
            writer.close()
        monkeypatch.setattr("agent.security.tls.tls_handshakes.TLS_HANDSHAKES_UNDER_WAY_MAX", 0)
        monkeypatch.setattr("agent.security.tls.tls_handshakes.TLS_HANDSHAKES_WAITING_MAX", 0)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await listener.connect()
        assert listener.failures() == 1


async def test_a_client_that_no_rule_names_is_closed(tmp_path: Path) -> None:
    def reject() -> asyncio.BaseProtocol:
        raise UnnamedPrincipal("no rule matches")

    async with listening(tmp_path, reject) as listener:
        reader, writer = await listener.connect()
        async with asyncio.timeout(10):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        assert listener.failures() == 1
        writer.close()


async def test_changed_bytes_end_the_connection(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        reader, writer = await listener.connect()
        writer.write(b"1")
        await reader.readexactly(1)
        transport = listener.transports[0]
        transport.get_buffer(-1)[:30] = b"\x17\x03\x03\x00\x19" + bytes(25)
        transport.buffer_updated(30)
        assert transport.is_closing()
        assert listener.failures("tls") == 1
        transport.write(b"unsent")
        transport.close()
        writer.close()
