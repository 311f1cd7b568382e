"""Elections are never needed, and no replica can be moved: that is what tools are told."""

import asyncio

import pytest

from agent.admin.topics import TopicError
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import TIMEOUT, ask
from tests.support.handlers.stalled_ledger import Impatient, stalled

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
async def test_a_partition_may_be_given_to_agents_that_live(may_change_factor: bool | None) -> None:
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
        kept = services.state.topics[TOPIC].replicas
        told = services.assignments(services.state.topics[TOPIC], None)
    here, gone = ([row.error_code for row in topic.partitions] for topic in answer.responses)
    refused = ErrorCode.invalid_replica_assignment
    of_two = ErrorCode.invalid_replication_factor if may_change_factor is False else ErrorCode.none
    taken = [ErrorCode.none, ErrorCode.none, of_two, of_two]
    assert here == [*taken, refused, refused, refused, ErrorCode.no_reassignment_in_progress, UNKNOWN]
    assert gone == [UNKNOWN]
    assert kept == {0: (OTHER,) if may_change_factor is False else (OTHER, 1)}
    assert (told[0].leader, told[0].replicas) == (OTHER, kept[PartitionIndex(0)])
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


async def test_a_topic_that_is_deleted_meanwhile_is_told_of_each_partition_that_was_taken() -> None:
    wanted = [{"partition_index": 0, "replicas": replicas} for replicas in ([1], [9])]
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        topic = services.state.topics[TOPIC]
        await services.topics.delete(topic, is_by_name=False)
        with pytest.raises(TopicError) as raised:
            await services.topics.assign_replicas(topic, {PartitionIndex(0): (1,)})
        answer = await ask(
            services,
            ALTER_REASSIGNMENTS,
            1,
            timeout=TIMEOUT,
            topics=[{"name": "t", "partitions": wanted}],
            **{FACTOR_CHANGE: True},
        )
    assert raised.value.error_code is UNKNOWN
    assert [row.error_code for row in answer.responses[0].partitions] == [UNKNOWN, UNKNOWN]


async def test_a_ledger_that_does_not_answer_in_time_is_told() -> None:
    clock = Impatient()
    wanted = [{"partition_index": 0, "replicas": replicas} for replicas in ([1], [9])]
    async with stalled(clock) as services:
        answer = await ask(
            services,
            ALTER_REASSIGNMENTS,
            1,
            timeout=TIMEOUT,
            topics=[{"name": "t", "partitions": wanted}],
            **{FACTOR_CHANGE: True},
        )
    told = [row.error_code for row in answer.responses[0].partitions]
    assert told == [ErrorCode.request_timed_out, ErrorCode.invalid_replica_assignment]
