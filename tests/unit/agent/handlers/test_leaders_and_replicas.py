"""Elections are never needed, and no replica can be moved: that is what tools are told."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from tests.unit.agent.data_paths import another_agent, data_paths, services_of
from tests.unit.agent.handlers.asking import TIMEOUT, ask

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
OTHER = ord("b")
"""The node id of `another_agent`."""
FACTOR_CHANGE = "allow_replication_factor_change"
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


@pytest.mark.parametrize("may_change_factor", [None, True, False])
async def test_a_partition_may_be_given_to_agents_that_live_which_moves_nothing(may_change_factor: bool | None) -> None:
    wanted = [
        {"partition_index": 0, "replicas": replicas}
        for replicas in ([1], [OTHER], [1, OTHER], [OTHER, 1], [3], [1, 1], [], None)
    ]
    wanted.append({"partition_index": 1, "replicas": [1]})
    topics = [{"name": "t", "partitions": wanted}, {"name": "gone", "partitions": wanted[:1]}]
    async with data_paths() as paths, another_agent(paths), asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        version, more = (0, {}) if may_change_factor is None else (1, {FACTOR_CHANGE: may_change_factor})
        answer = await ask(services, ALTER_REASSIGNMENTS, version, timeout=TIMEOUT, topics=topics, **more)
        listed = await ask(services, LIST_REASSIGNMENTS, 0, timeout=TIMEOUT, topics=None)
    here, gone = ([row.error_code for row in topic.partitions] for topic in answer.responses)
    refused = ErrorCode.invalid_replica_assignment
    of_two = ErrorCode.invalid_replication_factor if may_change_factor is False else ErrorCode.none
    taken = [ErrorCode.none, ErrorCode.none, of_two, of_two]
    assert here == [*taken, refused, refused, refused, ErrorCode.no_reassignment_in_progress, UNKNOWN]
    assert gone == [UNKNOWN]
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert listed.topics == ()
    if may_change_factor is not None:
        assert answer.allow_replication_factor_change is may_change_factor


async def test_the_lowest_id_that_cannot_be_taken_is_told_as_kafka_tells_it() -> None:
    wanted = [{"partition_index": 0, "replicas": replicas} for replicas in ([], [9, 8, 1], [9, 1, 1], [1, 9, 9, 0])]
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        topics = [{"name": "t", "partitions": wanted}]
        answer = await ask(services, ALTER_REASSIGNMENTS, 1, timeout=TIMEOUT, topics=topics, **{FACTOR_CHANGE: True})
    assert [row.error_message for row in answer.responses[0].partitions] == [
        "The manual partition assignment includes an empty replica list.",
        "The manual partition assignment includes broker 8, but no such broker is registered.",
        "The manual partition assignment includes the broker 1 more than once.",
        "The manual partition assignment includes broker 0, but no such broker is registered.",
    ]


async def test_no_reassignment_is_ever_under_way() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        for topics in (None, [{"name": "t", "partition_indexes": [0]}, {"name": "gone", "partition_indexes": [0]}]):
            answer = await ask(services, LIST_REASSIGNMENTS, 0, timeout=TIMEOUT, topics=topics)
            assert (answer.error_code, answer.topics) == (ErrorCode.none, ())
