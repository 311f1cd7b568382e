"""Programs that are members of groups: lives of a member, one after the other, and what ends them.

Rule: as `tests.simulation.clients.clients`. A program that dies starts again, as whoever runs it does; once the world
is healed nothing more happens to it.
"""

import asyncio
from collections.abc import Collection
from dataclasses import replace

from tests.simulation.clients.clients import RETRY_SECONDS, ClientWorld
from tests.simulation.clients.consumer_members import SimulatedConsumerMember
from tests.simulation.clients.group_members import GroupReader, SimulatedClassicMember
from tests.simulation.clients.group_monitors import LagMonitor
from tests.simulation.clients.transactional_members import (
    MemberProducer,
    TransactingClassicMember,
    TransactingConsumerMember,
)
from tests.simulation.clients.wire import Place
from tests.simulation.plan import Fate, GroupKind, GroupPlan, group_ids

DOWN_SECONDS_MAX = 6.0
PAUSE_SECONDS_MAX = 12.0
LEAVE_SECONDS_MAX = 5.0


class Program:
    """One of a group."""

    def __init__(
        self,
        world: ClientWorld,
        group_id: str,
        number: int,
        plan: GroupPlan,
        places: Collection[Place],
        outputs: Collection[Place],
    ) -> None:
        """`number`: among the group's programs; the first of them are static members. `outputs`: where members write
        that commit in transactions.
        """
        self._world = world
        self._number = number
        self._name = f"{group_id}-{number}"
        self._group_id = group_id
        self._plan = plan
        self._places = places
        self._outputs = outputs
        self._instance_id = self._name if number < plan.static_members else None
        self._chance = world.chance
        self._lives_count = 0
        self._producer: MemberProducer | None = None
        """Of the present life, where its members commit in transactions."""
        self._calm = asyncio.Event()

    def calm(self) -> None:
        """From now on nothing happens to it, and it aborts nothing without a reason."""
        self._calm.set()
        if self._plan.producer is not None:
            calm = replace(self._plan.producer, abort_chance=0.0, rests_chance=0.0, late_chance=0.0)
            self._plan = replace(self._plan, producer=calm)
            if self._producer is not None:
                self._producer.producer_plan = calm

    async def run(self) -> None:
        while True:
            self._lives_count += 1
            member = self._member()
            life = asyncio.create_task(member.run())
            try:
                await self._until_its_end(member, life)
            finally:
                life.cancel()
                member.hang_up()
            if life.done() and not life.cancelled():
                life.result()
            down_s = RETRY_SECONDS if self._calm.is_set() else self._chance.random() ** 2 * DOWN_SECONDS_MAX
            await self._world.clock.sleep(down_s)

    def _member(self) -> GroupReader:
        """A life of it."""
        name, plan = f"{self._name}.{self._lives_count}", self._plan
        if plan.producer is None:
            kind = SimulatedConsumerMember if self._is_of_consumer_protocol else SimulatedClassicMember
            return kind(self._world, name, self._group_id, plan, self._instance_id, self._places)
        transacting = TransactingConsumerMember if self._is_of_consumer_protocol else TransactingClassicMember
        member = transacting(self._world, name, self._group_id, plan, self._instance_id, self._places)
        auditor = self._world.transactions
        assert auditor is not None
        member.producer = self._producer = MemberProducer(member, self._name, plan.producer, self._outputs, auditor)
        return member

    @property
    def _is_of_consumer_protocol(self) -> bool:
        """What this life of it speaks; in groups of both protocols not what its neighbours do, nor its next life."""
        if self._plan.kind is GroupKind.MIXED:
            return bool((self._number + self._lives_count) % 2)
        return self._plan.kind is GroupKind.CONSUMER

    async def _until_its_end(self, member: GroupReader, life: "asyncio.Task[None]") -> None:
        calm = asyncio.create_task(self._calm.wait())
        try:
            while not life.done():
                waits_s = None if self._calm.is_set() else self._chance.expovariate(1.0) * self._plan.fate_s
                others = () if self._calm.is_set() else (calm,)
                done, _ = await asyncio.wait({life, *others}, timeout=waits_s, return_when=asyncio.FIRST_COMPLETED)
                if not done and self._plan.fates and await self._befalls(member, life):
                    return
        finally:
            calm.cancel()

    async def _befalls(self, member: GroupReader, life: "asyncio.Task[None]") -> bool:
        """Whether that was its end."""
        fate = self._chance.choice(self._plan.fates)
        self._world.around.history.note(member.name, "fate", fate.value)
        if fate is Fate.PAUSE:
            member.pause(self._chance.random() * PAUSE_SECONDS_MAX)
            return False
        if fate is Fate.LEAVE:
            life.cancel()
            await asyncio.wait({life})
            try:
                async with asyncio.timeout(LEAVE_SECONDS_MAX):
                    await member.leave()
            except TimeoutError:
                return True
        return True


class GroupWorld:
    """All groups of a world."""

    def __init__(self, world: ClientWorld, places: Collection[Place], outputs: Collection[Place] = ()) -> None:
        self._world = world
        self._places = places
        self._group_ids = group_ids(world.around.plan)
        self.programs = [
            Program(world, group_id, number, plan, places, outputs)
            for group_id, plan in zip(self._group_ids, world.around.plan.groups, strict=True)
            for number in range(plan.members)
        ]
        is_monitored = world.around.plan.has_lag_monitors
        self.monitors = [LagMonitor(world, group_id, places) for group_id in self._group_ids if is_monitored]

    def calm(self) -> None:
        """From now on nothing happens to any member."""
        for program in self.programs:
            program.calm()

    async def until_through(self, seconds_max: float) -> None:
        """Until each group has processed and committed everything, or has had the time to."""
        auditor, loop = self._world.groups, self._world.around.loop
        end_s = loop.time() + seconds_max
        while loop.time() < end_s and not all(auditor.is_through(each, self._places) for each in self._group_ids):
            await self._world.clock.sleep(0.5)
        for group_id in self._group_ids:
            auditor.judge(group_id, self._places)
