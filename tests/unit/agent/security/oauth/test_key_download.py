"""One request for keys: what its server may answer, and what is no answer."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from agent.config.oauth_settings import KeySource
from agent.runtime.clock import SystemClock
from agent.security.oauth.key_download import IssuerUnavailable, download_keys
from tests.support.certificates import TestAuthority

SECONDS_MAX = 10
IMPATIENT_SECONDS = 0.2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(folder=tmp_path_factory.mktemp("server"))


@contextmanager
def server(authority: TestAuthority, answer: bytes | None) -> Iterator[str]:
    """A server that sends these bytes to whoever asks and closes the connection; its URL. None for no answer."""
    files = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # the client has gone, or nobody came
            connection, _ = listening.accept()
            with connection:
                if answer is None:
                    connection.settimeout(2 * IMPATIENT_SECONDS)
                    while connection.recv(4096):
                        pass
                    return
                encrypted = context.wrap_socket(connection, server_side=True)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += encrypted.recv(4096)
                assert head.startswith(b"GET /keys?v=1 HTTP/1.1\r\nHost: localhost:")
                encrypted.sendall(answer)
                encrypted.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{listening.getsockname()[1]}/keys?v=1"
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


async def download(authority: TestAuthority, answer: bytes) -> str:
    with server(authority, answer) as url:
        return await download_keys(KeySource(url=url, authorities=authority.ca_path), SystemClock())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    ],
)
async def test_a_document_is_read(authority: TestAuthority, answer: bytes) -> None:
    assert await download(authority, answer) == "{}"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "cannot be read"),
        (b"220 mail\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "cannot be read: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "cannot be read: UnicodeDecodeError"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://localhost/\r\n\r\n", "status 302"),
        (b"HTTP/1.1 503 Away\r\n\r\n", "status 503"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 21), "longer than 1048576 bytes"),
    ],
)
async def test_anything_else_is_no_document(authority: TestAuthority, answer: bytes, message: str) -> None:
    with pytest.raises(IssuerUnavailable, match=message):
        await download(authority, answer)


async def test_a_server_of_another_authority_is_not_believed(
    authority: TestAuthority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = TestAuthority(folder=tmp_path_factory.mktemp("other"))
    with server(authority, b"") as url, pytest.raises(IssuerUnavailable, match="certificate is not trusted"):
        await download_keys(KeySource(url=url, authorities=other.ca_path), SystemClock())
    with server(authority, b"") as url, pytest.raises(IssuerUnavailable, match="certificate is not trusted"):
        await download_keys(KeySource(url=url), SystemClock())


async def test_a_server_that_is_not_there_is_away(authority: TestAuthority) -> None:
    with server(authority, b"") as url:
        pass
    with pytest.raises(IssuerUnavailable, match="ConnectionRefusedError"):
        await download_keys(KeySource(url=url, authorities=authority.ca_path), SystemClock())


class ImpatientClock(SystemClock):
    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        assert seconds == SECONDS_MAX
        return asyncio.timeout(IMPATIENT_SECONDS)


async def test_a_server_that_does_not_answer_is_away(authority: TestAuthority) -> None:
    with server(authority, None) as url, pytest.raises(IssuerUnavailable, match="no answer within 10 s"):
        await download_keys(KeySource(url=url, authorities=authority.ca_path), ImpatientClock())
