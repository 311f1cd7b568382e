"""The server's side of TLS without I/O, against Python's own client."""

import ssl
from pathlib import Path

import pytest

from protocol.auth.tls_session import TlsFailed, TlsSession, reason_of
from tests.support.certificates import TestAuthority
from tests.support.tls_clients import MemoryClient, shake_hands

HELLO = b"hello"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(folder=tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server_context(authority: TestAuthority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("server").both)
    return context


@pytest.fixture
def client_context(authority: TestAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca_path)


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"])
def pair(
    request: pytest.FixtureRequest, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> tuple[MemoryClient, TlsSession]:
    client_context.maximum_version = request.param
    client, session = MemoryClient(client_context), TlsSession(server_context)
    shake_hands(client, session)
    return client, session


def read(session: TlsSession, size: int = 1 << 17) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: session.read_into(memoryview(buffer))])


def test_bytes_go_both_ways(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    session.receive_data(client.write(HELLO))
    assert read(session) == HELLO
    session.write(HELLO)
    assert client.receive(session.data_to_send()) == HELLO
    assert session.data_to_send() == b""
    assert not session.has_unread


def test_a_large_text_is_cut_into_records(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    text = bytes(range(256)) * 400
    session.write(memoryview(text))
    assert client.receive(session.data_to_send()) == text
    session.receive_data(client.write(text))
    assert session.has_unread
    assert read(session, 1000) == text[:1000]
    assert session.has_unread
    assert read(session) == text[1000:]


def test_half_a_record_gives_nothing(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    sent = client.write(HELLO)
    session.receive_data(sent[:-1])
    assert read(session) == b""
    session.receive_data(sent[-1:])
    assert read(session) == HELLO


def test_the_end_comes_behind_the_last_bytes(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    session.receive_data(client.write(HELLO) + client.close())
    assert read(session) == HELLO
    assert session.is_ended
    assert read(session) == b""


def test_a_connection_that_is_cut_off_ends(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    session.receive_data(client.write(HELLO)[:-1])
    session.receive_eof()
    assert read(session) == b""
    assert session.is_ended


def test_a_changed_byte_fails_the_session(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    sent = bytearray(client.write(HELLO))
    sent[-1] ^= 1
    session.receive_data(sent)
    with pytest.raises(TlsFailed):
        read(session)
    session.close()
    with pytest.raises(TlsFailed):
        session.write(HELLO)


def test_close_is_announced(pair: tuple[MemoryClient, TlsSession]) -> None:
    client, session = pair
    session.close()
    assert client.receive(session.data_to_send()) == b""
    assert client.ssl_object.read(1) == b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\x00\x1a\x00\x12\x00\x03" + bytes(30), "the client does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP without TLS"),
    ],
)
def test_a_stranger_is_told_apart(server_context: ssl.SSLContext, data: bytes, reason: str) -> None:
    session = TlsSession(server_context)
    session.receive_data(data)
    with pytest.raises(TlsFailed, match=reason):
        session.shake_hands()


def test_a_client_that_trusts_another_authority_is_named(server_context: ssl.SSLContext) -> None:
    client, session = MemoryClient(ssl.create_default_context()), TlsSession(server_context)
    with pytest.raises(ssl.SSLError):
        shake_hands(client, session)
    session.receive_data(client.sent())
    with pytest.raises(TlsFailed, match="does not trust this agent's certificate"):
        session.shake_hands()


def test_an_unknown_reason_is_shown_in_lower_case() -> None:
    error = ssl.SSLError(1, "words of the library")
    assert reason_of(error) == "words of the library"
    error.reason = "NO_SHARED_CIPHER"
    assert reason_of(error) == "no shared cipher"


def test_the_session_shows_its_peer(authority: TestAuthority, client_context: ssl.SSLContext, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("mutual").both)
    context.load_verify_locations(authority.ca_path)
    context.verify_mode = ssl.CERT_REQUIRED
    client_context.load_cert_chain(authority.issue("client", "alice@example.org").both)
    client, session = MemoryClient(client_context), TlsSession(context)
    shake_hands(client, session)
    assert session.ssl_object.getpeercert(binary_form=True)


def test_a_certificate_of_another_authority_is_told(
    authority: TestAuthority, client_context: ssl.SSLContext, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("strict").both)
    context.load_verify_locations(authority.ca_path)
    context.verify_mode = ssl.CERT_REQUIRED
    client_context.load_cert_chain(TestAuthority(folder=tmp_path).issue("stranger", "mallory@example.org").both)
    with pytest.raises(
        TlsFailed, match="the client's certificate is not valid: unable to get local issuer certificate"
    ):
        shake_hands(MemoryClient(client_context), TlsSession(context))
