"""The bucket is the one log directory, and each agent tells the sizes of what it leads."""

import asyncio

from agent.request.services import Services
from coordinator.commands.commands import StartDrain
from protocol.errors import ErrorCode
from protocol.types import Offset
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity
from tests.support.records.plain_records import Record, make_batch

DESCRIBE_LOG_DIRS, ALTER_REPLICA_LOG_DIRS = 35, 34
BATCH = make_batch([Record(offset=n, timestamp=1_000 + n) for n in range(3)])


async def directory(services: Services, topics: list[object] | None = None, version: int = 5) -> KioEntity:
    answer = await ask(services, DESCRIBE_LOG_DIRS, version, topics=topics)
    (found,) = answer.results
    assert (found.error_code, found.log_dir) == (ErrorCode.none, "memory:")
    return found


def sizes(found: KioEntity) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in found.topics
        for partition in topic.partitions
    }


async def test_sizes_are_those_of_the_batches_as_they_were_produced() -> None:
    async with data_paths(partitions=2) as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(BATCH, BATCH)
        services = services_of(paths, paths.parts.clock, tasks)
        found = await directory(services)
        assert sizes(found) == {("t", 0): 2 * len(BATCH), ("t", 1): 0}
        assert (found.total_bytes, found.usable_bytes, found.is_cordoned) == (-1, -1, False)
        partition = found.topics[0].partitions[0]
        assert (partition.offset_lag, partition.is_future_key) == (0, False)
        await paths.archiver.archive_topic(TOPIC)
        services.state.topics[TOPIC].partitions[0].log_start = Offset(3)
        assert sizes(await directory(services)) == {("t", 0): 2 * len(BATCH), ("t", 1): 0}


async def test_what_is_below_the_logs_start_does_not_count() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(BATCH, BATCH)
        services = services_of(paths, paths.parts.clock, tasks)
        services.state.topics[TOPIC].partitions[0].log_start = Offset(3)
        assert sizes(await directory(services)) == {("t", 0): len(BATCH)}


async def test_partitions_that_are_named_are_told_once_and_those_that_are_not_there_left_out() -> None:
    async with data_paths(partitions=3) as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        named = [{"topic": "t", "partitions": [2, 0, 2, 9, -1]}, {"topic": "gone", "partitions": [0]}]
        assert list(sizes(await directory(services, [*named, {"topic": "t", "partitions": [0]}]))) == [
            ("t", 2),
            ("t", 0),
        ]
        assert sizes(await directory(services, [])) == {}


async def test_every_version_is_answered() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        for version in range(1, 6):
            assert sizes(await directory(services, version=version)) == {("t", 0): 0}


async def test_each_partition_is_told_by_the_agent_that_leads_it() -> None:
    async with data_paths(partitions=50) as paths, another_agent(paths, "b"), asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        await paths.parts.ledger.barrier()
        mine = sizes(await directory(services))
        assert 0 < len(mine) < 50
        leaders = [assignment.leader for assignment in services.assignments(services.state.topics[TOPIC], None)]
        assert list(mine) == [("t", index) for index, leader in enumerate(leaders) if leader == services.node_id]
        await paths.parts.ledger.propose(StartDrain(session=paths.parts.ledger.session))
        assert sizes(await directory(services)) == {}


async def test_a_partition_is_in_the_bucket_and_nowhere_else() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        rows = [{"name": "t", "partitions": [0, 1]}, {"name": "gone", "partitions": [0]}]
        here, elsewhere = ({"path": path, "topics": rows} for path in (services.store_url, "/var/kafka"))
        for version in (1, 2):
            answer = await ask(services, ALTER_REPLICA_LOG_DIRS, version, dirs=[here, elsewhere])
            told = {
                topic.topic_name: [(row.partition_index, row.error_code) for row in topic.partitions]
                for topic in answer.results
            }
            no, nowhere = ErrorCode.unknown_topic_or_partition, ErrorCode.log_dir_not_found
            assert told == {
                "t": [(0, ErrorCode.none), (1, no), (0, nowhere), (1, nowhere)],
                "gone": [(0, no), (0, nowhere)],
            }
