"""Simulated transactional producers, as Kafka's own behave: of V1 (librdkafka, older Java) and of V2 (KIP-890).

Rule: as `tests.simulation.clients.clients`. A V1 producer adds partitions and groups before it writes there, and keeps
its epoch; a V2 producer writes, and is given an epoch with each end. Whoever gets no answer asks again, on another
connection, whatever became of the request before, which may be on its way still. What an error means is Java's reading:
some are asked again, some abort the transaction, some end the producer. Source:
org.apache.kafka.clients.producer.internals.{Sender,TransactionManager} (Kafka 4.3).
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocol.errors import ErrorCode
from tests.simulation.audit.group_auditor import Commit
from tests.simulation.audit.transaction_auditor import Transaction, TransactionAuditor, Value
from tests.simulation.clients import transaction_wire as wire
from tests.simulation.clients.clients import NONE, PRODUCE_TIMEOUT_MS, RETRY_SECONDS, Client, ClientWorld
from tests.simulation.clients.group_members import CoordinatorLink
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import ConnectionLost, SimulatedConnection
from tests.simulation.faults.transaction_versions import LevelWatcher
from tests.simulation.history import Violation
from tests.simulation.plan import ProducerPlan

REQUEST_SECONDS = 5.0
LATE_SECONDS_MAX = 6.0
GIVES_UP_LATE_SECONDS = 0.5
"""After so long a client gives up on a connection whose requests arrive late."""
DELIVERY_SECONDS = 10.0
"""delivery.timeout.ms: batches without an answer after that abort their transaction."""
GIVES_UP_CHANCE = 0.05
"""How often a client's patience with a batch is shorter."""
ASKS_CHANCE = 0.5
"""How often a client hears of the level of transaction.version before a transaction, where it changes."""
RESTS = 3.0
"""How much longer a producer rests within a transaction than between two."""
VALUES_MAX = 3
STEPS_MAX = 3
RETRIABLE = {
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.concurrent_transactions,
    ErrorCode.request_timed_out,
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
}
FENCING = {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping}
WAITING = {ErrorCode.unstable_offset_commit}
"""An open transaction is about to move the group's offsets."""


class ProducerFenced(Exception):
    """Another one has the transactional id: this producer is over."""


class MustAbort(Exception):
    """The transaction cannot go on; the producer can."""


@dataclass(slots=True)
class Batch:
    """Values that are sent together, and again as they are."""

    place: Place
    values: list[Value]
    payload: bytes


@dataclass(slots=True, kw_only=True)
class Flight:
    """A Produce on its way."""

    connection: SimulatedConnection
    batches: list[Batch]
    answer: "asyncio.Future[bytes]"
    was_fenced: bool
    """Whether somebody else had the transactional id when it was sent."""


class TransactionalProducer(Client):
    """One instance under a transactional id."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        transactional_id: str,
        plan: ProducerPlan,
        places: Collection[Place],
        auditor: TransactionAuditor,
    ) -> None:
        super().__init__(world, name)
        self.auditor = auditor
        self.producer_plan = plan
        self._places = sorted(places)
        self._version = plan.version
        self._who = wire.Producer(transactional_id=transactional_id)
        self._coordinator = CoordinatorLink(world, name, transactional_id, find=wire.find_coordinator(transactional_id))
        self._sequences: dict[Place, int] = {}
        self._must_bump = False
        """A batch was given up: its sequence may be taken, or not (KIP-360)."""
        self._paused_until_s = 0.0
        drawn = world.around.plan.transactions
        is_told_levels = plan.version > 1 and drawn is not None and drawn.has_version_changes
        self._levels = LevelWatcher(world, f"{name} asks", auditor) if is_told_levels else None
        self.is_stopping = False
        self.is_over = False
        self.committed_count = 0

    @property
    def _key(self) -> tuple[int, int]:
        return self._who.producer_id, self._who.epoch

    @property
    def transactional_id(self) -> str:
        return self._who.transactional_id

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; what is under way is answered, and looked at later."""
        self._paused_until_s = self.world.around.loop.time() + seconds

    async def awake(self) -> None:
        """Return while it is not paused."""
        while self.world.around.loop.time() < self._paused_until_s:
            await self.world.clock.sleep(self._paused_until_s - self.world.around.loop.time())

    def hang_up(self) -> None:
        """Leave without a word."""
        self._coordinator.forget()
        self.move()

    async def run(self) -> None:
        """Until it is told to stop, or fenced."""
        try:
            await self._initialise()
            while not self.is_stopping:
                await self.awake()
                await self._one()
                await self.world.clock.sleep(self.chance.random() * self.producer_plan.pause_s)
        except ProducerFenced:
            self.world.around.history.note(self.name, "fenced", str(self._key))
        self.is_over = True

    async def _one(self) -> None:
        """One transaction."""
        if self._levels is not None and self.chance.random() < ASKS_CHANCE:
            self._version = await self._levels.version()
        transaction = self.auditor.begins(self.name, self.transactional_id, self._key)
        is_begun = [False]
        try:
            await self.fill(transaction, is_begun)
            await self.awake()
            if self.chance.random() < self.producer_plan.abort_chance:
                raise MustAbort
            await self._end(transaction, is_commit=True)
            self.committed_count += 1
        except MustAbort:
            await self.awake()
            await self.rewind()
            if is_begun[0]:
                await self._end(transaction, is_commit=False)
            if self._must_bump:
                await self.awake()
                await self._initialise()

    async def fill(self, transaction: Transaction, is_begun: list[bool]) -> None:
        """Write something in it. `is_begun` becomes true with the first thing that may have begun it."""
        await self.write(transaction, is_begun)

    async def rewind(self) -> None:
        """What was done in this transaction is void."""

    def recovered(self, kept: Mapping[Place, int]) -> None:
        """Logs ended at `kept`, as far as a recovery knew them."""

    # Requests to the coordinators.

    async def _initialise(self) -> None:
        self._must_bump = False
        body = wire.init_producer_id(self._who, self.producer_plan.timeout_ms)
        version = wire.INIT_PRODUCER_ID_VERSIONS[self._version]
        while True:
            told = await self._ask_coordinator(wire.INIT_PRODUCER_ID, version, body, is_compact=True)
            if told is None:
                continue
            error, producer_id, epoch = wire.read_producer_id(told)
            if error == NONE:
                break
            await self.look_at(error, "a producer id")
        self._sequences.clear()
        self._become(producer_id, epoch)
        self.auditor.initialised(self.name, self.transactional_id, self._key, is_newer=True)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._key:
            self._sequences.clear()
        self._who = wire.Producer(transactional_id=self.transactional_id, producer_id=producer_id, epoch=epoch)

    async def _ask_coordinator(
        self,
        api_key: int,
        version: int,
        body: bytes,
        *,
        is_compact: bool = False,
        link: CoordinatorLink | None = None,
    ) -> bytes | None:
        """The answer; None where there was none. It may be asked late, when the client has gone elsewhere."""
        link = link or self._coordinator
        connection = await link.connection()
        is_late = self.chance.random() < self.producer_plan.late_chance
        late_s = self.chance.random() * LATE_SECONDS_MAX if is_late else 0.0
        future = connection.send(api_key, version, body, is_compact=is_compact, late_s=late_s)
        try:
            async with asyncio.timeout(GIVES_UP_LATE_SECONDS if is_late else REQUEST_SECONDS):
                return await future
        except (TimeoutError, ConnectionLost):
            link.forget()
            await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())
            return None

    async def look_at(self, error: int, what: str, link: CoordinatorLink | None = None) -> None:
        """Return where it is to be asked again. Raises `ProducerFenced`; nothing else may end what a producer does
        here."""
        if error in RETRIABLE | WAITING:
            self.world.around.history.note(self.name, "told", f"{ErrorCode(error).name} for {what}")
            if error not in WAITING:
                (link or self._coordinator).forget()
            await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())
            return
        self.auditor.told_error(self.name, self.transactional_id, self._key, error, what)
        if error in FENCING:
            raise ProducerFenced
        raise Violation  # the auditor has noted it

    async def _add(self, places: Collection[Place], is_begun: list[bool]) -> None:
        """V1: partitions become part of the transaction."""
        body = wire.add_partitions(self._who, places)
        is_begun[0] = True
        while True:
            told = await self._ask_coordinator(wire.ADD_PARTITIONS, wire.ADD_PARTITIONS_VERSION, body)
            if told is not None:
                errors = wire.read_by_partition(told)
                error = next((error for error in errors.values() if error), NONE)
                if error == NONE:
                    return
                await self.look_at(error, "partitions of a transaction")

    async def send_offsets(
        self, group: CoordinatorLink, group_id: str, offsets: Mapping[Place, int], is_begun: list[bool]
    ) -> None:
        """Offsets of a group become part of the transaction."""
        is_begun[0] = True
        if self._version == 1:
            body = wire.add_offsets(self._who, group_id)
            while True:
                told = await self._ask_coordinator(wire.ADD_OFFSETS, wire.ADD_OFFSETS_VERSION, body)
                if told is not None:
                    error = wire.read_error(told)
                    if error == NONE:
                        break
                    await self.look_at(error, "a group of a transaction")
        body, version = self.offsets_body(group_id, offsets), self.offsets_version
        is_compact = version >= wire.TXN_OFFSET_COMMIT_COMPACT
        while True:
            was_fenced = self.auditor.is_fenced(self.transactional_id, self._key)
            commit = self.begins_commit(offsets)
            told = await self._ask_coordinator(wire.TXN_OFFSET_COMMIT, version, body, is_compact=is_compact, link=group)
            if told is None:
                continue
            error = next((one for one in wire.read_offsets_committed(told, version).values() if one), NONE)
            if error == NONE:
                if commit is not None:
                    self.world.groups.taken(commit)
                if was_fenced:
                    what = f"{self.name} commits offsets in a transaction, and was fenced before it asked"
                    self.world.around.history.violation(what)
                return
            await self.look_at(error, "offsets of a transaction", group)

    @property
    def offsets_version(self) -> int:
        """Of TxnOffsetCommit."""
        return wire.TXN_OFFSET_COMMIT_VERSIONS[self._version]

    def offsets_body(self, group_id: str, offsets: Mapping[Place, int]) -> bytes:
        """A TxnOffsetCommit."""
        return wire.commit_offsets(self._who, self.offsets_version, group_id, offsets)

    def begins_commit(self, offsets: Mapping[Place, int]) -> Commit | None:
        """A TxnOffsetCommit is about to be sent; None where it is no member's."""
        return None

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """EndTxn, until it is answered."""
        self.auditor.asks_to_end(transaction, is_commit=is_commit)
        body = wire.end(self._who, self._version, is_commit=is_commit)
        version = wire.END_TXN_VERSIONS[self._version]
        while True:
            told = await self._ask_coordinator(wire.END_TXN, version, body, is_compact=self._version > 1)
            if told is None:
                continue
            error, producer_id, epoch = wire.read_ended(told, self._version)
            if error == NONE:
                break
            await self.look_at(error, f"the {'commit' if is_commit else 'abort'} of {transaction.name}")
        self.auditor.told_end(transaction, is_commit=is_commit)
        if self._version > 1:
            self._must_bump = False
            self._become(producer_id, epoch)

    # Writing.

    async def write(self, transaction: Transaction, is_begun: list[bool]) -> None:
        """Values to some partitions, several requests in flight; return when all are acknowledged."""
        added: set[Place] = set()
        flights: list[Flight] = []
        again: list[Batch] = []
        until_s = self.world.around.loop.time() + DELIVERY_SECONDS
        for _ in range(1 + int(self.chance.random() * STEPS_MAX)):
            count = 1 + int(self.chance.random() * min(4, len(self._places)))
            places = self.chance.sample(self._places, count)
            if self._version == 1 and not added.issuperset(places):
                await self._add([place for place in places if place not in added], is_begun)
                added.update(places)
            is_begun[0] = True
            flights.append(await self._send([self._new_batch(place, transaction) for place in places]))
            if self.chance.random() < self.producer_plan.rests_chance:
                await self.world.clock.sleep(self.chance.random() * RESTS * self.producer_plan.pause_s)
        for flight in flights:
            again += await self._take(flight)
        while again:
            if self.world.around.loop.time() > until_s or self.chance.random() < GIVES_UP_CHANCE:
                self._must_bump = True
                raise MustAbort
            await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())
            self.move()
            left = await self._take(await self._send([again[0]]))
            again[:1] = left

    def _new_batch(self, place: Place, transaction: Transaction) -> Batch:
        count = 1 + int(self.chance.random() * VALUES_MAX)
        values = [self.auditor.writes(place, self.transactional_id, transaction) for _ in range(count)]
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + count
        payload = wire.batch_of(
            [value.text for value in values],
            timestamp=self.world.around.wall_ms(),
            producer=self._who,
            sequence=sequence,
        )
        return Batch(place, values, payload)

    async def _send(self, batches: list[Batch]) -> Flight:
        connection = await self.connection()
        rows = [(batch.place, batch.payload) for batch in batches]
        body = wire.produce(self.transactional_id, rows, PRODUCE_TIMEOUT_MS, self._version)
        is_late = self.chance.random() < self.producer_plan.late_chance
        late_s = self.chance.random() * LATE_SECONDS_MAX if is_late else 0.0
        was_fenced = self.auditor.is_fenced(self.transactional_id, self._key)
        answer = connection.send(
            wire.PRODUCE, wire.PRODUCE_VERSIONS[self._version], body, is_compact=self._version > 1, late_s=late_s
        )
        return Flight(connection=connection, batches=batches, answer=answer, was_fenced=was_fenced)

    async def _take(self, flight: Flight) -> list[Batch]:
        """Those that are to be sent again. Raises `MustAbort`."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                told = wire.read_answer_to_produce(await flight.answer, self._version)
        except (TimeoutError, ConnectionLost):
            flight.connection.close()
            return flight.batches
        again: list[Batch] = []
        for batch in flight.batches:
            answer = told[batch.place]
            if answer.error == NONE:
                self.auditor.acknowledged(batch.values, answer.base_offset, was_fenced=flight.was_fenced)
                continue
            if answer.error == ErrorCode.duplicate_sequence_number:
                self.auditor.appended_before(batch.values)
                continue
            if answer.base_offset != -1:
                self.world.around.history.violation(
                    f"{batch.values[0].text!r}: error {answer.error} with base offset {answer.base_offset}"
                )
            if answer.error in RETRIABLE or answer.error == ErrorCode.out_of_order_sequence_number:
                note = f"{ErrorCode(answer.error).name} for {batch.values[0].text!r}"
                self.world.around.history.note(self.name, "told", note)
                again.append(batch)
                continue
            self._must_bump = True
            what = f"{batch.values[0].text!r}"
            self.auditor.told_error(self.name, self.transactional_id, self._key, answer.error, what)
            raise MustAbort
        return again
