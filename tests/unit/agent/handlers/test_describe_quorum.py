"""The ledger is described as Kafka's log of metadata is, and the maintenance leader as its leader."""

import asyncio

import pytest

from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.handlers.handler_client import ask

DESCRIBE_QUORUM = 55
METADATA = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_maintenance_leader_leads_and_the_others_read_along(version: int) -> None:
    async with data_paths() as paths, another_agent(paths, "b") as other, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        await other.parts.maintenance_leader.claim()
        told = await ask(services, DESCRIBE_QUORUM, version, topics=METADATA)
        position = services.state.position
    (topic,) = told.topics
    (partition,) = topic.partitions
    assert (told.error_code, topic.topic_name, partition.error_code) == (0, "__cluster_metadata", 0)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (ord("b"), 1, position)
    assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [(ord("b"), position)]
    assert [(observer.replica_id, observer.log_end_offset) for observer in partition.observers] == [(1, -1)]


async def test_while_nobody_keeps_house_or_the_ledger_is_away_clients_ask_again() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        nobody = await ask(services, DESCRIBE_QUORUM, 1, topics=METADATA)
        ledger = paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.is_reachable = False
        with pytest.raises(LedgerUnavailable):
            await services.ledger.barrier()
        away = await ask(services, DESCRIBE_QUORUM, 1, topics=METADATA)
        ledger.is_reachable = True
    for told in (nobody, away):
        assert told.topics[0].partitions[0].error_code == ErrorCode.not_leader_or_follower


async def test_other_logs_have_no_quorum() -> None:
    asked = [{"topic_name": "t", "partitions": [{"partition_index": 3}]}]
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        told = await ask(services_of(paths, paths.parts.clock, tasks), DESCRIBE_QUORUM, 2, topics=asked)
    (partition,) = told.topics[0].partitions
    assert (partition.partition_index, partition.error_code) == (3, ErrorCode.unknown_topic_or_partition)
    assert told.nodes == ()
