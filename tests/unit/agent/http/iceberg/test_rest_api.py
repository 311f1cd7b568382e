"""The catalog's paths: what is read, what is refused with which words, and who is let in."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.config.addresses import HostPort
from agent.config.http_auth import HttpAccess, HttpTokens, is_this_machine
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.iceberg.rest_api import CREDENTIALS_ENDPOINT, ENDPOINTS
from agent.http.iceberg.vended_credentials import CredentialVendor
from agent.http.server import HttpServer
from agent.lake.table_updates import TopicGone
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.state import TableState, TopicState
from iceberg_export.tables.edits import EditInvalid, RequirementFailed
from protocol.limits import CATALOG_BODY_BYTES_MAX
from protocol.types import Milliseconds, TopicId
from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3.session_credentials import SessionCredentials
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import http_app
from tests.support.agent.ledger_parts import ManualClock
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent
from tests.support.lake.table_fixtures import setting

ROOT = "s3://bucket/prefix"
FOLDER = f"lake/orders-{TOPIC_ID.hex()}/"
KEY = f"{FOLDER}metadata/first.metadata.json"
TOKEN = "0123456789abcdef"
V1 = "/iceberg/v1"
TABLE = f"{V1}/namespaces/lake/tables/orders"
FILE_IO = {"s3.endpoint": "http://127.0.0.1:9000"}
METADATA = {
    "format-version": 2,
    "snapshots": [{"snapshot-id": 1}, {"snapshot-id": 2}],
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
}
KEYS = {
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "session",
    "s3.session-token-expires-at-ms": "1700000000000",
}


def make_keys(folder: str, user: str) -> SessionCredentials:
    assert (folder, user) == (FOLDER, "ANONYMOUS")
    return SessionCredentials(
        access_key_id="key", secret_access_key="secret", session_token="session", expires_ms=Milliseconds(1700000000000)
    )


def refuse_keys(_: str, __: str) -> SessionCredentials:
    raise StoreMisconfigured("STS says no")


def catalog(
    agent: SmallAgent, *, tokens: HttpTokens | None = None, vendor: CredentialVendor | None = None
) -> AsgiClient:
    parts = CatalogParts(root_uri=ROOT, file_io=FILE_IO, credentials=vendor)
    return AsgiClient(app=http_app(agent, parts, access=HttpAccess(tokens=tokens or HttpTokens())))


@pytest.fixture
async def agent() -> SmallAgent:
    agent = SmallAgent()
    await agent.store.put(KEY, [json.dumps(METADATA).encode()])
    agent.state.topics[TOPIC_ID].table = TableState(metadata_key=KEY, version=1, objects=set())
    return agent


@pytest.fixture
def client(agent: SmallAgent) -> AsgiClient:
    return catalog(agent)


def add_topics(agent: SmallAgent, *names: str) -> None:
    for number, name in enumerate(names):
        topic_id = TopicId(bytes([number + 1]) * 16)
        agent.state.topics[topic_id] = TopicState(
            topic_id=topic_id, name=name, configs={}, partitions=[], created_ms=Milliseconds(1)
        )
        agent.state.topic_ids[name] = topic_id


def error_of(answer: Answer) -> tuple[int, str, str]:
    error = answer.json()["error"]
    assert isinstance(error, dict)
    assert set(error) == {"message", "type", "code"}
    assert error["code"] == answer.status
    return answer.status, error["type"], error["message"]


def names_of(answer: Answer) -> list[str]:
    rows = answer.json()["identifiers"]
    assert isinstance(rows, list)
    return [row["name"] for row in rows]


@pytest.mark.parametrize("query", ["", "?warehouse=anything"])
async def test_config_says_how_to_read_and_what_there_is(client: AsgiClient, query: str) -> None:
    answer = await client("GET", f"{V1}/config{query}")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert found["defaults"] == FILE_IO
    assert found["overrides"] == {"token-refresh-enabled": "false", "token-exchange-enabled": "false"}
    assert found["endpoints"] == list(ENDPOINTS)


async def test_every_endpoint_of_the_config_is_answered(agent: SmallAgent) -> None:
    client = catalog(agent, vendor=CredentialVendor(ask=make_keys, clock=ManualClock(), is_required=True))
    listed = (await client("GET", f"{V1}/config")).json()["endpoints"]
    assert isinstance(listed, list)
    assert CREDENTIALS_ENDPOINT in listed
    for endpoint in listed:
        method, _, path = endpoint.partition(" ")
        path = path.replace("/{prefix}", "").replace("{namespace}", "lake").replace("{table}", "orders")
        answer = await client(method, f"/iceberg{path}", b'{"updates": [], "name": "n"}')
        assert answer.status in (200, 204, 403), endpoint


async def test_there_is_one_namespace(client: AsgiClient) -> None:
    assert (await client("GET", f"{V1}/namespaces")).json() == {"namespaces": [["lake"]]}
    assert (await client("GET", f"{V1}/namespaces?parent=lake")).json() == {"namespaces": []}
    assert error_of(await client("GET", f"{V1}/namespaces?parent=x"))[:2] == (404, "NoSuchNamespaceException")
    answer = await client("GET", f"{V1}/namespaces/lake")
    assert answer.json() == {"namespace": ["lake"], "properties": {"location": f"{ROOT}/lake"}}
    assert (await client("HEAD", f"{V1}/namespaces/lake")).status == 204
    assert (await client("HEAD", f"{V1}/namespaces/other")).status == 404
    shown = error_of(await client("GET", f"{V1}/namespaces/lake%1Fa"))
    assert shown[1:] == (
        "NoSuchNamespaceException",
        "there is no namespace lake.a: every topic is a table in namespace lake",
    )


async def test_tables_are_topics_in_order(agent: SmallAgent, client: AsgiClient) -> None:
    add_topics(agent, "z", "a.b", "__x")
    answer = await client("GET", f"{V1}/namespaces/lake/tables")
    assert names_of(answer) == ["__x", "a.b", "orders", "z"]
    assert answer.json()["next-page-token"] is None
    assert error_of(await client("GET", f"{V1}/namespaces/other/tables"))[:2] == (404, "NoSuchNamespaceException")


async def test_pages_follow_each_other_while_topics_come_and_go(agent: SmallAgent, client: AsgiClient) -> None:
    add_topics(agent, "a", "b", "y", "z")
    first = await client("GET", f"{V1}/namespaces/lake/tables?pageToken=&pageSize=2")
    assert (names_of(first), first.json()["next-page-token"]) == (["a", "b"], "b")
    del agent.state.topic_ids["b"]
    second = await client("GET", f"{V1}/namespaces/lake/tables?pageToken=b&pageSize=2")
    assert (names_of(second), second.json()["next-page-token"]) == (["orders", "y"], "y")
    last = await client("GET", f"{V1}/namespaces/lake/tables?pageToken=y&pageSize=2")
    assert (names_of(last), last.json()["next-page-token"]) == (["z"], None)


async def test_who_sends_no_token_gets_everything_at_once(agent: SmallAgent, client: AsgiClient) -> None:
    add_topics(agent, "a", "b")
    for query in ("?pageSize=1", "?pageToken=", ""):
        answer = await client("GET", f"{V1}/namespaces/lake/tables{query}")
        assert (names_of(answer), answer.json()["next-page-token"]) == (["a", "b", "orders"], None)


@pytest.mark.parametrize("size", ["0", "-1", "x", "1e3", "%C2%B2", "9999999999"])
async def test_a_page_has_a_size(client: AsgiClient, size: str) -> None:
    answer = await client("GET", f"{V1}/namespaces/lake/tables?pageToken=&pageSize={size}")
    assert error_of(answer)[:2] == (400, "BadRequestException")


async def test_a_table_is_loaded_as_it_is_in_the_bucket(client: AsgiClient) -> None:
    answer = await client("GET", TABLE)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "metadata-location": f"{ROOT}/{KEY}",
        "metadata": METADATA,
        "config": FILE_IO,
        "storage-credentials": [],
    }
    assert (await client("GET", f"{TABLE}?snapshots=all")).json() == answer.json()


async def test_snapshots_that_nothing_names_are_left_out_on_demand(client: AsgiClient) -> None:
    found = (await client("GET", f"{TABLE}?snapshots=refs")).json()["metadata"]
    assert found == {**METADATA, "snapshots": [{"snapshot-id": 2}]}
    assert error_of(await client("GET", f"{TABLE}?snapshots=some"))[:2] == (400, "BadRequestException")


async def test_a_topic_without_a_commit_is_a_table_without_rows(agent: SmallAgent, client: AsgiClient) -> None:
    add_topics(agent, "new")
    found = (await client("GET", f"{V1}/namespaces/lake/tables/new")).json()
    assert found["metadata-location"] is None
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    assert (metadata["snapshots"], metadata["table-uuid"]) == ([], "01010101-0101-0101-0101-010101010101")


@pytest.mark.parametrize("path", ["lake/tables/none", "other/tables/orders", "lake%1Forders/tables/snapshots"])
@pytest.mark.parametrize(("method", "below"), [("GET", ""), ("POST", ""), ("DELETE", ""), ("POST", "/metrics")])
async def test_an_unknown_table_is_reported_as_such(client: AsgiClient, method: str, below: str, path: str) -> None:
    answer = await client(method, f"{V1}/namespaces/{path}{below}", b'{"updates": []}')
    assert error_of(answer)[:2] == (404, "NoSuchTableException")
    assert (await client("HEAD", f"{V1}/namespaces/{path}")).status == 404


async def test_whether_a_table_is_there_and_what_was_measured(client: AsgiClient) -> None:
    assert (await client("HEAD", TABLE)).status == 204
    assert (await client("POST", f"{TABLE}/metrics", b'{"report-type": "scan-report"}')).status == 204


SETTING = json.dumps({"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}).encode()


async def test_an_edit_is_made_and_answered_with_the_table(agent: SmallAgent, client: AsgiClient) -> None:
    answer = await client("POST", TABLE, SETTING)
    assert answer.status == 200
    assert answer.json() == {"metadata-location": f"{ROOT}/{KEY}", "metadata": METADATA}
    assert agent.table_updates.made == [(TOPIC_ID, setting({"a": "b"}))]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (EditInvalid("no"), 400, "BadRequestException"),
        (RequirementFailed("no"), 409, "CommitFailedException"),
        (OutcomeUnknown("no"), 500, "CommitStateUnknownException"),
        (TopicGone("no"), 404, "NoSuchTableException"),
        (StoreUnavailable("no"), 503, "ServiceUnavailableException"),
    ],
)
async def test_what_became_of_an_edit_is_reported(
    agent: SmallAgent, client: AsgiClient, error: Exception, status: int, kind: str
) -> None:
    agent.table_updates.error = error
    assert error_of(await client("POST", TABLE, SETTING))[:2] == (status, kind)


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_page_in_a_browser_of_this_machine_edits_nothing(
    agent: SmallAgent, client: AsgiClient, media_type: str
) -> None:
    answer = await client("POST", TABLE, SETTING, {"content-type": media_type, "origin": "https://elsewhere.example"})
    assert error_of(answer)[:2] == (415, "BadRequestException")
    assert agent.table_updates.made == []
    assert (await client("POST", TABLE, SETTING, {"content-type": "application/json; charset=utf-8"})).status == 200


async def test_an_edit_that_holds_is_not_told_as_none_where_the_table_cannot_be_shown(
    agent: SmallAgent, client: AsgiClient
) -> None:
    await agent.store.delete([KEY])
    status, kind, message = error_of(await client("POST", TABLE, SETTING))
    assert (status, kind) == (500, "CommitStateUnknownException")
    assert "load the table to check" in message
    assert len(agent.table_updates.made) == 1


async def test_an_edit_that_is_none_is_a_bad_request(agent: SmallAgent, client: AsgiClient) -> None:
    updates = [{"action": "remove-properties", "removals": []}]
    body = json.dumps({"requirements": [{"type": "assert-of-the-future"}], "updates": updates}).encode()
    assert error_of(await client("POST", TABLE, body))[:2] == (400, "BadRequestException")
    assert agent.table_updates.made == []


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", "/namespaces", {"namespace": ["mine"]}, "every topic is a table in it"),
        ("DELETE", "/namespaces/lake", None, "cannot be dropped"),
        ("POST", "/namespaces/lake/properties", {"updates": {}}, "properties of namespace lake cannot be set"),
        ("POST", "/namespaces/lake/tables", {"name": "new"}, "create topic new with Kafka's tools"),
        ("POST", "/namespaces/lake/register", {"name": "new"}, "holds only the tables of topics"),
        ("DELETE", "/namespaces/lake/tables/orders", None, "delete topic orders with Kafka's tools"),
        ("DELETE", "/namespaces/lake/tables/orders?purgeRequested=true", None, "delete topic orders"),
        ("POST", "/tables/rename", {"source": {}}, "topics cannot be renamed"),
        (
            "POST",
            "/namespaces/lake/tables/orders",
            {"updates": [{"action": "add-snapshot"}]},
            "rows come from the topic",
        ),
        ("POST", "/transactions/commit", {"table-changes": []}, "to write records produce to the topic"),
        ("POST", "/namespaces/lake/views", {"name": "v"}, "this catalog has no views"),
        ("POST", "/namespaces/lake/register-view", {"name": "v"}, "this catalog has no views"),
        ("POST", "/views/rename", {"source": {}}, "this catalog has no views"),
    ],
)
async def test_what_would_change_a_table_says_what_to_do_instead(
    agent: SmallAgent, client: AsgiClient, method: str, path: str, body: object, words: str
) -> None:
    before = (await client("GET", TABLE)).json()
    status, kind, message = error_of(await client(method, V1 + path, json.dumps(body).encode()))
    assert (status, kind) == (403, "ForbiddenException")
    assert words in message
    assert (await client("GET", TABLE)).json() == before
    assert [meta.key async for meta in agent.store.list("")] == [KEY]


async def test_what_is_there_cannot_be_created_again(client: AsgiClient) -> None:
    answer = await client("POST", f"{V1}/namespaces", b'{"namespace": ["lake"]}')
    assert error_of(answer)[:2] == (409, "AlreadyExistsException")
    answer = await client("POST", f"{V1}/namespaces/lake/tables", b'{"name": "orders"}')
    assert error_of(answer)[:2] == (409, "AlreadyExistsException")


async def test_there_are_no_views(client: AsgiClient) -> None:
    assert (await client("GET", f"{V1}/namespaces/lake/views")).json() == {"identifiers": [], "next-page-token": None}
    for method in ("GET", "POST", "DELETE"):
        answer = await client(method, f"{V1}/namespaces/lake/views/v", b"{}")
        assert error_of(answer)[:2] == (404, "NoSuchViewException")
    assert (await client("HEAD", f"{V1}/namespaces/lake/views/v")).status == 404
    assert error_of(await client("POST", f"{V1}/namespaces/x/views", b"{}"))[:2] == (404, "NoSuchNamespaceException")


async def test_no_tokens_are_made_and_that_is_said_in_oauths_own_words(client: AsgiClient) -> None:
    answer = await client("POST", f"{V1}/oauth/tokens", b"grant_type=client_credentials")
    assert answer.status == 400
    assert answer.json()["error"] == "unsupported_grant_type"
    assert "--http-token-file" in str(answer.json()["error_description"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/namespaces/lake/tables/orders/plan", 404),
        ("PUT", "/config", 405),
        ("GET", "/namespaces/lake/tables/a%2Fb", 404),
        ("GET", "/oauth/tokens", 405),
    ],
)
async def test_unknown_paths_are_reported_in_the_same_envelope(
    client: AsgiClient, method: str, path: str, status: int
) -> None:
    assert error_of(await client(method, V1 + path))[0] == status


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"lake"', b'{"\xff": 1}', b'{"a":' * 9_000])
@pytest.mark.parametrize("path", ["/namespaces", "/namespaces/lake/tables"])
async def test_a_body_is_an_object(client: AsgiClient, path: str, body: bytes) -> None:
    assert error_of(await client("POST", V1 + path, body))[:2] == (400, "BadRequestException")


async def test_a_table_to_create_has_a_name(client: AsgiClient) -> None:
    for body in (b"{}", b'{"name": 3}', b'{"name": ""}'):
        assert error_of(await client("POST", f"{V1}/namespaces/lake/tables", body))[0] == 400


async def test_a_body_is_read_up_to_a_bound(client: AsgiClient) -> None:
    answer = await client("POST", TABLE, b" " * (CATALOG_BODY_BYTES_MAX + 1))
    assert error_of(answer)[:2] == (413, "BadRequestException")


async def test_a_ledger_that_is_away_is_told_as_such(agent: SmallAgent, client: AsgiClient) -> None:
    agent.backend.is_reachable = False
    for path in (TABLE, f"{V1}/namespaces/lake/tables", f"{V1}/namespaces/lake/tables/none"):
        assert error_of(await client("GET", path))[:2] == (503, "ServiceUnavailableException")
    assert (await client("HEAD", f"{V1}/namespaces/lake/tables/none")).status == 503


async def test_metadata_that_is_missing_or_damaged_is_an_error(agent: SmallAgent, client: AsgiClient) -> None:
    await agent.store.delete([KEY])
    assert error_of(await client("GET", TABLE))[0] == 503
    await agent.store.put(KEY, [b"junk"])
    assert error_of(await client("GET", TABLE))[0] == 503


class TestKeys:
    async def test_come_with_the_table_and_can_be_renewed(self, agent: SmallAgent) -> None:
        client = catalog(agent, vendor=CredentialVendor(ask=make_keys, clock=ManualClock(), is_required=True))
        found = (await client("GET", TABLE)).json()
        renewed_at = "v1/namespaces/lake/tables/orders/credentials"
        assert found["config"] == {**FILE_IO, **KEYS, "client.refresh-credentials-endpoint": renewed_at}
        stored = [{"prefix": f"{ROOT}/{FOLDER}", "config": {**FILE_IO, **KEYS}}]
        assert found["storage-credentials"] == stored
        assert (await client("GET", f"/iceberg/{renewed_at}")).json() == {"storage-credentials": stored}
        answer = await client("GET", f"{V1}/namespaces/lake/tables/none/credentials")
        assert error_of(answer)[:2] == (404, "NoSuchTableException")

    @pytest.mark.parametrize(
        ("asked", "is_given"),
        [
            ("vended-credentials", True),
            ("remote-signing, vended-credentials", True),
            ("remote-signing", False),
            ("", True),
        ],
    )
    async def test_are_given_unless_others_are_asked_for(self, agent: SmallAgent, asked: str, is_given: bool) -> None:
        client = catalog(agent, vendor=CredentialVendor(ask=make_keys, clock=ManualClock(), is_required=True))
        answer = await client("GET", TABLE, headers={"X-Iceberg-Access-Delegation".lower(): asked})
        assert bool(answer.json()["storage-credentials"]) is is_given

    async def test_that_nobody_makes_leave_engines_to_their_own_and_say_so(self, agent: SmallAgent) -> None:
        client = catalog(agent, vendor=CredentialVendor(ask=refuse_keys, clock=ManualClock(), is_required=False))
        found = (await client("GET", TABLE)).json()
        assert found["config"] == {**FILE_IO, "penstock.credentials": "none, use your own: STS says no"}
        assert found["storage-credentials"] == []
        assert error_of(await client("GET", f"{TABLE}/credentials"))[0] == 503

    async def test_that_are_required_are_an_error_where_there_are_none(self, agent: SmallAgent) -> None:
        client = catalog(agent, vendor=CredentialVendor(ask=refuse_keys, clock=ManualClock(), is_required=True))
        status, _, message = error_of(await client("GET", TABLE))
        assert (status, message) == (503, "the catalog got no credentials for table orders: STS says no; try again")

    async def test_that_nobody_is_to_make_are_none(self, client: AsgiClient) -> None:
        assert (await client("GET", f"{TABLE}/credentials")).json() == {"storage-credentials": []}


class TestWhoIsLetIn:
    PATHS = ("/config", "/namespaces", "/namespaces/lake/tables/orders", "/nothing", "/oauth/tokens")

    @pytest.mark.parametrize("peer", ["10.1.2.3", "fe80::1", None])
    async def test_without_tokens_nobody_from_elsewhere(self, client: AsgiClient, peer: str | None) -> None:
        client.peer = peer
        for path in self.PATHS:
            for method in ("GET", "POST", "DELETE", "HEAD"):
                answer = await client(method, V1 + path)
                assert answer.status == 403
                assert b"orders" not in answer.body
        assert "--http-token-file" in error_of(await client("GET", f"{V1}/config"))[2]

    async def test_without_tokens_nobody_who_was_led_here_by_another_name(self, client: AsgiClient) -> None:
        client.host = "page.example"
        assert error_of(await client("GET", f"{V1}/config"))[:2] == (403, "ForbiddenException")

    @pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.1", None])
    async def test_with_tokens_who_shows_one(self, agent: SmallAgent, peer: str | None) -> None:
        client = catalog(agent, tokens=HttpTokens.of(TOKEN))
        client.peer, client.host = peer, "broker.example"
        for path in self.PATHS:
            answer = await client("GET", V1 + path)
            assert error_of(answer)[:2] == (401, "NotAuthorizedException")
            assert answer.headers["www-authenticate"].startswith("Bearer, Basic ")
            assert (await client("GET", V1 + path, headers={"authorization": "Bearer wrong"})).status == 401
        assert (await client("GET", TABLE, headers={"authorization": f"Bearer {TOKEN}"})).status == 200

    async def test_health_is_not_asked_for_tokens(self, agent: SmallAgent) -> None:
        client = catalog(agent, tokens=HttpTokens.of(TOKEN))
        client.peer = "10.1.2.3"
        assert (await client("GET", "/live")).status == 200


async def test_without_a_catalog_nothing_is_below_its_path(agent: SmallAgent) -> None:
    client = AsgiClient(app=http_app(agent))
    assert (await client("GET", f"{V1}/config")).status == 404


@asynccontextmanager
async def serving(agent: SmallAgent, host: str) -> AsyncIterator[HostPort]:
    """A catalog without tokens behind a real socket."""
    server = HttpServer(address=HostPort(host=host, port=0), catalog=CatalogParts(root_uri=ROOT))
    address = server.bind()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(agent.start_services))
        await server.serving()
        server.open(agent.services)
        yield address
        await server.stop()


async def test_over_a_socket_this_machine_is_answered_but_for_what_a_proxy_passes_on(agent: SmallAgent) -> None:
    async with serving(agent, "127.0.0.1") as address:
        status, body = await ask(address, "Host: localhost\r\n")
        assert (status, json.loads(body)["overrides"]["token-refresh-enabled"]) == (200, "false")
        assert (await ask(address, "Host: page.example\r\n"))[0] == 403
        assert (await ask(address, "Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n"))[0] == 403


async def test_over_a_socket_who_comes_from_another_address_is_refused(agent: SmallAgent) -> None:
    """This machine's own, where it has one that others could have."""
    for host in addresses_towards_others():
        async with serving(agent, host) as address:
            status, body = await ask(address, "Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n")
            assert (status, json.loads(body)["error"]["type"]) == (403, "ForbiddenException")


async def ask(address: HostPort, head: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {V1}/config HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


def addresses_towards_others() -> list[str]:
    """That of IPv4 which this machine would send from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        host = probe.getsockname()[0]
        return [] if is_this_machine(host) else [host]
