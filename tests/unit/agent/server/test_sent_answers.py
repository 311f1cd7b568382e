"""When the answers of a connection are sent: at once, or together with others that are ready."""

import asyncio
from collections.abc import Iterable

from agent.server.connection import ClientConnection
from protocol.limits import MIB
from storage.object_store import Buffer
from tests.support.agent.server_peers import REQUEST_HEAD, Running, serving

FRAME = len(REQUEST_HEAD).to_bytes(4, "big") + REQUEST_HEAD


class Sent(asyncio.Transport):
    """A transport that remembers what each call sends."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.calls.append(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


async def connected(running: Running) -> tuple[ClientConnection, Sent]:
    """A connection whose task waits for a request."""
    connection, transport = running.accept("PLAINTEXT"), Sent()
    connection.connection_made(transport)
    await asyncio.sleep(0)
    return connection, transport


def receive(connection: ClientConnection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_the_only_answer_that_is_owed_leaves_in_the_turn_in_which_it_is_ready() -> None:
    async with serving(MIB) as running:
        connection, transport = await connected(running)
        receive(connection, FRAME)
        await asyncio.sleep(0)
        assert len(transport.calls) == 1
        connection.connection_lost(None)


async def test_answers_that_are_ready_in_one_turn_leave_together() -> None:
    async with serving(MIB) as running:
        connection, transport = await connected(running)
        receive(connection, FRAME * 3)
        await asyncio.sleep(0)
        (sent,) = transport.calls
        answer_bytes = 4 + int.from_bytes(sent[:4], "big")
        assert len(sent) == 3 * answer_bytes
        await asyncio.sleep(0)
        assert len(transport.calls) == 1
        connection.connection_lost(None)
