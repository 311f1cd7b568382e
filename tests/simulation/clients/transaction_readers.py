"""Simulated readers of topics with transactions: of what is decided, or of everything.

Rule: as `tests.simulation.clients.clients`.
"""

from collections.abc import Collection, Sequence

from protocol.errors import ErrorCode
from tests.simulation.audit.transaction_auditor import TransactionAuditor
from tests.simulation.clients import transaction_wire as wire
from tests.simulation.clients.clients import (
    FETCH_BYTES,
    FETCH_WAIT_MS,
    NONE,
    PRODUCE_TIMEOUT_MS,
    REQUEST_SECONDS,
    RETRY_SECONDS,
    Client,
    ClientWorld,
)
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import ConnectionLost

BEGINS_AGAIN_CHANCE = 0.02
ASKS_CHANCE = 0.2


class TransactionReader(Client):
    """Reads partitions from their beginning on, through any agent."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        places: Collection[Place],
        auditor: TransactionAuditor,
        *,
        is_committed: bool,
    ) -> None:
        super().__init__(world, name)
        self._auditor = auditor
        self._is_committed = is_committed
        self.positions: dict[Place, int] = {}
        for place in sorted(places):
            self._begin(place, 0)

    def _begin(self, place: Place, position: int) -> None:
        self.positions[place] = position
        self._auditor.begins_at(self.name, place, position)

    async def run(self) -> None:
        """For ever."""
        while True:
            if self.chance.random() < ASKS_CHANCE:
                await self.last_stable(self.chance.choice(list(self.positions)))
            if self.chance.random() < BEGINS_AGAIN_CHANCE:
                self._begin(self.chance.choice(list(self.positions)), 0)
            if not await self.poll():
                await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())

    async def last_stable(self, place: Place) -> int | None:
        """ListOffsets at read_committed; None where nobody says it now."""
        connection = await self.connection()
        at_least = self._auditor.last_stable_known(place)
        body = wire.list_last_stable(place)
        try:
            told = await connection.ask(wire.LIST_OFFSETS, wire.LIST_OFFSETS_VERSION, body, REQUEST_SECONDS)
        except ConnectionLost:
            self.move()
            return None
        error, offset = wire.read_listed(told)
        if error != NONE:
            self.expect_retriable(error, f"the last stable offset of {place}")
            return None
        self._auditor.told_last_stable(self.name, place, offset, at_least)
        return offset

    async def poll(self, wait_ms: int = FETCH_WAIT_MS, bytes_max: int = FETCH_BYTES) -> bool:
        """Fetch once; whether anything came."""
        connection = await self.connection()
        wanted, asked_s = list(self.positions.items()), self.world.around.loop.time()
        body = wire.fetch(wanted, max_wait_ms=wait_ms, bytes_max=bytes_max, is_committed=self._is_committed)
        try:
            told = wire.read_fetched(await connection.ask(wire.FETCH, wire.FETCH_VERSION, body, REQUEST_SECONDS))
        except ConnectionLost:
            self.move()
            return False
        is_any = any(found.records for found in told.values())
        for place, position in wanted:
            found = told[place]
            if found.error == ErrorCode.offset_out_of_range:
                self._auditor.out_of_range(self.name, place, position)
                start = await self.start_of(place)
                self._begin(place, position if start is None else start)
            elif found.error != NONE:
                self.expect_retriable(found.error, f"a fetch of {place} from {position}")
                self.move()
            elif found.records:
                self._auditor.told_last_stable(self.name, place, found.last_stable)
                self._read(place, position, found)
            elif not is_any and self._is_committed:
                self._auditor.read_nothing(self.name, place, position, asked_s)
        return is_any

    def _read(self, place: Place, position: int, found: wire.Fetched) -> None:
        decoded = wire.decode(found, is_committed=self._is_committed)
        self._auditor.read(
            self.name,
            place,
            position,
            records=decoded.records,
            ranges=decoded.ranges,
            is_committed=self._is_committed,
        )
        self.positions[place] = decoded.ranges[-1][1]


class Bystander(Client):
    """Writes to the same partitions without transactions, one value at a time."""

    def __init__(self, world: ClientWorld, name: str, places: Sequence[Place], auditor: TransactionAuditor) -> None:
        super().__init__(world, name)
        self._places = sorted(places)
        self._auditor = auditor
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            place = self.chance.choice(self._places)
            value = self._auditor.writes(place, self.name, None)
            batch = wire.batch_of([value.text], timestamp=self.world.around.wall_ms(), producer=None, sequence=-1)
            body = wire.produce(None, [(place, batch)], PRODUCE_TIMEOUT_MS, 1)
            try:
                told = wire.read_answer_to_produce(await self.ask(wire.PRODUCE, wire.PRODUCE_VERSIONS[1], body), 1)
            except ConnectionLost:
                self.move()
                continue
            error = told[place].error
            if error == NONE:
                self._auditor.acknowledged([value], told[place].base_offset, was_fenced=False)
            else:
                self.expect_retriable(error, f"a batch for {place}")
            await self.world.clock.sleep(self.chance.random() * 2)
