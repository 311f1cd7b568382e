"""Expires the state of idle producers, which would grow without limit otherwise.

Expiration and interval: producer.id.expiration.ms and Kafka's default of producer.id.expiration.check.interval.ms
(org.apache.kafka.coordinator.transaction.TransactionLogConfig).
"""

import logging
from collections.abc import Callable

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import ExpireProducers
from coordinator.state.state import PartitionState
from protocol.limits import PRODUCER_EXPIRY_CHECK_INTERVAL_S
from protocol.types import Milliseconds
from txn.producer_state import any_idle

log = logging.getLogger(__name__)


class ProducerExpiry:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(
        self,
        *,
        ledger: LedgerClient,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        expiration_ms: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._proposed_time = proposed_time
        self._expiration_ms = expiration_ms

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="producer expiry",
            interval_s=PRODUCER_EXPIRY_CHECK_INTERVAL_S,
            run_once=self.expire,
            is_for_leader=True,
        )

    async def expire(self) -> bool:
        """Propose to expire idle producers. Returns whether there were any."""
        now_ms = self._proposed_time()
        if now_ms is None:  # no checked clock: nothing expires (safety rule S2)
            return False
        cutoff_ms = Milliseconds(now_ms - self._expiration_ms())
        if not await self._has_idle(cutoff_ms):  # no entry for nothing
            return False
        await self._ledger.propose(ExpireProducers(cutoff_ms=cutoff_ms))
        log.info("expired the state of idle producers", extra={"idle_since_before_ms": cutoff_ms})
        return True

    async def _has_idle(self, cutoff_ms: Milliseconds) -> bool:
        """Whether any partition has the state of a producer that was last active before `cutoff_ms`."""
        turns = CooperativeYield(self._clock)
        for topic in list(self._ledger.state.topics.values()):
            for partition in topic.partitions:
                if _has_idle(partition, cutoff_ms):
                    return True
                await turns.step()
        return False


def _has_idle(partition: PartitionState, cutoff_ms: Milliseconds) -> bool:
    """Whether apply would expire a producer of the partition: one with an open transaction stays."""
    return any_idle(partition.producers, cutoff_ms, partition.open_producers())
