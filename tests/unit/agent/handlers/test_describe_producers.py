"""A partition's producers are described from the state."""

import asyncio

from agent.request.services import Services
from protocol.errors import ErrorCode
from protocol.limits import ROWS_PER_TURN
from protocol.types import SEQUENCE_END, Milliseconds, Offset, ProducerEpoch, ProducerId, Sequence
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity
from txn.producer_state import ProducerState, RememberedBatch

DESCRIBE_PRODUCERS = 61


def producer(sequence_end: int) -> ProducerState:
    batch = RememberedBatch(Sequence(0), Sequence(sequence_end), Offset(0))
    return ProducerState(epoch=ProducerEpoch(3), recent=(batch,), last_active_ms=Milliseconds(1_234))


async def described(services: Services, topic: str, *partitions: int) -> KioEntity:
    answer = await ask(services, DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": list(partitions)}])
    (told,) = answer.topics
    assert told.name == topic
    return told.partitions


async def test_producers_are_told_with_epoch_last_sequence_and_time() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        producers = services.state.topics[TOPIC].partitions[0].producers
        producers[ProducerId(9)] = producer(6)
        producers[ProducerId(10)] = producer(0)
        (partition,) = await described(services, "t", 0)
    assert (partition.error_code, partition.error_message) == (ErrorCode.none, None)
    told = [(each.producer_id, each.producer_epoch, each.last_sequence) for each in partition.active_producers]
    assert told == [(9, 3, 5), (10, 3, SEQUENCE_END - 1)]
    first = partition.active_producers[0]
    assert (first.last_timestamp, first.coordinator_epoch, first.current_txn_start_offset) == (1_234, -1, -1)


async def test_a_partition_without_producers_has_none_and_one_that_is_not_there_is_unknown() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        here, beyond, below = await described(services, "t", 0, 1, -1)
        (gone,) = await described(services, "gone", 0)
    assert (here.error_code, here.active_producers) == (ErrorCode.none, ())
    for unknown in (beyond, below, gone):
        assert (unknown.error_code, unknown.active_producers) == (ErrorCode.unknown_topic_or_partition, ())


async def test_a_partition_that_is_named_again_and_again_is_told_once() -> None:
    async with data_paths(partitions=2) as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        services.state.topics[TOPIC].partitions[0].producers[ProducerId(9)] = producer(6)
        rows = [{"name": "t", "partition_indexes": [0, 1, 0]}, {"name": "t", "partition_indexes": [0] * 1_000}]
        answer = await ask(services, DESCRIBE_PRODUCERS, 0, topics=rows)
    (topic,) = answer.topics
    assert [(row.partition_index, len(row.active_producers)) for row in topic.partitions] == [(0, 1), (1, 0)]


async def test_others_have_their_turn_while_many_producers_are_told() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock = paths.parts.clock
        services = services_of(paths, clock, tasks)
        producers = services.state.topics[TOPIC].partitions[0].producers
        producers.update({ProducerId(number): producer(1) for number in range(2 * ROWS_PER_TURN)})
        (partition,) = await described(services, "t", 0)
        assert len(partition.active_producers) == 2 * ROWS_PER_TURN
        assert clock.slept.count(0) >= 2
