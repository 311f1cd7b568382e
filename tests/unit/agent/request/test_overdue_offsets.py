"""Safety rule S23: requests that change offsets, and waited until their client may have committed more elsewhere."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agent.request import offset_commits
from agent.request.services import Request, Services
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import response_type
from protocol.relay import CHANGING_OFFSETS
from tests.support.agent.ledger_parts import until
from tests.support.handlers.committed_offsets import NONE, closed_gate, commit, offsets_of, serving, told
from tests.support.handlers.handler_client import answered, frame_of, handled
from tests.support.handlers.transactions import ID, begun
from tests.support.records.kio_messages import KioEntity, kio_read

AWAY = ErrorCode.coordinator_not_available
NO_MEMBER = {"member_id": "", "group_instance_id": None}
ROW = {"partition_index": 0, "committed_offset": 20, "committed_metadata": None}
TOPICS = [{"name": "t", "partitions": [ROW]}]
COMMIT = {"group_id": "g", "generation_id_or_member_epoch": -1, **NO_MEMBER, "topics": TOPICS}
DELETION = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
MOMENT_S = 0.001


async def ask_late(
    services: Services, api_key: ApiKey, version: int, values: Mapping[str, Any], waited_s: float
) -> KioEntity:
    """The answer to a request that is taken up so long after it arrived."""
    frame = frame_of(api_key, version, values)
    request = Request(
        frame=frame,
        listener="PLAINTEXT",
        peer="127.0.0.1:50000",
        arrived_s=services.clock.monotonic_s() - waited_s,
    )
    return kio_read(response_type(api_key, version), answered(frame, await handled(services, request)))


def codes_of(api_key: ApiKey, answer: KioEntity) -> list[ErrorCode]:
    match api_key:
        case ApiKey.OFFSET_DELETE:
            return [answer.error_code]
        case ApiKey.DELETE_GROUPS:
            return [each.error_code for each in answer.results]
        case _:
            return [each.error_code for topic in answer.topics for each in topic.partitions]


async def request_of(services: Services, api_key: ApiKey) -> tuple[int, dict[str, Any]]:
    """The version and the fields of a request that would change the committed offset of the group `g`."""
    match api_key:
        case ApiKey.OFFSET_COMMIT:
            return 9, COMMIT
        case ApiKey.OFFSET_DELETE:
            return 0, DELETION
        case ApiKey.DELETE_GROUPS:
            return 2, {"groups_names": ["g"]}
        case _:
            producer = await begun(services)
            by = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "generation_id": -1}
            rows = [{"name": "t", "partitions": [ROW]}]
            return 5, {"transactional_id": ID, "group_id": "g", **by, **NO_MEMBER, "topics": rows}


def waits_for_the_ledger(*_arguments: object) -> None:
    """What stands behind an overdue commit on its connection would wait with it."""
    raise AssertionError("an overdue commit waits once more")


@pytest.mark.parametrize("api_key", sorted(CHANGING_OFFSETS))
async def test_a_request_that_waited_for_too_long_changes_nothing(
    api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as services:
        await commit(services, {0: 25})
        version, values = await request_of(services, api_key)
        before = services.state.position
        with monkeypatch.context() as patched:
            patched.setattr(offset_commits, "_confirmed", waits_for_the_ledger)
            late = await ask_late(services, api_key, version, values, services.group_ledger.commit_timeout_s + MOMENT_S)
        assert codes_of(api_key, late) == [AWAY]
        assert services.state.position == before
        assert offsets_of(await told(services)) == {0: 25}
        in_time = await ask_late(services, api_key, version, values, services.group_ledger.commit_timeout_s)
        assert codes_of(api_key, in_time) == [NONE]


@pytest.mark.parametrize("api_key", sorted(CHANGING_OFFSETS))
async def test_a_request_that_came_before_the_session_changes_nothing(api_key: ApiKey) -> None:
    """The agent was paused, and lost its session. Meanwhile the client may have committed through another one."""
    async with serving() as services:
        await commit(services, {0: 25})
        version, values = await request_of(services, api_key)
        services.ledger.writer.opened_s = services.clock.monotonic_s() - 0.5
        before = services.state.position
        assert codes_of(api_key, await ask_late(services, api_key, version, values, 0.5 + MOMENT_S)) == [AWAY]
        assert services.state.position == before
        assert codes_of(api_key, await ask_late(services, api_key, version, values, 0.5)) == [NONE]


async def test_a_commit_that_waits_for_its_coordinator_to_claim_the_group_counts_that_time_too() -> None:
    async with serving() as services:
        gate = closed_gate(services)
        asking = asyncio.create_task(
            ask_late(services, ApiKey.OFFSET_COMMIT, 9, COMMIT, services.group_ledger.commit_timeout_s)
        )
        await until(lambda: bool(services.group_ledger._claims))
        await services.clock.sleep(MOMENT_S)
        gate.set()
        assert codes_of(ApiKey.OFFSET_COMMIT, await asking) == [AWAY]
        assert offsets_of(await told(services)) == {}
