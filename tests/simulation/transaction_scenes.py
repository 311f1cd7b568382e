"""Scenes with transactions for `tests.simulation.test_scripted_rules`: each comes to one situation and goes on from it.

Rule: a producer does what the scene says, in this order, and nothing else happens to it.
"""

import asyncio
from collections.abc import Mapping

from coordinator.state.rendezvous import owner_of, transaction_key
from tests.simulation.audit.transaction_auditor import Transaction, TransactionAuditor
from tests.simulation.clients.clients import ClientWorld
from tests.simulation.clients.group_members import CoordinatorLink
from tests.simulation.clients.transaction_producers import TransactionalProducer
from tests.simulation.clients.transaction_programs import PLACED_AT_PRODUCE, Flow
from tests.simulation.clients.transaction_readers import TransactionReader
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.agents import AgentInWorld
from tests.simulation.plan import Plan, TransactionPlan
from tests.simulation.scripted_plans import calm_plan, producer_of
from tests.simulation.world import TOPIC

OUTPUT: Place = (PLACED_AT_PRODUCE, 0)
SOURCE: Place = (TOPIC, 0)
EXPIRATION_MS = 4_000
TIMEOUT_MS = 8_000
ARCHIVED_SECONDS = 8.0
"""After so long what is decided is archived."""


def transacting_plan(**others: object) -> Plan:
    """A calm world with a topic for transactions, and none but a scene's. `others`: of its `TransactionPlan`."""
    plan: dict[str, object] = {"producers": (), "placements": (False,), "readers": 1, "is_shared": False, **others}
    transactions = TransactionPlan(**plan)  # type: ignore[arg-type]
    return calm_plan(partitions=1, producers=0, plain_producers=1, transactions=transactions)


def auditor_of(world: ClientWorld) -> TransactionAuditor:
    assert world.transactions is not None, "the plan has transactions"
    return world.transactions


class ScriptedProducer(TransactionalProducer):
    """One instance under a transactional id."""

    def __init__(self, world: ClientWorld, transactional_id: str, *, version: int, timeout_ms: int = 60_000) -> None:
        plan = producer_of(version, timeout_ms=timeout_ms)
        super().__init__(world, f"{transactional_id}.1", transactional_id, plan, [OUTPUT], auditor_of(world))

    async def begin(self) -> None:
        """Get a producer id."""
        await self._initialise()

    def transaction(self) -> Transaction:
        """The next one, with nothing in it yet."""
        return self.auditor.begins(self.name, self.transactional_id, self._key)

    async def put(self, transaction: Transaction) -> None:
        """Write a batch in it; return when it is acknowledged."""
        if self._version == 1:
            await self._add([OUTPUT], [True])
        again = [self._new_batch(OUTPUT, transaction)]
        while again:
            again = await self._take(await self._send(again))

    async def end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Commit or abort it; return when that is answered."""
        await self._end(transaction, is_commit=is_commit)


async def begun(
    world: ClientWorld, transactional_id: str, *, version: int, timeout_ms: int = 60_000
) -> ScriptedProducer:
    """A producer that has its producer id."""
    producer = ScriptedProducer(world, transactional_id, version=version, timeout_ms=timeout_ms)
    await producer.begin()
    return producer


async def a_transaction_that_is_open_for_longer_than_idle_producers_are_kept(world: ClientWorld) -> None:
    """Beside one that is decided, whose producer is to be forgotten."""
    idle, slow = await begun(world, "tx-idle", version=2), await begun(world, "tx-slow", version=2)
    decided, opened = idle.transaction(), slow.transaction()
    await idle.put(decided)
    await idle.end(decided, is_commit=True)
    await slow.put(opened)
    await world.clock.sleep(3 * EXPIRATION_MS / 1000)
    await slow.end(opened, is_commit=True)


def maintenance_leader_of(world: ClientWorld) -> AgentInWorld | None:
    """Who has transactions aborted that are open for too long."""
    session = world.around.ledger.truth.state.maintenance_leader
    return next((each for each in world.agents if each.broker is not None and each.broker.session == session), None)


def id_coordinated_by_others(world: ClientWorld, agent: AgentInWorld) -> str:
    """A transactional id that has another coordinator."""
    sessions = world.around.ledger.truth.state.sessions
    ids = (f"tx-{number}" for number in range(100))
    owners = ((each, owner_of(transaction_key(each), sessions)) for each in ids)
    return next(each for each, owner in owners if owner is not None and sessions[owner].name != agent.name)


async def a_time_out_that_comes_when_the_next_transaction_is_open(world: ClientWorld) -> None:
    """Who proposes it has not heard that the one that it has seen ended, and another one began under the same epoch."""
    while (maintenance_leader := maintenance_leader_of(world)) is None:
        await world.clock.sleep(0.1)
    transactional_id = id_coordinated_by_others(world, maintenance_leader)
    producer = await begun(world, transactional_id, version=1, timeout_ms=TIMEOUT_MS)
    producer.stay_with(next(each for each in world.agents if each is not maintenance_leader))
    before = producer.transaction()
    await producer.put(before)
    await world.clock.sleep(2.0)
    maintenance_leader.ledger.lag_s = 6.0
    await world.clock.sleep(4.0)
    await producer.end(before, is_commit=True)
    following = producer.transaction()
    await producer.put(following)
    await world.clock.sleep(5.0)
    await producer.end(following, is_commit=True)
    maintenance_leader.ledger.lag_s = 0.0


async def whoever_begins_where_an_open_transaction_is_about_to_move_its_group(world: ClientWorld) -> None:
    """It has to wait until the transaction is decided, and begins behind what that consumed."""
    group_id = "flow-scripted"
    producer = await begun(world, "tx-before", version=2)
    transaction = producer.transaction()
    await producer.put(transaction)
    offsets: Mapping[Place, int] = {SOURCE: 1}
    await producer.send_offsets(CoordinatorLink(world, producer.name, group_id), group_id, offsets, [True])
    plan = producer_of(2, is_flow=True)
    follower = Flow(
        world, "follower", "tx-after", plan, [OUTPUT], producer.auditor, group_id=group_id, sources=[SOURCE]
    )
    async with asyncio.TaskGroup() as tasks:
        beginning = tasks.create_task(follower.seek())
        await world.clock.sleep(3.0)
        await producer.end(transaction, is_commit=True)
        await beginning
    follower.hang_up()


async def an_aborted_transaction_of_which_a_part_is_archived(world: ClientWorld) -> None:
    """Its first records lie before another one that stays open, where the archive ends; the rest and its marker do not.

    Who reads at read_committed then has to drop the rest.
    """
    aborted_by, open_by = await begun(world, "tx-aborted", version=2), await begun(world, "tx-open", version=2)
    aborted, opened = aborted_by.transaction(), open_by.transaction()
    await aborted_by.put(aborted)
    await open_by.put(opened)
    await aborted_by.put(aborted)
    await aborted_by.end(aborted, is_commit=False)
    await world.clock.sleep(ARCHIVED_SECONDS)
    await open_by.end(opened, is_commit=True)
    await _read_through_all(world, open_by.auditor)


async def an_aborted_transaction_that_is_in_memory_behind_its_pass(world: ClientWorld) -> None:
    """A pass takes its records, and a later one takes its marker. Then nothing lists it as aborted."""
    await an_aborted_transaction_of_which_a_part_is_archived(world)
    await world.clock.sleep(ARCHIVED_SECONDS)
    await _read_through_all(world, auditor_of(world))


async def _read_through_all(world: ClientWorld, auditor: TransactionAuditor) -> None:
    """Read what is committed of `OUTPUT`, through each agent, to the end."""
    for agent in world.agents:
        reader = TransactionReader(world, f"reader through {agent.name}", [OUTPUT], auditor, is_committed=True)
        while reader.positions[OUTPUT] < world.around.ledger.truth.end_of(OUTPUT):
            reader.stay_with(agent)
            await reader.poll()
