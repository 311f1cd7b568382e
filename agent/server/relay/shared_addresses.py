"""The notice that agents share an address for clients, and that no listener RELAY lets groups form behind it.

A client behind such an address cannot choose the agent that coordinates its group (docs/adr/0044).
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from agent.admin.cluster_view import endpoint_of, shares_address
from agent.config.listener_security import RELAY_LISTENER
from agent.runtime.clock import Clock
from agent.runtime.notices import Notice, NoticeKind
from agent.runtime.periodic_job import PeriodicJob
from coordinator.commands.commands import Endpoint
from coordinator.state.state import SessionState
from protocol.limits import LEDGER_SESSION_SECONDS, SHARED_ADDRESS_CHECK_INTERVAL_S

REMEDY = (
    f"give every agent --listen {RELAY_LISTENER}://HOST:9095, or an address of its own with --advertise "
    '(docs/operations/cluster.md, "One address for all agents")'
)

log = logging.getLogger(__name__)


def groups_fault(name: str, endpoints: tuple[Endpoint, ...], sessions: Iterable[SessionState]) -> str:
    """Why groups of clients do not form behind an address of this agent; "" where they do.

    Args:
        name: this agent's. A session of that name is its own, or one that it had before.
        endpoints: the addresses that it advertises.
        sessions: those that are alive.
    """
    others = [each for each in sessions if each.name != name]
    for endpoint in endpoints:
        if endpoint.listener == RELAY_LISTENER:
            continue
        sharing = [each for each in others if shares_address(endpoints, each.endpoints, endpoint.listener)]
        agents = [(name, endpoints), *((each.name, each.endpoints) for each in sharing)]
        lacking = sorted(agent for agent, known in agents if endpoint_of(known, RELAY_LISTENER) is None)
        if sharing and lacking:
            who = f"agent {lacking[0]} has" if len(lacking) == 1 else f"{len(lacking)} of them ({lacking[0]}, ...) have"
            return (
                f"{endpoint.host}:{endpoint.port} of listener {endpoint.listener} is the address of "
                f"{len(agents)} agents, and {who} no listener {RELAY_LISTENER}: groups whose members connect there "
                "do not form"
            )
    return ""


class SharedAddresses:
    """Looks for the fault while the agent serves. Not thread-safe: all methods run on the event loop."""

    def __init__(
        self,
        name: str,
        endpoints: tuple[Endpoint, ...],
        *,
        sessions: Callable[[], Iterable[SessionState]],
        clock: Clock,
    ) -> None:
        self._name = name
        self._endpoints = endpoints
        self._sessions = sessions
        self._clock = clock
        self._since_s: float | None = None
        self._fault = ""
        self.job = PeriodicJob(
            name="shared addresses",
            interval_s=SHARED_ADDRESS_CHECK_INTERVAL_S,
            run_once=self.check,
            is_first_at_once=True,
        )

    async def check(self) -> None:
        """Log the fault when it appears, and not again while it lasts.

        It counts once it is there for longer than a lease: the session of a killed agent may have the address of the
        one that replaces it.
        """
        fault = groups_fault(self._name, self._endpoints, self._sessions())
        now_s = self._clock.monotonic_s()
        if not fault:
            self._since_s, self._fault = None, ""
            return
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s > LEDGER_SESSION_SECONDS:
            if not self._fault:
                log.warning(NoticeKind.GROUPS_DO_NOT_FORM.value, extra={"reason": f"{fault}: {REMEDY}"})
            self._fault = fault

    def notices(self) -> Sequence[Notice]:
        """The notice, while the fault lasts."""
        if not self._fault:
            return []
        return [Notice(kind=NoticeKind.GROUPS_DO_NOT_FORM, detail=f"{self._fault}: {REMEDY}")]
