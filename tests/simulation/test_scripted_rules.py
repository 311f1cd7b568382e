"""Rules that drawn worlds show once in thousands of seeds, if at all, or late: each by a script that comes to it.

Rule: the script's world is sound, and no longer once the rule's mutation of `tests.simulation.mutations.safety_rules`
is on.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from protocol.errors import ErrorCode
from protocol.limits import BUCKET_CONFIRMED_SECONDS_MAX, LEDGER_SESSION_SECONDS
from tests.simulation.clients import group_wire
from tests.simulation.clients.administrators import Deleter
from tests.simulation.clients.clients import RETRY_SECONDS, Client, ClientWorld, Consumer, PlainProducer, Rereader
from tests.simulation.clients.group_wire import HeartbeatTold, Identity
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.agents import AgentInWorld
from tests.simulation.cluster.connections import SimulatedConnection
from tests.simulation.connection_scenes import (
    a_late_commit_of_offsets_on_a_connection_of_no_order,
    a_late_commit_of_offsets_that_is_relayed,
)
from tests.simulation.faults.faults import coordinator_of
from tests.simulation.faults.hard_faults import HardFaults
from tests.simulation.mutations import safety_rules as _entered  # noqa: F401
from tests.simulation.mutations.mutation import MUTATIONS, drawn_mutations
from tests.simulation.plan import Plan
from tests.simulation.relay_scenes import (
    GROUPS,
    a_commit_behind_a_request_that_no_coordinator_answers,
    a_group_that_moves_while_another_agent_relays_for_it,
    serving,
)
from tests.simulation.rights_scenes import (
    a_grant_that_another_agent_has_not_applied_yet,
    a_topic_that_a_client_may_not_describe,
    a_user_that_another_agent_has_not_applied_yet,
)
from tests.simulation.scripted_plans import SEED, calm_plan, plan_of
from tests.simulation.seeds import assert_sound
from tests.simulation.transaction_scenes import (
    EXPIRATION_MS,
    a_time_out_that_comes_when_the_next_transaction_is_open,
    a_transaction_that_is_open_for_longer_than_idle_producers_are_kept,
    an_aborted_transaction_of_which_a_part_is_archived,
    an_aborted_transaction_that_is_in_memory_behind_its_pass,
    transacting_plan,
    whoever_begins_where_an_open_transaction_is_about_to_move_its_group,
)
from tests.simulation.world import STAMPED_TOPIC, TOPIC, Scene, Verdict, run

FAR = 0
"""The number of the agent that is far from the ledger."""
DELETIONS = 4
"""So often both delete."""
SEEDS_MAX = 16
"""A change of the code makes other worlds of a script's seeds: one of so many comes to what its rule prevents."""


def places_of(world: ClientWorld) -> list[Place]:
    return [(topic, number) for topic in (TOPIC, STAMPED_TOPIC) for number in range(world.around.plan.partitions)]


class StayingReader(Consumer):
    """Reads at the ends of partitions through one agent."""

    async def run_at(self, agent: AgentInWorld) -> None:
        while True:
            self.stay_with(agent)
            if not await self.poll():
                await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())


class StayingProber(Client):
    """Asks one agent for ends again and again."""

    async def run_at(self, agent: AgentInWorld, places: Sequence[Place]) -> None:
        while True:
            self.stay_with(agent)
            await self.end_of(self.chance.choice(places))
            await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())


async def reader_of_an_agent_whose_watch_lags(world: ClientWorld) -> None:
    """Its lease is renewed all the time, and it hears of nothing for longer than one lasts."""
    agent = world.agents[FAR]
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(StayingReader(world, "reader", places_of(world)).run_at(agent))
        await world.clock.sleep(5.0)
        agent.ledger.lag_s = 2.5 * LEDGER_SESSION_SECONDS
        await world.clock.sleep(3 * LEDGER_SESSION_SECONDS)
        agent.ledger.lag_s = 0.0
        reading.cancel()


async def questions_while_the_ledgers_answer_is_on_its_way(world: ClientWorld) -> None:
    """To an agent that is far from the ledger."""
    agent = world.agents[FAR]
    delay_s, agent.ledger_link._delay_s = agent.ledger_link._delay_s, 0.5
    async with asyncio.TaskGroup() as tasks:
        probers = [StayingProber(world, f"prober-{number}") for number in range(8)]
        probing = [tasks.create_task(prober.run_at(agent, places_of(world))) for prober in probers]
        await world.clock.sleep(10.0)
        for each in probing:
            each.cancel()
    agent.ledger_link._delay_s = delay_s


async def puts_that_land_long_after_their_agents_crash(world: ClientWorld) -> None:
    """When what they left was looked for once."""
    place = places_of(world)[0]
    async with asyncio.TaskGroup() as tasks:
        for agent in world.agents:
            await serving(world, agent)
            agent.store_link.loss_chance = 1.0
            sending: list[asyncio.Task[None]] = []
            for number in range(6):
                writer = PlainProducer(world, f"writer-{number} to {agent.name}", [])
                sending.append(tasks.create_task(writer.send_to(agent, place)))
                await world.clock.sleep(0.5)
            for each in sending:
                each.cancel()
            agent.crash()
            agent.store_link.loss_chance = 0.0
            agent.start()


async def _read_until_healed(world: ClientWorld) -> None:
    """Read everything again and again through every agent, for eight seconds; then end the faults."""
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(Rereader(world, f"rereader-{n}", places_of(world)).run()) for n in range(2)]
        await world.clock.sleep(8.0)
        for each in readers:
            each.cancel()
    HardFaults(world.around, world.agents).heal()


async def files_with_flipped_bits(world: ClientWorld) -> None:
    """Read again and again through every agent, once there are some."""
    await world.clock.sleep(6.0)
    for agent in world.agents:
        agent.store.flip_chance = 0.5
    await _read_until_healed(world)


async def objects_that_are_mixed_up(world: ClientWorld) -> None:
    """The bucket answers with others of the same size, again and again, through every agent."""
    await world.clock.sleep(4.0)
    for agent in world.agents:
        agent.store.mix_up_chance = 0.5
    await _read_until_healed(world)


async def another_bucket_in_the_place_of_the_right_one(world: ClientWorld) -> None:
    """For longer than an agent may believe what it has seen."""
    faults = HardFaults(world.around, world.agents)
    faults.lead_elsewhere(world.agents)
    await world.clock.sleep(BUCKET_CONFIRMED_SECONDS_MAX + 5.0)
    faults.heal()


async def heartbeat(world: ClientWorld, agent: AgentInWorld, who: Identity) -> HeartbeatTold:
    """Of a member of a consumer group, to an agent that is its coordinator or takes itself for it."""
    is_joining = who.generation == 0
    body = group_wire.consumer_heartbeat(
        who,
        rebalance_ms=45_000 if is_joining else -1,
        topics=[TOPIC] if is_joining else None,
        owned={} if is_joining else None,
    )
    connection = SimulatedConnection(agent, world.around, who.member_id)
    version = group_wire.CONSUMER_GROUP_HEARTBEAT_VERSION
    told = await connection.ask(group_wire.CONSUMER_GROUP_HEARTBEAT, version, body, 30.0, is_compact=True)
    connection.close()
    return group_wire.read_consumer_heartbeat(told)


async def joined(world: ClientWorld, agent: AgentInWorld, group_id: str, member_id: str) -> Identity:
    """A new member, once the coordinator has taken it."""
    who = Identity(group_id=group_id, member_id=member_id, generation=0)
    told = await heartbeat(world, agent, who)
    while told.error:
        await world.clock.sleep(RETRY_SECONDS)
        told = await heartbeat(world, agent, who)
    return replace(who, generation=told.epoch)


async def member_of_another_coordinator(world: ClientWorld) -> None:
    """It asks the coordinator of before, which has not heard that the group was taken over, or of the member."""
    before, now = world.agents[:2]
    await serving(world, before)
    now.crash()
    await world.clock.sleep(LEDGER_SESSION_SECONDS + 3.0)
    groups = [each for each in GROUPS if coordinator_of(each, world.around, world.agents) is before]
    for group_id in groups:
        await joined(world, before, group_id, "11" * 16)
    await world.clock.sleep(3.0)  # then it has nothing more to write
    before.ledger.lag_s = 2 * LEDGER_SESSION_SECONDS
    now.start()
    await serving(world, now)
    moved = next(each for each in groups if coordinator_of(each, world.around, world.agents) is now)
    who = await joined(world, now, moved, "22" * 16)
    told = await heartbeat(world, before, who)
    if told.error in {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch}:
        world.around.history.violation(f"{who.member_id} is told {ErrorCode(told.error).name}, and is a member (S4)")
    before.ledger.lag_s = 0.0


async def deletions_through_an_agent_that_is_far_from_the_ledger(world: ClientWorld) -> None:
    """Others delete more while what it proposes is on its way."""
    far, near = world.agents[FAR], world.agents[FAR + 1]
    place = places_of(world)[0]
    far_deleter, near_deleter = Deleter(world, "far deleter"), Deleter(world, "near deleter")
    delay_s, far.ledger_link._delay_s = far.ledger_link._delay_s, 0.5
    for _ in range(DELETIONS):
        for deleter, agent in ((far_deleter, far), (near_deleter, near)):
            await serving(world, agent)
            deleter.stay_with(agent)
        start = world.around.ledger.truth.start_of(place)
        while (end := world.auditor.end_known(place)) < start + 2:
            await world.clock.sleep(0.1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(far_deleter.delete_to(place, start + 1))
            await world.clock.sleep(1.0)
            tasks.create_task(near_deleter.delete_to(place, end))
    far.ledger_link._delay_s = delay_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What happens in which world, and a part of what is found wrong there once the rule is off."""

    scene: Scene
    plan: Plan
    violation: str
    seed: int = SEED

    def run(self, seed: int) -> Verdict:
        return run(seed, self.plan, self.scene)


SCRIPTS = {
    "s4_a_coordinator_that_is_cut_off_calls_members_unknown": Script(
        scene=member_of_another_coordinator, plan=calm_plan(), violation="and is a member (S4)"
    ),
    "s4_an_answer_of_the_ledger_counts_before_what_was_there_is_applied": Script(
        scene=reader_of_an_agent_whose_watch_lags, plan=calm_plan(), violation="hidden: reader finds nothing"
    ),
    "s4_a_barrier_joins_a_request_that_was_sent_before": Script(
        scene=questions_while_the_ledgers_answer_is_on_its_way,
        plan=calm_plan(partitions=1, producers=4, producer_pause_s=0.05),
        violation="was true before (S4)",
        seed=9,
    ),
    "s6_nobody_looks_for_late_puts": Script(
        scene=puts_that_land_long_after_their_agents_crash,
        plan=calm_plan(gc_min_age_s=5),
        violation="are left that nobody refers to",
    ),
    "s16_a_denial_needs_no_barrier": Script(
        scene=a_grant_that_another_agent_has_not_applied_yet,
        plan=calm_plan(has_authorizer=True),
        violation="was granted before it asked (S16)",
    ),
    "a_topic_has_to_exist_before_it_is_denied": Script(
        scene=a_topic_that_a_client_may_not_describe,
        plan=calm_plan(has_authorizer=True),
        violation="learns which topics exist",
    ),
    "s16_a_login_needs_no_barrier": Script(
        scene=a_user_that_another_agent_has_not_applied_yet,
        plan=calm_plan(),
        violation="was rejected by SCRAM-SHA-256, and had been created before (S16)",
    ),
    "s20_rows_are_believed_unchecked": Script(
        scene=files_with_flipped_bits,
        plan=calm_plan(partitions=1, producer_pause_s=0.3),
        violation="rereader-",
        seed=1,
    ),
    "s20_any_whole_batches_are_believed_to_be_the_chunk": Script(
        scene=objects_that_are_mixed_up,
        plan=calm_plan(partitions=1, producer_pause_s=0.3),
        violation="inconsistent-offsets: ",
        seed=1,
    ),
    "s22_a_put_counts_in_any_bucket": Script(
        scene=another_bucket_in_the_place_of_the_right_one,
        plan=calm_plan(),
        violation="was put into another bucket",
    ),
    "a_log_start_goes_back": Script(
        scene=deletions_through_an_agent_that_is_far_from_the_ledger,
        plan=calm_plan(partitions=1, producers=1, retention_ms=86_400_000),
        violation="already",
    ),
    "s5_gaps_are_bridged_by_markers_of_a_producer": Script(
        scene=an_aborted_transaction_of_which_a_part_is_archived,
        plan=transacting_plan(),
        violation="aborted read: ",
    ),
    "s5_aborted_batches_are_served_behind_their_pass": Script(
        scene=an_aborted_transaction_that_is_in_memory_behind_its_pass,
        plan=replace(transacting_plan(), read_cache_bytes=1_000_000, serves_small_chunks=True),
        violation="aborted read: ",
    ),
    "a_time_out_aborts_whatever_is_open_by_then": Script(
        scene=a_time_out_that_comes_when_the_next_transaction_is_open,
        plan=transacting_plan(),
        violation="is timed out after",
    ),
    "offsets_are_told_that_an_open_transaction_is_about_to_move": Script(
        scene=whoever_begins_where_an_open_transaction_is_about_to_move_its_group,
        plan=transacting_plan(),
        violation="where a transaction is open that moves it",
    ),
    "s7_a_relayed_connection_is_as_old_as_its_relay": Script(
        scene=a_late_commit_of_offsets_that_is_relayed,
        plan=replace(plan_of(SEED, placements=(False,)), has_one_address=True),
        violation="after 2 (S7)",
    ),
    "s7_numbers_order_the_connections_of_two_agents": Script(
        scene=a_late_commit_of_offsets_on_a_connection_of_no_order,
        plan=replace(plan_of(SEED, placements=(False,)), has_one_address=True),
        violation="after 2 (S7)",
    ),
    "s13_requests_are_relayed_to_the_coordinator_of_before": Script(
        scene=a_group_that_moves_while_another_agent_relays_for_it,
        plan=calm_plan(has_one_address=True, producers=1),
        violation="that it may stay, and the group is",
    ),
    "s23_a_commit_is_made_however_long_it_waited": Script(
        scene=a_commit_behind_a_request_that_no_coordinator_answers,
        plan=calm_plan(has_one_address=True, producers=1),
        violation="a commit that it gave up before counts",
    ),
    "a_producer_is_forgotten_while_its_transaction_is_open": Script(
        scene=a_transaction_that_is_open_for_longer_than_idle_producers_are_kept,
        plan=transacting_plan(producer_expiration_ms=EXPIRATION_MS),
        violation="which has something open there",
    ),
}
"""By the mutation that switches the rule off."""


def test_every_scripted_mutation_has_its_script() -> None:
    assert SCRIPTS.keys() == MUTATIONS.keys() - set(drawn_mutations())


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_rule_holds(name: str) -> None:
    assert_sound(SCRIPTS[name].run(SCRIPTS[name].seed))


@pytest.mark.parametrize("name", SCRIPTS)
def test_without_the_rule_it_is_noticed(name: str) -> None:
    script = SCRIPTS[name]
    for seed in range(script.seed, script.seed + SEEDS_MAX):
        with MUTATIONS[name].switch_off():
            verdict = script.run(seed)
        if any(script.violation in violation for violation in verdict.violations[:1]):
            break
    else:
        raise AssertionError(f"{SEEDS_MAX} seeds never show it")
    if seed != script.seed:
        assert_sound(script.run(seed))
