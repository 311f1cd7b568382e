"""Limits of connections hold before a TLS handshake is done, and handshakes that fail are in the audit log."""

import json
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.support.certificates import TestAuthority
from tests.support.cluster.conditions import wait_until
from tests.support.services.local_services import Penstock, PenstockFactory

SECONDS_MAX = 30.0
PER_ADDRESS = 5


def connect(broker: Penstock, source: str) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS_MAX, source_address=(source, 0))


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def events(log: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_connections_in_a_handshake_count_by_their_address(penstock: PenstockFactory, tmp_path: Path) -> None:
    authority, log = TestAuthority(folder=tmp_path), tmp_path / "audit.log"
    server = authority.issue("server")
    options = {"tls-cert": str(server.cert), "tls-key": str(server.key), "tls-client-ca": str(authority.ca_path)}
    broker = penstock(
        listen="SSL://127.0.0.1:0",
        options={**options, "audit-log": str(log)},
        settings={"max.connections.per.ip": str(PER_ADDRESS), "super.users": "User:admin"},
        env={"PENSTOCK_METRICS_OPEN": "true"},
    )
    context = ssl.create_default_context(cafile=authority.ca_path)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(broker, "127.0.0.2")) for _ in range(PER_ADDRESS)]

        def unfinished() -> str:
            with urlopen(f"http://{broker.http}/metrics", timeout=SECONDS_MAX) as response:
                lines: list[str] = response.read().decode().splitlines()
            return next(line for line in lines if line.startswith("penstock_tls_handshakes_unfinished "))

        wait_until(lambda: unfinished().endswith(f" {PER_ADDRESS}.0"), "the silent connections")
        assert is_closed(stack.enter_context(connect(broker, "127.0.0.2")))
        # Another address is not held to them: its handshake is done, and fails for the lack of a certificate.
        with (
            suppress(ssl.SSLError),  # the alert that says so may come before the end
            connect(broker, "127.0.0.3") as raw,
            context.wrap_socket(raw, server_hostname="localhost") as other,
        ):
            other.sendall(b"\0")
            assert is_closed(other)
        silent[0].close()
        wait_until(lambda: not _is_refused(broker, "127.0.0.2"), "room for another connection")
        alice = authority.issue("alice", common_name="alice")
        context.load_cert_chain(alice.cert, alice.key)
        with connect(broker, "127.0.0.4") as raw, context.wrap_socket(raw, server_hostname="localhost"):
            wait_until(lambda: any(event["host"] == "127.0.0.4" for event in events(log)), "the log-in's event")
    failed = [event for event in events(log) if event["host"] == "127.0.0.3"]
    assert [(event["decision"], event["api"], event["mechanism"], event["count"]) for event in failed] == [
        ("rejected", "TLS handshake", "TLS", 1)
    ]
    assert "ssl.client.auth requires one" in failed[0]["rule"]
    logged_in = [event for event in events(log) if event["host"] == "127.0.0.4"]
    assert [(event["decision"], event["mechanism"]) for event in logged_in] == [("authenticated", "TLS")]
    assert "CN=alice" in logged_in[0]["principal"]


def _is_refused(broker: Penstock, source: str) -> bool:
    with connect(broker, source) as connection:
        connection.settimeout(0.2)
        try:
            return is_closed(connection)
        except TimeoutError:
            return False


def test_equal_failures_within_a_second_are_one_event(penstock: PenstockFactory, tmp_path: Path) -> None:
    authority, log = TestAuthority(folder=tmp_path), tmp_path / "audit.log"
    server = authority.issue("server")
    options = {"tls-cert": str(server.cert), "tls-key": str(server.key), "audit-log": str(log)}
    broker = penstock(listen="SSL://127.0.0.1:0", options=options)
    for _ in range(40):
        with connect(broker, "127.0.0.2") as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while not is_closed(connection):
                pass
    wait_until(lambda: sum(event["count"] for event in events(log)) == 40, "the events of all failures")
    assert {(event["decision"], event["rule"]) for event in events(log)} == {
        ("rejected", "the client speaks HTTP without TLS")
    }
    assert len(events(log)) <= 10
