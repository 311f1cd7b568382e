"""A ledger that answers no append, and a clock whose waits are over soon."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from agent.request.services import Services
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import LedgerEntry
from protocol.types import SessionId
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock


class Impatient(ManualClock):
    """Ends every wait after 10 ms, and records how long it was to be."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        self.waits.append(seconds)
        return asyncio.timeout(0.01)


async def never(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
    """An append that is not answered."""
    await asyncio.Event().wait()
    return AppendFate.LOST


@asynccontextmanager
async def stalled(clock: Impatient) -> AsyncIterator[Services]:
    """The services of an agent with the topic `t`, whose ledger answers no append from now on."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        ledger = paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.fate_of_append = never
        yield services_of(paths, clock, tasks)
