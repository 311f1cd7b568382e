"""Elects the one agent that does what would be wasted if all did it: snapshots, deletions, expiry, retention.

Rule: the role is a claim in the ledger with an epoch (`coordinator.apply.maintenance_leader`); the state says which
session has it, so no agent asks the ledger. It spares work, it is no lock: an agent that lost the role, or was cut off
and does not know it yet, may go on for a while and does no harm, because
- a snapshot's pointer moves by compare-and-set, and the ledger is trimmed only as far as the pointer covers;
- what an older state calls garbage is garbage for ever: a released object is never referred to again, and an ended
  session commits nothing (safety rules S1, S6); to delete, or to forget, twice is no error;
- entries that expire something are judged again where they are applied, by their cutoff and the state's time (S2).
"""

import logging

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from coordinator.apply.maintenance_leader import needs_maintenance_leader
from coordinator.commands.commands import ClaimMaintenanceLeader, Done
from protocol.limits import MAINTENANCE_CLAIM_CHECK_INTERVAL_S, MAINTENANCE_CLAIM_JITTER_S

log = logging.getLogger(__name__)


class MaintenanceLeader:
    """Every agent has one; `is_leader` on one of them, or on none for a moment."""

    def __init__(self, *, metadata: ApplyLoop, writer: LedgerWriter, clock: Clock, ids: Ids) -> None:
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._ids = ids

    @property
    def is_leader(self) -> bool:
        """Whether this agent is the maintenance leader, as far as it has applied the ledger."""
        state = self._metadata.state
        return state.maintenance_leader == self._writer.session and not state.sessions[self._writer.session].is_draining

    @property
    def epoch(self) -> int:
        """Another one with every holder."""
        return self._metadata.state.maintenance_leader_epoch

    async def run(self) -> None:
        """Claim the role whenever nobody has it, for ever."""
        while True:
            if self._is_wanted:
                # Not all at once: whoever is first is seen by the others before their turn comes.
                await self._clock.sleep(self._ids.jitter() * MAINTENANCE_CLAIM_JITTER_S)
                await self.claim()
            await self._clock.sleep(MAINTENANCE_CLAIM_CHECK_INTERVAL_S)

    async def claim(self) -> bool:
        """Ask for the role if nobody has it; returns whether this agent got it."""
        if not self._is_wanted:
            return False
        epoch = self.epoch + 1
        is_given = isinstance(await self._writer.propose(ClaimMaintenanceLeader(epoch=epoch)), Done)
        if is_given:
            log.info("this agent is now the maintenance leader", extra={"epoch": epoch})
        return is_given

    @property
    def _is_wanted(self) -> bool:
        state = self._metadata.state
        mine = state.sessions.get(self._writer.session)
        return mine is not None and not mine.is_draining and needs_maintenance_leader(state)
