"""Many partitions are answered in a thread, with the bytes that the loop would have made."""

import asyncio
import threading

import pytest
from kio.schema.describe_cluster.v0.response import DescribeClusterResponse
from kio.schema.metadata.v4.response import MetadataResponse

from agent.request import messages
from agent.request.messages import Values, encode
from coordinator.ledger.memory import MemoryLedger
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from protocol.types import TopicId
from storage.object_store import Buffer
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import create
from tests.support.handlers.byte_requests import joined, read, request
from tests.support.handlers.handler_client import handled
from tests.support.handlers.stalled_ledger import Impatient, stalled

BY_NAME = b"\0\0\0\2\0\1t\0\1u\0"


async def test_many_partitions_are_answered_in_a_thread_and_few_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(frame: RequestFrame, values: Values) -> list[Buffer]:
        threads.append(threading.current_thread().name)
        return encode(frame, values)

    monkeypatch.setattr(messages, "encode", noted)
    async with stalled(Impatient()) as services:
        inline = joined(await handled(services, request(3, 4, BY_NAME)))
        monkeypatch.setattr(messages, "INLINE_ROWS_MAX", 0)
        threaded = joined(await handled(services, request(3, 4, BY_NAME)))
    assert inline == threaded
    assert b"\0\1t" in inline
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("cpu")


async def test_s4_while_the_ledger_is_away_what_is_known_is_reported_and_the_rest_is_to_be_asked_again() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        ledger = paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        services = services_of(paths, ManualClock(), tasks)
        known = joined(await handled(services, request(3, 4, b"\0\0\0\1\0\1t\0")))
        ledger.is_reachable = False
        for may_create in (b"\0", b"\1"):
            asked = request(3, 4, b"\0\0\0\3\0\1u\0\1t\0\1v" + may_create)
            answer = read(MetadataResponse, await handled(services, asked))
            timed_out = ErrorCode.request_timed_out
            codes = {topic.name: topic.error_code for topic in answer.topics}
            assert codes == {"u": timed_out, "t": ErrorCode.none, "v": timed_out}
            assert [len(topic.partitions) for topic in answer.topics] == [0, 1, 0]
        every = joined(await handled(services, request(3, 4, b"\xff\xff\xff\xff\0")))
        ledger.is_reachable = True
    assert every == known


async def test_s4_all_topics_are_told_with_those_that_another_agent_has_just_created() -> None:
    async with data_paths() as paths, another_agent(paths) as other, asyncio.TaskGroup() as tasks:
        await paths.parts.ledger.propose(create("u", topic_id=TopicId(bytes([1] * 16))))
        services = services_of(other, ManualClock(), tasks)
        answer = read(MetadataResponse, await handled(services, request(3, 4, b"\xff\xff\xff\xff\0")))
    assert [topic.name for topic in answer.topics] == ["t", "u"]


async def test_an_agent_whose_session_was_ended_names_nobody_whom_it_does_not_tell() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        services.state.sessions.clear()
        answer = read(MetadataResponse, await handled(services, request(3, 4, BY_NAME[:3] + b"\1\0\1t\0")))
        described = read(DescribeClusterResponse, await handled(services, request(60, 0, bytes(2))), 5)
    assert [partition.leader_id for partition in answer.topics[0].partitions] == [services.node_id]
    assert [broker.node_id for broker in answer.brokers] == [services.node_id]
    assert [broker.broker_id for broker in described.brokers] == [services.node_id]
    assert (answer.controller_id, described.controller_id) == (services.node_id, services.node_id)
