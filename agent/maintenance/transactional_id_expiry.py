"""Expires unused transactional ids, which would grow without limit otherwise.

The maintenance leader proposes a cutoff, and apply decides which ids expire. Ids with an open transaction stay.
Expiration and interval: transactional.id.expiration.ms and
transaction.remove.expired.transaction.cleanup.interval.ms of this agent.
Source: org.apache.kafka.coordinator.transaction.TransactionStateManager.removeExpiredTransactionalIds (Kafka 4.3).
"""

import logging

from agent.context import AgentContext
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Rejected
from coordinator.commands.transaction import ExpireTransactionalIds
from coordinator.configs.broker_configs import broker_value
from coordinator.state.state import NO_TIME
from protocol.limits import TRANSACTIONAL_IDS_EXPIRED_PER_ENTRY_MAX
from protocol.types import Milliseconds

log = logging.getLogger(__name__)


class TransactionalIdExpiry:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(self, context: AgentContext) -> None:
        self._ledger = context.ledger
        self._clock = context.clock
        self._proposed_time = context.proposed_time
        self._expiration_ms = int(broker_value(context.broker_configs, "transactional.id.expiration.ms"))
        name = "transaction.remove.expired.transaction.cleanup.interval.ms"
        self._interval_s = int(broker_value(context.broker_configs, name)) / 1000

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="transactional ids", interval_s=self._interval_s, run_once=self.expire, is_for_leader=True
        )

    async def expire(self) -> int:
        """Propose to expire unused ids. Returns their number."""
        now_ms = self._proposed_time()
        if now_ms is None:  # no checked clock: nothing expires (safety rule S2)
            return 0
        cutoff_ms = Milliseconds(now_ms - self._expiration_ms)
        due_count, untimed_count = await self._count(cutoff_ms)
        # One entry at least if there are ids without a time: it gives them its own, at which their expiration starts
        # (S2).
        for _ in range(0, due_count or min(untimed_count, 1), TRANSACTIONAL_IDS_EXPIRED_PER_ENTRY_MAX):
            command = ExpireTransactionalIds(cutoff_ms=cutoff_ms, ids_max=TRANSACTIONAL_IDS_EXPIRED_PER_ENTRY_MAX)
            outcome = await self._ledger.propose(command)
            if isinstance(outcome, Rejected):
                log.warning("transactional ids were not expired; the next check tries again: %s", outcome.reason)
                return 0
        if due_count:
            log.info("expired unused transactional ids", extra={"transactional_ids": due_count})
        return due_count

    async def _count(self, cutoff_ms: Milliseconds) -> tuple[int, int]:
        """The number of ids before the cutoff, and of ids that were last used while no clock was trusted."""
        turns = CooperativeYield(self._clock)
        due_count = untimed_count = 0
        for entry in tuple(self._ledger.state.transactional_ids.values()):
            if not entry.metadata.is_ongoing:
                due_count += NO_TIME < entry.updated_ms < cutoff_ms
                untimed_count += entry.updated_ms == NO_TIME
            await turns.step()
        return due_count, untimed_count
