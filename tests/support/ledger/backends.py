"""The ledgers under contract test, and what can be done to each from outside: lose an append, end a session."""

import itertools
import os
import sqlite3
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from aetcd.rpc import rpc_pb2

from agent.ledger.ledger_outages import OutageLoggingLedger
from coordinator.ledger.append_rules import Appended
from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.keys import EtcdKeys, prefix_end
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.journal_file import JournalLedgerFile
from coordinator.ledger.memory import AppendFate, MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Ledger, LedgerEntry, LedgerUnavailable
from coordinator.ledger.sqlite import SqliteLedger
from protocol.types import SessionId
from storage.embedded.journal.open_journal import OpenJournal
from tests.support.services.etcd import Etcd

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
    async def open(self, folder: Path, request: pytest.FixtureRequest) -> None: ...

    async def close(self) -> None:
        await self.ledger.close()

    @abstractmethod
    async def another(self) -> Ledger:
        """The same ledger as another agent has it open, or the same object where only one process can."""

    @abstractmethod
    def lose_next(self, loss: Loss) -> None:
        """Lose the next append."""

    @abstractmethod
    async def end(self, session: SessionId) -> None:
        """End a session without its agent."""


class MemoryBackend(Backend):
    async def open(self, folder: Path, request: pytest.FixtureRequest) -> None:
        del folder, request
        self._core = MemoryLedgerCore(cluster_id=CLUSTER_ID)
        self._losses: deque[Loss] = deque()
        self.ledger = MemoryLedger(self._core, fate_of_append=self._choose)

    async def another(self) -> Ledger:
        return MemoryLedger(self._core)

    async def _choose(self, _session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        if not self._losses:
            return AppendFate.APPLIED
        return AppendFate.LOST if self._losses.popleft() is Loss.BEFORE else AppendFate.ANSWER_LOST

    def lose_next(self, loss: Loss) -> None:
        self._losses.append(loss)

    async def end(self, session: SessionId) -> None:
        self._core.expire(session)


class ToldBackend(MemoryBackend):
    """The ledger in memory, with its outages told: that changes nothing."""

    async def open(self, folder: Path, request: pytest.FixtureRequest) -> None:
        await super().open(folder, request)
        self.ledger = OutageLoggingLedger(self.ledger, monotonic_s=lambda: 0.0)


class SqliteBackend(Backend):
    async def open(self, folder: Path, request: pytest.FixtureRequest) -> None:
        del request
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

    async def another(self) -> Ledger:
        return self.ledger

    def lose_next(self, loss: Loss) -> None:
        self._losses.append(loss)

    async def end(self, session: SessionId) -> None:
        await self.ledger.close_session(session)


class LosingJournalFile(JournalLedgerFile):
    """Fails the appends that the test wants to fail, before or after they are carried out."""

    losses: deque[Loss]

    def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Appended:
        loss = self.losses.popleft() if self.losses else None
        if loss is Loss.BEFORE:
            raise LedgerUnavailable("lost before the append")
        appended = super().append(session, entries)
        if loss is Loss.AFTER:
            raise LedgerUnavailable("lost after the append")
        return appended


class JournalBackend(Backend):
    async def open(self, folder: Path, request: pytest.FixtureRequest) -> None:
        del request
        self._opened = await OpenJournal.open(folder / "journal", new_nonce=lambda: os.urandom(16))
        self._losses: deque[Loss] = deque()
        file = LosingJournalFile(self._opened.journal, self._opened.content, new_cluster_id=CLUSTER_ID)
        file.losses = self._losses
        self.ledger = JournalLedger(file, self._opened)

    async def close(self) -> None:
        await self.ledger.close()
        await self._opened.close()

    async def another(self) -> Ledger:
        return self.ledger

    def lose_next(self, loss: Loss) -> None:
        self._losses.append(loss)

    async def end(self, session: SessionId) -> None:
        await self.ledger.close_session(session)


class LosingClient(EtcdClient):
    """Loses the appends that the test wants to lose, before etcd gets them or their answers."""

    losses: deque[Loss]

    async def txn(self, request: rpc_pb2.TxnRequest, *, is_repeatable: bool = False) -> rpc_pb2.TxnResponse:
        loss = self.losses.popleft() if self.losses and len(request.success) > 1 else None
        if loss is Loss.BEFORE:
            raise LedgerUnavailable("lost before the append")
        answer = await super().txn(request, is_repeatable=is_repeatable)
        if loss is Loss.AFTER:
            raise LedgerUnavailable("lost after the append")
        return answer


class EtcdBackend(Backend):
    fixture: ClassVar = "etcd"

    async def open(self, folder: Path, request: pytest.FixtureRequest) -> None:
        del folder
        etcd = request.getfixturevalue(self.fixture)
        assert isinstance(etcd, Etcd)
        self._endpoints = etcd.endpoints
        self._others: list[Ledger] = []
        client = LosingClient(EtcdAccess(endpoints=etcd.endpoints))
        self._losses: deque[Loss] = deque()
        client.losses = self._losses
        self._client, self._cluster = client, f"contract-{next(cluster_numbers)}"
        self.ledger = await EtcdLedger.open(client, self._cluster, new_cluster_id=CLUSTER_ID)

    async def another(self) -> Ledger:
        client = EtcdClient(EtcdAccess(endpoints=self._endpoints))
        ledger = await EtcdLedger.open(client, self._cluster, new_cluster_id=CLUSTER_ID)
        self._others.append(ledger)
        return ledger

    async def close(self) -> None:
        for ledger in (self.ledger, *self._others):
            await ledger.close()

    def lose_next(self, loss: Loss) -> None:
        self._losses.append(loss)

    async def end(self, session: SessionId) -> None:
        sessions = EtcdKeys(self._cluster).session("")
        found = await self._client.range(rpc_pb2.RangeRequest(key=sessions, range_end=prefix_end(sessions)))
        (held,) = (pair for pair in found.kvs if pair.create_revision == session)
        await self._client.revoke_lease(held.lease)


class OldestEtcdBackend(EtcdBackend):
    fixture = "etcd_oldest"


BACKENDS: dict[str, type[Backend]] = {
    "etcd-3.5": OldestEtcdBackend,
    "etcd-3.6": EtcdBackend,
    "journal": JournalBackend,
    "memory": MemoryBackend,
    "memory, with its outages told": ToldBackend,
    "sqlite": SqliteBackend,
}
cluster_numbers = itertools.count()
