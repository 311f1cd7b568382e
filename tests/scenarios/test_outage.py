"""Ledger or store away: producers are told in time to try again, the agent stays up, and goes on when they are back."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kio.index import load_response_schema

from agent.config.settings import CliCommand, load_settings
from agent.runtime.clock import SystemClock
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import LedgerEntry
from protocol.errors import ErrorCode
from protocol.types import SessionId
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, ObjectStore, StoreUnavailable
from tests.support.agent.serving_agent import serving_agent
from tests.support.records.kio_messages import KioEntity, kio_read
from tests.support.records.plain_records import Record, make_batch

SECONDS_MAX = 20.0
TIMEOUT_MS = 300
METADATA, PRODUCE = 3, 0
NOT_ACKNOWLEDGED = {ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower}


class AwayStore(MemoryStore):
    """A store in memory that can be away: nothing gets through to it then."""

    is_away = False

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        if self.is_away:
            raise StoreUnavailable(f"put {key}: away")
        await super().put(key, parts, if_absent=if_absent)


@dataclass(slots=True)
class Peer:
    """One connection that asks and waits for the answer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: int = field(default=0)

    async def ask(self, api_key: int, version: int, body: bytes) -> KioEntity:
        self.asked += 1
        head = struct.pack(">hhih", api_key, version, self.asked, 0)
        self.writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        async with asyncio.timeout(SECONDS_MAX):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            answer = await self.reader.readexactly(size)
        assert int.from_bytes(answer[:4], "big") == self.asked
        return kio_read(load_response_schema(api_key, version), answer[4:])

    async def create(self, topic: bytes) -> None:
        (told,) = (await self.ask(METADATA, 4, struct.pack(">ih", 1, len(topic)) + topic + b"\1")).topics
        assert told.error_code == ErrorCode.none

    async def produce(self, value: bytes, *, timeout_ms: int = TIMEOUT_MS) -> tuple[ErrorCode, int]:
        """Produce one record to partition 0 of `t`: the error, and the base offset."""
        batch = make_batch([Record(offset=0, timestamp=1, value=value)])
        head = struct.pack(">hhiih", -1, -1, timeout_ms, 1, 1) + b"t" + struct.pack(">iii", 1, 0, len(batch))
        (topic,) = (await self.ask(PRODUCE, 8, head + batch)).responses
        (partition,) = topic.partition_responses
        return ErrorCode(int(partition.error_code)), int(partition.base_offset)

    async def produce_until_acknowledged(self, value: bytes) -> int:
        """As a producer does: again where the error says so. Returns the base offset."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                error_code, offset = await self.produce(value, timeout_ms=5_000)
                if error_code is ErrorCode.none:
                    return offset
                assert error_code in NOT_ACKNOWLEDGED
                assert offset == -1


@asynccontextmanager
async def serving(folder: Path, ledger: MemoryLedger, store: ObjectStore) -> AsyncIterator[Peer]:
    """An agent on this ledger and store, the topic `t`, and a connection."""
    values = {"listen": ["127.0.0.1:0"], "http": "127.0.0.1:0", "data-dir": str(folder), "store": "memory:"}
    settings = load_settings(CliCommand.RUN, values, environment={})
    async with serving_agent(settings, ledger, store) as agent:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", agent.bound[0].port))
        await peer.create(b"t")
        yield peer
        peer.writer.close()
        await agent.drain()


def retrying(store: ObjectStore) -> RetryingStore:
    clock = SystemClock()
    ports = RetryPorts(monotonic_s=clock.monotonic_s, sleep=clock.sleep, chance=lambda: 0.5)
    return RetryingStore(store, policy=RetryPolicy(pause_s_max=0.2), ports=ports)


async def test_a_store_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    store = AwayStore()
    async with serving(tmp_path, MemoryLedger(), retrying(store)) as peer:
        store.is_away = True
        for value in (b"first", b"second"):
            assert await peer.produce(value) == (ErrorCode.request_timed_out, -1)
        await peer.create(b"t")  # what does not need the store is answered
        store.is_away = False
        # What timed out was accepted, so it comes before what is sent after.
        assert await peer.produce_until_acknowledged(b"third") == 2


async def test_what_a_store_refuses_for_good_leaves_no_offset_behind(tmp_path: Path) -> None:
    store = AwayStore()
    async with serving(tmp_path, MemoryLedger(), store) as peer:
        store.is_away = True
        for value in (b"first", b"second"):
            error_code, offset = await peer.produce(value)
            assert error_code in NOT_ACKNOWLEDGED
            assert offset == -1
        store.is_away = False
        assert await peer.produce_until_acknowledged(b"third") == 0


async def test_a_ledger_that_is_away_is_waited_for(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    async with serving(tmp_path, ledger, MemoryStore()) as peer:
        assert await peer.produce_until_acknowledged(b"before") == 0
        ledger.is_reachable = False
        for value in (b"first", b"second"):
            assert await peer.produce(value) == (ErrorCode.request_timed_out, -1)
        ledger.is_reachable = True
        assert await peer.produce_until_acknowledged(b"third") == 3


@pytest.mark.parametrize("fate", [AppendFate.LOST, AppendFate.ANSWER_LOST, AppendFate.DELAYED])
async def test_an_append_without_an_answer_is_settled_by_its_repeat(tmp_path: Path, fate: AppendFate) -> None:
    fates: list[AppendFate] = []

    async def fate_of_append(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        return fates.pop(0) if fates else AppendFate.APPLIED

    ledger = MemoryLedger(fate_of_append=fate_of_append)
    async with serving(tmp_path, ledger, MemoryStore()) as peer:
        for number in range(3):
            fates[:] = [fate, fate]
            assert await peer.produce(b"%d" % number, timeout_ms=10_000) == (ErrorCode.none, number)
            ledger.core.deliver_delayed()
        assert await peer.produce_until_acknowledged(b"last") == 3


async def test_an_agent_whose_session_ended_opens_another_and_goes_on(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    async with serving(tmp_path, ledger, MemoryStore()) as peer:
        assert await peer.produce_until_acknowledged(b"before") == 0
        for session in range(1, 4):
            ledger.core.expire(SessionId(session))
        assert await peer.produce_until_acknowledged(b"after") == 1
