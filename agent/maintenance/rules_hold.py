"""Holds the rules version, or ends the hold, as the option of this agent says: --hold-rules (safety rule S3)."""

import logging
from collections.abc import Callable

from agent.ledger.ledger_client import LedgerClient
from coordinator.commands.admin import AlterConfigs, ConfigOperation, ConfigResourceType, OperationKind
from coordinator.commands.commands import Rejected
from coordinator.configs.rules_hold import RULES_HOLD
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.state import EVERY_BROKER
from protocol.types import Milliseconds

log = logging.getLogger(__name__)


class RulesHold:
    """The hold is a broker config of every broker. Under any rules, agents carry it along."""

    def __init__(
        self, ledger: LedgerClient, *, is_held: bool | None, proposed_time: Callable[[], Milliseconds | None]
    ) -> None:
        """`is_held`: whether the rules version is to be held; None leaves the hold as it is."""
        self._ledger = ledger
        self._is_held = is_held
        self._proposed_time = proposed_time

    async def carry_out(self) -> None:
        """Return once the state says what the option says. A hold that is there keeps its time, and an older agent does
        not end one.

        An agent calls this before it may raise the rules. Raises `RuntimeError` where the config cannot be stored.
        """
        if self._is_held is False and self._is_older:
            log.info("newer agents are there: what they hold is left as it is")
            return
        while self._is_held is not None and self._is_held != (self._ledger.state.rules_hold_since_ms is not None):
            try:
                outcome = await self._ledger.propose(self._alteration(is_held=self._is_held))
            except OutcomeUnknown:
                continue  # the session was replaced: the state says whether its entry counted
            if isinstance(outcome, Rejected):
                raise RuntimeError(f"--hold-rules cannot be carried out: {outcome.reason}")
            log.info(
                "the rules version is held: agents that know newer rules do not raise it"
                if self._is_held
                else "the hold of the rules version has ended",
                extra={"rules": self._ledger.state.rules_version},
            )

    @property
    def _is_older(self) -> bool:
        """Whether another agent knows newer rules. A hold is then that agent's: an upgrade is under way, and a restart
        of an older agent, with the option of before, must not take the way back.
        """
        own = self._ledger.agent.rules_version
        return any(session.rules_version > own for session in self._ledger.state.sessions.values())

    def _alteration(self, *, is_held: bool) -> AlterConfigs:
        # Without a believed clock the ledger's last time is the best that is known.
        since_ms = self._proposed_time() or self._ledger.state.time_ms
        kind, value = (OperationKind.SET, str(since_ms)) if is_held else (OperationKind.DELETE, "")
        return AlterConfigs(
            resource_type=ConfigResourceType.BROKER,
            resource_name=EVERY_BROKER,
            is_whole=False,
            operations=(ConfigOperation(kind=kind, name=RULES_HOLD, value=value),),
        )
