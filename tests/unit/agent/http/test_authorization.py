"""What each path asks for, by the table of rights: every right alone, and all of them but one."""

import json
from collections.abc import Mapping

import pytest
from starlette.routing import BaseRoute, Mount, Route

from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.client_certificates import with_certificate
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.registry import rest_api as registry_api
from agent.runtime.notices import Notice, NoticeKind
from agent.security.audit.audit_events import AuditEvent, DenialEvent
from agent.security.required_http_rights import HTTP_RIGHTS, REGISTRY_RIGHTS
from coordinator.state.state import TableState
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType, bits
from protocol.auth.principals import ANONYMOUS, Principal, read_principal
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import Grants, http_app, on_topic, rights_by
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent

TOKEN = "0123456789abcdef"
ALICE = read_principal("User:alice")
CATALOG = CatalogParts(root_uri="file:///bucket")
KEY = f"lake/orders-{TOPIC_ID.hex()}/metadata/first.metadata.json"
READ, WRITE, ALTER, DESCRIBE = Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DESCRIBE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
BODIES: Mapping[str, bytes] = {
    "POST /api/archive": b'{"topics": ["orders"]}',
    "POST /iceberg/v1/namespaces/{namespace}/tables": b'{"name": "orders"}',
    "POST /iceberg/v1/namespaces/{namespace}/tables/{table}": b'{"requirements": [], "updates": [{"action": '
    b'"set-properties", "updates": {"owner": "x"}}, {"action": "remove-snapshot-ref", "ref-name": "t"}]}',
    "POST /api/audit": b'{"repair": true}',
    "POST /api/tail/{name}/urls": b'{"ranges": [["intake/1/0", 8, 100]]}',
}


def on_cluster(*operations: Operation) -> Grants:
    return {(CLUSTER, CLUSTER_NAME): bits(*operations)}


class Tenant:
    """Asks an agent with an authorizer, as alice with some rights; without a token as ANONYMOUS."""

    def __init__(self, grants: Grants, *, is_anonymous: bool = False, is_allowed_without_acls: bool = False) -> None:
        self.agent = SmallAgent()
        self.agent.state.topics[TOPIC_ID].table = TableState(metadata_key=KEY, version=1, objects=set())
        self.events: list[AuditEvent] = []
        principal: Principal = ANONYMOUS if is_anonymous else ALICE
        app = http_app(
            self.agent,
            CATALOG,
            access=HttpAccess(tokens=HttpTokens.of(TOKEN, principal=ALICE)),
            rights=rights_by({principal: grants}, is_allowed_without_acls=is_allowed_without_acls),
            record=self.events.append,
        )
        self.client = AsgiClient(app=app, peer="10.0.0.7", host="lake.example")
        self.headers = {} if is_anonymous else {"authorization": f"Bearer {TOKEN}"}

    async def __call__(self, route: str, body: bytes | None = None, query: str = "") -> Answer:
        method, _, path = route.partition(" ")
        path = path.format(name="orders", namespace="lake", table="orders", view="v")
        payload = BODIES.get(route, b"{}") if body is None else body
        await self.agent.store.put(KEY, [b'{"format-version": 2}'])
        return await self.client(method, path + query, payload, self.headers)

    async def json(self, route: str) -> dict[str, object]:
        answer = await self(route)
        assert answer.status == 200, answer.body
        return answer.json()


def test_every_route_has_its_row_and_every_row_its_route() -> None:
    app = http_app(SmallAgent(), CATALOG)
    served = set(routes_of("", app.routes))
    assert served | {"HEAD /iceberg/v1/namespaces/{namespace}/tables/{table}"} == HTTP_RIGHTS.keys()
    of_registry = {registry_api.rights_key(method, path) for method, path in registry_api.routes()}
    assert of_registry == REGISTRY_RIGHTS.keys()


def routes_of(prefix: str, routes: list[BaseRoute]) -> list[str]:
    found: list[str] = []
    for route in routes:
        if isinstance(route, Mount):
            found += routes_of(prefix + route.path, route.routes)
        elif isinstance(route, Route):
            found += [f"{method} {prefix}{route.path}" for method in (route.methods or ()) if method != "HEAD"]
    return found


ON_CLUSTER = [(route, operation) for route, row in HTTP_RIGHTS.items() for operation in row.cluster]
ON_TOPIC = [(route, row.topic) for route, row in HTTP_RIGHTS.items() if row.topic]


@pytest.mark.parametrize(("route", "operation"), ON_CLUSTER)
async def test_a_right_on_the_cluster_that_is_missing_is_named(route: str, operation: Operation) -> None:
    every_other = bits(*(set(Operation) - {operation}))
    tenant = Tenant({(CLUSTER, CLUSTER_NAME): every_other, **on_topic("orders", *Operation)})
    answer = await tenant(route)
    assert answer.status == 403
    assert error_of(answer) == f"the right {operation.name} on the cluster is missing"
    allowed = await Tenant({(CLUSTER, CLUSTER_NAME): bits(operation)})(route, b'{"repair": false}')
    assert allowed.status not in (401, 403)


@pytest.mark.parametrize(("route", "operations"), ON_TOPIC)
async def test_a_right_on_the_topic_that_is_missing_is_named(route: str, operations: tuple[Operation, ...]) -> None:
    for missing in set(operations) - {DESCRIBE}:
        answer = await Tenant(on_topic("orders", *(set(Operation) - {missing})))(route)
        assert answer.status == 403
        assert error_of(answer) == f"the right {missing.name} on topic orders is missing"
    granted = await Tenant(on_topic("orders", *Operation))(route)
    assert granted.status not in (401, 404) or route.startswith("GET /api/lake/{name}")
    assert b"the right" not in granted.body


@pytest.mark.parametrize("route", [*dict(ON_TOPIC), "POST /api/archive"])
async def test_a_topic_that_may_not_be_described_is_one_that_does_not_exist(route: str) -> None:
    others = {**on_topic("other", *Operation), (CLUSTER, CLUSTER_NAME): bits(*Operation)}
    hidden = await Tenant(others)(route)
    nowhere = await Tenant({**others, **on_topic("nowhere", *Operation)})(
        route.replace("{name}", "nowhere").replace("{table}", "nowhere"),
        BODIES.get(route, b"{}").replace(b"orders", b"nowhere"),
    )
    assert hidden.status == nowhere.status == 404
    assert hidden.body.replace(b"orders", b"nowhere") == nowhere.body


@pytest.mark.parametrize(
    "route", [route for route, row in HTTP_RIGHTS.items() if row.cluster or row.topic] + ["POST /api/archive"]
)
async def test_without_a_login_the_answer_is_how_to_log_in(route: str) -> None:
    answer = await Tenant({}, is_anonymous=True)(route)
    assert answer.status == 401
    assert answer.headers["www-authenticate"]


@pytest.mark.parametrize("route", ["GET /live", "GET /ready"])
async def test_health_is_told_to_everybody(route: str) -> None:
    assert (await Tenant({}, is_anonymous=True)(route)).status == 200


async def test_lists_leave_out_what_may_not_be_described() -> None:
    for route, name in (("GET /api/topics", "topics"), ("GET /api/lake", "tables")):
        assert (await Tenant({}).json(route))[name] == []
        rows = (await Tenant(on_topic("orders", DESCRIBE)).json(route))[name]
        assert isinstance(rows, list)
        assert len(rows) == 1
    tables = "GET /iceberg/v1/namespaces/{namespace}/tables"
    assert (await Tenant({}).json(tables))["identifiers"] == []
    assert (await Tenant(on_topic("orders", DESCRIBE)).json(tables))["identifiers"] != []
    told = await Tenant({}).json("GET /api/inspect/transactions")
    assert told == {"transactions": [], "open": 0, "ids": 0}


async def test_a_list_that_leaves_something_out_is_no_denial() -> None:
    tenant = Tenant({})
    await tenant.json("GET /api/topics")
    assert not any(isinstance(event, DenialEvent) for event in tenant.events)
    await tenant("GET /api/state")
    (event,) = (event for event in tenant.events if isinstance(event, DenialEvent))
    assert (event.api, event.operation, event.source.principal) == ("GET /api/state", ALTER, ALICE)


async def test_the_bucket_is_told_to_those_that_may_describe_the_cluster() -> None:
    tenant = Tenant({})
    tenant.agent.status_more = {"store": "s3://bucket", "version": "1", "cluster_id": "c"}
    tenant.agent.noticed = [Notice(kind=NoticeKind.REVOCATION_LIST_ENDED, detail="/etc/crl.pem has ended")]
    public = {"is_ready": True, "name": "a", "version": "1", "kafka": ["PLAINTEXT://127.0.0.1:9092"]}
    assert await tenant.json("GET /api/status") == {**public, "cluster_id": "c"}
    stranger = Tenant({}, is_anonymous=True)
    stranger.agent.status_more, stranger.agent.noticed = tenant.agent.status_more, tenant.agent.noticed
    assert await stranger.json("GET /api/status") == public, "salts of unknown users may follow from the cluster's id"
    operator = Tenant(on_cluster(DESCRIBE))
    operator.agent.status_more, operator.agent.noticed = {"store": "s3://bucket"}, tenant.agent.noticed
    described = await operator.json("GET /api/status")
    assert (described["store"], described["notices"]) == ("s3://bucket", ["/etc/crl.pem has ended"])
    assert (await operator.json("GET /api/lake"))["external_catalogs"] != []
    assert (await tenant.json("GET /api/lake"))["external_catalogs"] == []


async def test_configs_are_shown_with_their_own_right() -> None:
    described = await Tenant(on_topic("orders", DESCRIBE)).json("GET /api/topics/{name}")
    assert (described["configs"], described["config_list"]) == ({}, [])
    with_configs = await Tenant(on_topic("orders", Operation.DESCRIBE_CONFIGS)).json("GET /api/topics/{name}")
    assert with_configs["configs"] == {"cleanup.policy": "delete"}


async def test_an_audit_that_repairs_needs_more() -> None:
    answer = await Tenant(on_cluster(DESCRIBE))("POST /api/audit")
    assert (answer.status, error_of(answer)) == (403, "the right ALTER on the cluster is missing")


async def test_one_topic_of_several_is_enough_to_archive_nothing() -> None:
    tenant = Tenant(on_topic("orders", ALTER))
    answer = await tenant("POST /api/archive", json.dumps({"topics": ["orders", "other"]}).encode())
    assert answer.status == 404
    assert tenant.agent.archiver.archived == []


@pytest.mark.parametrize(
    ("update", "operation"),
    [
        ({"action": "set-properties", "updates": {"owner": "x"}}, Operation.ALTER_CONFIGS),
        ({"action": "remove-properties", "removals": ["owner"]}, Operation.ALTER_CONFIGS),
        ({"action": "remove-snapshot-ref", "ref-name": "t"}, ALTER),
    ],
)
async def test_a_commit_asks_for_what_it_changes(update: dict[str, object], operation: Operation) -> None:
    body = json.dumps({"requirements": [], "updates": [update]}).encode()
    route = "POST /iceberg/v1/namespaces/{namespace}/tables/{table}"
    tenant = Tenant(on_topic("orders", *(set(Operation) - {operation})))
    answer = await tenant(route, body)
    assert answer.status == 403
    assert error_of(answer).startswith(f"the right {operation.name} on topic orders is missing")
    assert tenant.agent.table_updates.made == []
    granted = Tenant(on_topic("orders", READ, operation))
    assert (await granted(route, body)).status == 200
    assert len(granted.agent.table_updates.made) == 1


async def test_a_table_to_create_is_not_told_to_exist() -> None:
    route = "POST /iceberg/v1/namespaces/{namespace}/tables"
    hidden, nowhere = await Tenant({})(route), await Tenant({})(route, b'{"name": "nowhere"}')
    assert (hidden.status, hidden.body.replace(b"orders", b"nowhere")) == (nowhere.status, nowhere.body)
    assert (await Tenant(on_topic("orders", DESCRIBE))(route)).status == 409


def error_of(answer: Answer) -> str:
    error = answer.json()["error"]
    assert isinstance(error, dict)
    return str(error["message"]).partition(": an administrator")[0]


async def test_a_client_certificate_names_the_principal() -> None:
    tenant = Tenant(on_topic("orders", DESCRIBE))
    tenant.client.app = with_certificate(tenant.client.app, ALICE)
    tenant.headers = {}
    assert (await tenant("GET /api/topics/{name}")).status == 200
    assert (await tenant("GET /api/state")).status == 403, "it is logged in, and lacks a right"
