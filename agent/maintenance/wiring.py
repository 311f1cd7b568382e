"""Wires the background work that expires records, offsets, producers, transactional ids and transactions.

All of it uses a checked clock (safety rules S2 and S21), except the time-outs of transactions.
"""

from collections.abc import Callable, Mapping, Sequence

from agent.ledger.ledger_client import LedgerClient
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.offset_expiry import OffsetExpiry
from agent.maintenance.producer_expiry import ProducerExpiry
from agent.maintenance.retention import Retention
from agent.maintenance.transaction_timeouts import TransactionTimeouts
from agent.maintenance.transactional_id_expiry import TransactionalIdExpiry
from agent.runtime.clock import Clock
from agent.runtime.periodic_job import PeriodicJob
from coordinator.configs.broker_configs import broker_value
from protocol.types import Milliseconds


class ExpiryRoles:
    """Every agent has them; only the maintenance leader's work. `proposed_time`: None without a trusted clock."""

    def __init__(
        self,
        *,
        ledger: LedgerClient,
        maintenance_leader: MaintenanceLeader,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        broker_configs: Mapping[str, str],
    ) -> None:
        self._retention = Retention(
            ledger=ledger,
            clock=clock,
            proposed_time=proposed_time,
            broker_configs=broker_configs,
        )
        self._offsets = OffsetExpiry(
            ledger=ledger,
            maintenance_leader=maintenance_leader,
            clock=clock,
            proposed_time=proposed_time,
            broker_configs=broker_configs,
        )
        self._producers = ProducerExpiry(
            ledger=ledger,
            proposed_time=proposed_time,
            expiration_ms=lambda: int(broker_value(broker_configs, "producer.id.expiration.ms")),
        )
        self._transactions = TransactionTimeouts(
            ledger=ledger,
            maintenance_leader=maintenance_leader,
            clock=clock,
            broker_configs=broker_configs,
        )
        self._transactional_ids = TransactionalIdExpiry(
            ledger=ledger,
            clock=clock,
            proposed_time=proposed_time,
            broker_configs=broker_configs,
        )

    @property
    def jobs(self) -> Sequence[PeriodicJob]:
        return (
            self._producers.job,
            self._retention.job,
            self._offsets.job,
            self._transactions.job,
            self._transactional_ids.job,
        )
