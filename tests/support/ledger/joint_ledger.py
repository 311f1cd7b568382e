"""A ledger in memory that takes objects with their entries, as a journal does."""

import asyncio
from collections.abc import Sequence

from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerEntry, LedgerFull
from protocol.types import Position, SessionId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectToPut


class JointMemoryLedger(MemoryLedger):
    """Objects go to `store`. While `room_bytes` are fewer than what an append brings, it is rejected."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.store = store
        self.room_bytes = 1 << 30
        self.writes: list[tuple[list[int], list[str]]] = []
        """The numbers of the entries of each append with objects, and the keys of these."""
        self.may_write = asyncio.Event()
        """Appends with objects wait for it."""
        self.is_writing = False
        """Whether an append with objects was begun, and is not over."""
        self.may_write.set()

    async def append_with(
        self, session: SessionId, entries: Sequence[LedgerEntry], objects: Sequence[ObjectToPut]
    ) -> Position:
        self.is_writing = True
        await self.may_write.wait()
        self.is_writing = False
        if sum(len(part) for stored in objects for part in stored.parts) > self.room_bytes:
            raise LedgerFull("there is no room")
        for stored in objects:
            await self.store.put(stored.key, stored.parts)
        self.writes.append(([entry.number for entry in entries], [stored.key for stored in objects]))
        return await self.append(session, entries)
