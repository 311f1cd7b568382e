"""An S3 server that ignores If-None-Match, as old versions of several stores do; it keeps its objects in memory.

It knows what `storage.s3.store` asks for, in path style, with any credentials, and nothing else.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

MODIFIED = "2026-01-01T00:00:00.000Z"


class UnconditionalS3(ThreadingHTTPServer):
    """`objects` by bucket and key, as one path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}

    @property
    def settings(self) -> dict[str, str]:
        """The usual AWS variables that lead a client to this server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


@contextmanager
def unconditional_s3() -> Generator[UnconditionalS3]:
    """Runs the server for as long as the block lasts."""
    with UnconditionalS3() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: UnconditionalS3

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing goes to stderr."""

    @property
    def _path(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    def _answer(self, status: int, body: bytes = b"", *, is_head: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"any"')
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:
        self.server.objects[self._path] = self._body()
        self._answer(200)

    def do_HEAD(self) -> None:
        found = self.server.objects.get(self._path)
        self._answer(200 if found is not None else 404, found or b"", is_head=True)

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listed(query.get("prefix", [""])[0], query.get("start-after", [""])[0]))
            return
        found = self.server.objects.get(self._path)
        missing = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
        self._answer(200 if found is not None else 404, missing if found is None else found)

    def do_POST(self) -> None:
        """DeleteObjects."""
        text = self._body().decode()
        keys = [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]
        for key in keys:
            self.server.objects.pop(f"{self._path}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._path, None)
        self._answer(204)

    def _listed(self, prefix: str, after: str) -> bytes:
        bucket = self._path + "/"
        keys = sorted(path.removeprefix(bucket) for path in self.server.objects if path.startswith(bucket + prefix))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{MODIFIED}</LastModified><ETag>any</ETag>"
            f"<Size>{len(self.server.objects[bucket + key])}</Size></Contents>"
            for key in keys
            if key > after
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
