"""What a store or a ledger rejects, and where it breaks a promise: of one agent, or of all.

Rule: as `tests.simulation.faults`: every fault has an end. Where the outcome is definite, it is: nothing happened.
"""

import random
from collections.abc import Sequence
from typing import Final

from agent.clock import SystemClock
from storage.failing import Operation
from tests.simulation.agents import AgentInWorld, Surroundings
from tests.simulation.other_bucket import OtherBucket

LASTS_SECONDS_MAX: Final = 25.0
REPLACED_SECONDS_MAX: Final = 100.0
"""Some last longer than an agent believes that the bucket is the cluster's; often until the world heals."""
ALL_AGENTS_CHANCE: Final = 0.3
DENIED: Final = (
    frozenset({Operation.PUT}),
    frozenset({Operation.GET, Operation.HEAD}),
    frozenset({Operation.LIST}),
    frozenset({Operation.DELETE}),
    frozenset({Operation.PUT, Operation.GET, Operation.HEAD, Operation.LIST, Operation.DELETE}),
)
FLIP_CHANCES: Final = (0.1, 0.5)


class HardFaults:
    """Strikes, as `tests.simulation.faults.Faults` calls them."""

    def __init__(self, around: Surroundings, agents: Sequence[AgentInWorld]) -> None:
        self._around = around
        self._agents = agents
        self._chance: random.Random = around.chance
        self._clock = SystemClock()

    def heal(self) -> None:
        """Put everything right."""
        bucket = self._around.bucket
        bucket.is_full = bucket.is_protecting = self._around.ledger.is_full = False
        for spells in (bucket.unconditional, bucket.denying, bucket.replaced):
            spells.end_all()
        for agent in self._agents:
            agent.store.denied = frozenset()
            agent.store.flip_chance = 0.0
            self._lead_back(agent)

    async def deny(self, agent: AgentInWorld) -> None:
        denied = self._chance.choice(DENIED)
        victims = self._agents if self._chance.random() < ALL_AGENTS_CHANCE else [agent]
        for each in victims:
            each.store.denied = denied
        self._around.bucket.denying.begin()
        await self._last()
        self._around.bucket.denying.end()
        for each in victims:
            each.store.denied = frozenset()

    async def fill_disk(self, agent: AgentInWorld) -> None:
        self._around.bucket.is_full = True
        await self._last()
        self._around.bucket.is_full = False

    async def fill_ledger(self, agent: AgentInWorld) -> None:
        self._around.ledger.is_full = True
        await self._last()
        self._around.ledger.is_full = False

    async def protect(self, agent: AgentInWorld) -> None:
        self._around.bucket.is_protecting = True
        await self._last()
        self._around.bucket.is_protecting = False

    async def ignore_conditions(self, agent: AgentInWorld) -> None:
        self._around.bucket.unconditional.begin()
        await self._last()
        self._around.bucket.unconditional.end()

    async def replace(self, agent: AgentInWorld) -> None:
        self._around.bucket.replaced.begin()
        agent.store.other = OtherBucket(self._around.loop.time())
        await self._clock.sleep(self._chance.random() * REPLACED_SECONDS_MAX)
        self._lead_back(agent)
        self._around.bucket.replaced.end()

    async def damage(self, agent: AgentInWorld) -> None:
        agent.store.flip_chance = self._chance.choice(FLIP_CHANCES)
        await self._last()
        agent.store.flip_chance = 0.0

    def _lead_back(self, agent: AgentInWorld) -> None:
        other, agent.store.other = agent.store.other, None
        if other is not None:
            self._around.bucket.bring_back(other)

    async def _last(self) -> None:
        await self._clock.sleep(self._chance.random() * LASTS_SECONDS_MAX)
