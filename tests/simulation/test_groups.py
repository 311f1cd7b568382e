"""Safety rule S13 in simulated worlds: a group goes on with its next coordinator as if nothing had been.

Each group's coordinator is killed, paused for longer than its lease, or drained, while its members do what they should:
no generation begins, they go on committing, and what the paused one meant to write counts for nothing when it wakes.
That a world in which it were otherwise is found out, `tests.simulation.mutations.groups` proves.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.simulation.clients.clients import ClientWorld
from tests.simulation.clients.group_assignors import assign_cooperatively, assign_ranges
from tests.simulation.clients.group_members import SimulatedClassicMember
from tests.simulation.clients.group_wire import Joined, Subscription
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.agents import AgentInWorld
from tests.simulation.cluster.connections import ConnectionLost
from tests.simulation.faults.faults import coordinator_of
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import GroupKind, GroupPlan, Plan, draw, group_ids
from tests.simulation.world import run

SEEDS = (3, pytest.param(5, marks=pytest.mark.slow))
PAUSED_QUICK = (GroupKind.EAGER, GroupKind.CONSUMER)
"""Whose coordinators every run pauses."""
SETTLED_SECONDS = 8.0
AFTERWARDS_SECONDS = 25.0
"""More than a lease: by then another agent coordinates the group."""
PAUSE_SECONDS = 16.0
PLACES = [("orders", 0), ("orders", 1), ("stamped", 0), ("stamped", 1)]

Strike = Callable[[ClientWorld, AgentInWorld], Awaitable[None]]


def plan_of(seed: int, kind: GroupKind) -> Plan:
    """Three agents, a group of three members of whom nobody is restless, and nothing that goes wrong by itself."""
    group = GroupPlan(
        kind=kind,
        members=3,
        static_members=1,
        session_ms=6_000,
        rebalance_ms=6_000,
        heartbeat_s=0.5,
        commit_chance=0.5,
        fates=(),
        fate_s=10.0,
    )
    drawn = replace(draw(random.Random(seed)), faults=(), agents=3, partitions=2, ledger_loss=None, deleters=0)
    return replace(drawn, retention_ms=-1, retention_bytes=-1, groups=(group,), first_rebalance_delay_ms=500)


async def kill(world: ClientWorld, agent: AgentInWorld) -> None:
    agent.crash()


async def pause(world: ClientWorld, agent: AgentInWorld) -> None:
    assert agent.life is not None
    agent.life.pause()
    world.around.loop.call_later(PAUSE_SECONDS, agent.life.resume, context=world.around.outside)


async def drain(world: ClientWorld, agent: AgentInWorld) -> None:
    assert agent.life is not None
    agent.life.drain()


class Scene:
    """Members settle; something becomes of their coordinator; they go on."""

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self.began: list[int] = []
        """Generations that began although nobody had a reason to."""
        self.committed_count = 0
        """Commits that were acknowledged by the next coordinator."""
        self.moved = False

    async def __call__(self, world: ClientWorld) -> None:
        (group_id,) = group_ids(world.around.plan)
        entries, counts = world.groups.entries, world.around.history.counts
        generations = -1
        while len(entries.generations[group_id]) != generations:
            generations = len(entries.generations[group_id])
            await world.clock.sleep(SETTLED_SECONDS)
        before = coordinator_of(group_id, world.around, world.agents)
        assert before is not None
        await self._strike(world, before)
        await world.clock.sleep(AFTERWARDS_SECONDS / 2)
        commits_count = counts["CommitOffsets"]
        await world.clock.sleep(AFTERWARDS_SECONDS / 2)
        self.moved = coordinator_of(group_id, world.around, world.agents) is not before
        self.began = [generation for _, generation in entries.generations[group_id][generations:]]
        self.committed_count = counts["CommitOffsets"] - commits_count


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("strike", "kind"),
    [
        *((kill, kind) for kind in GroupKind),
        (drain, GroupKind.MIXED),
        *(pytest.param(drain, kind, marks=pytest.mark.slow) for kind in GroupKind if kind is not GroupKind.MIXED),
    ],
)
def test_s13_a_group_outlives_its_coordinator_without_a_rebalance(strike: Strike, kind: GroupKind, seed: int) -> None:
    scene = Scene(strike)
    verdict = run(seed, plan_of(seed, kind), scene)
    assert verdict.violations == ()
    assert scene.moved
    assert scene.began == []
    assert scene.committed_count > 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kind", [kind if kind in PAUSED_QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in GroupKind]
)
def test_s13_a_coordinator_that_was_paused_changes_nothing_when_it_wakes_up(kind: GroupKind, seed: int) -> None:
    scene = Scene(pause)
    verdict = run(seed, plan_of(seed, kind), scene)
    assert verdict.violations == ()
    assert scene.began == []
    assert scene.committed_count > 0
    assert verdict.counts["lease gone"] > 0


@pytest.mark.parametrize("strike", [drain, *(pytest.param(strike, marks=pytest.mark.slow) for strike in (kill, pause))])
@pytest.mark.parametrize("kind", PAUSED_QUICK)
def test_s13_behind_one_address_a_group_goes_on_with_its_next_coordinator(kind: GroupKind, strike: Strike) -> None:
    scene = Scene(strike)
    verdict = run(3, replace(plan_of(3, kind), has_one_address=True), scene)
    assert verdict.violations == ()
    assert scene.began == []
    assert scene.committed_count > 0
    assert verdict.counts["relayed"] > 0


class MissedGeneration:
    """The leader has everything. A member comes, and the leader does not hear what it was assigned then."""

    def __init__(self) -> None:
        self.missed: list[int] = []
        """The generation of which it did not hear."""
        self.left: list[Place] = []
        """What it had before."""
        self.given: list[Place] = []
        """What the other one came to have."""

    async def __call__(self, world: ClientWorld) -> None:
        (group_id,), (group,) = group_ids(world.around.plan), world.around.plan.groups
        await world.clock.sleep(SETTLED_SECONDS)
        late = SimulatedClassicMember(world, "late", group_id, group, None, PLACES)
        ask_to_sync = SimulatedClassicMember._ask_to_sync

        async def ask_and_lose_one(member: SimulatedClassicMember, joined: Joined) -> list[Place] | None:
            assigned = await ask_to_sync(member, joined)
            if member is late or self.missed:
                return assigned
            self.missed, self.left = [joined.generation], sorted(member.owned)
            raise ConnectionLost

        with patched(SimulatedClassicMember, "_ask_to_sync", ask_and_lose_one):
            life = asyncio.create_task(late.run())
            await world.clock.sleep(SETTLED_SECONDS)
            self.given = sorted(late.owned)
            life.cancel()
            late.hang_up()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_member_gives_up_that_missed_a_generation_goes_to_others(seed: int) -> None:
    plan = plan_of(seed, GroupKind.COOPERATIVE)
    plan = replace(plan, groups=(replace(plan.groups[0], members=1, static_members=0),))
    scene = MissedGeneration()
    verdict = run(seed, plan, scene)
    assert verdict.violations == ()
    assert len(scene.missed) == 1
    assert scene.left == PLACES
    assert len(scene.given) == len(PLACES) / 2


def test_ranges_give_the_first_members_what_is_over() -> None:
    assert assign_ranges(["b", "a"], [("orders", 0), ("orders", 1), ("orders", 2)]) == {
        "a": [("orders", 0), ("orders", 1)],
        "b": [("orders", 2)],
    }


def test_what_moves_is_given_to_nobody_before_it_is_given_up() -> None:
    has_all = Subscription(topics=("orders", "stamped"), owned=tuple(PLACES), generation=3)
    has_none = Subscription(topics=("orders", "stamped"))
    assert assign_cooperatively({"a": has_all, "b": has_none}, PLACES) == {"a": PLACES[:2], "b": []}
    gave_up = replace(has_all, owned=tuple(PLACES[:2]), generation=4)
    assert assign_cooperatively({"a": gave_up, "b": has_none}, PLACES) == {"a": PLACES[:2], "b": PLACES[2:]}


def test_of_two_who_say_that_they_have_a_partition_the_newer_generation_is_right() -> None:
    old = Subscription(topics=("orders",), owned=(("orders", 0),), generation=3)
    new = replace(old, generation=4)
    assert assign_cooperatively({"a": old, "b": new}, [("orders", 0)]) == {"a": [], "b": [("orders", 0)]}
