"""Creating and deleting partitions beyond a client's quota: rejected where clients know that, else throttled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.request.services import Services
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.handlers.handler_client import TIMEOUT, ask

CREATE, DELETE, GROW, METADATA = 19, 20, 37, 3
ABOVE, NONE = ErrorCode.throttling_quota_exceeded, ErrorCode.none


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    """Ann may make a mutation a second; eleven at once leave nothing owed."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        services.state.client_quotas = {(("user", "ann"),): {"controller_mutation_rate": 1.0}}
        yield services


async def created(
    services: Services, version: int, *topics: tuple[str, int], user: str = "ann", dry: bool = False
) -> list[ErrorCode]:
    rows = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for name, count in topics
    ]
    answer = await ask(services, CREATE, version, None, None, user, topics=rows, timeout=TIMEOUT, validate_only=dry)
    assert all(row.error_message is None for row in answer.topics)
    return [row.error_code for row in answer.topics]


async def test_topics_are_rejected_once_partitions_are_owed() -> None:
    async with serving() as services:
        assert await created(services, 6, ("a", 11), ("b", 1), ("c", 1)) == [NONE, NONE, ABOVE]
        assert "c" not in services.state.topic_ids
        assert await created(services, 6, ("c", 1), user="bob") == [NONE]


async def test_topics_that_are_only_validated_count_too() -> None:
    async with serving() as services:
        assert await created(services, 6, ("a", 12), dry=True) == [NONE]
        assert await created(services, 6, ("a", 1)) == [ABOVE]


async def test_a_topic_that_cannot_be_created_counts_nothing() -> None:
    async with serving() as services:
        assert await created(services, 6, ("a", 1)) == [NONE]
        answer = await ask(
            services,
            CREATE,
            6,
            None,
            None,
            "ann",
            topics=[{"name": "a", "num_partitions": 500, "replication_factor": 1, "assignments": [], "configs": []}],
            timeout=TIMEOUT,
            validate_only=False,
        )
        assert answer.topics[0].error_code is ErrorCode.topic_already_exists
        assert await created(services, 6, ("b", 10)) == [NONE]


async def test_older_versions_are_carried_out() -> None:
    async with serving() as services:
        assert await created(services, 5, ("a", 11), ("b", 1), ("c", 1)) == [NONE, NONE, NONE]


@pytest.mark.parametrize(("version", "expected"), [(2, NONE), (3, ABOVE)])
async def test_more_partitions(version: int, expected: ErrorCode) -> None:
    async with serving() as services:
        assert await created(services, 6, ("a", 2)) == [NONE]
        for count, error_code in ((20, NONE), (21, expected)):
            rows = [{"name": "a", "count": count, "assignments": None}]
            answer = await ask(
                services, GROW, version, None, None, "ann", topics=rows, timeout=TIMEOUT, validate_only=False
            )
            assert answer.results[0].error_code is error_code


@pytest.mark.parametrize(("version", "expected"), [(4, NONE), (5, ABOVE)])
async def test_deletions(version: int, expected: ErrorCode) -> None:
    async with serving() as services:
        assert await created(services, 6, ("a", 20), ("b", 1), user="bob") == [NONE, NONE]
        for name, error_code in (("a", NONE), ("b", expected)):
            answer = await ask(services, DELETE, version, None, None, "ann", topic_names=[name], timeout=TIMEOUT)
            assert answer.responses[0].error_code is error_code


async def test_a_topic_that_metadata_would_create_is_unknown_above_the_quota() -> None:
    async with serving() as services:
        for name, error_code in (("a", NONE), ("b", ErrorCode.unknown_topic_or_partition)):
            rows = [{"name": name}]
            answer = await ask(services, METADATA, 7, None, None, "ann", topics=rows, allow_auto_topic_creation=True)
            assert answer.topics[0].error_code is error_code
            await created(services, 6, (f"owed-{name}", 12))
        assert "b" not in services.state.topic_ids
