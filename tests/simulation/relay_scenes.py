"""Scripts of groups whose requests agents relay, behind one address (safety rules S13 and S23)."""

import asyncio
from dataclasses import replace

from protocol.errors import ErrorCode
from protocol.limits import LEDGER_SESSION_SECONDS, RELAYED_ANSWER_SECONDS_MAX
from tests.simulation.clients import group_wire as wire
from tests.simulation.clients.clients import NONE, RETRY_SECONDS, ClientWorld
from tests.simulation.clients.group_assignors import RANGE
from tests.simulation.clients.group_wire import Identity, Subscription
from tests.simulation.cluster.agents import AgentInWorld
from tests.simulation.cluster.connections import SimulatedConnection
from tests.simulation.faults.faults import coordinator_of

WHO, PLACE = "kept", ("orders", 0)
GROUP = Identity(group_id="group-kept")
"""A group without members, whose client commits as a tool does."""
GROUPS = [f"group-{number}" for number in range(12)]
"""Some of them move when an agent comes."""
ANSWER_SECONDS = 5.0
UNKNOWN = int(ErrorCode.unknown_server_error)


async def serving(world: ClientWorld, agent: AgentInWorld) -> None:
    """Return once it is."""
    while agent.broker is None:
        await world.clock.sleep(0.1)


def _send_commit(connection: SimulatedConnection, offset: int) -> "asyncio.Future[bytes]":
    return connection.send(wire.OFFSET_COMMIT, wire.OFFSET_COMMIT_VERSION, wire.offset_commit(GROUP, {PLACE: offset}))


async def _commit(connection: SimulatedConnection, offset: int) -> None:
    assert wire.read_offsets_committed(await _send_commit(connection, offset)) == {PLACE: NONE}


def _send_fetch(connection: SimulatedConnection) -> "asyncio.Future[bytes]":
    body = wire.offset_fetch(GROUP.group_id, [PLACE])
    return connection.send(wire.OFFSET_FETCH, wire.OFFSET_FETCH_VERSION, body)


async def a_commit_behind_a_request_that_no_coordinator_answers(world: ClientWorld) -> None:
    """Its client leaves the connection, of which the relaying agent learns nothing, and commits more by another one."""
    for agent in world.agents:
        await serving(world, agent)
    coordinator = coordinator_of(GROUP.group_id, world.around, world.agents)
    assert coordinator is not None
    relaying = next(agent for agent in world.agents if agent is not coordinator)
    left = SimulatedConnection(relaying, world.around, WHO)
    await _commit(left, 1)
    coordinator.is_cut_from_agents = True
    _send_fetch(left)  # it is lost on its way, and the relaying agent waits for its answer
    _send_commit(left, 2)
    await world.clock.sleep(ANSWER_SECONDS)
    coordinator.is_cut_from_agents = False
    kept = SimulatedConnection(coordinator, world.around, WHO)
    await _commit(kept, 3)
    await world.clock.sleep(RELAYED_ANSWER_SECONDS_MAX)  # then the relaying agent takes up the commit behind it
    _, offsets = wire.read_offsets_fetched(await _send_fetch(kept))
    if offsets != {PLACE: 3}:
        world.around.history.violation(f"{WHO} committed 3, and a commit that it gave up before counts: {offsets}")


async def _joined(world: ClientWorld, connection: SimulatedConnection, group_id: str) -> Identity:
    """The only member of a classic group, once its first generation has begun."""
    who, error = Identity(group_id=group_id), UNKNOWN
    subscription = wire.subscription(Subscription(topics=(PLACE[0],)))
    while error:
        body = wire.join_group(who, session_ms=60_000, rebalance_ms=6_000, protocols=[(RANGE, subscription)])
        told = wire.read_joined(await connection.ask(wire.JOIN_GROUP, wire.JOIN_GROUP_VERSION, body, ANSWER_SECONDS))
        who = replace(who, member_id=told.member_id or who.member_id, generation=told.generation)
        error = told.error
        if not error:
            body = wire.sync_group(who, {who.member_id: wire.assignment([PLACE])})
            synced = await connection.ask(wire.SYNC_GROUP, wire.SYNC_GROUP_VERSION, body, ANSWER_SECONDS)
            error, _ = wire.read_synced(synced)
        if error:
            await world.clock.sleep(RETRY_SECONDS)
    return who


async def a_group_that_moves_while_another_agent_relays_for_it(world: ClientWorld) -> None:
    """It moves to an agent that starts once its member has joined, and its coordinator of before goes on."""
    before, now, relaying = world.agents
    await serving(world, before)
    now.crash()
    await world.clock.sleep(LEDGER_SESSION_SECONDS + 3.0)
    await serving(world, relaying)
    connection = SimulatedConnection(relaying, world.around, WHO)
    groups = [each for each in GROUPS if coordinator_of(each, world.around, world.agents) is before]
    members = {group_id: await _joined(world, connection, group_id) for group_id in groups}
    now.start()
    await serving(world, now)
    await world.clock.sleep(3.0)
    moved = next(each for each in groups if coordinator_of(each, world.around, world.agents) is now)
    asked_s = world.around.loop.time()
    body = wire.heartbeat(members[moved])
    told = await connection.ask(wire.HEARTBEAT, wire.HEARTBEAT_VERSION, body, ANSWER_SECONDS)
    answerers = connection.answerers(asked_s)
    if wire.read_heartbeat(told) == NONE and answerers != [now.name]:
        told_by = answerers[0]
        world.around.history.violation(f"{told_by} tells {WHO} that it may stay, and the group is {now.name}'s (S13)")
