"""Whom Metadata, Fetch and DescribeTopicPartitions name for a partition; and clients that are sent away."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.fetch.v11.response import PartitionData as FetchedPartition
from kio.schema.metadata.v4.response import MetadataResponse
from kio.schema.metadata.v5.response import MetadataResponse as MetadataResponse5
from kio.schema.produce.v3.response import ProduceResponse
from msgspec import structs

from agent.handlers import fetch, produce
from agent.request.services import NoAnswerOwed, Request, Services
from coordinator.commands.commands import Endpoint, StartDrain, StartSession
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.errors import ErrorCode
from protocol.records.compression import Compression
from protocol.types import PartitionIndex
from tests.support.agent.data_paths import DataPaths, data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts
from tests.support.commands.commands import start
from tests.support.handlers.byte_requests import read, request
from tests.support.handlers.handler_client import handled
from tests.support.records.plain_records import Record, make_batch

PARTITIONS = 20
BATCH = make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=b"v")], Compression.NONE)
NODE, NEAR, FAR = 1, 7, 8
"""Node ids of the agent that is asked, which is in no zone, and of one in each of the zones `near` and `far`."""


def agent(name: str, node: int, zone: str) -> StartSession:
    endpoints = (Endpoint(listener="PLAINTEXT", host=f"host-of-{name}", port=9092),)
    return structs.replace(start(name, node=node, rules=RULES_NEWEST), zone=zone, endpoints=endpoints)


class Trio:
    """The services of one agent, and two others that live on the same ledger."""

    def __init__(self, services: Services, paths: DataPaths, others: Sequence[Parts]) -> None:
        self.services = services
        self.paths = paths
        self.others = others


@asynccontextmanager
async def trio() -> AsyncIterator[Trio]:
    core = MemoryLedgerCore()
    async with (
        data_paths(partitions=PARTITIONS, ledger=MemoryLedger(core)) as paths,
        running_parts(MemoryLedger(core), agent("near", NEAR, "near")) as near,
        running_parts(MemoryLedger(core), agent("far", FAR, "far")) as far,
        asyncio.TaskGroup() as tasks,
    ):
        await paths.parts.ledger.barrier()
        yield Trio(services_of(paths, ManualClock(), tasks), paths, [near, far])


async def described(services: Services, client_id: str = "") -> MetadataResponse:
    asked = request(3, 4, b"\0\0\0\1\0\1t\0")
    asked = structs.replace(asked, frame=replace(asked.frame, client_id=client_id))
    return read(MetadataResponse, await handled(services, asked))


def fetch_request(rack: str, offset: int = 0) -> Request:
    wanted = struct.pack(">iiqqi", 0, -1, offset, -1, 1 << 20)
    body = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
    body += b"\0\0\0\1\0\1t\0\0\0\1" + wanted + bytes(4) + struct.pack(">h", len(rack)) + rack.encode()
    return request(1, 11, body)


async def fetched(services: Services, rack: str = "", offset: int = 0) -> FetchedPartition:
    response = read(FetchResponse, await fetch.handle(services, fetch_request(rack, offset)))
    return response.responses[0].partitions[0]


def produce_request(acks: int = -1) -> Request:
    body = b"\xff\xff" + struct.pack(">hi", acks, 30_000) + b"\0\0\0\1\0\1t\0\0\0\1"
    return request(0, 3, body + struct.pack(">ii", 0, len(BATCH)) + BATCH)


class TestLeaders:
    async def test_every_agent_leads_some_partitions_and_each_zone_has_a_replica(self) -> None:
        async with trio() as cluster:
            answer = await described(cluster.services)
            partitions = answer.topics[0].partitions
            assert [broker.node_id for broker in answer.brokers] == [NODE, NEAR, FAR]
            assert {partition.leader_id for partition in partitions} == {NODE, NEAR, FAR}
            for partition in partitions:
                assert partition.replica_nodes[0] == partition.leader_id
                assert set(partition.replica_nodes) == {partition.leader_id, NEAR, FAR}
                assert partition.isr_nodes == partition.replica_nodes

    async def test_a_client_that_says_its_zone_is_led_there(self) -> None:
        async with trio() as cluster:
            answer = await described(cluster.services, "orders,zone=far")
            assert {partition.leader_id for partition in answer.topics[0].partitions} == {FAR}

    async def test_who_drains_leads_nothing_and_is_no_broker(self) -> None:
        async with trio() as cluster:
            near = cluster.others[0].ledger
            await near.propose(StartDrain(session=near.session))
            await cluster.services.ledger.barrier()
            answer = await described(cluster.services, "zone=near")
            assert [broker.node_id for broker in answer.brokers] == [NODE, FAR]
            assert {partition.leader_id for partition in answer.topics[0].partitions} == {NODE, FAR}

    async def test_an_agent_that_opens_a_session_leads_where_nobody_else_lives(self) -> None:
        async with trio() as cluster:
            sessions = dict(cluster.services.state.sessions)
            cluster.services.state.sessions.clear()
            answer = await described(cluster.services)
            cluster.services.state.sessions.update(sessions)
            assert {partition.leader_id for partition in answer.topics[0].partitions} == {NODE}
            assert [broker.node_id for broker in answer.brokers] == [NODE]

    async def test_describe_topic_partitions_says_the_same(self) -> None:
        async with trio() as cluster:
            asked = request(75, 0, b"\2\2t\0" + struct.pack(">i", 2_000) + b"\xff\0")
            answer = await handled(cluster.services, asked)
            told = read(DescribeTopicPartitionsResponse, answer, header_bytes=5)
            known = (await described(cluster.services)).topics[0].partitions
            assert [(p.leader_id, p.replica_nodes) for p in told.topics[0].partitions] == [
                (p.leader_id, p.replica_nodes) for p in known
            ]


class TestReplicasByHand:
    async def test_they_are_told_in_their_order_with_who_is_not_there(self) -> None:
        async with trio() as cluster:
            topic = next(iter(cluster.services.state.topics.values()))
            topic.replicas = {
                PartitionIndex(3): (FAR, NODE),
                PartitionIndex(4): (9, FAR, NODE),
                PartitionIndex(5): (9,),
            }
            asked = request(75, 0, b"\2\2t\0" + struct.pack(">i", 2_000) + b"\xff\0")
            answer = await handled(cluster.services, asked)
            told = read(DescribeTopicPartitionsResponse, answer, header_bytes=5).topics[0].partitions
            asked = request(3, 5, b"\0\0\0\1\0\1t\0")
            known = read(MetadataResponse5, await handled(cluster.services, asked)).topics[0].partitions
        for partitions in (told, known):
            rows = [(p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in partitions[3:5]]
            assert rows == [(FAR, (FAR, NODE), (FAR, NODE), ()), (FAR, (9, FAR, NODE), (FAR, NODE), (9,))]
            lone = partitions[5]
            assert lone.leader_id in (NODE, NEAR, FAR)
            assert (lone.replica_nodes, lone.isr_nodes, lone.offline_replicas) == ((9,), (), (9,))

    async def test_who_is_in_a_clients_zone_leads_there(self) -> None:
        async with trio() as cluster:
            next(iter(cluster.services.state.topics.values())).replicas = {PartitionIndex(3): (NODE, FAR)}
            leaders = [
                (await described(cluster.services, client)).topics[0].partitions[3].leader_id
                for client in ("", "zone=far", "zone=near")
            ]
        assert leaders == [NODE, FAR, NODE]

    async def test_a_consumer_in_a_rack_without_one_of_them_is_served(self) -> None:
        async with trio() as cluster:
            await cluster.paths.produce(BATCH)
            next(iter(cluster.services.state.topics.values())).replicas = {PartitionIndex(0): (NODE, FAR)}
            here, there = await fetched(cluster.services, "near"), await fetched(cluster.services, "far")
            assert (here.preferred_read_replica, there.preferred_read_replica) == (-1, FAR)
            assert (bool(here.records), bool(there.records)) == (True, False)


class TestReplicasInTheConsumersRack:
    async def test_a_consumer_is_told_the_agent_of_its_rack_at_once_and_without_records(self) -> None:
        async with trio() as cluster:
            await cluster.paths.produce(BATCH)
            told = await fetched(cluster.services, "near")
            assert (told.error_code, told.preferred_read_replica, told.high_watermark) == (0, NEAR, 1)
            assert not told.records

    @pytest.mark.parametrize("rack", ["", "nowhere"])
    async def test_a_consumer_elsewhere_is_served(self, rack: str) -> None:
        async with trio() as cluster:
            await cluster.paths.produce(BATCH)
            told = await fetched(cluster.services, rack)
            assert (told.error_code, told.preferred_read_replica) == (0, -1)
            assert told.records

    async def test_an_agent_serves_its_own_rack(self) -> None:
        async with trio() as cluster:
            await cluster.paths.produce(BATCH)
            cluster.services.state.sessions[cluster.services.ledger.session].zone = "near"
            assert (await fetched(cluster.services, "near")).preferred_read_replica == -1

    async def test_an_error_names_no_replica(self) -> None:
        async with trio() as cluster:
            told = await fetched(cluster.services, "near", offset=5)
            assert (told.error_code, told.preferred_read_replica) == (ErrorCode.offset_out_of_range, -1)


class TestClientsThatAreSentAway:
    async def test_a_producer_is_told_that_somebody_else_leads_and_nothing_is_taken(self) -> None:
        async with trio() as cluster:
            cluster.services.draining.begin()
            cluster.services.draining.announce()
            answer = await produce.handle(cluster.services, produce_request())
            assert not isinstance(answer, asyncio.Future)
            told = read(ProduceResponse, answer).responses[0].partition_responses[0]
            assert (told.error_code, told.base_offset) == (ErrorCode.not_leader_or_follower, -1)
            assert cluster.paths.produce_path.bytes_held == 0
            assert cluster.services.draining.redirected_count == 1

    async def test_a_producer_that_wants_no_answer_is_taken_and_loses_its_connection(self) -> None:
        async with trio() as cluster:
            cluster.services.draining.begin()
            cluster.services.draining.announce()
            with pytest.raises(NoAnswerOwed):
                await produce.handle(cluster.services, produce_request(acks=0))
            await cluster.paths.produce_path.drain()
            assert cluster.services.state.topics[next(iter(cluster.services.state.topics))].partitions[0].log_end == 1

    async def test_a_consumer_is_told_that_somebody_else_leads(self) -> None:
        async with trio() as cluster:
            cluster.services.draining.begin()
            cluster.services.draining.announce()
            assert (await fetched(cluster.services)).error_code == ErrorCode.not_leader_or_follower
