"""Elects the maintenance leader: the agent that makes snapshots, collects garbage, and proposes expiry and retention.

The role is a claim in the ledger with an epoch (`ClaimMaintenanceLeader`). The state names its holder, so no agent has
to ask the ledger. The role only avoids duplicate work; it is not a lock. An agent that lost it without noticing does no
harm, because
- a snapshot's pointer moves by compare-and-set, and the ledger is trimmed only as far as the pointer covers;
- garbage of an older state stays garbage: no entry refers to a released object again, and an ended session commits
  nothing (safety rules S1, S6); a second deletion is no error;
- apply checks entries that expire something again, by their cutoff and the state's time (safety rule S2).
"""

import logging

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.periodic_job import PeriodicJob
from coordinator.apply.maintenance_leader import needs_maintenance_leader
from coordinator.commands.commands import ClaimMaintenanceLeader, Done
from protocol.limits import MAINTENANCE_CLAIM_CHECK_INTERVAL_S, MAINTENANCE_CLAIM_JITTER_S

log = logging.getLogger(__name__)


class MaintenanceLeader:
    """Every agent has one. At most one agent at a time holds the role in the state."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock, ids: Ids) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ids = ids

    @property
    def is_leader(self) -> bool:
        """Whether this agent holds the role, as far as it has applied the ledger, and does not drain."""
        state = self._ledger.state
        return state.maintenance_leader == self._ledger.session and not state.sessions[self._ledger.session].is_draining

    @property
    def epoch(self) -> int:
        """The epoch of the role: it grows with every claim."""
        return self._ledger.state.maintenance_leader_epoch

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="maintenance leader",
            interval_s=MAINTENANCE_CLAIM_CHECK_INTERVAL_S,
            run_once=self._claim_if_vacant,
            is_first_at_once=True,
        )

    async def _claim_if_vacant(self) -> None:
        if self._is_vacant:
            # Jitter: the other agents see the first claim before they make their own.
            await self._clock.sleep(self._ids.jitter() * MAINTENANCE_CLAIM_JITTER_S)
            await self.claim()

    async def claim(self) -> bool:
        """Claim the role if it is vacant. Returns whether this agent got it."""
        if not self._is_vacant:
            return False
        epoch = self.epoch + 1
        is_granted = isinstance(await self._ledger.propose(ClaimMaintenanceLeader(epoch=epoch)), Done)
        if is_granted:
            log.info("this agent is now the maintenance leader", extra={"epoch": epoch})
        return is_granted

    @property
    def _is_vacant(self) -> bool:
        """Whether no live agent has the role, and this one may take it: a draining agent would give it up at once."""
        state = self._ledger.state
        session = state.sessions.get(self._ledger.session)
        return session is not None and not session.is_draining and needs_maintenance_leader(state)
