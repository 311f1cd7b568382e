"""A draining agent behind one address: no metadata leads a client away, so it loses its connection and nothing else."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.produce.v3.response import ProduceResponse

from agent.request.services import NoAnswerOwed, Services
from protocol.errors import ErrorCode
from protocol.records.compression import Compression
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.handlers.byte_requests import read, request
from tests.support.handlers.handler_client import TIMEOUT, ask, handled
from tests.support.records.plain_records import Record, make_batch

BATCH = make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=b"v")], Compression.NONE)
INIT_PRODUCER_ID = 22
NOT_LEADER = ErrorCode.not_leader_or_follower


@asynccontextmanager
async def draining(*, has_one_address: bool) -> AsyncIterator[Services]:
    """The services of an agent that drains while another one serves. At the end nothing was taken in."""
    async with data_paths() as paths, another_agent(paths), asyncio.TaskGroup() as tasks:
        await paths.parts.ledger.barrier()
        services = services_of(paths, ManualClock(), tasks)
        if has_one_address:
            for session in services.state.sessions.values():
                session.endpoints = services.ledger.agent.endpoints
        services.draining.begin()
        services.draining.announce()
        yield services
        assert paths.produce_path.bytes_held == 0


async def produced(services: Services) -> ErrorCode:
    body = b"\xff\xff" + struct.pack(">hi", -1, 30_000) + b"\0\0\0\1\0\1t\0\0\0\1"
    answer = await handled(services, request(0, 3, body + struct.pack(">ii", 0, len(BATCH)) + BATCH))
    return read(ProduceResponse, answer).responses[0].partition_responses[0].error_code


async def fetched(services: Services) -> ErrorCode:
    body = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
    body += b"\0\0\0\1\0\1t\0\0\0\1" + struct.pack(">iiqqi", 0, -1, 0, -1, 1 << 20) + bytes(4) + b"\0\0"
    answer = await handled(services, request(1, 11, body))
    return read(FetchResponse, answer).responses[0].partitions[0].error_code


async def initialised(services: Services) -> ErrorCode:
    answer = await ask(services, INIT_PRODUCER_ID, 1, transactional_id="x", transaction_timeout=TIMEOUT)
    return ErrorCode(answer.error_code)


async def test_clients_of_an_address_of_its_own_are_told_to_look_for_another_leader() -> None:
    async with draining(has_one_address=False) as services:
        assert await produced(services) is NOT_LEADER
        assert await fetched(services) is NOT_LEADER
        assert await initialised(services) is ErrorCode.not_coordinator


async def test_clients_of_one_address_have_to_connect_again() -> None:
    async with draining(has_one_address=True) as services:
        for asked in (produced, fetched, initialised):
            with pytest.raises(NoAnswerOwed, match="other agents have its address"):
                await asked(services)
        assert services.draining.redirected_count == 3


async def test_an_address_shared_with_agents_that_drain_alone_is_none() -> None:
    async with draining(has_one_address=True) as services:
        for session in services.state.sessions.values():
            session.is_draining = True
        assert await produced(services) is NOT_LEADER
