"""Simulated clients whose rights are judged: what any agent allows or denies them was true when they asked.

Rule: one question at a time, through any agent, while ACLs are changed through others. An authorizer of the agent
answers, with what it remembers. A denial without a barrier, while the ledger is away, is not judged.
"""

from typing import Final
from weakref import WeakKeyDictionary

from agent.broker import Broker
from agent.config.authorizer_settings import AuthorizerSettings
from agent.runtime.metrics import Metrics
from agent.security.authorizer import Authorizer, StateAcls
from coordinator.ledger.port import LedgerError
from protocol.auth.operations import Operation, ResourceType
from protocol.limits import BARRIER_SECONDS_MAX
from tests.simulation.audit.rights_history import Question, RightsHistory
from tests.simulation.clients.clients import ClientWorld
from tests.simulation.clients.security_administrators import HOST, NAMES, PRINCIPALS, decided
from tests.simulation.cluster.agents import Life

PAUSE_SECONDS_MAX: Final = 0.5
OPERATIONS: Final = (Operation.READ, Operation.WRITE)


class RightsUser:
    """Asks whether it may do something, and is told by an agent."""

    def __init__(self, world: ClientWorld) -> None:
        self._world = world
        self._busy: Life | None = None
        self._authorizers: WeakKeyDictionary[Life, Authorizer] = WeakKeyDictionary()
        self._has_passed = True
        """Whether the newest barrier passed."""
        truth = world.around.ledger.truth
        self._history = truth.rights = RightsHistory(
            PRINCIPALS, NAMES, lambda state, principal, name: decided(state.acls, principal, HOST, name)
        )

    async def run(self) -> None:
        chance = self._world.chance
        while True:
            await self._world.clock.sleep(chance.random() * PAUSE_SECONDS_MAX)
            life = chance.choice(self._world.agents).life
            if life is None or life.broker is None or not (self._busy is None or self._busy.is_dead):
                continue
            self._busy = life
            question = chance.choice(PRINCIPALS), chance.choice(NAMES), chance.choice(OPERATIONS)
            self._world.around.loop.create_task(self._act(life, life.broker, question), context=life.context)

    def judge(self) -> None:
        """Nothing is left to judge at the end: each answer was."""

    async def _act(self, life: Life, broker: Broker, question: Question) -> None:
        try:
            await self._ask(life, broker, question)
        except LedgerError:
            pass  # the agent ends
        finally:
            self._busy = None

    async def _ask(self, life: Life, broker: Broker, question: Question) -> None:
        principal, name, operation = question
        truth, history = self._world.around.ledger.truth, self._world.around.history
        applied, head = broker.state.position, truth.state.position
        rights = self._authorizer_of(life, broker).rights(principal, (), HOST)
        is_allowed = await rights.may_behind_barrier(operation, ResourceType.TOPIC, name)
        answered = truth.state.position
        what = f"{operation.name} of {principal} on {name}"
        history.note("client", "allowed" if is_allowed else "denied", what)
        if is_allowed and True not in self._history.held(question, applied, answered):
            history.violation(f"{what} was allowed, and no position from {applied} to {answered} allows it")
        if not is_allowed and self._has_passed and False not in self._history.held(question, head, answered):
            history.violation(f"{what} was denied, and all positions from {head} to {answered} allow it (S16)")

    def _authorizer_of(self, life: Life, broker: Broker) -> Authorizer:
        authorizer = self._authorizers.get(life)
        if authorizer is None:
            services = broker.services
            authorizer = self._authorizers[life] = Authorizer(
                AuthorizerSettings(is_enabled=True),
                acls=StateAcls(services.ledger),
                ledger=services.ledger,
                clock=services.clock,
                metrics=Metrics(),
            )
            barrier = authorizer.barrier.passes

            async def passes(seconds_max: float = BARRIER_SECONDS_MAX) -> bool:
                self._has_passed = await barrier(seconds_max)
                return self._has_passed

            authorizer.barrier.passes = passes  # type: ignore[method-assign]  # observed, and otherwise as it is
        return authorizer
