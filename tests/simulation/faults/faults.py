"""What goes wrong in a world, and when it is put right again.

Rule: every fault has an end. Which kinds there are, and how often, says the plan; when and whom, the seed.
"""

import errno
import random
from collections.abc import Awaitable, Callable, Sequence

from agent.runtime.clock import SystemClock
from coordinator.commands.group_values import group_key
from coordinator.state.rendezvous import owner_of
from tests.simulation.cluster.agents import AgentInWorld, Surroundings
from tests.simulation.cluster.links import Link
from tests.simulation.faults.fault_names import HARD_FAULTS, FaultName
from tests.simulation.faults.hard_faults import HardFaults
from tests.simulation.plan import group_ids

CALLBACKS_UNTIL_CRASH_MAX = 400
OPERATIONS_UNTIL_CUT_MAX = 25
DISK_OPERATIONS = ("create", "rename", "allocate", "write_at", "sync_data", "sync_directory", "truncate", "unlink")
"""Of which some may fail; those of reading do not."""
DOWN_SECONDS_MAX = 15.0
PAUSE_SECONDS_MAX = 30.0
CUT_SECONDS_MAX = 25.0
COORDINATOR_CHANCE = 0.5
JUMPS_MS = (-3_000_000, -60_000, -12_000, 9_000, 12_000, 60_000, 3_000_000)
"""Of a wall clock: within what is allowed, and beyond it; within the hour of message.timestamp.after.max.ms."""


def coordinator_of(group_id: str, around: Surroundings, agents: Sequence[AgentInWorld]) -> AgentInWorld | None:
    """Whose group it is, as the ledger has it."""
    sessions = around.ledger.truth.state.sessions
    owner = owner_of(group_key(group_id), sessions)
    name = None if owner is None else sessions[owner].name
    return next((agent for agent in agents if agent.name == name), None)


STEPS_MS = (-172_800_000, 7_200_000, 172_800_000, 2_592_000_000)
"""Of a wall clock where the bucket has none: more than the hour that is believed (safety rule S21)."""
STEP_LASTS = 4.0
"""So many times as long as what is put right soon; often until the world heals."""


Strike = Callable[[AgentInWorld], Awaitable[None]]


class Faults:
    """Strikes agents, one at a time or several at once."""

    def __init__(self, around: Surroundings, agents: list[AgentInWorld]) -> None:
        self._around = around
        self._agents = agents
        self._chance: random.Random = around.chance
        self._clock = SystemClock()
        self._is_over = False
        self._hard = HardFaults(around, agents)
        self._strikes: dict[FaultName, Strike] = {
            FaultName.CRASH: self._crash,
            FaultName.RESTART: self._restart,
            FaultName.PAUSE: self._pause,
            FaultName.LEDGER_CUT: self._cut_ledger,
            FaultName.LEDGER_SHAKY: self._shake_ledger,
            FaultName.LEDGER_LAG: self._lag,
            FaultName.STORE_CUT: self._cut_store,
            FaultName.STORE_SHAKY: self._shake_store,
            FaultName.CLIENT_CUT: self._cut_clients,
            FaultName.CLOCK: self._jump,
            FaultName.STORE_DENIED: self._hard.deny,
            FaultName.DISK_FULL: self._hard.fill_disk,
            FaultName.LEDGER_FULL: self._hard.fill_ledger,
            FaultName.UNDELETABLE: self._hard.protect,
            FaultName.UNCONDITIONAL: self._hard.ignore_conditions,
            FaultName.STORE_REPLACED: self._hard.replace,
            FaultName.STORE_DAMAGED: self._hard.damage,
            FaultName.NAMESAKE: self._start_namesake,
            FaultName.AGENTS_CUT: self._cut_agents,
            FaultName.POWER_CUT: self._cut_power,
            FaultName.DISK_FAILING: self._fail_disk,
        }

    async def run(self, name: FaultName) -> None:
        """Let one kind of fault happen again and again, indefinitely."""
        while True:
            interval_s = self._around.plan.fault_interval_s * len(self._around.plan.faults)
            await self._clock.sleep(self._chance.expovariate(1.0) * interval_s)
            agent = self._victim()
            self._around.history.note(agent.name, "fault", name.value)
            is_of_all = name in HARD_FAULTS or (name is FaultName.CLOCK and self._around.plan.has_common_clock)
            disturbed = self._agents if is_of_all else [agent]
            for each in disturbed:
                each.disturbed.begin()
            await self._strikes[name](agent)
            for each in disturbed:
                each.disturbed.end()

    def heal(self) -> None:
        """Put everything right."""
        self._hard.heal()
        for agent in self._agents:
            agent.disturbed.end_all()
            for link in (agent.ledger_link, agent.store_link):
                self._mend(link)
            agent.ledger.lag_s = 0.0
            agent.store.lie_chance = 0.0
            agent.is_cut_from_clients = agent.is_cut_from_agents = False
            agent.clock.off_by_ms = 0
            for life in list(agent.left_behind):
                agent.ended(life)
            if agent.life is not None:
                agent.life.crash_after(-1)
                agent.life.resume()
            if self._around.plan.is_embedded:
                agent.disk.heal()
            agent.start()

    def _victim(self) -> AgentInWorld:
        """Anybody; where there are groups, as often the one that coordinates some group."""
        if self._around.plan.groups and self._chance.random() < COORDINATOR_CHANCE:
            group_id = self._chance.choice(group_ids(self._around.plan))
            coordinator = coordinator_of(group_id, self._around, self._agents)
            if coordinator is not None:
                return coordinator
        return self._chance.choice(self._agents)

    async def keep_up(self) -> None:
        """Start each agent again that stops, indefinitely."""
        while True:
            for agent in self._agents:
                agent.start()
            await self._clock.sleep(1.0)

    async def _crash(self, agent: AgentInWorld) -> None:
        if agent.life is not None:
            if self._chance.random() < 0.5:
                agent.crash()
            else:
                agent.life.crash_after(int(self._chance.random() * CALLBACKS_UNTIL_CRASH_MAX))
        await self._clock.sleep(self._chance.random() * DOWN_SECONDS_MAX)
        agent.start()

    async def _cut_power(self, agent: AgentInWorld) -> None:
        disk = agent.disk
        if agent.life is not None and self._chance.random() < 0.3:
            agent.life.lose_power()
        else:
            disk.operations_left = int(self._chance.random() * OPERATIONS_UNTIL_CUT_MAX)
        await self._clock.sleep(self._chance.random() * DOWN_SECONDS_MAX)
        agent.start()

    async def _fail_disk(self, agent: AgentInWorld) -> None:
        disk = agent.disk
        if self._chance.random() < 0.5:
            disk.is_full = True
            await self._clock.sleep(self._chance.random() * DOWN_SECONDS_MAX)
            disk.is_full = False
        elif agent.broker is not None:  # a start whose disk fails ends
            disk.drops_pages = self._chance.random() < 0.5
            code = self._chance.choice((errno.EIO, errno.ENOSPC))
            disk.fail(self._chance.choice(DISK_OPERATIONS), code, times=self._chance.choice((1, 1, 3)))

    async def _restart(self, agent: AgentInWorld) -> None:
        if agent.life is not None:
            agent.life.drain()
        await self._clock.sleep(self._chance.random() * DOWN_SECONDS_MAX)
        agent.start()

    async def _start_namesake(self, agent: AgentInWorld) -> None:
        """The one before works on, or stands still for a while; it ends last."""
        before = agent.leave_behind()
        if before is None:
            return
        if self._chance.random() < 0.5:
            before.pause()
        agent.start()
        await self._clock.sleep(self._chance.random() ** 2 * PAUSE_SECONDS_MAX)
        before.resume()
        await self._clock.sleep(self._chance.random() ** 2 * PAUSE_SECONDS_MAX)
        agent.ended(before)

    async def _pause(self, agent: AgentInWorld) -> None:
        life = agent.life
        if life is None:
            return
        life.pause()
        await self._clock.sleep(self._chance.random() ** 2 * PAUSE_SECONDS_MAX)
        self._around.history.note(agent.name, "resumes")
        life.resume()

    async def _cut_ledger(self, agent: AgentInWorld) -> None:
        await self._cut(agent.ledger_link)
        self._around.ledger.wake()

    async def _cut_store(self, agent: AgentInWorld) -> None:
        await self._cut(agent.store_link)

    async def _cut(self, link: Link) -> None:
        link.is_silent = self._chance.random() < 0.5
        link.is_cut = True
        self._around.ledger.wake()
        await self._clock.sleep(self._chance.random() * CUT_SECONDS_MAX)
        link.is_cut = False

    async def _shake_ledger(self, agent: AgentInWorld) -> None:
        await self._shake(agent.ledger_link)

    async def _shake_store(self, agent: AgentInWorld) -> None:
        agent.store.lie_chance = self._chance.choice((0.0, 0.1, 0.3))
        await self._shake(agent.store_link)
        agent.store.lie_chance = 0.0

    async def _shake(self, link: Link) -> None:
        link.loss_chance = self._chance.choice((0.1, 0.3, 0.6))
        link.slow_chance = self._chance.choice((0.0, 0.2))
        await self._clock.sleep(self._chance.random() * CUT_SECONDS_MAX)
        self._mend(link)

    async def _lag(self, agent: AgentInWorld) -> None:
        agent.ledger.lag_s = self._chance.choice((0.3, 2.0, 5.0))
        await self._clock.sleep(self._chance.random() * CUT_SECONDS_MAX)
        agent.ledger.lag_s = 0.0

    async def _cut_clients(self, agent: AgentInWorld) -> None:
        agent.is_cut_from_clients = True
        await self._clock.sleep(self._chance.random() * CUT_SECONDS_MAX)
        agent.is_cut_from_clients = False

    async def _cut_agents(self, agent: AgentInWorld) -> None:
        agent.is_cut_from_agents = True
        await self._clock.sleep(self._chance.random() * CUT_SECONDS_MAX)
        agent.is_cut_from_agents = False

    async def _jump(self, agent: AgentInWorld) -> None:
        """Of one agent; of all where they follow one server: nobody knows the time then."""
        agents = self._agents if self._around.plan.has_common_clock else [agent]
        has_store_clock = self._around.plan.has_store_clock
        off_by_ms = self._chance.choice(JUMPS_MS if has_store_clock else STEPS_MS)
        for each in agents:
            each.clock.off_by_ms = off_by_ms
        lasts_s = CUT_SECONDS_MAX if has_store_clock else CUT_SECONDS_MAX * STEP_LASTS
        await self._clock.sleep(self._chance.random() * lasts_s)
        for each in agents:
            each.clock.off_by_ms = 0

    @staticmethod
    def _mend(link: Link) -> None:
        link.is_cut = link.is_silent = False
        link.loss_chance = link.slow_chance = 0.0
