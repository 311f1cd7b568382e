"""Simulated members of groups that consume, transform and produce: exactly once, as KIP-447 means it.

Rule: a member reads what it was assigned, writes what it makes of it, and commits how far it has come in the same
transaction, in the name of the member that it was when it read. What its group refuses aborts the transaction, and the
member begins again where its group has come to; it commits nothing by itself. Whoever takes over a partition waits
until no open transaction is about to move the group's offset there.
Source: org.apache.kafka.clients.producer.internals.TransactionManager.TxnOffsetCommitHandler,
org.apache.kafka.streams.processor.internals.{ActiveTaskCreator,StreamsProducer} (Kafka 4.3).
"""

from collections.abc import Collection, Iterable, Mapping

from protocol.errors import ErrorCode
from tests.simulation.audit.group_auditor import Commit
from tests.simulation.audit.transaction_auditor import Transaction, TransactionAuditor
from tests.simulation.clients import transaction_wire as wire
from tests.simulation.clients.clients import RETRY_SECONDS
from tests.simulation.clients.consumer_members import SimulatedConsumerMember
from tests.simulation.clients.group_members import CoordinatorLink, GroupReader, SimulatedClassicMember
from tests.simulation.clients.group_wire import Identity
from tests.simulation.clients.transaction_producers import (
    RESTS,
    WAITING,
    MustAbort,
    ProducerFenced,
    TransactionalProducer,
)
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import SimulatedConnection
from tests.simulation.plan import ProducerPlan

REFUSED_BY_GROUP = {ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id}
"""The member is not the one that it was: its transaction cannot commit (CommitFailedException)."""


class MemberProducer(TransactionalProducer):
    """What a member produces with."""

    def __init__(
        self,
        member: "TransactingMember",
        transactional_id: str,
        plan: ProducerPlan,
        places: Collection[Place],
        auditor: TransactionAuditor,
    ) -> None:
        super().__init__(member.world, f"{member.name}+", transactional_id, plan, places, auditor)
        self._member = member
        self._group = CoordinatorLink(member.world, self.name, member.group_id)
        self._sources: Mapping[Place, tuple[int, int]] = {}
        self._reads_as = member.identity
        self._is_initialised = False

    def hang_up(self) -> None:
        super().hang_up()
        self._group.forget()

    async def awake(self) -> None:
        await self._member.awake()

    async def initialise(self) -> None:
        """Once, before anything is read: who had the transactional id is fenced, and what it had open is aborted."""
        if not self._is_initialised:
            await self._initialise()
            self._is_initialised = True

    async def process(self, sources: Mapping[Place, tuple[int, int]], who: Identity) -> bool:
        """One transaction about what was read by `who`: first offset and end of each. Whether it is committed."""
        self._sources, self._reads_as = sources, who
        before = self.committed_count
        await self._one()
        return self.committed_count > before

    async def fill(self, transaction: Transaction, is_begun: list[bool]) -> None:
        transaction.group_id = self._member.group_id
        transaction.sources = dict(self._sources)
        await self.write(transaction, is_begun)
        await self.awake()
        offsets = {place: end for place, (_, end) in self._sources.items()}
        await self.send_offsets(self._group, self._member.group_id, offsets, is_begun)
        if self.chance.random() < self.producer_plan.rests_chance:
            await self.world.clock.sleep(self.chance.random() * RESTS * self.producer_plan.pause_s)

    def offsets_body(self, group_id: str, offsets: Mapping[Place, int]) -> bytes:
        return wire.commit_offsets(self._who, self.offsets_version, group_id, offsets, member=self._reads_as)

    @property
    def offsets_version(self) -> int:
        return wire.TXN_OFFSET_COMMIT_BY_MEMBERS[self._version]

    def begins_commit(self, offsets: Mapping[Place, int]) -> Commit | None:
        return self._member.commit_of(self._reads_as, offsets)

    async def look_at(self, error: int, what: str, link: CoordinatorLink | None = None) -> None:
        if link is self._group and error in REFUSED_BY_GROUP:
            self.world.around.history.note(self.name, "refused by group", f"{ErrorCode(error).name} for {what}")
            raise MustAbort
        await super().look_at(error, what, link)


class TransactingMember(GroupReader):
    """What such members of every protocol do alike."""

    producer: MemberProducer

    def hang_up(self) -> None:
        super().hang_up()
        self.producer.hang_up()

    def fails(self, error: int, what: str) -> None:
        if error not in WAITING:
            super().fails(error, what)

    def told_offsets(self, offsets: Mapping[Place, int], asked_s: float) -> None:
        super().told_offsets(offsets, asked_s)
        self.producer.auditor.told_stable_offsets(self.name, self.group_id, offsets, asked_s)

    def commit_of(self, who: Identity, offsets: Mapping[Place, int]) -> Commit:
        """What `who` commits, as the auditor of groups is to judge it when it is acknowledged."""
        raise NotImplementedError

    async def commit(self, places: Iterable[Place]) -> bool:
        """All that was processed is committed, or will be read again."""
        return True

    async def read_some(self) -> None:
        try:
            await self.producer.initialise()
            await self._seek()
            if not self.positions:
                await self.world.clock.sleep(RETRY_SECONDS)
                return
            before, who = dict(self.positions), self.identity
            if who.generation <= 0:  # it heard meanwhile that it is nobody, in whose name nothing may be committed
                return
            await self.poll()
            sources = {place: (before[place], end) for place, end in self.positions.items() if end != before[place]}
            if not sources:
                await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())
            elif not await self.producer.process(sources, who):
                for place in sources:
                    self.positions.pop(place, None)
        except ProducerFenced:
            self.world.around.history.note(self.name, "fenced")
            self.is_over = True


class TransactingClassicMember(TransactingMember, SimulatedClassicMember):
    """A member of a classic group."""

    def commit_of(self, who: Identity, offsets: Mapping[Place, int]) -> Commit:
        groups = self.world.groups
        if self._is_mixed:
            return groups.offers_of_epoch(self.group_id, who.member_id, who.generation, offsets)
        return groups.offers(self.group_id, who.instance_id or who.member_id, who.generation, offsets)

    async def ask_for_offsets(
        self, connection: SimulatedConnection, places: Collection[Place]
    ) -> tuple[int, Mapping[Place, int]]:
        """With RequireStable (KIP-447)."""
        body = wire.fetch_offsets(self.group_id, sorted(places))
        told = await self.ask_coordinator(connection, wire.OFFSET_FETCH, wire.OFFSET_FETCH_VERSION, body)
        return wire.read_offsets_fetched(told)


class TransactingConsumerMember(TransactingMember, SimulatedConsumerMember):
    """A member of a consumer group."""

    def commit_of(self, who: Identity, offsets: Mapping[Place, int]) -> Commit:
        return self.world.groups.offers_of_epoch(self.group_id, who.member_id, who.generation, offsets)
