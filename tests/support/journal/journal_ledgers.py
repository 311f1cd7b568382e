"""A ledger and a store in one journal, opened for a test."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.port import LedgerEntry
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.store import JournalStore
from storage.embedded.local_files import Files
from storage.object_store import ObjectToPut
from storage.store_damage import StoreDamage

FILE_BYTES = RECORDS_FIRST + 2_000
STEP_BYTES = 512


class EmbeddedJournal:
    """Both halves of a journal, and the damages that it reported."""

    def __init__(self, opened: OpenJournal, ledger: JournalLedger, damages: list[StoreDamage]) -> None:
        self.opened = opened
        self.ledger = ledger
        self.store = JournalStore(opened, now_ms=lambda: time.time_ns() // 1_000_000)
        self.damages = damages


@asynccontextmanager
async def embedded_journal(
    folder: Path,
    *,
    cluster: str | None = "c",
    files: Files | None = None,
    is_durable: bool = True,
    is_writer: bool = True,
    is_begun_again: bool = False,
) -> AsyncIterator[EmbeddedJournal]:
    """Open the journal in `folder` with small files. Raises what opening the ledger raises."""
    damages: list[StoreDamage] = []
    opened = await OpenJournal.open(
        folder,
        new_nonce=lambda: os.urandom(16),
        is_durable=is_durable,
        is_writer=is_writer,
        files=files,
        file_bytes_target=FILE_BYTES,
        allocated_bytes_step=STEP_BYTES,
        on_damage=damages.append,
    )
    try:
        ledger = await JournalLedger.open(opened, new_cluster_id=cluster, is_begun_again=is_begun_again)
        embedded = EmbeddedJournal(opened, ledger, damages)
        try:
            yield embedded
        finally:
            await embedded.store.close()
            await embedded.ledger.close()
    finally:
        await opened.close()


def entry(number: int, payload: bytes = b"x") -> list[LedgerEntry]:
    return [LedgerEntry(number=number, payload=payload)]


def an_intake_object(key: str, payload: bytes = b"payload") -> ObjectToPut:
    return ObjectToPut(key=key, parts=[payload], modified_ms=1)
