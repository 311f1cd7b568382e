"""The embedded ledger in a journal, which it shares with the intake. Threads and tails: `coordinator.ledger.threaded`.

Contract: tests/contract/test_ledger.py. Decision: docs/adr/0048-a-journal-for-the-embedded-broker.md.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from coordinator.ledger.append_rules import Appended, check_group
from coordinator.ledger.journal_file import JournalLedgerFile
from coordinator.ledger.port import LedgerEntry
from coordinator.ledger.threaded import Result, ThreadedLedger
from protocol.types import Position, SessionId
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.records import RecordLocation
from storage.object_store import ObjectToPut


class JournalLedger(ThreadedLedger[JournalLedgerFile]):
    """Implements `coordinator.ledger.port.JointLedger`. Made by `open`."""

    def __init__(self, file: JournalLedgerFile, opened: OpenJournal) -> None:
        super().__init__(file)
        self._opened = opened

    @classmethod
    async def open(
        cls,
        opened: OpenJournal,
        *,
        new_cluster_id: str | None,
        predecessor: Path | None = None,
        is_durable: bool = True,
        is_begun_again: bool = False,
    ) -> Self:
        """The ledger in a journal, which its owner closes; where there is none, that of the cluster `new_cluster_id`
        is begun. Without one `LedgerMissing` is raised. `predecessor`: the SQLite file of a ledger that is taken over,
        and that was written with syncs where `is_durable`. `is_begun_again`: for a recovery, a ledger that is there
        counts no more.

        Raises `LedgerCorrupt` where entries are damaged or missing, and `LedgerUnavailable` where the journal cannot be
        written. Objects can be read all the same.
        """
        opening = partial(
            JournalLedgerFile,
            opened.journal,
            opened.content,
            new_cluster_id=new_cluster_id,
            is_begun_again=is_begun_again,
        )
        if predecessor is not None:
            from coordinator.ledger.sqlite_takeover import take_over  # SQLite is loaded where it is needed

            opening = partial(take_over, opened.journal, opened.content, predecessor, is_durable=is_durable)
        return cls(await opened.write(opening), opened)

    async def append_with(
        self, session: SessionId, entries: Sequence[LedgerEntry], objects: Sequence[ObjectToPut]
    ) -> Position:
        """Put `objects` and append `entries` by one write and one sync (`coordinator.ledger.port.JointLedger`)."""
        group = tuple(entries)
        check_group(group)
        locations: list[RecordLocation] = []
        appending = self._submit(partial(self._append_with, session, group, objects, locations))
        appending.add_done_callback(partial(self._keep, objects, locations))  # before a tail shows what names them
        return await self._until_shown(session, group, appending)

    def _append_with(
        self,
        session: SessionId,
        group: tuple[LedgerEntry, ...],
        objects: Sequence[ObjectToPut],
        locations: list[RecordLocation],
    ) -> Appended:
        appended, written = self._file.append_with(session, group, objects)
        locations += written
        return appended

    def _keep(
        self, objects: Sequence[ObjectToPut], locations: Sequence[RecordLocation], appending: asyncio.Future[Appended]
    ) -> None:
        if not appending.cancelled() and appending.exception() is None and locations:
            self._opened.keep(objects, locations)

    def _in_thread(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        return self._opened.write(call)

    async def _close_file(self) -> None:
        """Return once everything that was handed over is done; the journal is its owner's to close."""
        await self._opened.write(lambda: None)
