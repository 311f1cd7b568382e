"""Epochs of connections (safety rule S7): a position no older than the connection, in time or not at all."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import pytest

from agent.request.connection_epochs import ConnectionEpochs, IntroducedEpoch, RelayedEpochs
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from coordinator.commands.commands import ReportTime
from coordinator.commands.transaction import ConnectionEpoch
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import CONNECTION_EPOCH_SECONDS_MAX
from protocol.relay import ClientEpoch
from protocol.types import Position, SessionId
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts, until


class Asked:
    """Stands before the barriers of an agent: counts them, and lets them wait."""

    def __init__(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.is_away = False
        self._barrier = parts.ledger.barrier
        monkeypatch.setattr(parts.ledger, "barrier", self)

    async def __call__(self) -> Position:
        self.count += 1
        if self.is_away:
            raise LedgerUnavailable("away")
        position = await self._barrier()
        await self.goes_on.wait()
        return position


@asynccontextmanager
async def settling(parts: Parts) -> AsyncIterator[ConnectionEpochs]:
    connection_epochs = ConnectionEpochs(ledger=parts.ledger, clock=parts.clock)
    running = asyncio.ensure_future(connection_epochs.run())
    try:
        yield connection_epochs
    finally:
        running.cancel()


async def test_s7_an_epoch_is_as_new_as_its_connection_and_serials_rise() -> None:
    async with running_parts() as parts, settling(parts) as connection_epochs:
        first, second = connection_epochs.accepted(), connection_epochs.accepted()
        before = parts.ledger.state.position
        known = [await first.known(parts.clock), await second.known(parts.clock)]
        assert known == [ConnectionEpoch(position=before, serial=0), ConnectionEpoch(position=before, serial=1)]
        await parts.ledger.propose(ReportTime())
        later = await connection_epochs.accepted().known(parts.clock)
        assert later == ConnectionEpoch(position=parts.ledger.state.position, serial=2)
        assert later is not None
        assert later.position > before


async def test_one_barrier_serves_all_that_were_accepted_before_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts, settling(parts) as connection_epochs:
        asked = Asked(parts, monkeypatch)
        asked.goes_on.clear()
        early = [connection_epochs.accepted() for _ in range(5)]
        await until(lambda: asked.count == 1)
        late = [connection_epochs.accepted() for _ in range(5)]
        await parts.ledger.propose(ReportTime())
        asked.goes_on.set()
        epochs = [await pending.known(parts.clock) for pending in (*early, *late)]
        assert asked.count == 2
        positions = [epoch.position for epoch in epochs if epoch is not None]
        assert len(set(positions[:5])) == len(set(positions[5:])) == 1
        assert positions[5] > positions[0]


@pytest.mark.parametrize(
    ("late_s", "is_known"), [(CONNECTION_EPOCH_SECONDS_MAX, True), (CONNECTION_EPOCH_SECONDS_MAX + 0.1, False)]
)
async def test_s7_a_position_that_comes_late_ranks_nothing(
    monkeypatch: pytest.MonkeyPatch, late_s: float, *, is_known: bool
) -> None:
    async with running_parts() as parts, settling(parts) as connection_epochs:
        asked = Asked(parts, monkeypatch)
        asked.goes_on.clear()
        epoch = connection_epochs.accepted()
        await until(lambda: asked.count == 1)
        parts.clock.seconds += late_s
        asked.goes_on.set()
        assert (await epoch.known(parts.clock) is not None) is is_known


async def test_a_ledger_that_is_away_costs_the_connections_of_that_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts, settling(parts) as connection_epochs:
        asked = Asked(parts, monkeypatch)
        asked.is_away = True
        assert await connection_epochs.accepted().known(parts.clock) is None
        asked.is_away = False
        assert await connection_epochs.accepted().known(parts.clock) is not None


class Impatient(ManualClock):
    """Every wait is over soon."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        assert seconds == CONNECTION_EPOCH_SECONDS_MAX
        return asyncio.timeout(0.01)


async def test_a_request_waits_for_its_connection_epoch_for_some_time_only() -> None:
    async with running_parts() as parts:
        connection_epochs = ConnectionEpochs(ledger=parts.ledger, clock=parts.clock)  # nobody asks for positions
        assert await connection_epochs.accepted().known(Impatient()) is None


END_TXN = struct.pack(">hhih", 26, 0, 1, -1) + struct.pack(">h1sqhb", 1, b"x", 0, 0, 1)
API_VERSIONS = struct.pack(">hhih", 18, 0, 2, -1)


async def test_s7_a_connection_without_an_epoch_is_closed_by_a_request_that_needs_one_and_by_no_other() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock = paths.parts.clock
        server = KafkaServer(table=ConnectionTable(metrics=paths.parts.metrics), clock=clock)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        services = services_of(paths, Impatient(), tasks)  # without the task that settles epochs
        await server.start_serving(partial(ClientConnection, server.table, services, tasks))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in (API_VERSIONS, END_TXN):
            writer.write(struct.pack(">i", len(request)) + request)
        answered_bytes = int.from_bytes(await reader.readexactly(4), "big")
        assert int.from_bytes((await reader.readexactly(answered_bytes))[:4], "big") == 2
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        server.abort()
        await server.drain(0)


class TestRanks:
    """Connections of all agents, for the entries of one coordinator (S7)."""

    @staticmethod
    def epoch(session: int, position: int, number: int = 0) -> ClientEpoch:
        return ClientEpoch(SessionId(session), Position(position), number)

    async def test_s7_connections_of_one_position_are_numbered_also_over_several_barriers(self) -> None:
        async with running_parts() as parts, settling(parts) as connection_epochs:
            first, second = connection_epochs.accepted(), connection_epochs.accepted()
            of_clients = [await first.of_client(parts.clock), await second.of_client(parts.clock)]
            of_clients.append(await connection_epochs.accepted().of_client(parts.clock))
            at, session = parts.ledger.state.position, parts.ledger.session
            assert of_clients == [ClientEpoch(session, at, number) for number in range(3)]
            await parts.ledger.propose(ReportTime())
            later = await connection_epochs.accepted().of_client(parts.clock)
            assert later == ClientEpoch(session, parts.ledger.state.position, 0)

    async def test_a_connection_without_an_epoch_has_none_for_others_either(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running_parts() as parts, settling(parts) as connection_epochs:
            Asked(parts, monkeypatch).is_away = True
            assert await connection_epochs.accepted().of_client(parts.clock) is None

    async def test_an_introduced_epoch_is_none_of_this_agents_connections(self) -> None:
        epoch = IntroducedEpoch(self.epoch(1, 2))
        assert await epoch.of_client(ManualClock()) == self.epoch(1, 2)
        assert await epoch.known(ManualClock()) is None

    def test_s7_a_later_position_and_a_later_number_rank_higher(self) -> None:
        relayed = RelayedEpochs()
        ranks = [
            relayed.rank(self.epoch(*row)) for row in ((1, 5, 0), (1, 5, 1), (2, 6, 0), (1, 7, 0), (3, 1 << 40, 9))
        ]
        serials = [epoch.serial for epoch in ranks if epoch is not None]
        assert len(serials) == 5
        assert serials == sorted(set(serials))
        assert serials[-1] < 1 << 63
        assert [epoch.position for epoch in ranks if epoch is not None] == [5, 5, 6, 7, 1 << 40]

    def test_s7_two_agents_connections_of_one_position_have_no_order(self) -> None:
        relayed = RelayedEpochs()
        assert relayed.rank(self.epoch(1, 5)) is not None
        assert relayed.rank(self.epoch(2, 5, 1)) is None
        assert relayed.rank(self.epoch(1, 5, 2)) is not None

    def test_what_is_forgotten_has_to_connect_again(self) -> None:
        relayed = RelayedEpochs(positions_max=2)
        for position in (5, 7, 6):
            assert relayed.rank(self.epoch(1, position)) is not None
        assert relayed.rank(self.epoch(2, 5)) is None
        assert relayed.rank(self.epoch(1, 4)) is None
        assert relayed.rank(self.epoch(1, 6)) is not None
        assert relayed.rank(self.epoch(1, 8)) is not None
        assert relayed.rank(self.epoch(1, 6)) is None

    @pytest.mark.parametrize(("position", "number"), [(1 << 43, 0), (1, 1 << 20)])
    def test_a_connection_beyond_the_bits_of_a_rank_has_none(self, position: int, number: int) -> None:
        assert RelayedEpochs().rank(self.epoch(1, position, number)) is None
