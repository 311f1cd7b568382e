"""Hands out producer ids from blocks that the ledger allocated (KIP-730).

An id is handed out once. The rest of a block is never used where the agent stops, as in Kafka.
"""

import asyncio

from agent.ledger.ledger_client import LedgerClient
from coordinator.commands.commands import AllocateProducerIds, ProducerIdsAllocated, Rejected
from protocol.types import ProducerId

BLOCK_COUNT = 1000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""


class AllocationRejected(Exception):
    """The ledger's queue is full, so no block was allocated. Clients may retry."""


class ProducerIdBlock:
    """The block that this agent hands out, and the next one when it is used up."""

    def __init__(self, *, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    @property
    def is_used_up(self) -> bool:
        """Whether the next id waits for the ledger."""
        return self._next == self._end

    async def take(self) -> ProducerId:
        """A producer id that no producer has had.

        Raises `OutcomeUnknown` if the session ended meanwhile, and `AllocationRejected`.
        """
        while self.is_used_up:
            async with self._refill:
                if self.is_used_up:
                    await self._allocate()
        producer_id = ProducerId(self._next)
        self._next += 1
        return producer_id

    async def _allocate(self) -> None:
        outcome = await self._ledger.propose(AllocateProducerIds(count=BLOCK_COUNT))
        if isinstance(outcome, Rejected):
            raise AllocationRejected(outcome.reason)
        assert isinstance(outcome, ProducerIdsAllocated), f"unexpected outcome of an allocation: {outcome}"
        self._next = outcome.producer_id_first
        self._end = outcome.producer_id_first + outcome.count
