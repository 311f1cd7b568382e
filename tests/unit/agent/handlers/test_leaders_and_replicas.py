"""Elections are never needed, and no replica can be moved: that is what tools are told."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from tests.unit.agent.data_paths import data_paths, services_of
from tests.unit.agent.handlers.asking import TIMEOUT, ask

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
UNKNOWN = ErrorCode.unknown_topic_or_partition
NAMED = [{"topic": "t", "partitions": [0, 1]}, {"topic": "gone", "partitions": [0]}]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_no_election_is_needed(version: int) -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        types = {} if version == 0 else {"election_type": 1}
        answer = await ask(services, ELECT_LEADERS, version, topic_partitions=NAMED, timeout=TIMEOUT, **types)
        of_all = await ask(services, ELECT_LEADERS, version, topic_partitions=None, timeout=TIMEOUT, **types)
    told = {
        topic.topic: [(row.partition_id, row.error_code) for row in topic.partition_result]
        for topic in answer.replica_election_results
    }
    assert told == {"t": [(0, ErrorCode.election_not_needed), (1, UNKNOWN)], "gone": [(0, UNKNOWN)]}
    assert of_all.replica_election_results == ()


async def test_an_election_of_no_known_type_is_refused() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        answer = await ask(services, ELECT_LEADERS, 2, election_type=2, topic_partitions=NAMED, timeout=TIMEOUT)
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.invalid_request, ())


@pytest.mark.parametrize("version", [0, 1])
async def test_a_partition_may_be_given_the_replicas_that_it_has_and_no_others(version: int) -> None:
    wanted = [
        {"partition_index": 0, "replicas": [1]},
        {"partition_index": 0, "replicas": [2]},
        {"partition_index": 0, "replicas": [1, 2]},
        {"partition_index": 0, "replicas": []},
        {"partition_index": 0, "replicas": None},
        {"partition_index": 1, "replicas": [1]},
    ]
    topics = [{"name": "t", "partitions": wanted}, {"name": "gone", "partitions": wanted[:1]}]
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        more = {} if version == 0 else {"allow_replication_factor_change": False}
        answer = await ask(services, ALTER_REASSIGNMENTS, version, timeout=TIMEOUT, topics=topics, **more)
    here, gone = ([row.error_code for row in topic.partitions] for topic in answer.responses)
    refused = ErrorCode.invalid_replica_assignment
    assert here == [ErrorCode.none, refused, refused, refused, ErrorCode.no_reassignment_in_progress, UNKNOWN]
    assert gone == [UNKNOWN]
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    if version:
        assert answer.allow_replication_factor_change is False


async def test_no_reassignment_is_ever_under_way() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        for topics in (None, [{"name": "t", "partition_indexes": [0]}, {"name": "gone", "partition_indexes": [0]}]):
            answer = await ask(services, LIST_REASSIGNMENTS, 0, timeout=TIMEOUT, topics=topics)
            assert (answer.error_code, answer.topics) == (ErrorCode.none, ())
