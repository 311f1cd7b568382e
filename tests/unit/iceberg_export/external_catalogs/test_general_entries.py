"""Entries of a REST catalog, which here is a stand-in that answers as the specification says; no server of others."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pyiceberg.exceptions import ServerError

from iceberg_export.external_catalogs.entries import Entries, open_entries
from iceberg_export.external_catalogs.general_entries import KeptElsewhere
from iceberg_export.tables.metadata import empty_metadata, encode, table_location
from protocol.types import ObjectNumber, SessionId, TopicId
from storage.refs import METADATA_SUFFIX, table_metadata_key

TOPIC = TopicId(bytes(range(16)))
NAME = "orders.eu"


class StandIn(ThreadingHTTPServer):
    """A REST catalog of one namespace. `overwriting`: the status by which it refuses to overwrite; 200: it does."""

    daemon_threads = True

    def __init__(self, overwriting: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.overwriting = overwriting
        self.failing: int | None = None
        self.kept_elsewhere: str | None = None
        self.namespaces: set[str] = set()
        self.tables: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        match self._path():
            case ["v1", "config"]:
                self._answer(200, {"defaults": {}, "overrides": {}})
            case ["v1", "namespaces", namespace] if namespace in self.server.namespaces:
                self._answer(200, {"namespace": namespace.split("\x1f"), "properties": {}})
            case ["v1", "namespaces", namespace, "tables"] if namespace in self.server.namespaces:
                names = [{"namespace": namespace.split("\x1f"), "name": name} for name in self.server.tables]
                self._answer(200, {"identifiers": names})
            case ["v1", "namespaces", _, "tables", name] if name in self.server.tables:
                self._load(self.server.tables[name])
            case _:
                self._error(404, "NoSuchTableException", "there is no such thing")

    def do_HEAD(self) -> None:
        self._answer(204 if self._path()[-1] in self.server.namespaces else 404, None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self._path():
            case ["v1", "namespaces"]:
                self.server.namespaces.add("\x1f".join(body["namespace"]))
                self._answer(200, {"namespace": body["namespace"], "properties": {}})
            case ["v1", "namespaces", _, "register"]:
                self.server.asked.append("overwrite" if body["overwrite"] else "register")
                if self.server.failing is not None:
                    self._error(self.server.failing, "ServiceFailureException", "not now")
                elif body["overwrite"] and self.server.overwriting != 200:
                    self._error(self.server.overwriting, "UnsupportedOperationException", "no overwrite")
                elif body["name"] in self.server.tables and not body["overwrite"]:
                    self._error(409, "AlreadyExistsException", "there is one")
                else:
                    location = self.server.kept_elsewhere or body["metadata-location"]
                    self.server.tables[body["name"]] = location
                    self._load(location)
            case _:
                self._error(404, "NoSuchEndpoint", "no")

    def do_DELETE(self) -> None:
        assert parse_qs(urlsplit(self.path).query)["purgeRequested"] == ["False"]
        self.server.asked.append("drop")
        is_gone = self.server.tables.pop(self._path()[-1], None) is not None
        self._answer(204 if is_gone else 404, None)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        pass

    def _path(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]

    def _load(self, location: str) -> None:
        path = Path(location.removeprefix("file://"))
        if not path.exists():
            self._error(404, "NotFoundException", f"Failed to open input stream for file: {location}")
            return
        self._answer(200, {"metadata-location": location, "metadata": json.loads(path.read_bytes()), "config": {}})

    def _error(self, status: int, kind: str, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": kind, "code": status}})

    def _answer(self, status: int, content: object) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(params=[200, 400, 406, 409])
def server(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with StandIn(request.param) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def entries(server: StandIn, tmp_path: Path) -> Iterator[Entries]:
    opened = open_entries(
        catalog_name="others",
        properties={"type": "rest", "uri": server.uri},
        namespace=("raw", "kafka"),
        root=f"file://{tmp_path}",
    )
    with closing(opened):
        yield opened


def metadata(root: Path, number: int) -> str:
    key = table_metadata_key(NAME, TOPIC, SessionId(7), ObjectNumber(number), METADATA_SUFFIX)
    (root / key).parent.mkdir(parents=True, exist_ok=True)
    location = table_location(f"file://{root}", NAME, TOPIC)
    (root / key).write_bytes(encode(empty_metadata(name=NAME, topic_id=TOPIC, location=location, created_ms=1)))
    return f"file://{root}/{key}"


def test_an_entry_is_made_moved_and_dropped(server: StandIn, entries: Entries, tmp_path: Path) -> None:
    first, second, third = (metadata(tmp_path, number) for number in range(3))
    assert server.namespaces == {"raw\x1fkafka"}
    assert entries.find(NAME) is None
    assert entries.create(NAME, first)
    assert not entries.create(NAME, second)
    assert entries.find(NAME) == first
    server.asked.clear()
    assert entries.move(NAME, first, second)
    assert entries.move(NAME, second, third)
    replaced = ["drop", "register"]
    can = server.overwriting == 200
    assert server.asked == (["overwrite", "overwrite"] if can else ["overwrite", *replaced, *replaced])
    assert entries.find(NAME) == third
    assert entries.names() == [NAME]
    assert entries.drop(NAME, third)
    assert not entries.drop(NAME, third)
    assert entries.names() == []


def test_where_the_metadata_is_gone_its_name_is_known(server: StandIn, entries: Entries, tmp_path: Path) -> None:
    first, second = metadata(tmp_path, 1), metadata(tmp_path, 2)
    entries.create(NAME, first)
    Path(first.removeprefix("file://")).unlink()
    assert entries.find(NAME) == first
    assert entries.move(NAME, first, second)
    assert entries.find(NAME) == second


def test_a_server_that_fails_loses_no_entry(server: StandIn, entries: Entries, tmp_path: Path) -> None:
    first, second = metadata(tmp_path, 1), metadata(tmp_path, 2)
    entries.create(NAME, first)
    server.failing = 500
    with pytest.raises(ServerError):
        entries.move(NAME, first, second)
    server.failing = None
    assert entries.find(NAME) == first


def test_a_catalog_that_keeps_metadata_of_its_own_is_told_of(server: StandIn, entries: Entries, tmp_path: Path) -> None:
    first, second = metadata(tmp_path, 1), metadata(tmp_path, 2)
    server.kept_elsewhere = second
    with pytest.raises(KeptElsewhere, match="writes metadata of its own"):
        entries.create(NAME, first)
