"""Aborts transactions that are open for longer than their time-outs: their producers are gone, or too slow.

Rule: how long a transaction is open is elapsed time on this agent's monotonic clock since it saw exactly that one open
(architecture: the ledger, "Time"). No wall clock has a say, so a transaction is never aborted too early; the agent that
is the maintenance leader does it alone, and one that takes over begins to count anew. Which one was seen is told by its
serial, which is checked again where the entry is applied. While no transaction is open a look costs nothing.

A transaction ends up to a second and an interval after its time-out, as in Kafka: `TRANSACTION_LOOK_SECONDS` and
transaction.abort.timed.out.transaction.cleanup.interval.ms, as this agent was given it.
Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator.abortTimedOutTransactions (Kafka 4.3).
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Outcome, Refused
from coordinator.commands.transaction import ExpireTransaction, TransactionDecided
from coordinator.configs.broker_configs import broker_value
from coordinator.ledger.port import OutcomeUnknown
from protocol.errors import ErrorCode
from protocol.limits import TRANSACTION_LOOK_SECONDS, TRANSACTIONS_EXPIRED_TOGETHER_MAX
from protocol.types import ProducerEpoch, ProducerId

log = logging.getLogger(__name__)


class SeenTransaction(NamedTuple):
    """Exactly one transaction, of all that a transactional id ever begins."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    serial: int


class TransactionTimeouts:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        maintenance_leader: MaintenanceLeader,
        clock: Clock,
        broker_configs: Mapping[str, str],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._maintenance_leader = maintenance_leader
        self._clock = clock
        name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        self._interval_s = int(broker_value(broker_configs, name)) / 1000
        self._seen_s: dict[SeenTransaction, float] = {}
        """Since when each is known to be open."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        looks_count = max(1, math.ceil(self._interval_s / TRANSACTION_LOOK_SECONDS))
        while True:
            for _ in range(looks_count):
                await self._clock.sleep(self._interval_s / looks_count)
                await self.look()
            await self.expire()

    async def look(self) -> None:
        """Note which transactions are open; none, where another agent sees to them."""
        if not self._maintenance_leader.is_leader:
            self._seen_s = {}
            return
        turns = CooperativeYield(self._clock)
        seen_s: dict[SeenTransaction, float] = {}
        for transactional_id in tuple(self._metadata.state.open_transactions):
            held = self._metadata.state.transactional_ids.get(transactional_id)
            if held is not None and held.metadata.is_ongoing:
                now = held.metadata
                seen = SeenTransaction(transactional_id, now.producer_id, now.epoch, now.serial)
                seen_s[seen] = self._seen_s.get(seen, self._clock.monotonic_s())
            await turns.step()
        self._seen_s = seen_s

    async def expire(self) -> int:
        """Propose to abort those that are open for too long; returns how many were aborted by that."""
        due = self._due()
        aborted_count = 0
        for first in range(0, len(due), TRANSACTIONS_EXPIRED_TOGETHER_MAX):
            aborted_count += await self._abort(due[first : first + TRANSACTIONS_EXPIRED_TOGETHER_MAX])
        return aborted_count

    async def _abort(self, share: Sequence[SeenTransaction]) -> int:
        aborted_count = 0
        for seen, future in [(seen, self._writer.propose(ExpireTransaction(**seen._asdict()))) for seen in share]:
            try:
                aborted_count += self._log_outcome(seen, await future)
            except OutcomeUnknown as error:
                log.info(
                    "could not abort a transaction, left for later", extra={**seen._asdict(), "reason": str(error)}
                )
        return aborted_count

    def _due(self) -> list[SeenTransaction]:
        """The transactions that are open for longer than their time-outs now."""
        now_s = self._clock.monotonic_s()
        ids = self._metadata.state.transactional_ids
        return [
            seen
            for seen, since_s in self._seen_s.items()
            if (held := ids.get(seen.transactional_id)) is not None
            and (held.metadata.is_ongoing and held.metadata.serial == seen.serial)
            and now_s - since_s > held.metadata.timeout_ms / 1000
        ]

    def _log_outcome(self, seen: SeenTransaction, outcome: Outcome) -> bool:
        """Say what became of a proposal; returns whether it aborted the transaction."""
        if isinstance(outcome, Refused):
            log.warning("a transaction that is open for too long stays until the next time: %s", outcome.reason)
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
            "aborted a transaction that was open for longer than its time-out: its producer is gone, or took too long, "
            "and is fenced",
            extra=extra,
        )
        return True
