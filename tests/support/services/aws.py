"""AWS's services that hand out credentials, as a small HTTP server on loopback: STS, container and instance metadata.

Rule: it speaks as the services do, as far as their clients ask, and counts who asked. What it hands out is given to it.
Source: AWS STS API Reference; Amazon ECS and EC2 guides on credentials and IMDSv2.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ROLE = "penstock-role"
CONTAINER_PATH = "/v2/credentials/penstock"
CONTAINER_TOKEN = "container-token"
METADATA_TOKEN = "metadata-token"
INSTANCE_PATH = "/latest/meta-data/iam/security-credentials/"


@dataclass(slots=True, kw_only=True)
class AwsServices:
    """A running server, and what it hands out. `is_failing` makes it answer 500."""

    endpoint: str
    access_key: str
    secret_key: str
    session_token: str
    valid_for: timedelta = timedelta(hours=1)
    is_failing: bool = False
    asked: Counter[str] = field(default_factory=Counter[str])
    """How often each of sts, container and instance handed something out."""

    @property
    def expiration(self) -> str:
        return (datetime.now(UTC) + self.valid_for).strftime("%Y-%m-%dT%H:%M:%SZ")

    def as_json(self) -> bytes:
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "LastUpdated": "2026-01-01T00:00:00Z",
                "AccessKeyId": self.access_key,
                "SecretAccessKey": self.secret_key,
                "Token": self.session_token,
                "Expiration": self.expiration,
            }
        ).encode()

    def as_sts_xml(self, action: str) -> bytes:
        return (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>{self.access_key}</AccessKeyId><SecretAccessKey>{self.secret_key}</SecretAccessKey>"
            f"<SessionToken>{self.session_token}</SessionToken><Expiration>{self.expiration}</Expiration>"
            f"</Credentials></{action}Result></{action}Response>"
        ).encode()


class _Handler(BaseHTTPRequestHandler):
    services: AwsServices

    def do_GET(self) -> None:
        path, services = urlsplit(self.path).path, self.services
        if services.is_failing:
            self._answer(500, b"")
        elif path == CONTAINER_PATH and self.headers["Authorization"] == CONTAINER_TOKEN:
            services.asked["container"] += 1
            self._answer(200, services.as_json())
        elif path == INSTANCE_PATH and self.headers["x-aws-ec2-metadata-token"] == METADATA_TOKEN:
            self._answer(200, ROLE.encode())
        elif path == INSTANCE_PATH + ROLE and self.headers["x-aws-ec2-metadata-token"] == METADATA_TOKEN:
            services.asked["instance"] += 1
            self._answer(200, services.as_json())
        else:
            self._answer(404, b"")

    def do_PUT(self) -> None:
        self._answer(200, METADATA_TOKEN.encode())

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"] or 0)).decode())
        action = form["Action"][0]
        if self.services.is_failing:
            self._answer(500, b"")
        elif action == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] != ["a-token"]:
            error = "<Error><Code>InvalidIdentityToken</Code><Message>not that token</Message></Error>"
            self._answer(400, f"<ErrorResponse>{error}</ErrorResponse>".encode())
        else:
            self.services.asked["sts"] += 1
            self._answer(200, self.services.as_sts_xml(action))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml" if body.startswith(b"<") else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Says nothing."""


@contextmanager
def aws_services(access_key: str, secret_key: str, session_token: str) -> Iterator[AwsServices]:
    """Runs the services; they hand out these credentials."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {}))
    services = AwsServices(
        endpoint=f"http://127.0.0.1:{server.server_port}",
        access_key=access_key,
        secret_key=secret_key,
        session_token=session_token,
    )
    server.RequestHandlerClass.services = services  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
