"""Upgrades the version of apply's rules once every live agent knows the newer one (safety rule S3)."""

import logging

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.periodic_job import PeriodicJob
from coordinator.commands.commands import Done, RaiseRules
from coordinator.state.rendezvous import owner_of
from protocol.limits import RULES_CHECK_INTERVAL_S

log = logging.getLogger(__name__)

KEY = b"rules"


class RulesVersionUpgrade:
    """Every agent has one."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="rules", interval_s=RULES_CHECK_INTERVAL_S, run_once=self.upgrade, is_first_at_once=True
        )

    async def upgrade(self) -> bool:
        """Propose newer rules if all live agents know them. Returns whether this agent's proposal was applied."""
        state = self._ledger.state
        if state.rules_hold_since_ms is not None:
            return False
        common_version = min((session.rules_version for session in state.sessions.values()), default=0)
        # One agent proposes, by rendezvous hashing; a second proposal would do no harm.
        if common_version <= state.rules_version or owner_of(KEY, state.sessions) != self._ledger.session:
            return False
        # Apply decides again: an agent with older rules may have started since, and the entry is rejected then.
        outcome = await self._ledger.propose(RaiseRules(rules_version=common_version))
        if isinstance(outcome, Done):
            log.info(
                "upgraded the rules version: older versions of this program can no longer join",
                extra={"rules": common_version},
            )
        return isinstance(outcome, Done)
