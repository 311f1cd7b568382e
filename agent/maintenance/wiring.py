"""Wires the background work that expires records, offsets, producers, transactional ids and transactions.

All of it uses a checked clock (safety rules S2 and S21), except the time-outs of transactions.
"""

from collections.abc import Sequence

from agent.context import AgentContext
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.offset_expiry import OffsetExpiry
from agent.maintenance.producer_expiry import ProducerExpiry
from agent.maintenance.retention import Retention
from agent.maintenance.transaction_timeouts import TransactionTimeouts
from agent.maintenance.transactional_id_expiry import TransactionalIdExpiry
from agent.runtime.periodic_job import PeriodicJob
from coordinator.configs.broker_configs import broker_value


class ExpiryRoles:
    """Every agent has them; only the maintenance leader's work."""

    def __init__(self, context: AgentContext, *, maintenance_leader: MaintenanceLeader) -> None:
        self._retention = Retention(context)
        self._offsets = OffsetExpiry(context, maintenance_leader=maintenance_leader)
        self._producers = ProducerExpiry(
            ledger=context.ledger,
            proposed_time=context.proposed_time,
            expiration_ms=lambda: int(broker_value(context.broker_configs, "producer.id.expiration.ms")),
        )
        self._transactions = TransactionTimeouts(context, maintenance_leader=maintenance_leader)
        self._transactional_ids = TransactionalIdExpiry(context)

    @property
    def jobs(self) -> Sequence[PeriodicJob]:
        return (
            self._producers.job,
            self._retention.job,
            self._offsets.job,
            self._transactions.job,
            self._transactional_ids.job,
        )
