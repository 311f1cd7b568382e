"""V1 clients that keep connections while others come and go, by scripts (safety rule S7).

Rule: what one leaves is younger than what it goes back to, so when a connection began tells nothing of which one its
client left; another leaves a request that comes in its next transaction. Worlds that are drawn hardly ever come to
this, so it is written down, and the rules that it is about are switched off here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.apply import pending_offsets as apply_pending_offsets
from coordinator.apply import transactions as apply_transactions
from coordinator.commands.transaction import ConnectionEpoch
from coordinator.state.state import ClusterState
from coordinator.state.transactions import AppliedConnectionEpoch
from protocol.types import SessionId
from tests.simulation.audit.transaction_auditor import Transaction
from tests.simulation.clients import transaction_wire as wire
from tests.simulation.clients.clients import NONE, PRODUCE_TIMEOUT_MS, ClientWorld
from tests.simulation.cluster.connections import SimulatedConnection
from tests.simulation.faults.faults import coordinator_of
from tests.simulation.mutations.patches import patched
from tests.simulation.scripted_plans import plan_of
from tests.simulation.seeds import assert_sound
from tests.simulation.world import Verdict, run

SEED = 13
WHO, PLACE = "kept", ("paid", 0)
GROUP, INPUT = "flow-kept", ("orders", 0)
"""A group that one program consumes alone, as its name tells the auditor."""
ANSWER_SECONDS, LATE_SECONDS = 5.0, 4.0
V1 = 1


@contextmanager
def connections_rank_by_when_they_began() -> Iterator[None]:
    """Not by when they acted last: one that was opened since, and left, ranks higher."""

    def applied(
        state: ClusterState, session_id: SessionId, epoch: ConnectionEpoch | None
    ) -> AppliedConnectionEpoch | None:
        return None if epoch is None else AppliedConnectionEpoch(epoch.position, session_id, epoch.serial)

    with patched(apply_transactions, "applied_connection_epoch", applied):
        yield


@contextmanager
def stamps_of_offset_commits_are_not_compared() -> Iterator[None]:
    """A TxnOffsetCommit counts whenever it comes, in whichever transaction is open by then."""
    with patched(apply_pending_offsets, "_is_stale", lambda held, session_id, command: False):
        yield


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
        told = await connection.ask(wire.INIT_PRODUCER_ID, version, body, ANSWER_SECONDS, is_compact=True)
        error, producer_id, epoch = wire.read_producer_id(told)
        assert error == NONE
        self._who = wire.Producer(transactional_id=WHO, producer_id=producer_id, epoch=epoch)

    def _begin(self) -> Transaction:
        return self._auditor.begins(WHO, WHO, (self._who.producer_id, self._who.epoch))

    async def _write(self, connection: SimulatedConnection, transaction: Transaction) -> None:
        body = wire.add_partitions(self._who, [PLACE])
        told = await connection.ask(wire.ADD_PARTITIONS, wire.ADD_PARTITIONS_VERSION, body, ANSWER_SECONDS)
        assert set(wire.read_by_partition(told).values()) == {NONE}
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
        """`late_s`: after so long it arrives, and nobody waits for an answer."""
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
        group_left = await self._connect(self._coordinator())
        one = self._begin()
        await self._write(first, one)
        await self._add_group(first)
        await self._commit(group_left, 1, late_s=3 * LATE_SECONDS)
        group_left.close()
        group = await self._connect(self._coordinator())
        await self._commit(group, 1)
        await self._end(first, one, is_commit=True)
        other = self._begin()
        await self._write(first, other)
        await self._add_group(first)
        await self._commit(group, 2)
        await self._world.clock.sleep(3 * LATE_SECONDS)  # what was asked on the connection that was left arrives
        await self._end(first, other, is_commit=True)

    def _coordinator(self) -> int:
        """The number of the group's."""
        agent = coordinator_of(GROUP, self._world.around, self._world.agents)
        assert agent is not None
        return agent.number

    async def _add_group(self, connection: SimulatedConnection) -> None:
        body = wire.add_offsets(self._who, GROUP)
        told = await connection.ask(wire.ADD_OFFSETS, wire.ADD_OFFSETS_VERSION, body, ANSWER_SECONDS)
        assert wire.read_error(told) == NONE

    async def _commit(self, connection: SimulatedConnection, offset: int, *, late_s: float = 0.0) -> None:
        version = wire.TXN_OFFSET_COMMIT_VERSIONS[V1]
        body = wire.commit_offsets(self._who, version, GROUP, {INPUT: offset})
        is_compact = version >= wire.TXN_OFFSET_COMMIT_COMPACT
        answer = connection.send(wire.TXN_OFFSET_COMMIT, version, body, is_compact=is_compact, late_s=late_s)
        if not late_s:
            assert set(wire.read_offsets_committed(await answer, version).values()) == {NONE}


def verdict_of_script(script: type[Script] = Script) -> Verdict:
    return run(SEED, plan_of(SEED, placements=(False,)), lambda world: script(world).run())


def test_s7_a_late_request_on_the_younger_connection_that_was_left_decides_nothing() -> None:
    verdict = verdict_of_script()
    assert_sound(verdict)
    assert verdict.counts["stale"] == 1
    assert verdict.counts["committed"] == 1


def test_s7_were_connections_ranked_by_when_they_began_it_would_end_the_next_transaction() -> None:
    with connections_rank_by_when_they_began():
        verdict = verdict_of_script()
    assert "nobody asked for that (S7)" in verdict.violations[0]


def test_s7_a_late_commit_of_offsets_on_a_connection_that_was_left_moves_nothing() -> None:
    verdict = verdict_of_script(OffsetScript)
    assert_sound(verdict)
    assert verdict.counts["stale"] == 1
    assert verdict.counts["committed"] == 2


def test_s7_were_its_stamp_not_compared_the_group_would_go_back_in_the_next_transaction() -> None:
    with stamps_of_offset_commits_are_not_compared():
        verdict = verdict_of_script(OffsetScript)
    assert f"commits 1 of {INPUT} for {GROUP} after 2 (S7)" in verdict.violations[0]
