"""Fetch and ListOffsets at both isolation levels, and at one that does not exist, as Kafka answers them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from agent.handlers.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from agent.request.services import Services
from protocol.errors import ErrorCode
from protocol.limits import MIB
from tests.support.agent.data_paths import DataPaths, data_paths, services_of
from tests.support.agent.transactional_paths import Producer, partition_of, transact, values_batch
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity

FETCH, LIST_OFFSETS = 1, 2
UNCOMMITTED, COMMITTED, UNKNOWN = 0, 1, 7


@asynccontextmanager
async def served() -> AsyncIterator[tuple[DataPaths, Services, Producer]]:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        yield paths, services_of(paths, paths.parts.clock, tasks), Producer(paths, "tx")


async def fetched(services: Services, level: int, *, offset: int = 0) -> KioEntity:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": MIB,
    }
    return await ask(
        services,
        FETCH,
        12,
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=MIB,
        isolation_level=level,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "t", "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )


async def listed(services: Services, level: int, timestamp: int, *, version: int = 7) -> tuple[ErrorCode, int, int]:
    isolation = {} if version < 2 else {"isolation_level": level}
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    if version < 4:
        del partition["current_leader_epoch"]
    answer = await ask(
        services,
        LIST_OFFSETS,
        version,
        replica_id=-1,
        topics=[{"name": "t", "partitions": [partition]}],
        **isolation,
    )
    (topic,) = answer.topics
    (told,) = topic.partitions
    return ErrorCode(int(told.error_code)), int(told.timestamp), int(told.offset)


class TestFetch:
    async def test_the_last_stable_offset_is_reported_at_both_levels_and_aborted_transactions_at_one(self) -> None:
        async with served() as (paths, services, producer):
            await transact(producer, b"a", is_commit=False)
            await producer.begin()
            await paths.produce(producer.batch(b"b"))
            rows = []
            for level in (UNCOMMITTED, COMMITTED):
                ((told,),) = [topic.partitions for topic in (await fetched(services, level)).responses]
                aborted = told.aborted_transactions
                listing = None if aborted is None else [(int(a.producer_id), int(a.first_offset)) for a in aborted]
                rows.append((int(told.high_watermark), int(told.last_stable_offset), listing))
            assert rows == [(3, 2, None), (3, 2, [(producer.producer_id, 0)])]

    async def test_without_aborted_transactions_the_list_is_empty_and_not_null(self) -> None:
        async with served() as (paths, services, _):
            await paths.produce(values_batch([b"plain"]))
            for offset in (0, 1):
                ((told,),) = [
                    topic.partitions for topic in (await fetched(services, COMMITTED, offset=offset)).responses
                ]
                assert told.aborted_transactions == ()

    async def test_an_unknown_level_fails_as_a_whole_with_a_row_for_each_partition(self) -> None:
        async with served() as (paths, services, _):
            await paths.produce(values_batch([b"plain"]))
            answer = await fetched(services, UNKNOWN)
            assert answer.error_code == ErrorCode.unknown_server_error
            ((told,),) = [topic.partitions for topic in answer.responses]
            assert told.error_code == ErrorCode.unknown_server_error
            marks = (told.high_watermark, told.last_stable_offset, told.log_start_offset)
            assert (marks, told.aborted_transactions, told.records) == ((-1, -1, -1), (), b"")


class TestListOffsets:
    async def test_the_latest_offset_is_the_last_stable_one_for_who_reads_what_is_committed(self) -> None:
        async with served() as (paths, services, producer):
            await paths.produce(values_batch([b"plain"]))
            await producer.begin()
            await paths.produce(producer.batch(b"a"))
            assert await listed(services, UNCOMMITTED, LATEST) == (ErrorCode.none, -1, 2)
            assert await listed(services, COMMITTED, LATEST) == (ErrorCode.none, -1, 1)
            assert await listed(services, COMMITTED, LATEST, version=1) == (ErrorCode.none, -1, 2)
            await producer.end(is_commit=True)
            assert await listed(services, COMMITTED, LATEST) == (ErrorCode.none, -1, 3)

    async def test_nothing_from_the_last_stable_offset_on_is_found_by_time(self) -> None:
        async with served() as (paths, services, producer):
            await paths.produce(values_batch([b"plain"], timestamp=1_000))
            await producer.begin()
            await paths.produce(producer.batch(b"a", timestamp=2_000))
            for timestamp in (2_000, MAX_TIMESTAMP):
                assert await listed(services, UNCOMMITTED, timestamp) == (ErrorCode.none, 2_000, 1)
                assert await listed(services, COMMITTED, timestamp) == (ErrorCode.none, -1, -1)
            assert await listed(services, COMMITTED, 1_000) == (ErrorCode.none, 1_000, 0)
            assert await listed(services, COMMITTED, EARLIEST) == (ErrorCode.none, -1, 0)

    async def test_markers_are_found_by_time_as_in_kafka_until_they_are_archived(self) -> None:
        async with served() as (paths, services, producer):
            await transact(producer, b"a", is_commit=True)
            time_ms = partition_of(paths).index.row(1).max_timestamp
            assert time_ms > 2_000
            for timestamp in (2_000, MAX_TIMESTAMP):
                assert await listed(services, COMMITTED, timestamp) == (ErrorCode.none, time_ms, 1)
            await paths.archiver.archive_topic(next(iter(services.state.topics)))
            assert await listed(services, COMMITTED, 2_000) == (ErrorCode.none, -1, -1)
            assert await listed(services, COMMITTED, MAX_TIMESTAMP) == (ErrorCode.none, 1_000, 0)

    @pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, 1_000])
    async def test_an_unknown_level_fails_for_every_partition(self, timestamp: int) -> None:
        async with served() as (paths, services, _):
            await paths.produce(values_batch([b"plain"]))
            assert await listed(services, UNKNOWN, timestamp) == (ErrorCode.unknown_server_error, -1, -1)
