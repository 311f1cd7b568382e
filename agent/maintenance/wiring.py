"""Wires the background work on the ledger and the bucket; most of it is the maintenance leader's alone.

What expires uses a checked clock (safety rules S2 and S21), except the time-outs of transactions.
"""

from collections.abc import Mapping
from functools import partial

from agent.config.settings import Settings
from agent.context import AgentContext
from agent.maintenance.corruption_check import CorruptionCheck
from agent.maintenance.garbage_collector import GarbageCollector
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.offset_expiry import OffsetExpiry
from agent.maintenance.producer_expiry import ProducerExpiry
from agent.maintenance.progress_marks import ProgressMarks
from agent.maintenance.retention import Retention
from agent.maintenance.rules_version import RulesVersionUpgrade
from agent.maintenance.session_reaper import SessionReaper
from agent.maintenance.snapshots import Snapshots
from agent.maintenance.tail_manifest import TailManifests
from agent.maintenance.token_expiry import TokenExpiry
from agent.maintenance.transaction_timeouts import TransactionTimeouts
from agent.maintenance.transactional_id_expiry import TransactionalIdExpiry
from agent.runtime.periodic_job import loops_of
from agent.runtime.supervisor import Run
from coordinator.configs.broker_configs import broker_value


class MaintenanceRoles:
    """Every agent has them."""

    def __init__(self, context: AgentContext, *, settings: Settings, leader: MaintenanceLeader) -> None:
        self._clock = context.clock
        self._leader = leader
        self._corruption_check = CorruptionCheck(context, maintenance_leader=leader)
        self._snapshots = Snapshots(
            context,
            maintenance_leader=leader,
            digests=self._corruption_check,
            entries_interval=settings.snapshot_entries,
            bytes_interval=settings.snapshot_bytes,
        )
        self._progress_marks = ProgressMarks(store=context.store, ledger=context.ledger, maintenance_leader=leader)
        self.tail_manifests = TailManifests(context, maintenance_leader=leader, interval_ms=settings.tail_interval_ms)
        self.garbage_collector = GarbageCollector(
            context,
            maintenance_leader=leader,
            snapshots=self._snapshots,
            grace_ms=settings.gc_min_age_s * 1000,
        )
        self._rules = RulesVersionUpgrade(context.ledger)
        self._reaper = SessionReaper(ledger=context.ledger, clock=context.clock)
        self._producers = ProducerExpiry(
            ledger=context.ledger,
            clock=context.clock,
            proposed_time=context.proposed_time,
            expiration_ms=lambda: int(broker_value(context.broker_configs, "producer.id.expiration.ms")),
        )
        self._retention = Retention(context)
        self._offsets = OffsetExpiry(context, maintenance_leader=leader)
        self._transactions = TransactionTimeouts(context, maintenance_leader=leader)
        self._transactional_ids = TransactionalIdExpiry(context)
        self._tokens = TokenExpiry(context)

    def loops(self) -> Mapping[str, Run]:
        """The loops by the names of their tasks."""
        periodic = partial(loops_of, clock=self._clock, is_leader=lambda: self._leader.is_leader)
        return {
            **periodic(
                self.garbage_collector.job,
                self._snapshots.job,
                self._corruption_check.job,
                self._progress_marks.job,
                *self.tail_manifests.jobs,
                self._reaper.job,
            ),
            "session ends": self._reaper.run_watch,
            **periodic(
                self._rules.job,
                self._producers.job,
                self._retention.job,
                self._offsets.job,
                self._transactions.job,
                self._transactional_ids.job,
                self._tokens.job,
            ),
        }
