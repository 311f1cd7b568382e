"""Simulated members of consumer groups (KIP-848), as Kafka's own new consumers behave.

Rule: as `tests.simulation.clients.group_members`, but the coordinator assigns: a heartbeat says what a member has, its
answer what it should have. The member gives up first, then takes, then says so. After an answer that was lost it says
everything again; a fenced member gives up all its partitions and joins again. Source:
org.apache.kafka.clients.consumer.internals.{ConsumerHeartbeatRequestManager,AbstractMembershipManager} (Kafka 4.3).
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.simulation.audit.group_auditor import Commit
from tests.simulation.clients import group_wire as wire
from tests.simulation.clients.clients import RETRY_SECONDS, ClientWorld
from tests.simulation.clients.group_members import GroupReader
from tests.simulation.clients.group_wire import HeartbeatTold, Identity
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import ConnectionLost, SimulatedConnection
from tests.simulation.plan import GroupPlan

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
MEMBER_ID_BYTES = 16


class SimulatedConsumerMember(GroupReader):
    """A member of a consumer group."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        group_id: str,
        plan: GroupPlan,
        instance_id: str | None,
        places: Collection[Place],
    ) -> None:
        super().__init__(world, name, group_id, plan, instance_id)
        member_id = world.chance.randbytes(MEMBER_ID_BYTES).hex()
        self.identity = replace(self.identity, member_id=member_id, generation=JOIN_EPOCH)
        self._topics = sorted(wire.by_topic(places))
        self._target: set[Place] = set()
        """What it should have."""
        self._is_lost = False
        """It was fenced: what it has is somebody else's, or will be."""
        self._reported: set[Place] | None = None
        """What it said last that it has; None where that may not have been heard."""
        self._is_assigned_anew = False
        """It was told what it should have since it last said what it has: it says so again, though it be the same."""
        self._is_reporting = False
        """A heartbeat that says what it has is on its way, or was lost on it."""
        self._has_news = asyncio.Event()
        """Its next heartbeat need not wait."""

    async def run(self) -> None:
        beating = self.world.around.loop.create_task(self._beat())
        try:
            while not self.is_over:
                await self.awake()
                if self._is_lost:
                    self.give_up(self.owned | self._target)
                    self._target = set()
                    self._is_lost = False
                    self._has_news.set()
                elif self.owned != self._target:
                    await self._reconcile()
                else:
                    await self.read_some()
        finally:
            beating.cancel()

    async def leave(self) -> None:
        """A static member says that it will be back."""
        if self.identity.generation <= JOIN_EPOCH:
            return
        await self.commit(set(self.positions))
        connection = await self.link.connection()
        self.give_up(self.owned | self._target)
        self.world.groups.leaves(self.identity.member_id, self.group_id)
        epoch = LEAVE_EPOCH if self.identity.instance_id is None else LEAVE_STATIC_EPOCH
        try:
            told = await self._ask(connection, replace(self.identity, generation=epoch), None, is_full=False)
        except ConnectionLost:
            return
        self.world.around.history.note(self.name, "leaves", str(told.error))

    def hang_up(self) -> None:
        super().hang_up()
        self.give_up(self.owned | self._target)

    def give_up(self, places: Collection[Place]) -> None:
        super().give_up(places)
        self.world.groups.gives_up(self.identity.member_id, self.group_id, places)

    def fails(self, error: int, what: str) -> None:
        self.world.around.history.note(self.name, "group error", f"{ErrorCode(error).name} for {what}")
        match error:
            case ErrorCode.unknown_member_id | ErrorCode.fenced_member_epoch | ErrorCode.group_id_not_found:
                self.world.groups.told_unknown(self.identity.member_id, self.group_id, error)
                self.identity = replace(self.identity, generation=JOIN_EPOCH)
                self._is_lost = True
            case ErrorCode.fenced_instance_id | ErrorCode.unreleased_instance_id:
                self.is_over = True
            case ErrorCode.stale_member_epoch:
                self._has_news.set()
            case _:
                self.look_again(error, what)

    # Heartbeats.

    async def _beat(self) -> None:
        interval_s = 0.0
        while not self.is_over:
            try:
                async with asyncio.timeout(interval_s):
                    await self._has_news.wait()
            except TimeoutError:
                pass
            self._has_news.clear()
            await self.awake()
            connection = await self.link.connection()
            if self._is_lost or self.world.around.loop.time() < self._paused_until_s:
                interval_s = RETRY_SECONDS
                continue
            told = await self._report(connection)
            interval_s = RETRY_SECONDS if told is None else told.interval_ms / 1000

    async def _report(self, connection: SimulatedConnection) -> HeartbeatTold | None:
        """One heartbeat; None where it has to be sent again."""
        who, asked_s = self.identity, self.world.around.loop.time()
        groups, epochs = self.world.groups, f"{self.group_id}/{self.identity.member_id}"
        at_least = groups.newest(epochs)
        is_full = who.generation == JOIN_EPOCH or self._reported is None
        is_known = self.owned == self._reported and not self._is_assigned_anew and not is_full
        owned = None if is_known else set(self.owned)
        self._is_reporting = owned is not None
        if owned is not None:
            # What it does not take before it is answered, its coordinator may give to others now.
            groups.gives_up(who.member_id, self.group_id, self._target - owned)
        try:
            told = await self._ask(connection, who, owned, is_full=is_full)
        except ConnectionLost:
            self._reported = None  # it may have been heard for all that: until another one is answered it counts
            return None
        self._is_reporting = False
        if who != self.identity or self._is_lost:
            return None
        if told.error:
            self._reported = None
            self.fails(told.error, "a heartbeat")
            return None
        groups.told_by(connection.answerers(asked_s), self.name, self.group_id, asked_s)
        self.identity = replace(who, generation=told.epoch)
        groups.told_generation(self.name, epochs, told.epoch, at_least)
        if owned is not None:
            self._reported, self._is_assigned_anew = owned, False
        if told.assignment is not None:
            self._is_assigned_anew = True
            self._aim_at(self._places(told.assignment))
        elif owned is not None:
            groups.given(who.member_id, self.group_id, self._target)
        if self._reported is not None and self._reported <= self._target:
            self.is_heard_of(asked_s)  # what it gave up since it asked, its coordinator still waits for
        return told

    async def _ask(
        self, connection: SimulatedConnection, who: Identity, owned: Collection[Place] | None, *, is_full: bool
    ) -> HeartbeatTold:
        topic_ids = self.world.around.ledger.truth.state.topic_ids
        rows: dict[bytes, list[int]] | None = None
        if owned is not None:
            rows = {topic_ids[name]: found for name, found in wire.by_topic(owned).items()}
        body = wire.consumer_heartbeat(
            who,
            rebalance_ms=self.group_plan.rebalance_ms if is_full else -1,
            topics=self._topics if is_full else None,
            owned=rows,
        )
        version = wire.CONSUMER_GROUP_HEARTBEAT_VERSION
        told = await self.ask_coordinator(connection, wire.CONSUMER_GROUP_HEARTBEAT, version, body)
        return wire.read_consumer_heartbeat(told)

    def _places(self, assignment: Mapping[bytes, list[int]]) -> set[Place]:
        topics = self.world.around.ledger.truth.state.topics
        return {(topics[TopicId(topic_id)].name, row) for topic_id, rows in assignment.items() for row in rows}

    def _aim_at(self, target: set[Place]) -> None:
        """Its coordinator says what it should have; what it never took it need not give up."""
        self.world.groups.gives_up(self.identity.member_id, self.group_id, self._target - target - self.owned)
        self.world.groups.given(self.identity.member_id, self.group_id, target)
        self._target = target

    # Assignments.

    async def _reconcile(self) -> None:
        revoked = self.owned - self._target
        if revoked:
            await self.commit(revoked)
        # Its coordinator goes by what is on its way, and may give the rest to others.
        while self._is_reporting and not self.is_over:
            await self.world.clock.sleep(RETRY_SECONDS / 10)
        if not self._is_lost:
            self.give_up(self.owned - self._target)
            self.owned |= self._target
            self._has_news.set()

    async def ask_for_offsets(
        self, connection: SimulatedConnection, places: Collection[Place]
    ) -> tuple[int, Mapping[Place, int]]:
        body = wire.epoch_fetch(self.identity, places)
        told = await self.ask_coordinator(connection, wire.OFFSET_FETCH, wire.EPOCH_FETCH_VERSION, body)
        return wire.read_epoch_fetch(told)

    async def ask_to_commit(self, connection: SimulatedConnection, commit: Commit) -> Mapping[Place, int]:
        body = wire.epoch_commit(replace(self.identity, generation=commit.generation), commit.offsets)
        told = await self.ask_coordinator(connection, wire.OFFSET_COMMIT, wire.EPOCH_COMMIT_VERSION, body)
        return wire.read_epoch_commit(told)

    def begins_commit(self, offsets: Mapping[Place, int]) -> Commit:
        return self.world.groups.sends_commit_of_epoch(
            self.group_id, self.identity.member_id, self.identity.generation, offsets
        )
