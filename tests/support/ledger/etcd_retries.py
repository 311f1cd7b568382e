"""How tests wait and read while an etcd that they hurt comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import LedgerRecord, LedgerUnavailable
from protocol.types import Position

SECONDS_MAX = 60
T = TypeVar("T")


async def until_known(attempt: Callable[[], Awaitable[T]]) -> T:
    """As an agent does: the same again until there is an answer."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await attempt()
            except LedgerUnavailable:
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)


async def follow(ledger: EtcdLedger, after: Position, last: int) -> list[LedgerRecord]:
    """Every record above `after` up to number `last`, over any number of broken tails."""
    records: list[LedgerRecord] = []
    async with asyncio.timeout(SECONDS_MAX):
        while not records or records[-1].number < last:
            try:
                async with aclosing(ledger.tail(after)) as reading:
                    async for more in reading:
                        records.extend(more)
                        after = more[-1].position
                        if more[-1].number >= last:
                            break
            except LedgerUnavailable:
                continue
    return records
