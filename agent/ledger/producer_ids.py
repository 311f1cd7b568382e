"""Hands out producer ids from blocks that the ledger allocated.

Rule: an id is handed out once. What is left of a block when the agent stops is never used (as in Kafka, KIP-730).
"""

import asyncio

from agent.ledger.ledger_writer import LedgerWriter
from coordinator.commands.commands import AllocateProducerIds, ProducerIdsAllocated, Refused
from protocol.types import ProducerId

BLOCK_COUNT = 1000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""


class AllocationRefused(Exception):
    """No ids could be had now, as too many commands wait for the ledger. Clients may retry."""


class ProducerIdBlock:
    def __init__(self, *, writer: LedgerWriter) -> None:
        self._writer = writer
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> ProducerId:
        """A producer id that nobody has had.

        Raises `OutcomeUnknown` if the session ended meanwhile, and `AllocationRefused`.
        """
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:
                    await self._allocate()
        producer_id = ProducerId(self._next)
        self._next += 1
        return producer_id

    async def _allocate(self) -> None:
        outcome = await self._writer.propose(AllocateProducerIds(count=BLOCK_COUNT))
        if isinstance(outcome, Refused):
            raise AllocationRefused(outcome.reason)
        assert isinstance(outcome, ProducerIdsAllocated), f"unexpected outcome of an allocation: {outcome}"
        self._next = outcome.producer_id_first
        self._end = outcome.producer_id_first + outcome.count
