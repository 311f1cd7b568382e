"""Removes delegation tokens that have ended, which would grow without limit otherwise.

The maintenance leader proposes, and apply decides which tokens have ended (safety rule S2). A token proves nothing
from its end on, whether it was removed or not. Interval: delegation.token.expiry.check.interval.ms of this agent.
Source: org.apache.kafka.controller.DelegationTokenControlManager.sweepExpiredDelegationTokens (Kafka 4.3).
"""

import logging

from agent.context import AgentContext
from agent.runtime.periodic_job import PeriodicJob
from coordinator.commands.commands import Rejected
from coordinator.commands.delegation_tokens import RemoveExpiredTokens, TokensRemoved
from coordinator.configs.broker_configs import broker_value
from protocol.limits import DELEGATION_TOKENS_EXPIRED_PER_ENTRY_MAX

log = logging.getLogger(__name__)


class TokenExpiry:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(self, context: AgentContext) -> None:
        self._ledger = context.ledger
        self._proposed_time = context.proposed_time
        name = "delegation.token.expiry.check.interval.ms"
        self._interval_s = int(broker_value(context.broker_configs, name)) / 1000

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="delegation tokens", interval_s=self._interval_s, run_once=self.remove_expired, is_for_leader=True
        )

    async def remove_expired(self) -> int:
        """Propose to remove tokens that have ended. Returns the number of removed ones."""
        now_ms = self._proposed_time()
        if now_ms is None:  # no checked clock: nothing ends (safety rule S2)
            return 0
        count = 0
        while any(token.is_expired(now_ms) for token in self._ledger.state.tokens.values()):
            command = RemoveExpiredTokens(now_ms=now_ms, tokens_max=DELEGATION_TOKENS_EXPIRED_PER_ENTRY_MAX)
            outcome = await self._ledger.propose(command)
            if isinstance(outcome, Rejected):
                log.warning("delegation tokens were not removed; the next check tries again: %s", outcome.reason)
                break
            assert isinstance(outcome, TokensRemoved)
            for token_id in outcome.token_ids:
                log.info("removed an expired delegation token", extra={"token": token_id})
            count += len(outcome.token_ids)
            if not outcome.token_ids:  # the ledger's time is behind this clock's
                break
        return count
