"""Partitions are added to topics, each topic by itself."""

import asyncio
from datetime import timedelta

import pytest

from protocol.errors import ErrorCode
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient, stalled

CREATE_PARTITIONS = 37
OTHER = ord("b")
"""The node id of `another_agent`."""
TIMEOUT = timedelta(seconds=2.5)


def wanted(name: str = "t", count: int = 3, assignments: list[list[int]] | None = None) -> dict[str, object]:
    rows = None if assignments is None else [{"broker_ids": tuple(ids)} for ids in assignments]
    return {"name": name, "count": count, "assignments": rows}


async def asked(*topics: dict[str, object], is_validate_only: bool = False, version: int = 3) -> tuple[list[int], int]:
    """The error codes, and how many partitions `t` has afterwards; it had one before."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        answer = await ask(
            services, CREATE_PARTITIONS, version, topics=list(topics), timeout=TIMEOUT, validate_only=is_validate_only
        )
        return [row.error_code for row in answer.results], len(services.state.topics[TOPIC].partitions)


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_has_as_many_partitions_as_were_asked_for(version: int) -> None:
    assert await asked(wanted(count=3), version=version) == ([ErrorCode.none], 3)


async def test_a_request_that_only_validates_adds_none() -> None:
    assert await asked(wanted(count=3), is_validate_only=True) == ([ErrorCode.none], 1)


@pytest.mark.parametrize(
    ("topic", "error_code"),
    [
        (wanted("u"), ErrorCode.unknown_topic_or_partition),
        (wanted(count=1), ErrorCode.invalid_partitions),
        (wanted(count=0), ErrorCode.invalid_partitions),
        (wanted(count=10_001), ErrorCode.invalid_partitions),
        (wanted(assignments=[[1]]), ErrorCode.invalid_replica_assignment),
        (wanted(assignments=[[1], []]), ErrorCode.invalid_replica_assignment),
    ],
)
async def test_one_that_cannot_grow_is_refused_and_the_others_go_on(
    topic: dict[str, object], error_code: ErrorCode
) -> None:
    assert (await asked(topic))[0] == [error_code]


async def test_assignments_are_counted_and_whom_they_name_does_not_matter() -> None:
    assert await asked(wanted(assignments=[[9999], [1, 2]])) == ([ErrorCode.none], 3)


@pytest.mark.parametrize(
    ("assignments", "kept"),
    [
        ([[OTHER, 1], [1]], {1: (OTHER, 1), 2: (1,)}),
        ([[1], [OTHER, 9999]], {}),
        ([[1, 1], [OTHER]], {}),
        (None, {}),
    ],
)
async def test_assignments_are_kept_where_all_whom_they_name_are_there(
    assignments: list[list[int]] | None, kept: dict[int, tuple[int, ...]]
) -> None:
    async with data_paths() as paths, another_agent(paths), asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        grown = wanted(assignments=assignments)
        answer = await ask(services, CREATE_PARTITIONS, 3, topics=[grown], timeout=TIMEOUT, validate_only=False)
        topic = services.state.topics[TOPIC]
        assert ([row.error_code for row in answer.results], topic.replicas) == ([ErrorCode.none], kept)
        assert len(services.assignments(topic, None)) == 3
        assert all(services.assignments(topic, None)[index].replicas == nodes for index, nodes in kept.items())


async def test_one_that_is_named_twice_does_not_grow() -> None:
    assert await asked(wanted(count=3), wanted(count=4), wanted("u")) == (
        [ErrorCode.invalid_request, ErrorCode.unknown_topic_or_partition],
        1,
    )


async def test_a_ledger_that_does_not_answer_in_time_is_told() -> None:
    clock = Impatient()
    async with stalled(clock) as services:
        answer = await ask(services, CREATE_PARTITIONS, 3, topics=[wanted()], timeout=TIMEOUT, validate_only=False)
        assert answer.results[0].error_code is ErrorCode.request_timed_out
        assert clock.waits == [2.5, 2.5]
