"""Scripts of V1 clients that keep connections while others come and go (safety rule S7).

Rule: what a script's client leaves is as young as what it goes back to, or younger, and a request is on its way there
that comes in its next transaction.
"""

from protocol.relay import ClientEpoch
from tests.simulation.audit.transaction_auditor import Transaction
from tests.simulation.clients import transaction_wire as wire
from tests.simulation.clients.clients import NONE, PRODUCE_TIMEOUT_MS, ClientWorld
from tests.simulation.cluster.connections import SimulatedConnection
from tests.simulation.faults.faults import coordinator_of

WHO, PLACE = "kept", ("paid", 0)
GROUP, INPUT = "flow-kept", ("orders", 0)
"""The auditor takes a group of this name for one of a single program."""
ANSWER_SECONDS, LATE_SECONDS = 5.0, 4.0
V1 = 1


class Script:
    """One producer, and what it does on which connection."""

    def __init__(self, world: ClientWorld) -> None:
        auditor = world.transactions
        assert auditor is not None
        self._world = world
        self._auditor = auditor
        self._who = wire.Producer(transactional_id=WHO)
        self._sequence = 0

    async def run(self) -> None:
        first = await self._connect(0)
        await self._initialise(first)
        one = self._begin()
        await self._write(first, one)
        second = await self._connect(1)
        await self._end(second, one, is_commit=False, late_s=LATE_SECONDS)
        second.close()
        await self._end(first, one, is_commit=False)
        other = self._begin()
        await self._write(first, other)
        await self._world.clock.sleep(2 * LATE_SECONDS)  # what was asked on the second connection arrives meanwhile
        await self._end(first, other, is_commit=True)

    async def _connect(self, agent: int) -> SimulatedConnection:
        """Others write meanwhile, so no two connections begin at one position of the ledger."""
        while self._world.agents[agent].broker is None:
            await self._world.clock.sleep(0.1)
        await self._world.clock.sleep(3.0)
        return SimulatedConnection(self._world.agents[agent], self._world.around, WHO)

    async def _initialise(self, connection: SimulatedConnection) -> None:
        body, version = wire.init_producer_id(self._who, 60_000), wire.INIT_PRODUCER_ID_VERSIONS[V1]
        answer = await connection.ask(wire.INIT_PRODUCER_ID, version, body, ANSWER_SECONDS, is_compact=True)
        error, producer_id, epoch = wire.read_producer_id(answer)
        assert error == NONE
        self._who = wire.Producer(transactional_id=WHO, producer_id=producer_id, epoch=epoch)

    def _begin(self) -> Transaction:
        return self._auditor.begins(WHO, WHO, (self._who.producer_id, self._who.epoch))

    async def _write(self, connection: SimulatedConnection, transaction: Transaction) -> None:
        body = wire.add_partitions(self._who, [PLACE])
        answer = await connection.ask(wire.ADD_PARTITIONS, wire.ADD_PARTITIONS_VERSION, body, ANSWER_SECONDS)
        assert set(wire.read_by_partition(answer).values()) == {NONE}
        value = self._auditor.writes(PLACE, WHO, transaction)
        batch = wire.batch_of(
            [value.text], timestamp=self._world.around.wall_ms(), producer=self._who, sequence=self._sequence
        )
        self._sequence += 1
        body = wire.produce(WHO, [(PLACE, batch)], PRODUCE_TIMEOUT_MS, V1)
        answer = await connection.ask(wire.PRODUCE, wire.PRODUCE_VERSIONS[V1], body, ANSWER_SECONDS)
        produced = wire.read_answer_to_produce(answer, V1)[PLACE]
        assert produced.error == NONE
        self._auditor.acknowledged([value], produced.base_offset, was_fenced=False)

    async def _end(
        self, connection: SimulatedConnection, transaction: Transaction, *, is_commit: bool, late_s: float = 0.0
    ) -> None:
        """`late_s`: after so long it arrives, without a wait for its answer."""
        self._auditor.asks_to_end(transaction, is_commit=is_commit)
        body = wire.end(self._who, V1, is_commit=is_commit)
        answer = connection.send(wire.END_TXN, wire.END_TXN_VERSIONS[V1], body, late_s=late_s)
        if not late_s:
            error, _, _ = wire.read_ended(await answer, V1)
            assert error == NONE
            self._auditor.told_end(transaction, is_commit=is_commit)


class OffsetScript(Script):
    """It commits offsets of a group in each of two transactions, and the first commit comes late, in the second one."""

    async def run(self) -> None:
        first = await self._connect(0)
        await self._initialise(first)
        one = self._begin()
        await self._write(first, one)
        await self._add_group(first)
        group = await self._leave_one()
        await self._commit(group, 1)
        await self._end(first, one, is_commit=True)
        other = self._begin()
        await self._write(first, other)
        await self._add_group(first)
        await self._commit(group, 2)
        await self._world.clock.sleep(3 * LATE_SECONDS)  # what was asked on the connection that was left arrives
        await self._end(first, other, is_commit=True)

    async def _leave_one(self) -> SimulatedConnection:
        """A connection for the group's commits, after another one was left with a commit on its way."""
        left = await self._connect(self._coordinator())
        await self._commit(left, 1, late_s=3 * LATE_SECONDS)
        left.close()
        return await self._connect(self._coordinator())

    def _coordinator(self) -> int:
        """The number of the group's."""
        agent = coordinator_of(GROUP, self._world.around, self._world.agents)
        assert agent is not None
        return agent.number

    async def _add_group(self, connection: SimulatedConnection) -> None:
        body = wire.add_offsets(self._who, GROUP)
        answer = await connection.ask(wire.ADD_OFFSETS, wire.ADD_OFFSETS_VERSION, body, ANSWER_SECONDS)
        assert wire.read_error(answer) == NONE

    async def _commit(self, connection: SimulatedConnection, offset: int, *, late_s: float = 0.0) -> None:
        version = wire.TXN_OFFSET_COMMIT_VERSIONS[V1]
        body = wire.commit_offsets(self._who, version, GROUP, {INPUT: offset})
        is_compact = version >= wire.TXN_OFFSET_COMMIT_COMPACT
        answer = connection.send(wire.TXN_OFFSET_COMMIT, version, body, is_compact=is_compact, late_s=late_s)
        if not late_s:
            assert set(wire.read_offsets_committed(await answer, version).values()) == {NONE}


class RelayedScript(OffsetScript):
    """The same where two other agents relay the commits to the group's coordinator."""

    async def _leave_one(self) -> SimulatedConnection:
        one, other = self._others()
        left = await self._connect(one)
        await self._commit(left, 1, late_s=3 * LATE_SECONDS)
        left.close()
        return await self._connect(other)

    def _others(self) -> list[int]:
        """The numbers of the agents that do not coordinate the group."""
        return [agent.number for agent in self._world.agents if agent.number != self._coordinator()]


class SimultaneousScript(RelayedScript):
    """Its connections to the two agents began at one position of the ledger, where nothing orders them.

    The one that is left has the higher number at its agent.
    """

    async def _leave_one(self) -> SimulatedConnection:
        one, other = self._others()
        while True:
            first, agents = await self._connect(one), self._world.agents
            others = [SimulatedConnection(agents[number], self._world.around, WHO) for number in (one, other)]
            connections = [first, *others]
            epochs = [await self._epoch(connection) for connection in connections]
            if len({epoch.position for epoch in epochs}) == 1 and epochs[1].number > epochs[2].number:
                break
            for connection in connections:
                connection.close()
        _, left, kept = connections
        await self._commit(left, 1, late_s=3 * LATE_SECONDS)
        left.close()
        return kept

    async def _epoch(self, connection: SimulatedConnection) -> ClientEpoch:
        epoch = connection._far._connection_epoch
        assert epoch is not None
        found = await epoch.of_client(self._world.clock)
        assert found is not None
        return found


async def a_late_commit_of_offsets_that_is_relayed(world: ClientWorld) -> None:
    """The relay for it is younger than all connections of the client."""
    await RelayedScript(world).run()


async def a_late_commit_of_offsets_on_a_connection_of_no_order(world: ClientWorld) -> None:
    """That is relayed, too."""
    await SimultaneousScript(world).run()
