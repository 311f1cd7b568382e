"""What HTTP requests change is in the audit log: once, whoever asked, and never where nothing was changed."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.change_audit import READING_METHODS
from agent.http.iceberg.catalog_config import CatalogParts
from agent.security.audit.audit_events import AuditEvent, ChangeEvent
from agent.security.required_http_rights import HTTP_RIGHTS, REGISTRY_RIGHTS
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.state import SessionState, TableState
from protocol.auth.principals import read_principal
from protocol.types import SessionId
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import http_app
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent

TOKEN = "0123456789abcdef"
ALICE = read_principal("User:alice")
CATALOG = CatalogParts(root_uri="file:///bucket")
KEY = f"lake/orders-{TOPIC_ID.hex()}/metadata/first.metadata.json"
TABLE = "/iceberg/v1/namespaces/lake/tables/orders"
PROPERTIES = [{"action": "set-properties", "updates": {"owner": "x", "mail.password": "hush"}}]
Change = tuple[str, str, str]
"""Resource, operation and text."""


class Changer:
    """Asks as alice, with a token."""

    def __init__(self) -> None:
        self.agent = SmallAgent()
        self.agent.state.rules_version = RULES_NEWEST
        self.agent.state.sessions[SessionId(4)] = SessionState(
            name="orders",
            node_id=2,
            endpoints=(),
            zone=None,
            rules_version=RULES_NEWEST,
            entry_next=1,
            is_draining=True,
        )
        self.agent.state.topics[TOPIC_ID].table = TableState(metadata_key=KEY, version=1, objects=set())
        self.events: list[AuditEvent] = []
        self.has_room = asyncio.Event()
        self.has_room.set()

    async def __call__(self, route: str, body: Mapping[str, object] | None = None) -> Answer:
        await self.agent.store.put(KEY, [b'{"format-version": 2}'])
        app = http_app(
            self.agent,
            CATALOG,
            access=HttpAccess(tokens=HttpTokens.of(TOKEN, principal=ALICE)),
            record=self.events.append,
            until_room=self._until_room,
        )
        method, _, path = route.partition(" ")
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        return await AsgiClient(app=app, peer="10.0.0.7")(method, path, json.dumps(body or {}).encode(), headers)

    async def _until_room(self) -> None:
        await self.has_room.wait()

    def changes(self) -> list[tuple[str, str, str, str]]:
        """Decision, resource, operation and text of the changes since the last call."""
        found = [event for event in self.events if isinstance(event, ChangeEvent)]
        self.events.clear()
        assert all(event.source.principal == ALICE and event.source.host == "10.0.0.7" for event in found)
        return [(event.decision, str(event.resource), event.operation.name, event.change) for event in found]  # type: ignore[union-attr]


BEFORE: Mapping[str, list[tuple[str, Mapping[str, object]]]] = {
    "registered": [("POST /schema-registry/subjects/orders-value/versions", {"schema": '"int"'})],
    "configured": [("PUT /schema-registry/config/orders-value", {"compatibility": "NONE"})],
    "deleted": [
        ("POST /schema-registry/subjects/orders-value/versions", {"schema": '"int"'}),
        ("DELETE /schema-registry/subjects/orders-value/versions/1", {}),
    ],
}
CHANGES: list[tuple[str, str, Mapping[str, object], list[Change]]] = [
    ("", "POST /api/archive", {"topics": ["orders"]}, [("Topic:orders", "ALTER", "archived")]),
    (
        "",
        "POST /api/archive",
        {"topics": ["orders"], "wait": False},
        [("Topic:orders", "ALTER", "an archive pass started")],
    ),
    ("", "POST /api/lake/orders/rebuild", {}, [("Topic:orders", "ALTER", "the table's metadata rebuilt")]),
    ("", "POST /api/acls/confirm", {}, [("Cluster:kafka-cluster", "ALTER", "the restored ACLs confirmed")]),
    ("", "POST /api/agents/orders/drain", {}, [("Cluster:kafka-cluster", "ALTER", "the agent orders asked to drain")]),
    (
        "",
        "POST /api/audit",
        {"repair": True},
        [("Cluster:kafka-cluster", "ALTER", "leftover objects of the bucket deleted")],
    ),
    ("", "POST /api/audit", {}, []),
    (
        "",
        f"POST {TABLE}",
        {"requirements": [], "updates": PROPERTIES},
        [("Topic:orders", "ALTER_CONFIGS", "set-properties owner=x, mail.password=[hidden]")],
    ),
    (
        "",
        "POST /schema-registry/subjects/orders-value/versions",
        {"schema": '"int"'},
        [("Topic:schema:orders-value", "WRITE", "a schema registered: version 1, id 1")],
    ),
    ("registered", "POST /schema-registry/subjects/orders-value/versions", {"schema": '"int"'}, []),
    ("registered", "POST /schema-registry/subjects/orders-value", {"schema": '"int"'}, []),
    ("registered", "POST /schema-registry/compatibility/subjects/orders-value/versions", {"schema": '"int"'}, []),
    (
        "registered",
        "DELETE /schema-registry/subjects/orders-value",
        {},
        [("Topic:schema:orders-value", "DELETE", "all versions deleted")],
    ),
    (
        "deleted",
        "DELETE /schema-registry/subjects/orders-value/versions/1?permanent=true",
        {},
        [("Topic:schema:orders-value", "DELETE", "version 1 deleted for good")],
    ),
    (
        "",
        "PUT /schema-registry/config",
        {"compatibility": "FULL"},
        [("Cluster:kafka-cluster", "ALTER_CONFIGS", "schema registry: compatibility FULL")],
    ),
    (
        "registered",
        "PUT /schema-registry/config/orders-value",
        {"compatibility": "NONE"},
        [("Topic:schema:orders-value", "ALTER_CONFIGS", "schema registry: compatibility NONE")],
    ),
    (
        "configured",
        "DELETE /schema-registry/config/orders-value",
        {},
        [("Topic:schema:orders-value", "ALTER_CONFIGS", "schema registry: compatibility removed")],
    ),
    (
        "",
        "PUT /schema-registry/mode",
        {"mode": "READONLY"},
        [("Cluster:kafka-cluster", "ALTER_CONFIGS", "schema registry: mode READONLY")],
    ),
    (
        "",
        "DELETE /schema-registry/mode",
        {},
        [("Cluster:kafka-cluster", "ALTER_CONFIGS", "schema registry: mode removed")],
    ),
]


@pytest.mark.parametrize(("before", "route", "body", "expected"), CHANGES)
async def test_a_change_is_recorded_once_it_is_made(
    before: str, route: str, body: Mapping[str, object], expected: list[Change]
) -> None:
    ask = Changer()
    for earlier, earlier_body in BEFORE.get(before, []):
        assert (await ask(earlier, earlier_body)).status == 200
    ask.changes()
    answer = await ask(route, body)
    assert answer.status in (200, 202), answer.body
    assert ask.changes() == [("changed", *change) for change in expected]


def test_every_route_that_may_change_something_is_tried() -> None:
    """A new one is to be in `CHANGES`, or among those that change nothing."""
    rows = {*HTTP_RIGHTS, *(f"{method} /schema-registry{path}" for method, _, path in map(split, REGISTRY_RIGHTS))}
    names = {"{name}": "orders", "{table}": "orders", "{namespace}": "lake", "{subject}": "orders-value"}
    tried = {route.partition("?")[0] for _, route, _, _ in CHANGES}
    left = set[str]()
    for row in rows:
        concrete = row.replace("{version}", "1")
        for name, value in names.items():
            concrete = concrete.replace(name, value)
        if split(row)[0] not in READING_METHODS and concrete not in tried:
            left.add(row)
    assert left == {
        # With a test of its own below.
        "POST /api/lake/{name}/rewrites",
        "DELETE /schema-registry/config",
        "PUT /schema-registry/mode/{subject}",
        "DELETE /schema-registry/mode/{subject}",
        # Nothing is changed by these.
        "POST /schema-registry/compatibility/subjects/{subject}/versions/{version}",
        "POST /iceberg/v1/namespaces/{namespace}/tables/{table}/metrics",
        "POST /api/tail",
        "POST /api/tail/{name}/urls",
        # These are always rejected.
        "POST /iceberg/v1/namespaces",
        "DELETE /iceberg/v1/namespaces/{namespace}",
        "POST /iceberg/v1/namespaces/{namespace}/properties",
        "POST /iceberg/v1/namespaces/{namespace}/tables",
        "POST /iceberg/v1/namespaces/{namespace}/register",
        "DELETE /iceberg/v1/namespaces/{namespace}/tables/{table}",
        "POST /iceberg/v1/tables/rename",
        "POST /iceberg/v1/transactions/commit",
        "POST /iceberg/v1/namespaces/{namespace}/views",
        "POST /iceberg/v1/namespaces/{namespace}/register-view",
        "POST /iceberg/v1/namespaces/{namespace}/views/{view}",
        "DELETE /iceberg/v1/namespaces/{namespace}/views/{view}",
        "POST /iceberg/v1/views/rename",
        "POST /iceberg/v1/oauth/tokens",
    }


def split(row: str) -> tuple[str, str, str]:
    return row.partition(" ")


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("POST /api/archive", {"topics": ["nowhere"]}),
        ("POST /schema-registry/subjects/orders-value/versions", {"schema": "{"}),
        ("DELETE /schema-registry/subjects/unknown", {}),
        (f"POST {TABLE}", {"requirements": [], "updates": [{"action": "add-schema"}]}),
        ("POST /api/lake/orders/rewrites", {}),
    ],
)
async def test_a_request_that_is_rejected_changes_nothing(route: str, body: Mapping[str, object]) -> None:
    ask = Changer()
    assert (await ask(route, body)).status >= 400
    assert ask.changes() == []


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), LedgerUnavailable("away")])
async def test_a_change_whose_outcome_nobody_knows_is_recorded_as_that(error: Exception) -> None:
    ask = Changer()

    def fail(_: object) -> None:
        raise error

    ask.agent.ledger.before = fail
    assert (await ask("PUT /schema-registry/config", {"compatibility": "FULL"})).status == 500
    assert [row[0] for row in ask.changes()] == ["unknown"]


async def test_a_request_for_a_change_waits_for_the_audit_log_and_others_do_not() -> None:
    ask = Changer()
    ask.has_room.clear()
    assert (await ask("GET /schema-registry/subjects")).status == 200
    waiting = asyncio.ensure_future(ask("PUT /schema-registry/config", {"compatibility": "FULL"}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert ask.changes() == []
    ask.has_room.set()
    assert (await waiting).status == 200
    assert len(ask.changes()) == 1
