"""Each path of the HTTP port without each of its rights: 401 without a login, else 403 or 404, and nothing is shown."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from protocol.auth.operations import Operation, ResourceType
from tests.security.guarded_agent import (
    ADMIN,
    EVERYTHING,
    NOTHING,
    RETENTION_MS,
    TOPIC,
    TRANSACTIONAL_ID,
    GuardedAgent,
    token_of,
    user_without,
)
from tests.security.guarded_paths import BODIES, REGISTRY, GuardedPath, guarded_paths
from tests.support.clients.http_client import HttpAnswer, ask_http
from tests.support.lake.archiving import archive_by_http

SCHEMA = '{"type": "record", "name": "Secret", "fields": [{"name": "hidden", "type": "string"}]}'
DISTINCT = {
    "GET /api/inspect/transactions": TRANSACTIONAL_ID,
    "GET /api/status": "node_id",
    "GET /api/topics/{name}": RETENTION_MS,
    **{f"GET {REGISTRY}/schemas/{path}": "Secret" for path in ("ids/{id}", "ids/{id}/schema", "guids/{id}")},
}
"""Text that an answer has only with the rights of the row's list, where it is not the topic's name."""
PATHS = list(guarded_paths())
CREATE_TABLE = "POST /iceberg/v1/namespaces/{namespace}/tables"
"""It is never allowed, so it is denied to nobody: `test_what_may_not_be_seen_is_as_what_is_not_there` has it."""

pytestmark = pytest.mark.xdist_group("guarded agent")


class HttpAgent(NamedTuple):
    """The agent, with a table of the topic and a schema of its values."""

    guarded: GuardedAgent
    guid: str
    """The schema's."""

    def ask(self, row: GuardedPath, *users: str | None, topic: str = TOPIC) -> list[HttpAnswer]:
        """The answers to users who ask at the same time; None is one without a login. Their denials share a barrier."""
        path, body = row.path(topic).replace("/guids/1", f"/guids/{self.guid}"), row.body(topic)

        def answer(user: str | None) -> HttpAnswer:
            authorization = "" if user is None else f"Bearer {token_of(user)}"
            return ask_http(self.guarded.broker.http, row.method, path, authorization=authorization, body=body)

        with ThreadPoolExecutor(max_workers=len(users)) as threads:
            return list(threads.map(answer, users))


@pytest.fixture(scope="module")
def agent(guarded: GuardedAgent) -> HttpAgent:
    archive_by_http(guarded.broker, TOPIC, token_of(ADMIN))
    register = f"{REGISTRY}/subjects/{TOPIC}-value/versions"
    administrator = f"Bearer {token_of(ADMIN)}"
    answer = ask_http(guarded.broker.http, "POST", register, authorization=administrator, body={"schema": SCHEMA})
    assert answer.status == 200, answer
    return HttpAgent(guarded, answer.json["guid"])


def label_of(row: GuardedPath) -> str:
    return row.row


@pytest.mark.parametrize("row", [row for row in PATHS if row.needs and row.row != CREATE_TABLE], ids=label_of)
def test_a_path_without_each_of_its_rights(agent: HttpAgent, row: GuardedPath) -> None:
    anonymous, nothing, *lacking = agent.ask(row, None, NOTHING, *map(user_without, row.needs))
    assert anonymous.status == 401
    of_cluster = {right.resource_type for right in row.needs[0]} == {ResourceType.CLUSTER}
    assert nothing.status == (403 if of_cluster else 404)
    for rights, answer in zip(row.needs, lacking, strict=True):
        operations = {right.operation for right in rights}
        is_hidden = Operation.DESCRIBE in operations and ResourceType.TOPIC in {each.resource_type for each in rights}
        if row.method == "HEAD" or is_hidden:
            assert answer.status == 404, answer
        else:
            assert answer.status == 403, answer
            assert any(operation.name in answer.text for operation in operations), answer
        assert SCHEMA not in answer.text


NAMING = [row for row in PATHS if row.path("X") != row.path("Y") or row.row in BODIES]


@pytest.mark.parametrize("row", NAMING, ids=label_of)
def test_what_may_not_be_seen_is_as_what_is_not_there(agent: HttpAgent, row: GuardedPath) -> None:
    (there,), (missing,) = agent.ask(row, NOTHING), agent.ask(row, NOTHING, topic="n0-such-topic")
    assert there == HttpAnswer(missing.status, missing.text.replace("n0-such-topic", TOPIC))


@pytest.mark.parametrize("row", [row for row in PATHS if row.lists], ids=label_of)
def test_a_list_leaves_out_what_may_not_be_seen(agent: HttpAgent, row: GuardedPath) -> None:
    shown = DISTINCT.get(row.row, TOPIC)
    lacking, nothing, everything = agent.ask(row, user_without(row.lists[0]), NOTHING, EVERYTHING)
    assert shown not in lacking.text
    assert shown not in nothing.text
    assert shown in everything.text
