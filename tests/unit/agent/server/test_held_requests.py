"""The queue of one connection's requests: each of them knows when it arrived."""

import asyncio

import pytest

from agent.request.services import Answer, Request, Services
from agent.server.connection import ClientConnection
from agent.server.dispatch import HANDLERS
from protocol.api_versions import ApiKey
from protocol.limits import MIB
from tests.support.agent.server_peers import REQUEST_HEAD, serving, until

FRAME = len(REQUEST_HEAD).to_bytes(4, "big") + REQUEST_HEAD


async def test_a_request_knows_when_it_arrived_and_not_only_when_it_is_taken_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_up, may_answer = list[Request](), asyncio.Event()
    handle = HANDLERS[ApiKey.API_VERSIONS]

    async def slow(services: Services, request: Request) -> Answer:
        taken_up.append(request)
        await may_answer.wait()
        return await handle(services, request)

    monkeypatch.setitem(HANDLERS, ApiKey.API_VERSIONS, slow)
    async with serving(MIB) as running:
        clock = running.clock
        began_s = clock.monotonic_s()
        peer = await running.connect()
        peer.writer.write(FRAME)
        await until(lambda: len(taken_up) == 1)
        (connection,) = running.table.connections
        assert isinstance(connection, ClientConnection)
        held = connection._held
        clock.seconds += 1.0
        peer.writer.write(FRAME)
        await until(lambda: len(held.frames) == 1)
        clock.seconds += 1.0
        peer.writer.write(FRAME + FRAME)
        await until(lambda: len(held.frames) == 3)
        clock.seconds += 1.0
        may_answer.set()
        await until(lambda: len(taken_up) == 4)
    assert [(request.arrived_s, request.taken_up_s) for request in taken_up] == [
        (began_s, began_s),
        (began_s + 1.0, began_s + 3.0),
        (began_s + 2.0, began_s + 3.0),
        (began_s + 2.0, began_s + 3.0),
    ]
