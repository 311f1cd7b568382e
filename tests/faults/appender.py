"""A process that appends to an embedded ledger and says on stdout what was acknowledged.

    python -m tests.faults.appender PATH [sqlite | journal] [durable | fast] [COUNT]

The lines are `open POSITION APPENDS`, then `NUMBER POSITION` for each append that returned. The payload of number n is
`payload(n)`; in a journal each append carries an object, too, whose key is `key(n)` and whose bytes are `payload(n)`.
It goes on until it is killed, or waits for that after COUNT of them.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.port import LedgerEntry
from coordinator.ledger.sqlite import SqliteLedger
from protocol.types import Position, SessionId
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.store import JournalStore
from storage.object_store import ObjectToPut

FILE_BYTES = 100_000
"""Some files of a journal are filled, and are small: the shim copies a whole file at each sync."""


def payload(number: int) -> bytes:
    """Some kilobytes now and then, so that files are filled, and logs moved, often."""
    return b"%d." % number * (1 if number % 4 else 1_500)


def key(number: int) -> str:
    return f"intake/{number}"


@asynccontextmanager
async def sqlite_ledger(path: Path, *, is_durable: bool = True) -> AsyncIterator[SqliteLedger]:
    """The ledger in a SQLite file; one of the cluster `c` is created where there is none."""
    ledger = await SqliteLedger.open(path, new_cluster_id="c", is_durable=is_durable)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def journal_halves(folder: Path, *, is_durable: bool = True) -> AsyncIterator[tuple[JournalLedger, JournalStore]]:
    """Ledger and store in a journal; a ledger of the cluster `c` is created where there is none."""
    opened = await OpenJournal.open(
        folder,
        new_nonce=lambda: os.urandom(16),
        is_durable=is_durable,
        file_bytes_target=FILE_BYTES,
        allocated_bytes_step=FILE_BYTES // 4,
    )
    try:
        yield await JournalLedger.open(opened, new_cluster_id="c"), JournalStore(opened, now_ms=lambda: 0)
    finally:
        await opened.close()


async def append_to_sqlite(path: Path, numbers: Iterable[int], *, is_durable: bool) -> None:
    async with sqlite_ledger(path, is_durable=is_durable) as ledger:
        session = await report_open(ledger)
        for number in numbers:
            position = await ledger.append(session, [LedgerEntry(number=number, payload=payload(number))])
            report(number, position)
        await asyncio.Event().wait()


async def append_to_journal(folder: Path, numbers: Iterable[int], *, is_durable: bool) -> None:
    async with journal_halves(folder, is_durable=is_durable) as (ledger, _):
        session = await report_open(ledger)
        for number in numbers:
            stored = ObjectToPut(key=key(number), parts=[payload(number)], modified_ms=0)
            entry = LedgerEntry(number=number, payload=payload(number))
            report(number, await ledger.append_with(session, [entry], [stored]))
        await asyncio.Event().wait()


async def report_open(ledger: SqliteLedger | JournalLedger) -> SessionId:
    head = await ledger.head()
    session = await ledger.open_session("appender")
    print(f"open {head.position} {head.appends_count}", flush=True)
    return session


def report(number: int, position: Position) -> None:
    print(f"{number} {position}", flush=True)


if __name__ == "__main__":
    path, words = Path(sys.argv[1]), sys.argv[2:]
    counts = [int(word) for word in words if word.isdigit()]
    path.parent.mkdir(parents=True, exist_ok=True)
    append = append_to_journal if "journal" in words else append_to_sqlite
    asyncio.run(append(path, range(counts[0]) if counts else count(), is_durable="fast" not in words))
