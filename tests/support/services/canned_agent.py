"""An HTTP server with canned answers, in place of an agent, over loopback; also by TLS."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

from tests.support.certificates import PemFiles


class CannedAnswer(NamedTuple):
    """An answer; `status` 0 closes the connection without one."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class CannedRequest(NamedTuple):
    """A request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    """With names in lower case. Values of one name are joined by commas."""
    body: bytes
    connection: int
    """The port that its connection comes from."""


@dataclass(slots=True, kw_only=True)
class CannedAgent:
    """`answer` makes the answer of each request."""

    url: str
    answer: Callable[[CannedRequest], CannedAnswer]
    requests: list[CannedRequest] = field(default_factory=list[CannedRequest])


@contextmanager
def canned_agent(
    answer: Callable[[CannedRequest], CannedAnswer], certificate: PemFiles | None = None
) -> Iterator[CannedAgent]:
    """A server until the block ends. `certificate`: it speaks TLS with this one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            request = CannedRequest(
                method=self.command,
                target=self.path,
                headers={name.lower(): ",".join(self.headers.get_all(name, ())) for name in self.headers},
                body=self.rfile.read(length),
                connection=self.client_address[1],
            )
            agent.requests.append(request)
            made = agent.answer(request)
            if not made.status:
                self.close_connection = True
                return
            self.send_response_only(made.status)
            for name, value in {**made.headers, "Content-Length": str(len(made.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(made.body)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    agent = CannedAgent(url=f"{scheme}://127.0.0.1:{server.server_address[1]}", answer=answer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield agent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
