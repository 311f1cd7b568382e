"""Programs with transactions: lives of a producer, one after the other or two at a time, and what ends them.

Rule: as `tests.simulation.clients.group_programs`. A program that consumes, transforms and produces begins where its
group has come to, and commits what it consumed in the transaction that holds what it made of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from coordinator.commands.transaction import TerminateTransaction
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from coordinator.state.state import ClusterState
from protocol.types import Position, ProducerEpoch, ProducerId
from tests.simulation.audit.transaction_auditor import Transaction, TransactionAuditor
from tests.simulation.clients import transaction_wire as wire
from tests.simulation.clients.clients import NONE, RETRY_SECONDS, ClientWorld, Consumer
from tests.simulation.clients.group_members import CoordinatorLink
from tests.simulation.clients.group_monitors import LagMonitor
from tests.simulation.clients.transaction_producers import REQUEST_SECONDS, TransactionalProducer
from tests.simulation.clients.transaction_readers import Bystander, TransactionReader
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import ConnectionLost
from tests.simulation.faults.transaction_versions import VersionOperator
from tests.simulation.plan import Plan, ProducerFate, ProducerPlan, group_ids

PLACED_AT_PRODUCE, PLACED_AT_COMMIT = "paid", "placed"
PLACEMENT = (("penstock.transaction.placement", "commit"),)
DOWN_SECONDS_MAX = 4.0
PAUSE_SECONDS_MAX = 14.0
POLLS_MAX = 3


def placements_of(plan: Plan) -> dict[str, bool]:
    """The topics of a world's transactions, and whether each is placed at commit."""
    drawn = () if plan.transactions is None else plan.transactions.placements
    return {PLACED_AT_COMMIT if is_at_commit else PLACED_AT_PRODUCE: is_at_commit for is_at_commit in drawn}


def flow_ids(plan: Plan) -> list[str]:
    """The groups of the programs that consume, and of the members that commit in transactions."""
    drawn = () if plan.transactions is None else plan.transactions.producers
    flows = [_group_of(number) for number, producer in enumerate(drawn) if producer.is_flow]
    members = zip(group_ids(plan), plan.groups, strict=True)
    return flows + [group_id for group_id, group in members if group.producer is not None]


def _group_of(number: int) -> str:
    return f"flow-{number}"


class Flow(TransactionalProducer):
    """Consumes, transforms and produces, each input once."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        transactional_id: str,
        plan: ProducerPlan,
        places: Collection[Place],
        auditor: TransactionAuditor,
        *,
        group_id: str,
        sources: Collection[Place],
    ) -> None:
        super().__init__(world, name, transactional_id, plan, places, auditor)
        self._group_id = group_id
        self._group = CoordinatorLink(world, name, group_id)
        self._input = Consumer(world, f"{name} reads", list(sources))
        self._is_sought = False

    def hang_up(self) -> None:
        super().hang_up()
        self._group.forget()
        self._input.move()

    async def fill(self, transaction: Transaction, is_begun: list[bool]) -> None:
        if not self._is_sought:
            await self.seek()
        before = dict(self._input.positions)
        for _ in range(POLLS_MAX):
            if await self._input.poll():
                break
        moved = {place: end for place, end in self._input.positions.items() if end != before[place]}
        transaction.group_id = self._group_id
        transaction.sources = {place: (before[place], end) for place, end in moved.items()}
        await self.write(transaction, is_begun)
        if moved:
            await self.send_offsets(self._group, self._group_id, moved, is_begun)

    async def rewind(self) -> None:
        self._is_sought = False

    def recovered(self, kept: Mapping[Place, int]) -> None:
        for place, position in self._input.positions.items():
            self._input.positions[place] = min(position, kept[place])

    async def seek(self) -> None:
        """Begin where the group has come to."""
        places = sorted(self._input.positions)
        offsets: Mapping[Place, int] = {}
        while not offsets:
            offsets = await self._fetch_offsets(places)
        self._input.positions.update({place: max(offset, 0) for place, offset in offsets.items()})
        self._is_sought = True

    async def _fetch_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        """Empty where it has to ask again."""
        connection = await self._group.connection()
        asked_s = self.world.around.loop.time()
        body = wire.fetch_offsets(self._group_id, places)
        try:
            told = await connection.ask(
                wire.OFFSET_FETCH, wire.OFFSET_FETCH_VERSION, body, REQUEST_SECONDS, is_compact=True
            )
        except ConnectionLost:
            self._group.forget()
            await self.world.clock.sleep(RETRY_SECONDS)
            return {}
        error, offsets = wire.read_offsets_fetched(told)
        if error != NONE:
            await self.look_at(error, "the group's offsets", self._group)
            return {}
        self.auditor.told_offsets(self.name, self._group_id, offsets, asked_s)
        self.auditor.told_stable_offsets(self.name, self._group_id, offsets, asked_s)
        return offsets


class TransactionProgram:
    """One transactional id, and who has it."""

    def __init__(self, world: ClientWorld, number: int, places: Collection[Place], sources: Collection[Place]) -> None:
        plan, auditor = world.around.plan.transactions, world.transactions
        assert plan is not None
        assert auditor is not None
        self._world = world
        self._auditor = auditor
        self._plan = plan.producers[number]
        self._number = number
        self._places = places
        self._sources = sources
        self._lives_count = 0
        self._calm = asyncio.Event()
        self._lives: list[tuple[TransactionalProducer, asyncio.Task[None]]] = []
        self.is_stopping = False

    def calm(self) -> None:
        """From now on nothing happens to it."""
        self._calm.set()

    def stop(self) -> None:
        """End when what is begun is decided."""
        self.is_stopping = True
        for producer, _ in self._lives:
            producer.is_stopping = True

    def recovered(self, kept: Mapping[Place, int]) -> None:
        """Logs ended at `kept`, as far as a recovery knew them."""
        for producer, _ in self._lives:
            producer.recovered(kept)

    async def run(self) -> None:
        """Until it is stopped, and all its producers are through."""
        chance = self._world.chance
        try:
            while True:
                self._lives = [life for life in self._lives if not _is_through(life)]
                if not self._lives and self.is_stopping:
                    return
                if not self._lives:
                    self._begin()
                waits_s = 1.0 if self._calm.is_set() else chance.expovariate(1.0) * self._plan.fate_s
                tasks = [task for _, task in self._lives]
                done, _ = await asyncio.wait(tasks, timeout=waits_s, return_when=asyncio.FIRST_COMPLETED)
                if not done and self._plan.fates and not self._calm.is_set():
                    await self._befalls(chance.choice(self._plan.fates))
        finally:
            for producer, task in self._lives:
                task.cancel()
                producer.hang_up()

    def _begin(self) -> None:
        self._lives_count += 1
        transactional_id = f"tx-{self._number}"
        name = f"{transactional_id}.{self._lives_count}"
        if self._plan.is_flow:
            producer: TransactionalProducer = Flow(
                self._world,
                name,
                transactional_id,
                self._plan,
                self._places,
                self._auditor,
                group_id=_group_of(self._number),
                sources=self._sources,
            )
        else:
            producer = TransactionalProducer(
                self._world, name, transactional_id, self._plan, self._places, self._auditor
            )
        self._lives.append((producer, asyncio.create_task(producer.run())))

    async def _befalls(self, fate: ProducerFate) -> None:
        chance = self._world.chance
        producer, task = chance.choice(self._lives)
        self._world.around.history.note(producer.name, "fate", fate.value)
        match fate:
            case ProducerFate.CRASH:
                task.cancel()
                producer.hang_up()
                await self._world.clock.sleep(chance.random() ** 2 * DOWN_SECONDS_MAX)
            case ProducerFate.HIJACK if len(self._lives) < 2:
                self._begin()
            case ProducerFate.PAUSE:
                producer.pause(chance.random() * PAUSE_SECONDS_MAX)
            case ProducerFate.TERMINATE:
                self._terminate()
            case _:
                pass

    def _terminate(self) -> None:
        """A tool asks some agent to abort, or to commit, which is refused."""
        life = self._world.chance.choice(self._world.agents).life
        newest = self._auditor.entries.newest(f"tx-{self._number}")
        if life is not None and life.broker is not None and newest is not None:
            command = TerminateTransaction(
                producer_id=ProducerId(newest[0]),
                epoch=ProducerEpoch(newest[1]),
                is_commit=self._world.chance.random() < 0.3,
            )
            propose = life.broker.services.ledger.propose
            self._world.around.loop.create_task(_known(propose, command), context=life.context)


async def _known(propose: Callable[[TerminateTransaction], Awaitable[object]], command: TerminateTransaction) -> None:
    try:
        await propose(command)
    except (OutcomeUnknown, LedgerError):
        return


def _is_through(life: tuple[TransactionalProducer, "asyncio.Task[None]"]) -> bool:
    producer, task = life
    if task.done() and not task.cancelled():
        task.result()
    if task.done():
        producer.hang_up()
    return task.done()


class TransactionWorld:
    """All transactions of a world."""

    def __init__(self, world: ClientWorld, sources: Collection[Place]) -> None:
        plan = world.around.plan
        self._world = world
        self.places = [(topic, number) for topic in placements_of(plan) for number in range(plan.partitions)]
        drawn = plan.transactions
        self.programs: list[TransactionProgram] = []
        self.readers: list[TransactionReader] = []
        self.bystanders: list[Bystander] = []
        self.operators: list[VersionOperator] = []
        self.monitors: list[LagMonitor] = []
        if drawn is None or world.transactions is None:
            return
        auditor = world.transactions
        self.programs = [
            TransactionProgram(world, number, self.places, sources) for number in range(len(drawn.producers))
        ]
        self.readers = [
            TransactionReader(world, f"committed-{n}", self.places, auditor, is_committed=True)
            for n in range(drawn.readers)
        ] + [TransactionReader(world, "uncommitted", self.places, auditor, is_committed=False)]
        if any(producer.rests_chance for producer in drawn.producers):
            self.monitors = [LagMonitor(world, each, sources, auditor.told_offsets) for each in flow_ids(plan)]
        if drawn.has_version_changes:
            self.operators = [VersionOperator(world)]
        if drawn.is_shared:
            self.bystanders = [Bystander(world, "bystander", self.places, auditor)]

    def calm(self) -> None:
        """From now on nothing happens to any producer."""
        for program in self.programs:
            program.calm()

    def stop(self) -> None:
        """End when what is begun is decided."""
        for who in self.bystanders:
            who.is_stopping = True
        for program in self.programs:
            program.stop()

    def recovered(self, state: ClusterState, covered: Position, kept: Mapping[Place, int]) -> None:
        """A recovery began another incarnation: `TransactionAuditor.recovered`."""
        if self._world.transactions is None:
            return
        self._world.transactions.recovered(state, covered, kept)
        for program in self.programs:
            program.recovered(kept)
        for reader in self.readers:
            for place, position in reader.positions.items():
                reader.positions[place] = min(position, kept[place])

    @property
    def lost_count(self) -> int:
        """How many transactions were committed by entries that are lost."""
        return 0 if self._world.transactions is None else self._world.transactions.lost_count

    async def until_decided(self) -> None:
        """Until no transaction is open."""
        while self.are_any_open():
            await self._world.clock.sleep(0.5)

    def are_any_open(self) -> bool:
        """Whether some transaction is not decided."""
        auditor = self._world.transactions
        return auditor is not None and bool(auditor.entries.open_ids())

    async def read_everything(self) -> None:
        """Through each agent, at both isolation levels, from the first offset to the end; then judge it all."""
        auditor = self._world.transactions
        if auditor is None:
            return
        names: list[str] = []
        for agent in self._world.agents:
            for is_committed in (True, False):
                name = f"reader of {agent.name}, {'decided' if is_committed else 'all'}"
                names += [name] if is_committed else []
                reader = TransactionReader(self._world, name, self.places, auditor, is_committed=is_committed)
                ends: dict[Place, int] = {}
                for place in self.places:
                    reader.connect_to(agent)
                    while (end := await reader.last_stable(place)) is None:
                        reader.connect_to(agent)
                    ends[place] = end
                    true = self._world.around.ledger.truth.end_of(place)
                    if end != true:
                        what = f"{place} is decided up to {end}, and ends at {true}, though nothing is open"
                        self._world.around.history.violation(what)
                while any(reader.positions[place] < end for place, end in ends.items()):
                    reader.stay_with(agent)
                    await reader.poll(wait_ms=0)
        auditor.judge(names, self.places, flow_ids(self._world.around.plan))
