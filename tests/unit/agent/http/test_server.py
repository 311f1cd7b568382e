"""The HTTP port over real sockets.

Over 500 lines: each test sends one or two requests through the one small client, and no group of them stands apart.
"""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from agent.config.addresses import HostPort
from agent.config.http_auth import HttpAccess
from agent.http.server import HttpServer
from agent.http.uvicorn_protocol import BoundedProtocol
from agent.lake.table_rebuild import FileLost, NothingToRebuild
from agent.runtime.notices import Notice, NoticeKind
from coordinator.ledger.port import OutcomeUnknown
from coordinator.snapshot import digest
from coordinator.state.state import TableState
from protocol.limits import HTTP_CONNECTIONS_MAX
from protocol.types import Milliseconds
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from tests.support.agent.small_agent import INTAKE_KEY, PARQUET_KEY, TOPIC_ID, SmallAgent, rows_of

Answer = tuple[int, bytes]


class Client:
    def __init__(self, address: HostPort) -> None:
        self.address = address
        self.host = f"{address.host}:{address.port}"

    async def __call__(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Answer:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + f"Content-Type: {kind}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        status_line, _, rest = answer.partition(b"\r\n")
        return int(status_line.split()[1]), rest.partition(b"\r\n\r\n")[2]

    async def get(self, path: str) -> Answer:
        return await self("GET", path)

    async def get_json(self, path: str) -> dict[str, object]:
        status, body = await self.get(path)
        assert status == 200, body
        value = json.loads(body)
        assert isinstance(value, dict)
        return value

    async def archive(self, body: object) -> Answer:
        return await self("POST", "/api/archive", json.dumps(body).encode())


@asynccontextmanager
async def serving(
    agent: SmallAgent, host: str = "127.0.0.1", access: HttpAccess | None = None
) -> AsyncIterator[Client]:
    await agent.fill()
    server = HttpServer(address=HostPort(host=host, port=0), access=access)
    address = server.bind()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(agent.start_services))
        await server.serving()
        server.open(agent.services)
        yield Client(address)
        await server.stop()


@pytest.fixture
def agent() -> SmallAgent:
    return SmallAgent()


@pytest.fixture
async def client(agent: SmallAgent) -> AsyncIterator[Client]:
    async with serving(agent) as client:
        yield client


def error_of(answer: Answer) -> tuple[int, str, str]:
    error = json.loads(answer[1])["error"]
    assert error["remedy"]
    return answer[0], error["code"], error["message"]


async def test_a_process_that_answers_is_live(client: Client) -> None:
    assert await client.get("/live") == (200, b"live\n")


PATHS = ["/metrics", "/api/status", "/api/topics", "/api/inspect/objects", "/none"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9644", "localhost.evil.example", "10.0.0.7.evil.example", ""]
)
async def test_a_page_whose_name_leads_to_this_machine_reads_nothing(client: Client, path: str, host: str) -> None:
    client.host = host
    assert error_of(await client.get(path))[:2] == (403, "foreign_host")


@pytest.mark.parametrize("path", ["/live", "/ready"])
async def test_health_is_answered_by_any_name(client: Client, path: str) -> None:
    client.host = "penstock.default.svc:9644"
    assert (await client.get(path))[0] == 200


async def test_nor_does_it_change_anything(agent: SmallAgent, client: Client) -> None:
    client.host = "evil.example"
    assert error_of(await client.archive({"topics": ["orders"]}))[:2] == (403, "foreign_host")
    assert agent.archiver.archived == []


@pytest.mark.parametrize("path", ["/iceberg/v1/config", "/schema-registry/subjects"])
async def test_catalog_and_registry_say_so_in_their_own_words(client: Client, path: str) -> None:
    client.host = "evil.example"
    status, body = await client.get(path)
    assert (status, b"foreign_host" in body, b"names another machine" in body) == (403, False, True)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9644", "127.0.0.1", "127.8.8.8:1", "[::1]:9644", "localhost.:9644"]
)
async def test_this_machine_is_asked_by_its_own_names(client: Client, host: str) -> None:
    client.host = host
    assert (await client.get("/api/status"))[0] == 200


async def test_what_a_sidecar_passes_on_comes_from_elsewhere_but_metrics_may_be_open(agent: SmallAgent) -> None:
    async with serving(agent, access=HttpAccess(is_metrics_open=True)) as client:
        for client.host in ("10.0.0.7:9644", "[fd00::7]:9644"):
            assert (await client.get("/metrics"))[0] == 200
            assert error_of(await client.get("/api/status"))[:2] == (403, "foreign_host")


async def test_a_machine_is_asked_by_its_own_name_which_leads_to_loopback(client: Client) -> None:
    client.host = f"{socket.gethostname()}:9644"
    assert (await client.get("/metrics"))[0] == 200


async def test_a_client_of_old_that_names_no_host_is_answered(client: Client) -> None:
    reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
    writer.write(b"GET /live HTTP/1.0\r\n\r\n")
    assert (await reader.read()).endswith(b"live\n")
    writer.close()


class TestSlowClients:
    @pytest.fixture(autouse=True)
    def hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BoundedProtocol, "request_seconds_max", 0.2)
        monkeypatch.setattr(BoundedProtocol, "write_seconds_max", 0.2)
        monkeypatch.setattr(BoundedProtocol, "connections_max", 20)

    @pytest.mark.parametrize(
        "begun",
        [
            b"",
            b"GET /live",
            b"GET /live HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /api/archive HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\n\r\n{",
            b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /live",
        ],
    )
    async def test_a_request_that_is_not_whole_in_time_ends_its_connection(self, client: Client, begun: bytes) -> None:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        writer.write(begun)
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                while await reader.read(1_000):
                    pass
        writer.close()
        assert await client.get("/live") == (200, b"live\n")

    async def test_one_that_goes_on_asking_is_answered_for_longer(self, client: Client) -> None:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        began_s = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began_s + 0.6:
            writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readuntil(b"live\n")
        writer.close()

    async def test_one_that_does_not_read_its_answer_is_ended(self, agent: SmallAgent, client: Client) -> None:
        agent.status_more = {"text": "x" * 20_000_000}
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port, limit=1_000)
        writer.write(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.readexactly(100)
            assert isinstance(writer.transport, asyncio.ReadTransport)
            writer.transport.pause_reading()
            with suppress(ConnectionError):  # the kernel sees the end before the bytes are read
                while True:
                    writer.write(b"\r\n")
                    await writer.drain()
                    turn = asyncio.get_running_loop().create_future()
                    asyncio.get_running_loop().call_soon(turn.set_result, None)
                    await turn

    async def test_one_that_reads_steadily_gets_all_of_a_large_answer_however_long_it_takes(
        self, agent: SmallAgent, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(BoundedProtocol, "write_seconds_max", 0.4)
        agent.status_more = {"text": "x" * 40_000_000}
        loop = asyncio.get_running_loop()
        with socket.create_connection((client.address.host, client.address.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
            connection.setblocking(False)
            request = b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            await loop.sock_sendall(connection, request)
            began_s, byte_count = loop.time(), 0
            async with asyncio.timeout(30):
                while part := await loop.sock_recv(connection, 1 << 20):
                    byte_count += len(part)
                    while loop.time() < began_s + byte_count * 1.5 / 40_000_000:  # 1.5 s in all
                        await loop.run_in_executor(None, lambda: None)
        assert byte_count > 40_000_000
        assert loop.time() - began_s > 3 * BoundedProtocol.write_seconds_max

    async def test_silent_connections_do_not_take_the_port_from_others(self, client: Client) -> None:
        silent = [await asyncio.open_connection(client.address.host, client.address.port) for _ in range(40)]
        async with asyncio.timeout(10):
            for reader, writer in silent:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
        assert await client.get("/live") == (200, b"live\n")

    async def test_a_head_without_an_end_is_refused(self, client: Client) -> None:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000)
        async with asyncio.timeout(10):
            answer = b""
            with suppress(ConnectionError):
                answer = await reader.read()
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431")) or not answer
        writer.close()


JSON_HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /live HTTP/1.1\r\n",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/archive HTTP/1.1\r\n" + JSON_HEAD + b"Content-Length: 60000\r\n\r\n{",
    ],
    ids=["silent", "head", "idle", "body"],
)
async def test_a_crowd_of_silent_connections_keeps_nobody_out(client: Client, sent: bytes) -> None:
    crowd = []
    for _ in range(HTTP_CONNECTIONS_MAX + 20):
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        writer.write(sent)
        crowd.append((reader, writer))
    assert await client.get("/live") == (200, b"live\n")
    async with asyncio.timeout(10):  # the first ones had to go; the newest are there, and would be answered
        with suppress(ConnectionError):
            await crowd[0][0].read()
    assert not crowd[-1][0].at_eof()
    for _, writer in crowd:
        writer.close()


@pytest.mark.parametrize("path", [b"/api/archive", b"/schema-registry/subjects/a/versions"])
@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 9\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nthis is no chunk\r\n",
        b"Content-Length: 2\r\n\r\n{}\x00 this is no request\r\n\r\n",
        b"Content-Length: 60000\r\n\r\n" + b"[" * 60_000,
    ],
    ids=["cut off", "no chunk", "junk behind", "deep"],
)
async def test_no_request_writes_an_error_into_the_log(
    client: Client, caplog: pytest.LogCaptureFixture, path: bytes, sent: bytes
) -> None:
    reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
    writer.write(b"POST " + path + b" HTTP/1.1\r\n" + JSON_HEAD + sent)
    writer.write_eof()
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            answer = await reader.read()
            assert not answer.startswith(b"HTTP/1.1 500")
    writer.close()
    assert await client.get("/live") == (200, b"live\n")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_the_digest_of_the_state_at_a_position_is_reported(agent: SmallAgent, client: Client) -> None:
    told = await client.get_json("/api/state")
    assert told == {"position": 12, "rules_version": 1, "digest": digest(agent.state).hex()}


async def test_ready_is_what_the_agent_says(agent: SmallAgent, client: Client) -> None:
    assert (await client.get("/ready"))[0] == 200
    agent.is_ready = False
    assert (await client.get("/ready"))[0] == 503


async def test_ready_names_what_an_operator_must_act_on_and_the_status_has_the_details(
    agent: SmallAgent, client: Client
) -> None:
    assert await client.get("/ready") == (200, b"ready\n")
    agent.noticed = [
        Notice(kind=kind, detail=f"/etc/{kind.name} at 10.0.0.1, listener {listener}")
        for kind in NoticeKind
        for listener in ("IN", "OUT")
    ]
    status, body = await client.get("/ready")
    assert (status, body.decode().splitlines()) == (200, ["ready", *(kind.value for kind in NoticeKind)])
    shown = (await client.get_json("/api/status"))["notices"]
    assert shown == [notice.detail for notice in agent.noticed]


async def test_an_outage_of_the_ledger_takes_health_and_metrics_nowhere(agent: SmallAgent, client: Client) -> None:
    agent.backend.is_reachable = False
    assert (await client.get("/ready"))[0] == 200
    assert (await client.get("/metrics"))[0] == 200
    assert error_of(await client.get("/api/topics"))[:2] == (503, "unavailable")


async def test_metrics_are_prometheus_text_with_the_state(client: Client) -> None:
    _, body = await client.get("/metrics")
    assert b'penstock_log_end_offset{partition="0",topic="orders"} 15.0' in body
    assert b"penstock_ledger_position 12.0" in body


async def test_status_has_the_kafka_addresses(client: Client) -> None:
    assert await client.get_json("/api/status") == {
        "is_ready": True,
        "notices": [],
        "name": "a",
        "kafka": ["PLAINTEXT://127.0.0.1:9092"],
    }


async def test_topics_are_listed_and_described(client: Client) -> None:
    listed = await client.get_json("/api/topics")
    assert [row["name"] for row in listed["topics"]] == ["orders"]  # type: ignore[attr-defined]
    assert (await client.get_json("/api/topics/orders"))["partitions"] == 2


async def test_the_lake_is_reported_with_the_catalogs_that_follow(client: Client) -> None:
    told = await client.get_json("/api/lake")
    assert [row["topic"] for row in rows_of(told, "tables")] == ["orders"]
    assert told["external_catalogs"] == [{"catalog": "others", "lag_s": 0.0}]


async def test_a_table_is_begun_again_on_request(agent: SmallAgent, client: Client) -> None:
    status, body = await client("POST", "/api/lake/orders/rebuild", b"{}")
    rebuilt = {"topic": "orders", "files": 1, "records": 15, "version": 2, "released": 3}
    assert (status, json.loads(body)) == (200, rebuilt)
    assert error_of(await client("POST", "/api/lake/none/rebuild", b"{}"))[:2] == (404, "unknown_topic")
    assert error_of(await client("POST", "/api/lake/orders/rebuild", b"{}", "text/plain"))[0] == 415
    for error, code in (
        (NothingToRebuild("orders has no table yet"), (409, "no_table")),
        (FileLost("gone"), (422, "file_lost")),
        (OutcomeUnknown("cut off"), (503, "outcome_unknown")),
        (StoreUnavailable("away"), (503, "unavailable")),
        (ObjectDamaged("a bad sector"), (422, "object_damaged")),
        (ObjectMissing("deleted"), (422, "object_missing")),
    ):
        agent.table_rebuild.error = error
        answer = error_of(await client("POST", "/api/lake/orders/rebuild", b"{}"))
        assert answer[:2] == code
        assert str(error) in answer[2]


async def test_a_table_whose_metadata_is_damaged_names_the_remedy(agent: SmallAgent, client: Client) -> None:
    agent.state.topics[TOPIC_ID].table = TableState(metadata_key="lake/orders/m.json", version=1, objects=set())
    await agent.store.put("lake/orders/m.json", [b"{}"])
    status, body = await client.get("/api/lake/orders")
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (422, "table_damaged")
    assert "penstock lake rebuild" in error["remedy"]


async def test_an_unknown_topic_is_not_found(client: Client) -> None:
    assert error_of(await client.get("/api/topics/none")) == (404, "unknown_topic", "there is no topic 'none'")


async def test_an_unknown_path_says_which_there_are(client: Client) -> None:
    assert error_of(await client.get("/api/none"))[:2] == (404, "http")
    assert error_of(await client.get("/api/archive"))[:2] == (405, "http")


@pytest.mark.parametrize("path", ["/v1/config", "/v1/namespaces/lake/tables", "/api/v1/config", "/catalog/v1/config"])
async def test_a_client_of_the_catalog_at_another_path_is_told_the_right_one(client: Client, path: str) -> None:
    status, body = await client.get(path)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (404, 404, "NotFoundException")
    assert error["message"].endswith("configure the client with the URI http://HOST:PORT/iceberg")


@pytest.mark.parametrize("path", ["/subjects", "/subjects/a/versions", "/registry/schemas/ids/1", "/config", "/mode/a"])
async def test_a_client_of_the_registry_at_another_path_is_told_the_right_one(client: Client, path: str) -> None:
    status, body = await client.get(path)
    error = json.loads(body)
    assert (status, error["error_code"]) == (404, 404)
    assert error["message"].endswith("configure the client with the URL http://HOST:PORT/schema-registry")


async def test_archive_answers_with_the_passes(agent: SmallAgent, client: Client) -> None:
    status, body = await client.archive({"topics": ["orders"]})
    assert status == 200
    assert json.loads(body)["passes"][0]["objects"] == [PARQUET_KEY]
    assert agent.archiver.archived == [TOPIC_ID]


async def test_archive_need_not_wait(agent: SmallAgent, client: Client) -> None:
    status, body = await client.archive({"topics": ["orders"], "wait": False})
    assert (status, json.loads(body)) == (202, {"passes": [], "started": ["orders"]})
    assert agent.archiver.archived == [TOPIC_ID]


@pytest.mark.parametrize("body", [{}, [], 3, {"topics": "orders"}, {"topics": []}, {"topics": [1]}])
async def test_archive_wants_names(client: Client, body: object) -> None:
    assert error_of(await client.archive(body))[:2] == (400, "bad_request")


async def test_archive_of_an_unknown_topic_archives_nothing(agent: SmallAgent, client: Client) -> None:
    assert error_of(await client.archive({"topics": ["orders", "none"]}))[:2] == (404, "unknown_topic")
    assert agent.archiver.archived == []


async def test_an_audit_answers_with_its_report(client: Client) -> None:
    status, body = await client("POST", "/api/audit", b"{}")
    report = json.loads(body)
    assert (status, report["disagreements_count"]) == (200, 1)
    assert [row["what"] for row in report["disagreements"]] == ["ledger"], "the bucket names no cluster"


async def test_a_form_from_a_browser_is_refused(client: Client) -> None:
    answer = await client("POST", "/api/archive", b'{"topics": ["orders"]}', "text/plain")
    assert error_of(answer)[:2] == (415, "bad_request")


async def test_a_body_is_read_up_to_a_bound(client: Client) -> None:
    answer = await client("POST", "/api/archive", b" " * 100_000)
    assert error_of(answer)[:2] == (413, "too_large")
    for body in (b"{", b'{"topics": ["\xff"]}', b'{"topics": ["\\ud800"]}', b"[" * 20_000):
        answer = await client("POST", "/api/archive", body)
        assert error_of(answer)[:2] == (400, "bad_request")


async def test_the_ledger_is_shown_from_a_position_on(client: Client) -> None:
    everything = (await client.get_json("/api/inspect/ledger"))["entries"]
    assert isinstance(everything, list)
    assert [entry["command"] for entry in everything] == ["ReportTime"] * 3
    last = everything[-1]["position"]
    assert (await client.get_json(f"/api/inspect/ledger?after={last}"))["entries"] == []
    assert len((await client.get_json("/api/inspect/ledger?limit=1"))["entries"]) == 1  # type: ignore[arg-type]
    entries = (await client.get_json("/api/inspect/ledger?limit=100000"))["entries"]
    assert isinstance(entries, list)
    assert len(entries) == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("ledger?limit=-1", "limit=-1 is not a whole number from 0 to 10000"),
        ("ledger?after=-1", "after=-1 is not a whole number from 0 on"),
        ("ledger?after=", "after= is not a whole number from 0 on"),
        ("ledger?after=%C2%B2", "after=\u00b2 is not a whole number from 0 on"),
        ("ledger?after=" + "9" * 5000, f"after={'9' * 40} is not a whole number from 0 on"),
        ("objects?limit=x", "limit=x is not a whole number from 0 to 10000"),
        ("chunks?topic=orders&partition=-1", "partition=-1 is not a whole number from 0 on"),
        ("chunks", "topic is missing"),
        ("object", "key is missing"),
        ("object?key=.packs/1", "'.packs/1' is not a key of the bucket: none begins with '.'"),
    ],
)
async def test_a_query_that_is_wrong_is_told_what_is_allowed(client: Client, query: str, message: str) -> None:
    assert error_of(await client.get(f"/api/inspect/{query}")) == (400, "bad_request", message)


@pytest.mark.parametrize("key", ["/etc/passwd", "../up", "a//b", "a%00b"])
async def test_what_is_no_key_is_the_caller_s_error(client: Client, key: str) -> None:
    status, code, message = error_of(await client.get(f"/api/inspect/object?key={key}"))
    assert (status, code) == (400, "bad_request")
    assert "is not a key" in message


async def test_released_objects_are_shown_up_to_a_limit(agent: SmallAgent, client: Client) -> None:
    agent.state.released |= {f"intake/1/{number}": Milliseconds(7) for number in range(10, 13)}
    shown = await client.get_json("/api/inspect/objects?limit=2")
    assert [row["key"] for row in rows_of(shown, "objects") if row["state"] == "released"] == [
        "intake/1/10",
        "intake/1/11",
    ]
    assert len(rows_of(shown, "objects")) == 4
    assert shown["released"] == 4


async def test_chunks_objects_and_state_are_shown(client: Client) -> None:
    chunks = (await client.get_json("/api/inspect/chunks?topic=orders&partition=0"))["chunks"]
    assert len(chunks) == 2  # type: ignore[arg-type]
    objects = await client.get_json("/api/inspect/objects")
    assert (len(rows_of(objects, "objects")), objects["released"]) == (3, 1)
    assert (await client.get_json("/api/inspect/state"))["cluster_id"] == "cluster"
    assert await client.get_json("/api/inspect/transactions") == {"transactions": [], "open": 0, "ids": 0}


async def test_an_object_is_read_from_the_store(client: Client) -> None:
    shown = await client.get_json(f"/api/inspect/object?key={INTAKE_KEY}")
    assert (shown["kind"], shown["session"]) == ("intake", 1)


async def test_an_object_that_is_missing_or_unreadable_is_an_error(client: Client) -> None:
    assert error_of(await client.get("/api/inspect/object?key=none"))[:2] == (404, "unknown_object")
    assert error_of(await client.get("/api/inspect/object?key=ledger/snapshots/1"))[:2] == (422, "unreadable")


async def test_a_cancelled_server_lets_its_port_go(agent: SmallAgent) -> None:
    server = HttpServer(address=HostPort(host="127.0.0.1", port=0))
    address = server.bind()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run(agent.start_services))
        await server.serving()
        server.open(agent.services)
        task.cancel()
    with socket.create_server((address.host, address.port)):
        pass


async def test_a_connection_outlives_the_start_and_sees_the_end(agent: SmallAgent) -> None:
    await agent.fill()
    server = HttpServer(address=HostPort(host="127.0.0.1", port=0))
    address = server.bind()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(agent.start_services))
        await server.serving()
        reader, writer = await asyncio.open_connection(address.host, address.port)

        async def ready() -> tuple[bytes, bytes]:
            """The status line and the last line of the answer."""
            writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, last = await reader.readline(), b""
            while not last.rstrip().endswith((b"ready", b"starts", b"stopping")):
                last = await reader.readline()
            return status.strip(), last.strip()

        unavailable = b"HTTP/1.1 503 Service Unavailable"
        assert await ready() == (unavailable, b"not ready: the agent starts")
        server.open(agent.services)
        agent.waits.finish()
        assert await ready() == (b"HTTP/1.1 200 OK", b"ready")
        server.withdraw()
        assert await ready() == (unavailable, b"not ready: the agent is stopping")
        writer.close()
        await server.stop()


async def test_a_port_that_is_taken_is_an_os_error(client: Client) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer(address=client.address).bind()
