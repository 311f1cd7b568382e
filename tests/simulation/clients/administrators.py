"""Simulated people and programs that change topics: who creates and deletes them, deletes records, has them archived.

Rule: as `tests.simulation.clients.clients`.
"""

import math
from collections.abc import Sequence
from itertools import count

from agent.broker import Broker
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from protocol.errors import ErrorCode
from storage.object_store import StoreError
from tests.simulation.clients import wire
from tests.simulation.clients.clients import NONE, PRODUCE_TIMEOUT_MS, RETRY_SECONDS, Client, ClientWorld, PlainProducer
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import ConnectionLost

OPERATOR_SECONDS_MAX = 4.0
DELETER_SECONDS_MAX = 6.0


class Operator:
    """Has topics archived now, by any agent, as `penstock archive` does; others may archive the same at that moment."""

    def __init__(self, world: ClientWorld, topics: Sequence[str]) -> None:
        self._world = world
        self._topics = topics

    async def run(self) -> None:
        while True:
            await self._world.clock.sleep(self._world.chance.random() * OPERATOR_SECONDS_MAX)
            life = self._world.chance.choice(self._world.agents).life
            if life is not None and life.broker is not None:
                topic = self._world.chance.choice(self._topics)
                self._world.around.loop.create_task(self._archive(life.broker, topic), context=life.context)

    @staticmethod
    async def _archive(broker: Broker, topic: str) -> None:
        try:
            topic_id = broker.state.topic_ids.get(topic)
            if topic_id is not None:
                await broker.lake.archiver.archive_topic(topic_id)
        except (StoreError, LedgerError, OutcomeUnknown):
            return


class Deleter(Client):
    """Deletes records up to some offset, or all that there are, now and then; and up to offsets that are not there."""

    async def run(self, places: list[Place]) -> None:
        while True:
            await self.world.clock.sleep(self.chance.random() * DELETER_SECONDS_MAX)
            place = self.chance.choice(places)
            is_all = self.chance.random() < 0.3
            end = self.world.auditor.end_known(place)
            await self.delete_to(place, wire.HIGH_WATERMARK if is_all else int(self.chance.random() * (end + 3)))

    async def delete_to(self, place: Place, offset: int) -> None:
        """Once; whoever gets no answer does not know whether it is done."""
        auditor, at_least = self.world.auditor, self.world.auditor.end_known(place)
        log_starts = self.world.around.ledger.truth.log_starts
        assert log_starts is not None, "nobody judges it"
        log_starts.asked_to_delete(place, math.inf if offset == wire.HIGH_WATERMARK else offset)
        body = wire.delete_records(place, offset, PRODUCE_TIMEOUT_MS)
        try:
            told = await self.ask(wire.DELETE_RECORDS, wire.DELETE_RECORDS_VERSION, body)
        except ConnectionLost:
            self.move()
            return
        error, low_watermark = wire.read_records_deleted(told)
        if error == NONE:
            auditor.deleted(self.name, place, at_least if offset == wire.HIGH_WATERMARK else offset, low_watermark)
        elif error == ErrorCode.offset_out_of_range:
            auditor.deletion_refused(self.name, place, offset, at_least)
        else:
            self.expect_retriable(error, f"a deletion of records of {place}")
            self.move()


class Administrator(Client):
    """Creates a topic, uses it through other agents, deletes it, and creates it again; then one of another name.

    In some worlds the topic gets another partition in between.
    """

    def __init__(self, world: ClientWorld, name: str, topic: str) -> None:
        super().__init__(world, name)
        self._topic = topic
        self._user = PlainProducer(world, f"{name}-user", [])

    async def run(self) -> None:
        for number in count():
            topic = f"{self._topic}-{number // 2}"
            await self.create(topic, 1, ())
            await self._use((topic, 0), is_first=number % 2 == 0)
            if self.world.around.plan.has_growth:
                await self._grow(topic)
                await self._use((topic, 1), is_first=number % 2 == 0)
            await self._delete(topic)
            await self.world.clock.sleep(self.chance.random() * 2)

    async def create(self, topic: str, partitions: int, configs: tuple[tuple[str, str], ...]) -> None:
        """Return once it is there."""
        body = wire.create_topic(topic, partitions, configs, PRODUCE_TIMEOUT_MS)
        while True:
            try:
                error = wire.read_created(await self.ask(wire.CREATE_TOPICS, wire.CREATE_TOPICS_VERSION, body))
            except ConnectionLost:
                self.move()
            else:
                if error in {NONE, ErrorCode.topic_already_exists}:
                    return
                self.expect_retriable(error, f"the creation of {topic}")
            await self.world.clock.sleep(RETRY_SECONDS)

    async def _grow(self, topic: str) -> None:
        """Return once it has a second partition."""
        body = wire.create_partitions(topic, 2, PRODUCE_TIMEOUT_MS)
        while True:
            try:
                told = await self.ask(wire.CREATE_PARTITIONS, wire.CREATE_PARTITIONS_VERSION, body)
            except ConnectionLost:
                self.move()
            else:
                error = wire.read_grown(told)
                if error in {NONE, ErrorCode.invalid_partitions}:
                    return
                self.expect_retriable(error, f"the growth of {topic}")
            await self.world.clock.sleep(RETRY_SECONDS)

    async def _use(self, place: Place, *, is_first: bool) -> None:
        """Nobody may say that it is unknown now (safety rule S4).

        Where a topic of this name was deleted before, an agent that is behind may take records for that one.
        """
        for _ in range(3):
            self._user.move()
            error = await self._user.send(place)
            if error == ErrorCode.unknown_topic_or_partition and is_first:
                self.world.around.history.violation(f"{place} exists, and {self._user.name} is told it does not (S4)")

    async def _delete(self, topic: str) -> None:
        body = wire.delete_topic(topic, PRODUCE_TIMEOUT_MS)
        may_be_gone = False
        while True:
            try:
                error = wire.read_deleted(await self.ask(wire.DELETE_TOPICS, wire.DELETE_TOPICS_VERSION, body))
            except ConnectionLost:
                may_be_gone = True
                self.move()
            else:
                if error == NONE or (may_be_gone and error == ErrorCode.unknown_topic_or_partition):
                    return
                may_be_gone = True
                self.expect_retriable(error, f"the deletion of {topic}")
            await self.world.clock.sleep(RETRY_SECONDS)
