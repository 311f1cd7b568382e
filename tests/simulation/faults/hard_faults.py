"""What a store or a ledger rejects, and where it breaks a promise: of one agent, or of all.

Rule: as `tests.simulation.faults.faults`: every fault has an end. Where the outcome is definite, it is: nothing
happened.
"""

import random
from collections.abc import Sequence
from typing import Final

from agent.runtime.clock import SystemClock
from storage.decorators.failing import StoreOperation
from tests.simulation.cluster.agents import AgentInWorld, Surroundings
from tests.simulation.faults.other_bucket import OtherBucket

LASTS_SECONDS_MAX: Final = 25.0
LONG_SECONDS_MAX: Final = 100.0
"""Some last longer than an agent believes that the bucket is the cluster's; often until the world heals."""
ALL_AGENTS_CHANCE: Final = 0.3
DENIED: Final = (
    frozenset({StoreOperation.PUT}),
    frozenset({StoreOperation.GET, StoreOperation.HEAD}),
    frozenset({StoreOperation.LIST}),
    frozenset({StoreOperation.DELETE}),
    frozenset(
        {StoreOperation.PUT, StoreOperation.GET, StoreOperation.HEAD, StoreOperation.LIST, StoreOperation.DELETE}
    ),
)
FLIP_CHANCES: Final = (0.1, 0.5)


class HardFaults:
    """Strikes, as `tests.simulation.faults.faults.Faults` calls them."""

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
            agent.store.flip_chance = agent.store.mix_up_chance = 0.0
        self._lead_back(self._agents)

    async def deny(self, agent: AgentInWorld) -> None:
        denied = self._chance.choice(DENIED)
        victims = self._drawn_or_all(agent)
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
        victims = self._drawn_or_all(agent)
        self.lead_elsewhere(victims)
        await self._clock.sleep(self._chance.random() * LONG_SECONDS_MAX)
        self._lead_back(victims)
        self._around.bucket.replaced.end()

    def lead_elsewhere(self, victims: Sequence[AgentInWorld]) -> None:
        """From now on these agents' requests go to another bucket, until the world heals."""
        self._around.bucket.replaced.begin()
        other = OtherBucket(self._around.loop.time())
        for each in victims:
            each.store.other = other

    async def damage(self, agent: AgentInWorld) -> None:
        flip_chance = self._chance.choice(FLIP_CHANCES)
        for each in self._agents:
            each.store.flip_chance = flip_chance
        await self._clock.sleep(self._chance.random() * LONG_SECONDS_MAX)
        for each in self._agents:
            each.store.flip_chance = 0.0

    def _lead_back(self, victims: Sequence[AgentInWorld]) -> None:
        others = {id(each.store.other): each.store.other for each in victims}
        for each in victims:
            each.store.other = None
        for other in others.values():
            if other is not None:
                self._around.bucket.bring_back(other)

    def _drawn_or_all(self, agent: AgentInWorld) -> Sequence[AgentInWorld]:
        return self._agents if self._chance.random() < ALL_AGENTS_CHANCE else [agent]

    async def _last(self) -> None:
        await self._clock.sleep(self._chance.random() * LASTS_SECONDS_MAX)
