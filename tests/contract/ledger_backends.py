"""The ledgers under contract test, and what can be done to each from outside: lose an append, end a session."""

import sqlite3
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.log import Entry, Ledger
from coordinator.memory_log import Fate, MemoryLedger, MemoryLedgerCore
from coordinator.sqlite_log import SqliteLedger
from protocol.types import SessionId

if TYPE_CHECKING:
    from sqlite3 import _Parameters

CLUSTER_ID = "cluster-1"


class Loss(Enum):
    """How an append gets lost on its way."""

    BEFORE = "before it was applied"
    AFTER = "its answer, after it was applied"


class Backend(ABC):
    """A ledger under test, and what can be done to it from outside."""

    ledger: Ledger

    @abstractmethod
    async def open(self, folder: Path) -> None: ...

    @abstractmethod
    def lose_next(self, loss: Loss) -> None:
        """Lose the next append."""

    @abstractmethod
    async def end(self, session: SessionId) -> None:
        """End a session without its agent."""


class MemoryBackend(Backend):
    async def open(self, folder: Path) -> None:
        del folder
        self._core = MemoryLedgerCore(cluster_id=CLUSTER_ID)
        self._losses: deque[Loss] = deque()
        self.ledger = MemoryLedger(self._core, fate_of_append=self._choose)

    async def _choose(self, _session: SessionId, _entries: Sequence[Entry]) -> Fate:
        if not self._losses:
            return Fate.APPLIED
        return Fate.LOST if self._losses.popleft() is Loss.BEFORE else Fate.ANSWER_LOST

    def lose_next(self, loss: Loss) -> None:
        self._losses.append(loss)

    async def end(self, session: SessionId) -> None:
        self._core.expire(session)


class SqliteBackend(Backend):
    async def open(self, folder: Path) -> None:
        losses: deque[Loss] = deque()

        class LosingConnection(sqlite3.Connection):
            """Fails the appends that the test wants to fail, before or after they are carried out."""

            def execute(self, sql: str, parameters: "_Parameters" = (), /) -> sqlite3.Cursor:
                loss = losses.popleft() if losses and sql.startswith("INSERT INTO entries") else None
                if loss is Loss.BEFORE:
                    raise sqlite3.OperationalError("disk I/O error before the append")
                cursor = super().execute(sql, parameters)
                if loss is Loss.AFTER:
                    raise sqlite3.OperationalError("disk I/O error after the append")
                return cursor

        self._losses = losses
        self.ledger = await SqliteLedger.open(
            folder / "ledger.sqlite", new_cluster_id=CLUSTER_ID, connection_type=LosingConnection
        )

    def lose_next(self, loss: Loss) -> None:
        self._losses.append(loss)

    async def end(self, session: SessionId) -> None:
        await self.ledger.close_session(session)


BACKENDS: dict[str, type[Backend]] = {"memory": MemoryBackend, "sqlite": SqliteBackend}
