"""Agents in this process that advertise one address, a coordinator made by hand, and raw clients of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.agent import Agent
from agent.config.settings import CliCommand, load_settings
from coordinator.codec.codec import encode
from coordinator.commands.commands import Endpoint, Proposal, StartSession
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerEntry
from protocol.connection import RequestFrame, ServerConnection
from protocol.relay import Introduction, decode_introduction, encode_reply
from protocol.types import SessionId
from protocol.wire import INT32
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import until
from tests.support.agent.serving_agent import serving_agent
from tests.support.clients.kafka_requests import CORRELATION_ID, framed, read_answer

ADDRESS = "127.0.0.1:9"
"""That all agents advertise. Tests connect to each agent's own port."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Agents over a ledger and a store in memory."""

    folder: Path
    stack: AsyncExitStack
    core: MemoryLedgerCore = field(default_factory=MemoryLedgerCore)
    store: MemoryStore = field(default_factory=MemoryStore)

    async def start(
        self,
        name: str,
        *,
        listen: Sequence[str] = ("127.0.0.1:0", "RELAY://127.0.0.1:0"),
        advertise: Sequence[str] = (ADDRESS,),
        settings: Mapping[str, str] | None = None,
        audit_log: str | None = None,
    ) -> Agent:
        values: dict[str, object] = {
            "listen": list(listen),
            "advertise": list(advertise),
            "http": "127.0.0.1:0",
            "ledger": "memory:",
            "store": "memory:",
            "name": name,
            "data-dir": str(self.folder / name),
            "set": [f"{key}={value}" for key, value in (settings or {}).items()],
        }
        if audit_log is not None:
            values["audit-log"] = audit_log
        agent = await self.stack.enter_async_context(
            serving_agent(load_settings(CliCommand.AGENT, values, environment={}), MemoryLedger(self.core), self.store)
        )
        self.stack.push_async_callback(agent._server.drain, 0)
        return agent

    async def add_session(self, name: str, node_id: int, port: int | None) -> SessionId:
        """A session of an agent that is none; `port` is that of its listener RELAY, None for none."""
        ledger = MemoryLedger(self.core)
        session = await ledger.open_session(name)
        endpoints = [Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9)]
        if port is not None:
            endpoints.append(Endpoint(listener="RELAY", host="127.0.0.1", port=port))
        command = StartSession(
            name=name, node_id=node_id, endpoints=tuple(endpoints), zone=None, rules_version=RULES_NEWEST
        )
        payload = encode(Proposal(time_ms=None, command=command), RULES_NEWEST, session, 0)
        await ledger.append(session, [LedgerEntry(number=0, payload=payload)])
        return session


@asynccontextmanager
async def cluster_in(folder: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(folder=folder, stack=stack)


def group_of(agent: Agent, session: SessionId) -> str:
    """A group that the session's agent coordinates, as `agent` sees it."""
    services = agent.broker.services
    return next(
        group for group in map("group-{}".format, range(1_000)) if services.group_ledger.coordinator(group) == session
    )


async def know_each_other(*agents: Agent) -> None:
    """Return once each agent has applied the sessions of all."""
    await until(lambda: all(len(agent.broker.state.sessions) >= len(agents) for agent in agents))


def port_of(agent: Agent, listener: str = "PLAINTEXT") -> int:
    return next(address.port for address in agent.bound if address.name == listener)


@dataclass(slots=True)
class RawClient:
    """A client that sends requests field by field."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        self.writer.write(framed(api_key, version, values, client_id="client"))

    async def receive(self) -> bytes | None:
        """The next answer with its header; None where the connection is closed instead."""
        async with asyncio.timeout(10):
            try:
                (answer_bytes,) = INT32.unpack(await self.reader.readexactly(4))
                return await self.reader.readexactly(answer_bytes)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - kio's entities
        """The answer as kio's entity; None where the connection is closed instead."""
        self.send(api_key, version, values)
        answer = await self.receive()
        return None if answer is None else read_answer(answer, api_key, version)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


@dataclass(slots=True)
class HandMadeCoordinator:
    """Accepts relay connections and remembers what comes. A request is answered with `answer`; None closes.

    It reads requests once `is_reading` is set, and answers them once `is_answering` is.
    """

    reply: str | None = ""
    """To introductions; None for no reply at all."""
    answer: bytes | None = b"answered"
    introductions: list[Introduction] = field(default_factory=list[Introduction])
    requests: list[RequestFrame] = field(default_factory=list[RequestFrame])
    open_count: int = 0
    is_reading: asyncio.Event = field(default_factory=asyncio.Event)
    is_answering: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.is_reading.set()
        self.is_answering.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_count += 1
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the agent closed
        finally:
            self.open_count -= 1
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.introductions.append(decode_introduction(memoryview(await _frame(reader))))
        if self.reply is None:
            await reader.readexactly(1)
        writer.write(encode_reply(self.reply or ""))
        if self.reply:
            return
        while await self.is_reading.wait():
            frame = await _frame(reader)
            self.requests += ServerConnection().receive_data(INT32.pack(len(frame)) + frame)
            await self.is_answering.wait()
            if self.answer is None:
                return
            writer.write(INT32.pack(4 + len(self.answer)) + INT32.pack(CORRELATION_ID) + self.answer)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (frame_bytes,) = INT32.unpack(await reader.readexactly(4))
    return await reader.readexactly(frame_bytes)


@asynccontextmanager
async def hand_made_coordinator() -> AsyncIterator[tuple[HandMadeCoordinator, int]]:
    """The coordinator and its port."""
    coordinator = HandMadeCoordinator()
    server = await asyncio.start_server(coordinator.serve, "127.0.0.1", 0)
    async with server:
        yield coordinator, server.sockets[0].getsockname()[1]
        server.close()
