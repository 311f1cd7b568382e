"""Puts newer rules of apply in force once every live agent knows them (safety rule S3).

Rule: this proposes, apply decides: an agent that has just started with older rules refuses the entry for all. One
agent proposes, by rendezvous; nothing breaks if two do.
"""

import logging

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from coordinator.commands.commands import Done, RaiseRules
from coordinator.state.rendezvous import owner_of
from protocol.limits import RULES_CHECK_INTERVAL_S

log = logging.getLogger(__name__)

KEY = b"rules"


class RulesVersionUpgrade:
    """Every agent has one."""

    def __init__(self, *, metadata: ApplyLoop, writer: LedgerWriter, clock: Clock) -> None:
        self._metadata = metadata
        self._writer = writer
        self._clock = clock

    async def run(self) -> None:
        """Look now and then, for ever."""
        while True:
            await self.look()
            await self._clock.sleep(RULES_CHECK_INTERVAL_S)

    async def look(self) -> bool:
        """Whether newer rules came into force by this agent's proposal."""
        state = self._metadata.state
        known = min((session.rules_version for session in state.sessions.values()), default=0)
        if known <= state.rules_version or owner_of(KEY, state.sessions) != self._writer.session:
            return False
        outcome = await self._writer.propose(RaiseRules(rules_version=known))
        if isinstance(outcome, Done):
            log.info(
                "newer rules are in force: older versions of this program can no longer join", extra={"rules": known}
            )
        return isinstance(outcome, Done)
