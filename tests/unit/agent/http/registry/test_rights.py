"""What the registry asks for: rights on the topic of a subject, or on the topic resource `schema:SUBJECT`."""

import json
from collections.abc import Mapping

import pytest

from agent.config.http_auth import HttpAccess, HttpTokens
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType, bits
from protocol.auth.principals import ANONYMOUS, read_principal
from tests.support.agent.asgi_client import AsgiClient
from tests.support.agent.http_app import Grants, http_app, on_topic, rights_by
from tests.support.agent.small_agent import SmallAgent

TOKEN, ADMIN_TOKEN = "0123456789abcdef", "fedcba9876543210"
ALICE, ADMIN = read_principal("User:alice"), read_principal("User:admin")
S = "orders-value"
READ, WRITE, DELETE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
ALL = {
    (ResourceType.TOPIC, name): bits(*Operation)
    for name in ("orders", "other", f"schema:{S}", "schema:other-value", "schema:free")
} | {(ResourceType.CLUSTER, CLUSTER_NAME): bits(*Operation)}
INT = json.dumps({"schema": '"int"'}).encode()


class GuardedRegistry:
    """An agent with two subjects of one schema and one of another, which alice and an administrator ask."""

    def __init__(self, grants: Grants, *, is_allowed_without_acls: bool = False, is_anonymous: bool = False) -> None:
        tokens = HttpTokens.of(TOKEN, principal=ALICE) + HttpTokens.of(ADMIN_TOKEN, principal=ADMIN)
        by_principal = {ANONYMOUS if is_anonymous else ALICE: grants, ADMIN: ALL}
        rights = rights_by(by_principal, is_allowed_without_acls=is_allowed_without_acls)
        app = http_app(SmallAgent(), access=HttpAccess(tokens=tokens), rights=rights)
        self.client = AsgiClient(app=app)
        self.headers = {} if is_anonymous else {"authorization": f"Bearer {TOKEN}"}

    async def filled(self) -> "GuardedRegistry":
        headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        for subject, schema in ((S, INT), ("other-value", INT), ("free", b'{"schema": "\\"long\\""}')):
            answer = await self.client("POST", f"/schema-registry/subjects/{subject}/versions", schema, headers)
            assert answer.status == 200, answer.body
        return self

    async def __call__(self, method: str, path: str, body: bytes = INT) -> object:
        answer = await self.client(method, f"/schema-registry{path}", body, self.headers)
        found: object = json.loads(answer.body)
        return found["error_code"] if isinstance(found, Mapping) and "error_code" in found else found


CASES = [
    ("GET", f"/subjects/{S}/versions", (READ, WRITE)),
    ("GET", f"/subjects/{S}/versions/1", (READ, WRITE)),
    ("GET", f"/subjects/{S}/versions/latest/schema", (READ, WRITE)),
    ("GET", f"/subjects/{S}/versions/1/referencedby", (READ, WRITE)),
    ("POST", f"/subjects/{S}", (READ, WRITE)),
    ("POST", f"/compatibility/subjects/{S}/versions", (READ, WRITE)),
    ("POST", f"/compatibility/subjects/{S}/versions/1", (READ, WRITE)),
    ("POST", f"/subjects/{S}/versions", (WRITE,)),
    ("DELETE", f"/subjects/{S}", (DELETE,)),
    ("DELETE", f"/subjects/{S}/versions/1", (DELETE,)),
    ("GET", f"/config/{S}?defaultToGlobal=true", (DESCRIBE_CONFIGS,)),
    ("PUT", f"/config/{S}", (ALTER_CONFIGS,)),
    ("DELETE", f"/config/{S}", (ALTER_CONFIGS,)),
    ("GET", f"/mode/{S}?defaultToGlobal=true", (DESCRIBE_CONFIGS,)),
    ("PUT", f"/mode/{S}", (ALTER_CONFIGS,)),
    ("DELETE", f"/mode/{S}", (ALTER_CONFIGS,)),
]
BODIES = {"PUT": b'{"compatibility": "NONE", "mode": "READWRITE"}'}


@pytest.mark.parametrize(("method", "path", "operations"), CASES)
async def test_each_path_asks_for_its_right_on_the_topic_or_the_subject(
    method: str, path: str, operations: tuple[Operation, ...]
) -> None:
    body = BODIES.get(method, INT)
    if "mode" in path:
        body = b'{"mode": "READWRITE"}'
    elif "config" in path:
        body = b'{"compatibility": "NONE"}'
    for resource in ("orders", f"schema:{S}"):
        without = await GuardedRegistry(on_topic(resource, *(set(Operation) - set(operations)))).filled()
        assert await without(method, path, body) == 40301
        for operation in operations:
            granted = await (await GuardedRegistry(on_topic(resource, operation)).filled())(method, path, body)
            has_nothing_to_delete = method == "DELETE" and path in (f"/config/{S}", f"/mode/{S}")
            assert granted not in (40101, 40301, None if has_nothing_to_delete else 40401)
    assert await (await GuardedRegistry(on_topic("other", *Operation)).filled())(method, path, body) == 40401
    assert await (await GuardedRegistry({}, is_anonymous=True).filled())(method, path, body) == 40101


@pytest.mark.parametrize("path", ["/config", "/mode"])
async def test_what_holds_for_all_subjects_is_the_clusters(path: str) -> None:
    body = json.dumps({"mode": "READWRITE"} if path == "/mode" else {"compatibility": "NONE"}).encode()
    for method, operation in (("GET", DESCRIBE_CONFIGS), ("PUT", ALTER_CONFIGS), ("DELETE", ALTER_CONFIGS)):
        others = {(ResourceType.CLUSTER, CLUSTER_NAME): bits(*(set(Operation) - {operation}))}
        assert await GuardedRegistry(others)(method, path, body) == 40301
        assert not isinstance(
            await GuardedRegistry({(ResourceType.CLUSTER, CLUSTER_NAME): bits(operation)})(method, path, body), int
        )


async def test_a_schema_is_read_by_its_id_through_any_subject_that_has_it() -> None:
    for grants, code in (
        ({}, 40403),
        (on_topic("orders", DESCRIBE), 40403),
        (on_topic("free", READ), 40403),
        (on_topic("other", READ), None),
        (on_topic("schema:other-value", WRITE), None),
    ):
        registry = await GuardedRegistry(grants).filled()
        for path in ("/schemas/ids/1", "/schemas/ids/1/schema"):
            found = await registry("GET", path)
            assert found == code if code else not isinstance(found, int)
    guid = (await (await GuardedRegistry(ALL).filled())("GET", "/schemas/ids/1"))["guid"]  # type: ignore[index]
    assert await (await GuardedRegistry(on_topic("free", READ)).filled())("GET", f"/schemas/guids/{guid}") == 40403
    assert await (await GuardedRegistry(on_topic("orders", READ)).filled())("GET", f"/schemas/guids/{guid}") != 40403


async def test_lists_leave_out_what_may_not_be_described() -> None:
    nothing, one = await GuardedRegistry({}).filled(), await GuardedRegistry(on_topic("orders", DESCRIBE)).filled()
    assert [await nothing("GET", path) for path in ("/subjects", "/schemas")] == [[], []]
    assert await nothing("GET", "/schemas/ids/1/subjects") == 40403
    assert await one("GET", "/subjects") == [S]
    assert await one("GET", "/schemas") == [], "a schema's text needs READ or WRITE"
    assert await one("GET", "/schemas/ids/1/subjects") == [S]
    assert await one("GET", "/schemas/ids/1/versions") == [{"subject": S, "version": 1}]
    reader = await GuardedRegistry(on_topic("schema:free", READ)).filled()
    rows = await reader("GET", "/schemas")
    assert isinstance(rows, list)
    assert [row["subject"] for row in rows] == ["free"]


async def test_a_schema_refers_only_to_what_may_be_read() -> None:
    reference = {"name": "n", "subject": "other-value", "version": 1}
    body = json.dumps({"schema": '"int"', "references": [reference]}).encode()
    for path in (f"/subjects/{S}/versions", f"/subjects/{S}", f"/compatibility/subjects/{S}/versions"):
        registry = await GuardedRegistry(on_topic("orders", WRITE)).filled()
        assert await registry("POST", path, body) == 40401
        both = await GuardedRegistry({**on_topic("orders", WRITE), **on_topic("other", READ)}).filled()
        assert await both("POST", path, body) not in (40301, 40401)


async def test_where_all_is_allowed_without_acls_both_resources_have_to_allow() -> None:
    """ACLs of others on the topic alone would otherwise not hold for its subjects, and the reverse."""
    for name in ("orders", f"schema:{S}"):
        registry = await GuardedRegistry({(ResourceType.TOPIC, name): 0}, is_allowed_without_acls=True).filled()
        assert await registry("GET", f"/subjects/{S}/versions") == 40401
    registry = await GuardedRegistry({}, is_allowed_without_acls=True).filled()
    assert await registry("GET", f"/subjects/{S}/versions") == [1]
    assert await registry("GET", "/subjects/free/versions") == [1]


async def test_the_highest_id_is_that_of_the_schemas_that_a_client_sees() -> None:
    registry = await GuardedRegistry(on_topic("orders", READ)).filled()
    found = await registry("GET", "/schemas/ids/1?fetchMaxId=true")
    assert isinstance(found, Mapping)
    assert found["maxId"] == 1
    both = await GuardedRegistry({**on_topic("orders", READ), **on_topic("schema:free", READ)}).filled()
    found = await both("GET", "/schemas/ids/1?fetchMaxId=true")
    assert isinstance(found, Mapping)
    assert found["maxId"] == 2
