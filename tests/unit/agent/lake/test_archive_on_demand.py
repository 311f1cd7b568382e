"""POST /api/archive where a pass fails: the answer, or the log, says why and what to do."""

import json
from dataclasses import replace

import pytest

from iceberg_export.tables.metadata import TableUnreadable
from protocol.types import TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError, StoreUnavailable
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import http_app
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent

REASON = "intake/1/2: no"


async def archive(error: StoreError, *, is_awaited: bool) -> Answer:
    """What is answered where the agent's pass raises `error`."""
    agent = SmallAgent()
    agent.archiver.error = error
    body = json.dumps({"topics": ["orders"], "wait": is_awaited}).encode()
    return await AsgiClient(app=http_app(agent))("POST", "/api/archive", body)


@pytest.mark.parametrize(
    ("error", "status", "code", "remedy"),
    [
        (ObjectDamaged(REASON), 422, "object_damaged", "A damaged file"),
        (TableUnreadable(REASON), 422, "table_damaged", "A table's metadata is damaged"),
        (ObjectMissing(REASON), 422, "object_missing", "Objects are missing"),
        (StoreUnavailable(REASON), 503, "unavailable", ""),
    ],
)
async def test_the_answer_says_why_and_what_to_do(error: StoreError, status: int, code: str, remedy: str) -> None:
    answer = await archive(error, is_awaited=True)
    told = json.loads(answer.body)["error"]
    assert (answer.status, told["code"], told["message"]) == (status, code, REASON)
    assert remedy in told["remedy"]


async def test_where_nobody_waits_the_log_says_it(caplog: pytest.LogCaptureFixture) -> None:
    answer = await archive(ObjectDamaged(REASON), is_awaited=False)
    assert answer.status == 202
    [told] = [record for record in caplog.records if "its topics are not archived" in record.getMessage()]
    assert "A damaged file" in told.getMessage()
    assert (told.__dict__["topics"], told.__dict__["reason"]) == ("orders", REASON)


async def test_after_a_failure_of_one_topic_the_others_are_archived() -> None:
    agent = SmallAgent()
    agent.archiver.error = ObjectDamaged(REASON)
    other = replace(agent.state.topics[TOPIC_ID], topic_id=TopicId(bytes(16)), name="others")
    agent.state.topics[other.topic_id] = other
    agent.state.topic_ids[other.name] = other.topic_id
    body = json.dumps({"topics": ["orders", "others"]}).encode()
    answer = await AsgiClient(app=http_app(agent))("POST", "/api/archive", body)
    assert (answer.status, agent.archiver.archived) == (422, [other.topic_id])
