"""Has the state of idle producers forgotten, which would grow for ever otherwise.

Rule: the cutoff comes from a checked clock; without one nothing expires (safety rule S2). Nothing is written to the
ledger while there is nobody to expire. Time and interval: producer.id.expiration.ms and, as Kafka has it by default,
producer.id.expiration.check.interval.ms (org.apache.kafka.coordinator.transaction.TransactionLogConfig).
"""

import logging
from collections.abc import Callable

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from coordinator.commands.commands import ExpireProducers
from coordinator.state.state import ClusterState, PartitionState
from protocol.limits import PRODUCER_EXPIRY_CHECK_INTERVAL_S
from protocol.types import Milliseconds
from txn.producer_state import any_idle

log = logging.getLogger(__name__)


class ProducerExpiry:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        maintenance_leader: MaintenanceLeader,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        expiration_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._maintenance_leader = maintenance_leader
        self._clock = clock
        self._proposed_time = proposed_time
        self._expiration_ms = expiration_ms

    async def run(self) -> None:
        """Expire again and again, for ever."""
        while True:
            await self._clock.sleep(PRODUCER_EXPIRY_CHECK_INTERVAL_S)
            if self._maintenance_leader.is_leader:
                await self.expire()

    async def expire(self) -> bool:
        """Propose to forget who has been idle for too long; returns whether there was anybody."""
        now_ms = self._proposed_time()
        if now_ms is None:
            return False
        cutoff_ms = Milliseconds(now_ms - self._expiration_ms())
        if not has_idle_producers(self._metadata.state, cutoff_ms):
            return False
        await self._writer.propose(ExpireProducers(cutoff_ms=cutoff_ms))
        log.info("had producers forgotten that were idle for too long", extra={"idle_since_before_ms": cutoff_ms})
        return True


def has_idle_producers(state: ClusterState, cutoff_ms: Milliseconds) -> bool:
    """Whether any partition remembers a producer that was last active before `cutoff_ms`."""
    return any(_has_idle(held, cutoff_ms) for topic in state.topics.values() for held in topic.partitions)


def _has_idle(partition: PartitionState, cutoff_ms: Milliseconds) -> bool:
    """The rule of the entry: a producer with an open transaction stays."""
    return any_idle(partition.producers, cutoff_ms, partition.open_producers())
