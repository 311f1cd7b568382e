"""Simulated clients: producers, consumers and an administrator, as Kafka's own behave.

Rule: a client talks to one agent until something goes wrong or its mood changes, then to another. An idempotent
producer keeps its batches and their sequences as they are, sends them again in order until each is acknowledged, and
has several requests on their way. When it gives up on some it goes on under a new epoch (KIP-360).
Source: org.apache.kafka.clients.producer.internals.{Sender,TransactionManager} (Kafka 4.3).
"""

import asyncio
import random
import struct
from collections import deque
from dataclasses import dataclass, field

from crc32c import crc32c

from agent.runtime.clock import SystemClock
from protocol.errors import ErrorCode
from tests.simulation.audit.auditor import Auditor, Send
from tests.simulation.audit.group_auditor import GroupAuditor
from tests.simulation.audit.transaction_auditor import TransactionAuditor
from tests.simulation.clients import wire
from tests.simulation.clients.wire import Place, Produced
from tests.simulation.cluster.agents import AgentInWorld, Surroundings
from tests.simulation.cluster.connections import ConnectionLost, SimulatedConnection
from tests.support.records.plain_records import Record, make_batch, read_batches

RETRY_SECONDS = 0.2
REQUEST_SECONDS = 12.0
PROBE_SECONDS_MAX = 0.2
NEW_PRODUCER_CHANCE = 0.1
GIVE_UP_CHANCE = 0.1
PART_CHANCE = 0.1
"""How often a producer goes on elsewhere with answers outstanding, where clients move that often or more."""
RECORDS_OFF_BY_MS = (0, 0, 0, 0, -20_000, 12_000)
"""How far producers' times are off where retention goes by them."""
PRODUCE_TIMEOUT_MS = 5_000
FETCH_WAIT_MS = 500
FETCH_BYTES = 1_500
RETRIABLE = {
    ErrorCode.request_timed_out,
    ErrorCode.not_leader_or_follower,
    ErrorCode.coordinator_not_available,
    ErrorCode.kafka_storage_error,
}
NONE = int(ErrorCode.none)
NO_PRODUCER = -1
CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 17, 21, 43
CRC, PRODUCER = struct.Struct(">I"), struct.Struct(">qhi")
"""In the header of a batch: its checksum, what that covers, and producer id, epoch and sequence (KIP-98)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWorld:
    """What the world gives to every client."""

    around: Surroundings
    agents: list[AgentInWorld]
    auditor: Auditor
    groups: GroupAuditor
    transactions: TransactionAuditor | None = None
    """Where there are any."""
    clock: SystemClock = field(default_factory=SystemClock)

    @property
    def chance(self) -> random.Random:
        return self.around.chance


class Client:
    """One client's connection, wherever it goes."""

    def __init__(self, world: ClientWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = world.chance
        self._agent = self.chance.choice(world.agents)
        self._connection: SimulatedConnection | None = None

    async def connection(self) -> SimulatedConnection:
        """An open connection to some agent, however long it takes."""
        if self.chance.random() < self.world.around.plan.move_chance:
            self.move()
        while True:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            try:
                self._connection = SimulatedConnection(self._agent, self.world.around, self.name)
            except ConnectionLost:
                await self.world.clock.sleep(RETRY_SECONDS)
                self.move()

    def move(self) -> None:
        """To another agent, or the same one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._agent = self.chance.choice(self.world.agents)

    def connect_to(self, agent: AgentInWorld) -> None:
        """To this one, from now on."""
        self.move()
        self._agent = agent

    def stay_with(self, agent: AgentInWorld) -> None:
        """Go back to this one, if anything led away from it."""
        if self._agent is not agent:
            self.connect_to(agent)

    async def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """The answer, or `ConnectionLost`."""
        return await (await self.connection()).ask(api_key, version, body, REQUEST_SECONDS)

    async def end_of(self, place: Place) -> int | None:
        """ListOffsets: where the partition ends; None where nobody says so now."""
        connection = await self.connection()
        at_least = self.world.auditor.end_known(place)
        body = wire.list_offset(place, wire.LATEST)
        try:
            told = await connection.ask(wire.LIST_OFFSETS, wire.LIST_OFFSETS_VERSION, body, REQUEST_SECONDS)
        except ConnectionLost:
            return None
        error, end = wire.read_offset(told)
        if error != NONE:
            self.expect_retriable(error, f"the end of {place}")
            return None
        self.world.auditor.told_end(self.name, place, end, at_least)
        return end

    async def start_of(self, place: Place) -> int | None:
        """ListOffsets: where the partition begins; None where nobody says so now."""
        at_least = self.world.auditor.start_known(place)
        try:
            told = await self.ask(wire.LIST_OFFSETS, wire.LIST_OFFSETS_VERSION, wire.list_offset(place, wire.EARLIEST))
        except ConnectionLost:
            return None
        error, start = wire.read_offset(told)
        if error != NONE:
            self.expect_retriable(error, f"the start of {place}")
            return None
        self.world.auditor.told_start(self.name, place, start, at_least)
        return start

    def expect_retriable(self, error: int, what: str) -> None:
        """An error that a client gets over by asking again."""
        self.world.around.history.note(self.name, "told", f"{ErrorCode(error).name} for {what}")
        if ErrorCode(error) not in RETRIABLE:
            self.world.around.history.violation(f"{self.name} was told {ErrorCode(error).name} for {what}")


@dataclass(slots=True)
class Batch:
    """Values that are sent together, and again as they are."""

    place: Place
    sends: list[Send]
    payload: bytes
    tries: int = 0


class IdempotentProducer(Client):
    """Sends until it is told to stop, and until everything is acknowledged."""

    def __init__(self, world: ClientWorld, name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._places = places
        self._producer_id = NO_PRODUCER
        self._epoch = 0
        self._producers_count = 0
        self._runs_count = 0
        self._sequences: dict[Place, int] = {}
        self._again: deque[Batch] = deque()
        """To be sent before anything else, in this order."""
        self.is_stopping = False

    async def run(self) -> None:
        await self._begin()
        while not self.is_stopping or self._again:
            if not self._again and self.chance.random() < NEW_PRODUCER_CHANCE:
                # As its program would after a restart: nobody knows the new producer id yet (safety rule S8).
                self._producer_id, self._epoch = NO_PRODUCER, 0
                self._runs_count += 1
                self._sequences.clear()
                await self._begin()
            await self._round()

    async def _begin(self) -> None:
        while self._producer_id == NO_PRODUCER:
            try:
                told = await self.ask(wire.INIT_PRODUCER_ID, wire.INIT_PRODUCER_ID_VERSION, wire.init_producer_id())
            except ConnectionLost:
                self.move()
                continue
            error, producer_id = wire.read_producer_id(told)
            if error == NONE:
                self._producer_id = producer_id
            else:
                self.expect_retriable(error, "a producer id")
                await self.world.clock.sleep(RETRY_SECONDS)

    async def _round(self) -> None:
        """Send as much as may be in flight, and take the answers; what was not acknowledged is sent again next time."""
        plan = self.world.around.plan
        connection = await self.connection()
        flights: list[tuple[SimulatedConnection, list[Batch], asyncio.Future[bytes]]] = []
        for _ in range(plan.window):
            # What a recovery knows of the order of objects of several agents is not enough for such producers.
            if flights and plan.ledger_loss is None and plan.move_chance > PART_CHANCE > self.chance.random():
                connection = await self._part()
            batches = self._next_batches()
            if batches:
                body = wire.produce([(batch.place, batch.payload) for batch in batches], PRODUCE_TIMEOUT_MS)
                flights.append((connection, batches, connection.send(wire.PRODUCE, wire.PRODUCE_VERSION, body)))
                if self.chance.random() < 0.3:
                    await self.world.clock.sleep(self.chance.random() * plan.producer_pause_s)
        left: list[Batch] = []
        for sent_by, batches, flight in flights:
            left += await self._take(sent_by, batches, flight)
        for sent_by, _, _ in flights:
            if sent_by is not self._connection:
                sent_by.close()
        self._again.extendleft(reversed(left))
        if left:
            await self._recover(left)
        await self.world.clock.sleep(self.chance.random() * plan.producer_pause_s)

    async def _part(self) -> SimulatedConnection:
        """Go on at another agent while answers of this one are awaited, as where the leader's hint moves."""
        self._connection, self._agent = None, self.chance.choice(self.world.agents)
        return await self.connection()

    async def _take(
        self, connection: SimulatedConnection, batches: list[Batch], flight: "asyncio.Future[bytes]"
    ) -> list[Batch]:
        """The batches that are not acknowledged."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                told = wire.read_produced(await flight)
        except (TimeoutError, ConnectionLost):
            connection.close()
            return batches
        return [batch for batch in batches if not self._is_acknowledged(batch, told[batch.place])]

    def _is_acknowledged(self, batch: Batch, told: Produced) -> bool:
        if told.error == NONE:
            self.world.auditor.acknowledged(batch.sends, told)
            return True
        if told.error == ErrorCode.duplicate_sequence_number:
            self.world.auditor.appended_before(batch.sends)
            return True
        self.world.auditor.refused(batch.sends, told, is_final=False)
        if told.error == ErrorCode.out_of_order_sequence_number:
            # Legal for a batch behind one that failed; the oldest that is not acknowledged is always next.
            batch.tries += 1
            if batch.tries > 20:
                self.world.around.history.violation(f"{batch.sends[0].value!r} is out of order for ever")
        else:
            self.expect_retriable(told.error, f"{batch.sends[0].value!r}")
        return False

    async def _recover(self, left: list[Batch]) -> None:
        if self.chance.random() < GIVE_UP_CHANCE and not self.is_stopping:
            await self._give_up(left[0])
        if self.chance.random() < 0.7:
            self.move()
        await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())

    async def _give_up(self, batch: Batch) -> None:
        """Kafka's delivery.timeout.ms: the batches are given up. A new epoch begins, or another producer."""
        self.world.around.history.note(self.name, "gives up", f"{batch.sends[0].value!r}")
        self._again.clear()
        self._sequences.clear()
        self._runs_count += 1
        if self.chance.random() < 0.5:
            self._epoch += 1
            return
        self._producers_count += 1
        self.name = f"{self.name.partition('.')[0]}.{self._producers_count}"
        self._producer_id, self._epoch = NO_PRODUCER, 0
        await self._begin()

    def _next_batches(self) -> list[Batch]:
        """For one request: at most one batch for each partition."""
        if self._again:
            return [self._again.popleft()]
        if self.is_stopping:
            return []
        places = 1 if self.chance.random() < 0.6 else len(self._places)
        return [self._new_batch(place) for place in self.chance.sample(self._places, places)]

    def _new_batch(self, place: Place) -> Batch:
        values = 1 + int(self.chance.random() * 3)
        sends = [
            self.world.auditor.sent(self.name, place, is_ordered=True, run=self._runs_count) for _ in range(values)
        ]
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + values
        payload = payload_of(self.world, sends, producer_id=self._producer_id, epoch=self._epoch, sequence=sequence)
        return Batch(place, sends, payload)


def payload_of(
    world: ClientWorld, sends: list[Send], *, producer_id: int = -1, epoch: int = -1, sequence: int = -1
) -> bytes:
    """One record batch."""
    timestamp = world.around.wall_ms()
    if world.around.plan.retention_ms >= 0:
        timestamp += world.chance.choice(RECORDS_OFF_BY_MS)
    for send in sends:
        send.timestamp = timestamp
    records = [Record(offset=row, timestamp=timestamp, value=send.value) for row, send in enumerate(sends)]
    batch = bytearray(make_batch(records))
    PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, epoch, sequence)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


class PlainProducer(Client):
    """Sends one value at a time, each once: what became of one that failed stays unknown."""

    def __init__(self, world: ClientWorld, name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._places = places
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            place = self.chance.choice(self._places)
            error = await self.send(place)
            if error > NONE:
                self.expect_retriable(error, f"a batch for {place}")
            await self.world.clock.sleep(self.chance.random() * 2 * self.world.around.plan.producer_pause_s)

    async def send_to(self, agent: AgentInWorld, place: Place) -> None:
        """Until this very agent takes a value."""
        while True:
            self.connect_to(agent)
            if await self.send(place) == NONE:
                return
            await self.world.clock.sleep(RETRY_SECONDS)

    async def send(self, place: Place) -> int:
        """The error, or -1 where there was no answer."""
        sends = [self.world.auditor.sent(self.name, place, is_ordered=False)]
        body = wire.produce([(place, payload_of(self.world, sends))], PRODUCE_TIMEOUT_MS)
        try:
            told = wire.read_produced(await self.ask(wire.PRODUCE, wire.PRODUCE_VERSION, body))[place]
        except ConnectionLost:
            self.move()
            return -1
        if told.error == NONE:
            self.world.auditor.acknowledged(sends, told)
        else:
            is_final = ErrorCode(told.error) not in RETRIABLE
            self.world.auditor.refused(sends, told, is_final=is_final)
        return told.error


class Consumer(Client):
    """Reads some partitions from their beginning on, again and again, through any agent."""

    again_chance = 0.01

    def __init__(self, world: ClientWorld, name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self.positions = dict.fromkeys(places, 0)

    async def run(self) -> None:
        while True:
            if self.chance.random() < 0.15:
                await self.end_of(self.chance.choice(list(self.positions)))
            elif self.chance.random() < self.again_chance:
                # It begins again: an old offset must still give what it gave.
                self.positions[self.chance.choice(list(self.positions))] = 0
            if not await self.poll():
                await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())

    async def poll(self, wait_ms: int = FETCH_WAIT_MS, bytes_max: int = FETCH_BYTES) -> bool:
        """Fetch once; whether anything came."""
        connection = await self.connection()
        wanted = list(self.positions.items())
        asked_s = self.world.around.loop.time()
        body = wire.fetch(wanted, max_wait_ms=wait_ms, bytes_max=bytes_max)
        try:
            told = wire.read_fetched(await connection.ask(wire.FETCH, wire.FETCH_VERSION, body, REQUEST_SECONDS))
        except ConnectionLost:
            self.move()
            return False
        is_any = any(found.records for found in told.values())
        for place, position in wanted:
            found = told[place]
            if found.error == ErrorCode.offset_out_of_range:
                self.world.auditor.out_of_range(self.name, place, position)
                start = await self.start_of(place)
                self.positions[place] = position if start is None else start
            elif found.error != NONE:
                self.expect_retriable(found.error, f"a fetch of {place} from {position}")
                self.move()
            elif found.records:
                self._read(place, position, found.records)
            elif not is_any:
                self.world.auditor.read_nothing(self.name, place, position, asked_s)
        return is_any

    def _read(self, place: Place, position: int, fetched: bytes) -> None:
        found = read_batches(fetched)
        records = [(r.offset, r.value or b"", r.timestamp) for r in found.records if r.offset >= position]
        self.world.auditor.read(self.name, place, position, records)
        self.positions[place] = found.ranges[-1][1]


class Rereader(Consumer):
    """Begins again often: most of what it reads lies in archive files."""

    again_chance = 0.3


class Prober(Client):
    """Asks for ends, often: so that one question comes while another one is on its way (safety rule S4)."""

    async def run(self, places: list[Place]) -> None:
        while True:
            if await self.end_of(self.chance.choice(places)) is None:
                self.move()
            await self.world.clock.sleep(self.chance.random() * PROBE_SECONDS_MAX)
