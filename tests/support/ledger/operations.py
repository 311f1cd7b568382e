"""How the contract tests of ledgers use one: append, read to a number of records, and look at what came."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import cast

from coordinator.ledger.port import Ledger, LedgerEntry, LedgerRecord, SnapshotPointer
from protocol.types import Position, SessionId

START = Position(0)


def entries(*payloads: bytes, first: int = 0) -> list[LedgerEntry]:
    return [LedgerEntry(number=number, payload=payload) for number, payload in enumerate(payloads, first)]


def numbers(records: Sequence[LedgerRecord]) -> list[int]:
    return [record.number for record in records]


def revisions(records: Sequence[LedgerRecord]) -> list[tuple[Position, list[int]]]:
    return [(position, numbers(list(group))) for position, group in groupby(records, key=lambda row: row.position)]


def pointer_at(position: Position, *, appends_count: int) -> SnapshotPointer:
    key = f"ledger/snapshots/{position:016x}"
    return SnapshotPointer(position=position, object_key=key, appends_count=appends_count, digest=b"\x01" * 32)


def tailing(ledger: Ledger, after: Position) -> aclosing[AsyncGenerator[Sequence[LedgerRecord], None]]:
    """A tail that is ended with the block, not by the garbage collector."""
    return aclosing(cast("AsyncGenerator[Sequence[LedgerRecord], None]", ledger.tail(after)))


async def take(ledger: Ledger, after: Position, count: int) -> list[LedgerRecord]:
    """At least `count` records above `after`, each hand-over checked to be made of whole revisions."""
    taken: list[LedgerRecord] = []
    async with asyncio.timeout(20), tailing(ledger, after) as tail:
        async for records in tail:
            assert records
            assert not taken or records[0].position > taken[-1].position, "a revision was split or came twice"
            taken.extend(records)
            if len(taken) >= count:
                break
    return taken


async def append_singly(ledger: Ledger, session: SessionId, count: int, *, first: int = 0) -> list[Position]:
    return [await ledger.append(session, entries(b"%d" % n, first=n)) for n in range(first, first + count)]
