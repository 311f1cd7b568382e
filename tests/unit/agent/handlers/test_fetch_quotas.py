"""A fetch above its client's quota is answered without records; a session goes on, and a new one does not begin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from agent.request.services import Services
from protocol.limits import MIB
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.transactional_paths import Producer, transact
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity

FETCH = 1
INITIAL, WITHOUT = 0, -1


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    """One partition with a few records, of some hundred bytes."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        producer = Producer(paths, "tx")
        for _ in range(3):
            await transact(producer, b"x" * 100, is_commit=True)
        yield services_of(paths, paths.parts.clock, tasks)


def limit(services: Services, bytes_a_second: float) -> None:
    services.state.client_quotas = {(("user", "ann"),): {"consumer_byte_rate": bytes_a_second}}


async def fetched(
    services: Services, session_id: int = 0, epoch: int = WITHOUT, *, is_named: bool = True, bytes_min: int = 1
) -> KioEntity:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": MIB,
    }
    return await ask(
        services,
        FETCH,
        12,
        None,
        None,
        "ann",
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=bytes_min,
        max_bytes=MIB,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[{"topic": "t", "partitions": [partition]}] if is_named else [],
        forgotten_topics_data=[],
        rack_id="",
    )


def has_records(answer: KioEntity) -> bool:
    return any(bool(partition.records) for topic in answer.responses for partition in topic.partitions)


async def test_one_that_is_within_its_quota_has_records() -> None:
    async with serving() as services:
        limit(services, 1e6)
        assert has_records(await fetched(services))


async def test_one_above_it_is_empty() -> None:
    async with serving() as services:
        limit(services, 1.0)
        assert has_records(await fetched(services))  # more than all windows allow, while nothing else is counted
        answer = await fetched(services)
        assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, ())


async def test_a_session_goes_on_and_keeps_what_was_not_sent() -> None:
    async with serving() as services:
        first = await fetched(services, 0, INITIAL)
        limit(services, 1e6)
        assert has_records(await fetched(services, first.session_id, 1))
        limit(services, 1.0)
        throttled = await fetched(services, first.session_id, 2, is_named=False)
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, first.session_id, ())
        services.state.client_quotas = {}
        assert has_records(await fetched(services, first.session_id, 3, is_named=False))


async def test_a_new_session_does_not_begin_with_an_empty_answer() -> None:
    async with serving() as services:
        limit(services, 1.0)
        assert has_records(await fetched(services))
        throttled = await fetched(services, 0, INITIAL)
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, 0, ())


@pytest.mark.parametrize("bytes_min", [1, MIB])
async def test_it_asks_for_no_more_than_all_windows_allow(bytes_min: int) -> None:
    async with serving() as services:
        limit(services, 10.0)
        answer = await fetched(services, bytes_min=bytes_min)
        sizes = [len(partition.records or b"") for topic in answer.responses for partition in topic.partitions]
        services.state.client_quotas = {}
        everything = await fetched(services)
        assert 0 < sum(sizes) < sum(len(p.records or b"") for topic in everything.responses for p in topic.partitions)


async def test_records_that_are_given_out_are_counted_by_topic() -> None:
    async with serving() as services:
        answer = await fetched(services)
        record_bytes = float(sum(len(each.records) for topic in answer.responses for each in topic.partitions))
        text = services.metrics.exposition().decode()
    assert f"penstock_fetch_bytes_total {record_bytes}" in text
    assert f'penstock_topic_bytes_total{{direction="out",topic="t"}} {record_bytes}' in text
    assert 'penstock_topic_records_total{direction="out",topic="t"} 6.0' in text, "with a marker behind each"
