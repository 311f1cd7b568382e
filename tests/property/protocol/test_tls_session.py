"""TLS sessions with drawn texts, cut into drawn pieces on their way: what is read is what was written."""

import ssl
from collections.abc import Iterator

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.auth.tls_session import TlsFailed, TlsSession
from tests.support.tls_clients import MemoryClient, shake_hands

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
TEXTS = st.lists(st.integers(0, 50_000), max_size=5).map(lambda sizes: [bytes([n % 251]) * n for n in sizes])
PIECES = st.lists(st.integers(1, 20_000), min_size=1, max_size=10)


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(server)
    client = ssl.create_default_context()
    CA.configure_trust(client)
    return server, client


def pieces_of(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    position = count = 0
    while position < len(data):
        size = sizes[count % len(sizes)]
        yield data[position : position + size]
        position, count = position + size, count + 1


@settings(deadline=None)
@given(texts=TEXTS, answers=TEXTS, sizes=PIECES, buffer_bytes=st.integers(1, 40_000))
def test_texts_arrive_whole_and_in_order_however_they_are_cut(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    texts: list[bytes],
    answers: list[bytes],
    sizes: list[int],
    buffer_bytes: int,
) -> None:
    client, session = MemoryClient(contexts[1]), TlsSession(contexts[0])
    shake_hands(client, session)
    received = bytearray()
    buffer = memoryview(bytearray(buffer_bytes))
    for piece in pieces_of(b"".join(client.write(text) for text in texts), sizes):
        session.receive_data(piece)
        while count := session.read_into(buffer):
            received += buffer[:count]
    assert received == b"".join(texts)
    for answer in answers:
        session.write(answer)
    encrypted = session.data_to_send()
    assert b"".join(client.receive(piece) for piece in pieces_of(encrypted, sizes)) == b"".join(answers)


@settings(deadline=None)
@given(sizes=PIECES)
def test_a_handshake_is_done_however_it_is_cut(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], sizes: list[int]
) -> None:
    client, session = MemoryClient(contexts[1]), TlsSession(contexts[0])
    is_client_done = is_server_done = False
    while not (is_client_done and is_server_done):
        is_client_done = is_client_done or client.shake_hands()
        for piece in pieces_of(client.sent(), sizes):
            session.receive_data(piece)
            is_server_done = is_server_done or session.shake_hands()
        for piece in pieces_of(session.data_to_send(), sizes):
            client.take(piece)


@settings(deadline=None)
@given(data=st.binary(max_size=300), is_hello=st.booleans(), position=st.integers(0, 300))
def test_drawn_bytes_fail_or_wait_and_never_succeed(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], data: bytes, is_hello: bool, position: int
) -> None:
    session = TlsSession(contexts[0])
    if is_hello:
        client = MemoryClient(contexts[1])
        client.shake_hands()
        hello = client.sent()
        data = hello[:position] + data
    session.receive_data(data)
    try:
        assert not session.shake_hands()
    except TlsFailed:
        session.data_to_send()
        session.close()
