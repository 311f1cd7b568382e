"""Describes this agent in the ledger, once for each of its sessions, as soon as all agents know such entries (S3)."""

from agent.context import AgentContext
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.version import VERSION
from coordinator.commands.agents import DescribeAgent
from coordinator.commands.rules import RULES_AGENTS
from protocol.limits import AGENT_DESCRIPTION_CHECK_INTERVAL_S
from protocol.types import Milliseconds


class AgentDescription:
    """Every agent has one. Others show an agent without a description as one of which that is not known."""

    def __init__(self, context: AgentContext, *, http_url: str | None) -> None:
        self._context = context
        self._ledger = context.ledger
        self._http_url = http_url
        self._began_s = context.clock.monotonic_s()

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="agent description",
            interval_s=AGENT_DESCRIPTION_CHECK_INTERVAL_S,
            run_once=self.describe,
            is_first_at_once=True,
        )

    async def describe(self) -> None:
        """Propose the description, unless the session has it or the rules in force do not know such entries.

        Raises `OutcomeUnknown` where the session ends meanwhile: its successor is described by a later call.
        """
        state = self._ledger.state
        session = state.sessions.get(self._ledger.session)
        if session is None or session.version is not None or state.rules_version < RULES_AGENTS:
            return
        command = DescribeAgent(http_url=self._http_url, version=VERSION, started_ms=self._started_ms())
        await self._ledger.propose(command)

    def _started_ms(self) -> Milliseconds | None:
        now_ms = self._context.proposed_time()
        if now_ms is None:
            return None
        elapsed_s = self._context.clock.monotonic_s() - self._began_s
        return Milliseconds(max(0, now_ms - int(elapsed_s * 1000)))
