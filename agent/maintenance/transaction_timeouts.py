"""Aborts transactions that are open for longer than their time-outs: their producers are dead or too slow.

A transaction is aborted up to `TRANSACTION_LOOK_SECONDS` plus one interval after its time-out, similar to Kafka. The
interval is transaction.abort.timed.out.transaction.cleanup.interval.ms of this agent.
Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator.abortTimedOutTransactions (Kafka 4.3).
"""

import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

from agent.context import AgentContext
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Outcome, Rejected
from coordinator.commands.transaction import ExpireTransaction, TransactionDecided
from coordinator.configs.broker_configs import broker_value
from coordinator.ledger.port import OutcomeUnknown
from protocol.errors import ErrorCode
from protocol.limits import TRANSACTION_LOOK_SECONDS, TRANSACTIONS_EXPIRED_TOGETHER_MAX
from protocol.types import ProducerEpoch, ProducerId

log = logging.getLogger(__name__)


class SeenTransaction(NamedTuple):
    """The identity of one transaction: `serial` counts the transactions of a transactional id."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    serial: int


class TransactionTimeouts:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(self, context: AgentContext, *, maintenance_leader: MaintenanceLeader) -> None:
        self._ledger = context.ledger
        self._maintenance_leader = maintenance_leader
        self._clock = context.clock
        name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        self._interval_s = int(broker_value(context.broker_configs, name)) / 1000
        self._looks_per_interval = max(1, math.ceil(self._interval_s / TRANSACTION_LOOK_SECONDS))
        self._looks_count = 0
        """The number of looks in the present interval."""
        self._seen_s: dict[SeenTransaction, float] = {}
        """The monotonic time at which this agent first saw each open transaction.

        Elapsed time on one machine, no wall clock: a transaction is never aborted too early. A new maintenance leader
        starts to count again.
        """

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="transactions",
            interval_s=self._interval_s / self._looks_per_interval,
            run_once=self._observe_or_expire,
        )

    async def _observe_or_expire(self) -> None:
        """Note the open transactions, and once in the interval abort those that are open for too long."""
        # An error begins the interval again.
        looks_count, self._looks_count = self._looks_count + 1, 0
        await self.observe()
        if looks_count == self._looks_per_interval:
            await self.expire()
        else:
            self._looks_count = looks_count

    async def observe(self) -> None:
        """Note the open transactions; forget all of them where another agent is the maintenance leader."""
        if not self._maintenance_leader.is_leader:
            self._seen_s = {}
            return
        turns = CooperativeYield(self._clock)
        seen_s: dict[SeenTransaction, float] = {}
        for transactional_id in tuple(self._ledger.state.open_transactions):
            entry = self._ledger.state.transactional_ids.get(transactional_id)
            if entry is not None and entry.metadata.is_ongoing:
                now = entry.metadata
                seen = SeenTransaction(transactional_id, now.producer_id, now.epoch, now.serial)
                seen_s[seen] = self._seen_s.get(seen, self._clock.monotonic_s())
            await turns.step()
        self._seen_s = seen_s

    async def expire(self) -> int:
        """Propose to abort expired transactions. Returns the number of aborted ones."""
        expired = self._expired()
        aborted_count = 0
        for first in range(0, len(expired), TRANSACTIONS_EXPIRED_TOGETHER_MAX):
            aborted_count += await self._abort(expired[first : first + TRANSACTIONS_EXPIRED_TOGETHER_MAX])
        return aborted_count

    async def _abort(self, transactions: Sequence[SeenTransaction]) -> int:
        aborted_count = 0
        for seen, future in [
            (seen, self._ledger.propose(ExpireTransaction(**seen._asdict()))) for seen in transactions
        ]:
            try:
                aborted_count += self._log_outcome(seen, await future)
            except OutcomeUnknown as error:
                log.info(
                    "the outcome of a transaction's abort is unknown; the next check tries again",
                    extra={**seen._asdict(), "reason": str(error)},
                )
        return aborted_count

    def _expired(self) -> list[SeenTransaction]:
        """The transactions that are open for longer than their time-outs."""
        now_s = self._clock.monotonic_s()
        ids = self._ledger.state.transactional_ids
        return [
            seen
            for seen, since_s in self._seen_s.items()
            if (entry := ids.get(seen.transactional_id)) is not None
            # The serial: the id may have begun another transaction since. Apply checks it again.
            and (entry.metadata.is_ongoing and entry.metadata.serial == seen.serial)
            and now_s - since_s > entry.metadata.timeout_ms / 1000
        ]

    def _log_outcome(self, seen: SeenTransaction, outcome: Outcome) -> bool:
        """Log the outcome of a proposal. Returns whether it aborted the transaction."""
        if isinstance(outcome, Rejected):
            log.warning("an expired transaction was not aborted; the next check tries again: %s", outcome.reason)
            return False
        assert isinstance(outcome, TransactionDecided)
        if outcome.error_code is not ErrorCode.none:
            return False  # it ended before
        extra = {
            "transactional_id": seen.transactional_id,
            "producer_id": seen.producer_id,
            "epoch": seen.epoch,
            "open_s": round(self._clock.monotonic_s() - self._seen_s[seen]),
            "partitions": len(outcome.grown),
            "groups": len(outcome.ended_groups),
        }
        log.warning(
            "aborted a transaction that was open for longer than its time-out: its producer is dead or too slow, and "
            "is fenced",
            extra=extra,
        )
        return True
