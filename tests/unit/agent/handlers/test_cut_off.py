"""A cut-off agent takes in nothing new and names other agents to clients; what it has, it serves on."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.fetch.v11.response import PartitionData as FetchedPartition
from kio.schema.produce.v3.response import PartitionProduceResponse, ProduceResponse

from agent.handlers import produce
from agent.request.services import Request, Services
from coordinator.commands.commands import ReportTime
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from protocol.limits import CUT_OFF_HOLD_SECONDS, LEDGER_SESSION_SECONDS
from protocol.records.compression import Compression
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths, services_of
from tests.support.commands.commands import TOPIC
from tests.support.handlers.byte_requests import read, request
from tests.support.handlers.handler_client import TIMEOUT, ask, handled
from tests.support.handlers.stalled_ledger import Impatient, never
from tests.support.records.plain_records import Record, make_batch

PARTITIONS = 20
BATCH = make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=b"v")], Compression.NONE)
OWN, OTHER = 1, ord("b")
"""Node ids."""
METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_CLUSTER = 3, 10, 22, 60
GROUP, TRANSACTION = 0, 1
NOT_LEADER = ErrorCode.not_leader_or_follower


class Pair:
    """The services of one agent, and another agent that lives on the same ledger."""

    def __init__(self, paths: DataPaths, tasks: asyncio.TaskGroup) -> None:
        self.paths = paths
        self.clock = Impatient()
        self.services: Services = services_of(paths, self.clock, tasks)

    def cut(self) -> None:
        """The ledger has confirmed the agent's session for the last time one lease ago."""
        parts = self.paths.parts
        self.paths.confirmed_s = parts.ledger.confirmed_s
        parts.clock.seconds = parts.ledger.confirmed_s + LEDGER_SESSION_SECONDS

    def stall(self) -> None:
        """The ledger answers no append from now on."""
        ledger = self.paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.fate_of_append = never

    async def heal(self) -> None:
        await self.paths.parts.ledger.propose(ReportTime())
        self.paths.confirmed_s = None

    def share_address(self) -> None:
        """Both agents have the address of this one."""
        endpoints = self.paths.parts.ledger.agent.endpoints
        for session in self.services.state.sessions.values():
            session.endpoints = endpoints

    @property
    def log_end(self) -> int:
        return self.services.state.topics[TOPIC].partitions[0].log_end


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    async with data_paths(partitions=PARTITIONS) as paths, another_agent(paths), asyncio.TaskGroup() as tasks:
        await paths.parts.ledger.barrier()
        yield Pair(paths, tasks)


def produce_request(acks: int = -1, timeout_ms: int = 30_000) -> Request:
    body = b"\xff\xff" + struct.pack(">hi", acks, timeout_ms) + b"\0\0\0\1\0\1t\0\0\0\1"
    return request(0, 3, body + struct.pack(">ii", 0, len(BATCH)) + BATCH)


async def produced(services: Services, timeout_ms: int = 30_000) -> PartitionProduceResponse:
    response = read(ProduceResponse, await handled(services, produce_request(timeout_ms=timeout_ms)))
    return response.responses[0].partition_responses[0]


async def fetched(services: Services, offset: int, max_wait_ms: int = 0) -> FetchedPartition:
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, 1 << 20, 0, 0, -1)
    body += b"\0\0\0\1\0\1t\0\0\0\1" + struct.pack(">iiqqi", 0, -1, offset, -1, 1 << 20) + bytes(4) + b"\0\0"
    response = read(FetchResponse, await handled(services, request(1, 11, body)))
    return response.responses[0].partitions[0]


class TestProduce:
    async def test_a_new_request_is_held_shortly_and_nothing_of_it_is_taken_in(self) -> None:
        async with pair() as agents:
            agents.cut()
            answer = await produced(agents.services)
            assert (answer.error_code, answer.base_offset) == (NOT_LEADER, -1)
            assert agents.clock.waits == [CUT_OFF_HOLD_SECONDS]
            assert agents.paths.produce_path.bytes_held == 0
            await agents.heal()
            assert (await produced(agents.services)).error_code is ErrorCode.none
            assert agents.log_end == 1

    async def test_it_is_held_no_longer_than_its_own_time_out(self) -> None:
        async with pair() as agents:
            agents.cut()
            assert (await produced(agents.services, timeout_ms=300)).error_code is NOT_LEADER
            assert agents.clock.waits == [0.3]

    async def test_requests_of_one_connection_are_held_from_their_arrival_on(self) -> None:
        async with pair() as agents:
            agents.cut()
            now_s = agents.clock.monotonic_s()
            for arrived_s in (now_s - 1.5, now_s - 60.0):
                behind = msgspec.structs.replace(produce_request(), arrived_s=arrived_s)
                response = read(ProduceResponse, await handled(agents.services, behind))
                assert response.responses[0].partition_responses[0].error_code is NOT_LEADER
            assert agents.clock.waits == [CUT_OFF_HOLD_SECONDS - 1.5]

    async def test_what_was_taken_in_before_is_answered_as_unknown(self) -> None:
        async with pair() as agents:
            agents.stall()
            answer = await produce.handle(agents.services, produce_request(timeout_ms=100))
            assert isinstance(answer, asyncio.Future)
            agents.cut()
            assert (await produced(agents.services)).error_code is NOT_LEADER
            taken_in = read(ProduceResponse, await answer).responses[0].partition_responses[0]
            assert taken_in.error_code is ErrorCode.request_timed_out
            assert agents.paths.produce_path.bytes_held == len(BATCH)

    async def test_a_cut_during_the_checks_takes_in_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with pair() as agents:

            async def wait_for_room(_seconds_max: float) -> bool:
                agents.cut()
                return True

            monkeypatch.setattr(agents.services.produce, "wait_for_room", wait_for_room)
            assert (await produced(agents.services)).error_code is NOT_LEADER
            assert agents.paths.produce_path.bytes_held == 0

    async def test_a_producer_without_responses_loses_its_connection(self) -> None:
        async with pair() as agents:
            agents.stall()
            agents.cut()
            with pytest.raises(LedgerUnavailable):
                await produce.handle(agents.services, produce_request(acks=0))
            assert agents.paths.produce_path.bytes_held == len(BATCH)
            assert agents.clock.waits == [CUT_OFF_HOLD_SECONDS]

    async def test_the_only_agent_takes_in_what_comes(self) -> None:
        async with data_paths() as paths, asyncio.TaskGroup() as tasks:
            alone = Pair(paths, tasks)
            alone.cut()
            assert (await produced(alone.services)).error_code is ErrorCode.none
            assert alone.clock.waits == []


class TestFetch:
    async def test_records_are_served_and_an_empty_answer_is_none(self) -> None:
        async with pair() as agents:
            await agents.paths.produce(BATCH)
            agents.cut()
            served = await fetched(agents.services, 0, max_wait_ms=500)
            assert served.error_code is ErrorCode.none
            assert served.records
            assert agents.clock.waits == []
            at_end = await fetched(agents.services, 1, max_wait_ms=500)
            assert at_end.error_code is NOT_LEADER
            assert (await fetched(agents.services, 1, max_wait_ms=60_000)).error_code is NOT_LEADER
            assert agents.clock.waits == [0.5, CUT_OFF_HOLD_SECONDS]

    async def test_at_the_only_agent_the_error_comes_at_once(self) -> None:
        async with data_paths() as paths, asyncio.TaskGroup() as tasks:
            alone = Pair(paths, tasks)
            alone.cut()
            assert (await fetched(alone.services, 0, max_wait_ms=500)).error_code is NOT_LEADER
            assert alone.clock.waits == []


class TestOneAddress:
    """Clients cannot choose the agent: they come back by a new connection, which may lead to another one."""

    async def test_producers_and_consumers_at_the_end_have_to_connect_again(self) -> None:
        async with pair() as agents:
            await agents.paths.produce(BATCH)
            agents.share_address()
            agents.cut()
            with pytest.raises(LedgerUnavailable):
                await produced(agents.services)
            with pytest.raises(LedgerUnavailable):
                await fetched(agents.services, 1)
            assert (await fetched(agents.services, 0)).error_code is ErrorCode.none
            assert agents.paths.produce_path.bytes_held == 0

    async def test_requests_of_groups_are_relayed_to_the_next_coordinator(self) -> None:
        async with pair() as agents:
            (key,) = [key for key in map(str, range(50)) if is_own(agents.services, key)][:1]
            agents.cut()
            assert agents.services.group_coordinator(key) in agents.services.cut_off.sessions


def is_own(services: Services, group_id: str) -> bool:
    return services.group_ledger.coordinator(group_id) == services.ledger.session


async def never_reached() -> None:
    """A barrier of a cut-off agent: it would wait, and the client with it."""
    raise AssertionError("a cut-off agent waits for the ledger")


class TestWhoIsNamed:
    async def test_metadata_names_the_other_agent_for_everything_and_both_as_brokers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In an outage of the whole ledger each agent would leave out itself: clients give up what comes and goes."""
        async with pair() as agents:
            before = await ask(agents.services, METADATA, 4, topics=None, allow_auto_topic_creation=False)
            agents.cut()
            with monkeypatch.context() as patched:
                patched.setattr(agents.services.ledger, "barrier", never_reached)
                answer = await ask(agents.services, METADATA, 4, topics=None, allow_auto_topic_creation=False)
            await agents.heal()
            after = await ask(agents.services, METADATA, 4, topics=None, allow_auto_topic_creation=False)
            assert {broker.node_id for broker in before.brokers} == {OWN, OTHER}
            assert before.controller_id == OWN
            assert answer.brokers == before.brokers
            assert answer.controller_id == OTHER
            partitions = answer.topics[0].partitions
            assert {(each.leader_id, each.replica_nodes) for each in partitions} == {(OTHER, (OTHER,))}
            assert after == before

    async def test_so_does_the_description_of_the_cluster(self) -> None:
        async with pair() as agents:
            agents.cut()
            answer = await ask(agents.services, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
            assert {broker.broker_id for broker in answer.brokers} == {OWN, OTHER}
            assert answer.controller_id == OTHER

    @pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
    async def test_the_other_agent_is_the_coordinator(self, key_type: int) -> None:
        keys = [f"k{number}" for number in range(50)]
        async with pair() as agents:
            before = await ask(agents.services, FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=keys)
            agents.cut()
            answer = await ask(agents.services, FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=keys)
            assert {each.node_id for each in before.coordinators} == {OWN, OTHER}
            assert {each.node_id for each in answer.coordinators} == {OTHER}

    async def test_what_the_agent_coordinates_by_the_state_stays(self) -> None:
        async with pair() as agents:
            keys = [f"k{number}" for number in range(50)]
            before = [agents.services.group_ledger.coordinator(key) for key in keys]
            agents.cut()
            assert [agents.services.group_ledger.coordinator(key) for key in keys] == before

    async def test_a_request_of_a_transaction_goes_to_another_coordinator(self) -> None:
        async with pair() as agents:
            agents.cut()
            answer = await ask(agents.services, INIT_PRODUCER_ID, 1, transactional_id="x", transaction_timeout=TIMEOUT)
            assert answer.error_code is ErrorCode.not_coordinator
            assert agents.clock.waits == [CUT_OFF_HOLD_SECONDS]
            assert "x" not in agents.services.state.transactional_ids

    async def test_a_producer_id_is_given_while_there_is_one_and_asked_for_elsewhere_then(self) -> None:
        async with pair() as agents:
            asked = {"transactional_id": None, "transaction_timeout": TIMEOUT}
            first = await ask(agents.services, INIT_PRODUCER_ID, 1, **asked)
            agents.cut()
            second = await ask(agents.services, INIT_PRODUCER_ID, 1, **asked)
            assert second.producer_id == first.producer_id + 1
            assert CUT_OFF_HOLD_SECONDS not in agents.clock.waits
            agents.clock.waits.clear()
            while not agents.services.producer_ids.is_used_up:
                await agents.services.producer_ids.take()
            answer = await ask(agents.services, INIT_PRODUCER_ID, 1, **asked)
            assert answer.error_code is ErrorCode.coordinator_not_available
            assert agents.clock.waits == [CUT_OFF_HOLD_SECONDS]
