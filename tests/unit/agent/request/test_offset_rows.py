"""The rows of requests that commit offsets: which partitions exist, and which the client may read."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from agent.request.offset_rows import OffsetRequest, read_rows
from agent.request.services import Services
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.limits import ROWS_PER_TURN
from protocol.types import TopicId
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import create
from tests.support.handlers.committed_offsets import ledger_of, serving

NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_topic_or_partition


def topic(name: str, *partitions: int) -> SimpleNamespace:
    rows = [
        SimpleNamespace(partition_index=index, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None)
        for index in partitions
    ]
    return SimpleNamespace(name=name, partitions=rows)


def request_of(services: Services, *topics: SimpleNamespace, denied: Sequence[str] = ()) -> OffsetRequest:
    """A request whose client may not read the topics of `denied`, once these are known."""

    def find(named: SimpleNamespace) -> TopicState | None:
        return services.topics.known(named.name)

    return OffsetRequest(
        topics=topics,
        find=find,
        missing=lambda _: UNKNOWN,
        has_leader_epochs=True,
        is_denied=lambda named: named.name in denied and find(named) is not None,
    )


async def test_each_partition_has_its_error_and_those_that_exist_a_row() -> None:
    async with serving(partitions=2) as services:
        request = request_of(services, topic("t", 0, 2, 1), topic("u", 0), topic("t", 1, -1))
        errors, wanted = await read_rows(services, request)
        assert errors == [NONE, UNKNOWN, NONE, UNKNOWN, NONE, UNKNOWN]
        assert [each.position for each in wanted] == [0, 2, 4]
        assert [each.row.partition for each in wanted if each.row is not None] == [0, 1, 1]


async def test_s4_nothing_is_called_unknown_where_no_barrier_passes() -> None:
    async with serving() as services:
        ledger_of(services).is_reachable = False
        errors, wanted = await read_rows(services, request_of(services, topic("t", 0, 9), topic("u", 0)))
        assert errors == [NONE, ErrorCode.coordinator_not_available, ErrorCode.coordinator_not_available]
        assert len(wanted) == 1


@pytest.mark.parametrize("is_denied", [False, True])
async def test_a_topic_that_becomes_known_behind_the_barrier_is_found_and_its_rights_are_judged(
    is_denied: bool,
) -> None:
    async with serving() as services:
        services.ledger.propose(create("u", topic_id=TopicId(bytes(15) + b"\x08")))
        assert services.topics.known("u") is None
        request = request_of(services, topic("u", 0, 9), denied=["u"] if is_denied else [])
        errors, wanted = await read_rows(services, request)
        assert errors == ([ErrorCode.topic_authorization_failed] * 2 if is_denied else [NONE, UNKNOWN])
        assert len(wanted) == (0 if is_denied else 1)


async def test_other_tasks_run_while_many_rows_are_read() -> None:
    async with serving() as services:
        assert isinstance(services.clock, ManualClock)
        slept = services.clock.slept
        before = len(slept)
        await read_rows(services, request_of(services, topic("t", *[0] * (ROWS_PER_TURN - 1))))
        assert len(slept) == before
        await read_rows(services, request_of(services, topic("t", *[0] * (2 * ROWS_PER_TURN))))
        assert len(slept) == before + 2
