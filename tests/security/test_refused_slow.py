"""Clients that are rejected for being slow or many, and files that do not fit: each takes ten seconds or more."""

import resource
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.limits import SASL_SECONDS_MAX, TLS_HANDSHAKE_SECONDS_MAX, UNAUTHENTICATED_CONNECTIONS_MAX
from tests.security.login_agent import PASSWORD, LoginAgent
from tests.support.certificates import TestAuthority
from tests.support.clients.login_client import LoginClient
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory
from tests.support.tls_clients import MemoryClient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("login agent")]
TRICKLE_SECONDS = 0.5
LATE_SECONDS = 5.0
RELOAD_SECONDS = 12
"""Files are compared every ten seconds."""


def seconds_until_closed(connection: socket.socket, trickle: bytes) -> float:
    """How long a connection lives whose client sends one byte after the other, and reads nothing but the end."""
    began = time.monotonic()
    connection.settimeout(TRICKLE_SECONDS)
    for byte in trickle:
        try:
            connection.sendall(bytes([byte]))
            if not connection.recv(1 << 16):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


def test_a_slow_handshake_of_tls(logins: LoginAgent) -> None:
    hello = MemoryClient(logins.certificates.context(None))
    hello.shake_hands()
    with socket.create_connection(("127.0.0.1", logins.ports["SECURE"])) as connection:
        seconds = seconds_until_closed(connection, hello.sent()[:-1])
    assert TLS_HANDSHAKE_SECONDS_MAX - 1 < seconds < TLS_HANDSHAKE_SECONDS_MAX + LATE_SECONDS


def test_a_slow_login(logins: LoginAgent) -> None:
    with logins.connect("CLIENTS") as client:
        client.shake_hands("PLAIN")
        frame = struct.pack(">i", 200) + bytes(200)
        seconds = seconds_until_closed(client.connection, frame)
    assert SASL_SECONDS_MAX - 1 < seconds < SASL_SECONDS_MAX + LATE_SECONDS


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNAUTHENTICATED_CONNECTIONS_MAX + 1_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(f"this test opens {wanted} files, and the system allows {hard}: raise it with ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_the_10001st_connection_that_is_not_in(logins: LoginAgent) -> None:
    """Strangers have half of the connections. Whoever is in goes on, and gets in again once they are gone."""
    with logins.connect("CLIENTS") as client, ExitStack() as stack:
        assert client.log_in("alice", PASSWORD).error_code == 0
        began = time.monotonic()
        strangers = [
            stack.enter_context(
                socket.create_connection(("127.0.0.1", logins.ports["CLIENTS"]), source_address=(source(number), 0))
            )
            for number in range(UNAUTHENTICATED_CONNECTIONS_MAX + 200)
        ]
        assert client.is_served
        # Those that came first were closed where opening the others took longer than a login may.
        if time.monotonic() - began < SASL_SECONDS_MAX / 2:
            logins.process.wait_until(
                lambda: sum(map(is_closed, strangers[-200:])) >= 100,
                "the end of those that have no place",
                seconds_max=SASL_SECONDS_MAX / 2,
            )
        logins.wait_for_line("too many are open whose clients have not authenticated")
    with logins.connect("CLIENTS") as client:
        assert client.log_in("alice", PASSWORD).error_code == 0


def source(number: int) -> str:
    return f"127.80.{number // 250}.{number % 250 + 1}"


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_key_that_does_not_fit_is_not_taken(tmp_path: Path) -> None:
    """The certificate before stays in use, and the files are taken once they fit."""
    provided(PENSTOCK)
    authority = TestAuthority(folder=tmp_path)
    first, second = authority.issue("first"), authority.issue("second")
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    shutil.copy(first.cert, cert)
    shutil.copy(first.key, key)
    options = {"tls-cert": str(cert), "tls-key": str(key)}
    context = ssl.create_default_context(cafile=authority.ca_path)
    with ExitStack() as stack:
        broker = PenstockFactory(folder=tmp_path, stack=stack)(listen="SSL://127.0.0.1:0", options=options)
        before = serial(broker, context)
        shutil.copy(second.cert, cert)
        checked = time.monotonic() + RELOAD_SECONDS
        broker.process.wait_until(lambda: time.monotonic() > checked, "the check of the files")
        assert serial(broker, context) == before
        shutil.copy(second.key, key)
        broker.process.wait_until(lambda: serial(broker, context) != before, "the new one", seconds_max=30)


def serial(broker: Penstock, context: ssl.SSLContext) -> object:
    """The serial number of the certificate that the agent shows."""
    with LoginClient(broker.bootstrap, context) as client:
        assert isinstance(client.connection, ssl.SSLSocket)
        certificate = client.connection.getpeercert()
    assert certificate is not None
    return certificate["serialNumber"]
