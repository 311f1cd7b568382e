"""Asks an application as a server would, from any address."""

import json
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


@dataclass(slots=True, kw_only=True)
class AsgiClient:
    """`peer` is where requests seem to come from; None where the server does not know."""

    app: ASGIApp
    peer: str | None = "127.0.0.1"
    host: str = "127.0.0.1:9644"

    async def __call__(self, method: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        parts = urlsplit(url)
        fields = {"host": self.host, "content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), text.encode()) for name, text in fields.items()],
            "client": None if self.peer is None else (self.peer, 4711),
            "server": ("127.0.0.1", 9644),
        }
        arriving: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            return arriving.pop(0) if arriving else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        return Answer(
            status=sent[0]["status"], headers=found, body=b"".join(message.get("body", b"") for message in sent[1:])
        )
