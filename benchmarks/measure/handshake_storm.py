"""Many TLS handshakes at once, as clients make them that all reconnect: run as a process of its own.

In: options. Out: a JSON line for each storm. With `--hold` one storm's connections stay open until stdin ends, and the
line comes once all are there. Connections are all made before the first of them begins its handshake.
"""

import argparse
import json
import resource
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CONNECTED_SECONDS_MAX = 10.0
STORM_SECONDS_MAX = 30.0


def main() -> None:
    options = _options()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, options.count + 64)), hard))
    context = None
    if options.ca is not None:
        context = ssl.create_default_context(cafile=options.ca)
        context.load_cert_chain(options.cert, options.key)
    if options.hold:
        connections = [_connect(options.port) for _ in range(options.count)]
        if context is not None:
            connections, _ = _storm(connections, context)
        _report({"open": len(connections)})
        sys.stdin.read()
        return
    assert context is not None, "--ca is needed but for --hold"
    end_s = time.monotonic() + options.seconds
    while time.monotonic() < end_s:
        connections, began_s = [_connect(options.port) for _ in range(options.count)], time.monotonic()
        done, failed_count = _storm(connections, context)
        _report({"done": len(done), "failed": failed_count, "seconds": time.monotonic() - began_s})
        for connection in done:
            connection.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True, help="handshakes at once")
    parser.add_argument("--seconds", type=float, default=0.0, help="storms follow each other for so long")
    parser.add_argument("--hold", action="store_true")
    for name in ("ca", "cert", "key"):
        parser.add_argument(f"--{name}", type=Path)
    return parser.parse_args()


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=CONNECTED_SECONDS_MAX)
    connection.settimeout(0.0)
    return connection


def _storm(connections: Sequence[socket.socket], context: ssl.SSLContext) -> tuple[list[socket.socket], int]:
    """The connections whose handshakes were done, and the number of those that failed."""
    done: list[socket.socket] = []
    failed_count = 0
    deadline_s = time.monotonic() + STORM_SECONDS_MAX
    with selectors.DefaultSelector() as selector:
        for raw in connections:
            connection = context.wrap_socket(raw, server_hostname="127.0.0.1", do_handshake_on_connect=False)
            selector.register(connection, selectors.EVENT_WRITE)
        while selector.get_map() and time.monotonic() < deadline_s:
            for key, _ in selector.select(max(deadline_s - time.monotonic(), 0.0)):
                shaking = key.fileobj
                assert isinstance(shaking, ssl.SSLSocket)
                try:
                    is_accepted = _step(shaking)
                except ssl.SSLWantReadError:
                    selector.modify(shaking, selectors.EVENT_READ)
                except ssl.SSLWantWriteError:
                    selector.modify(shaking, selectors.EVENT_WRITE)
                except OSError:  # an alert, or closed: ssl's errors are among these
                    selector.unregister(shaking)
                    shaking.close()
                    failed_count += 1
                else:
                    if is_accepted:
                        selector.unregister(shaking)
                        done.append(shaking)
        failed_count += len(selector.get_map())
    return done, failed_count


def _step(connection: ssl.SSLSocket) -> bool:
    """Whether the server has accepted the client. Raises the errors of `ssl`.

    With TLS 1.3 a client is done before the server has looked at its certificate: the ticket for a later session shows
    that it has.
    """
    connection.do_handshake()  # does nothing where it is done
    if connection.version() != "TLSv1.3":
        return True
    try:
        is_closed = not connection.recv(1)
    except ssl.SSLWantReadError:
        if not _has_ticket(connection):
            raise
        return True
    if is_closed and not _has_ticket(connection):
        raise ConnectionResetError("closed after the handshake")
    return True


def _has_ticket(connection: ssl.SSLSocket) -> bool:
    return connection.session is not None and connection.session.has_ticket


def _report(row: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
