"""Simulated members of classic groups, as Kafka's own consumers behave: eager ones, cooperative ones, static ones.

Rule: a member reads what it was assigned from where its group has come to, and commits what it has processed, so that
everything is processed at least once. What it hears makes it join again, or give up what it has: an error never leaves
it where it was. Heartbeats go by themselves, as Kafka's second thread sends them.
Source: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator,ConsumerCoordinator} (Kafka 4.3).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from protocol.errors import ErrorCode
from tests.simulation.audit.group_auditor import Commit
from tests.simulation.clients import group_wire as wire
from tests.simulation.clients.clients import NONE, REQUEST_SECONDS, RETRY_SECONDS, ClientWorld, Consumer
from tests.simulation.clients.group_assignors import COOPERATIVE, RANGE, assign_cooperatively, assign_ranges
from tests.simulation.clients.group_wire import Identity, Joined, Subscription
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.agents import ONE_ADDRESS, AgentInWorld
from tests.simulation.cluster.connections import ConnectionLost, SimulatedConnection
from tests.simulation.plan import GroupKind, GroupPlan

MORE_THAN_REBALANCE_SECONDS = 5.0
"""How much longer than its rebalance time-out a member waits for an answer to JoinGroup."""
REWIND_CHANCE = 0.3
LOOK_AGAIN = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
COMMITS_BEFORE_REBALANCE_CHANCE = 0.8


class CoordinatorLink:
    """A member's way to its group's coordinator: any agent knows who that is."""

    def __init__(self, world: ClientWorld, name: str, group_id: str, find: bytes | None = None) -> None:
        """`find`: how to ask for it, where it is not a group's."""
        self._world = world
        self._name = name
        self._find_body = wire.find_coordinator(group_id) if find is None else find
        self._connection: SimulatedConnection | None = None
        self._finding = asyncio.Lock()

    async def connection(self) -> SimulatedConnection:
        """An open connection to the coordinator, however long it takes."""
        async with self._finding:
            while self._connection is None or not self._connection.is_open:
                try:
                    await self._find()
                except ConnectionLost:
                    await self._world.clock.sleep(RETRY_SECONDS)
        return self._connection

    def forget(self) -> None:
        """Whoever it was is not, or does not answer."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _find(self) -> None:
        around = self._world.around
        asked = SimulatedConnection(self._world.chance.choice(self._world.agents), around, self._name)
        told = await asked.ask(wire.FIND_COORDINATOR, wire.FIND_COORDINATOR_VERSION, self._find_body, REQUEST_SECONDS)
        asked.close()
        error, host = wire.read_coordinator(told)
        if error == NONE:
            self._connection = SimulatedConnection(self._agent(host), around, self._name)
        elif error == ErrorCode.coordinator_not_available:
            await self._world.clock.sleep(RETRY_SECONDS)
        else:
            around.history.violation(f"{self._name} looks for a coordinator and is told {ErrorCode(error).name}")

    def _agent(self, name: str) -> AgentInWorld:
        if name == ONE_ADDRESS:
            return self._world.chance.choice(self._world.agents)
        return next(agent for agent in self._world.agents if agent.name == name)


class GroupReader(Consumer):
    """What members of every protocol do alike: read, process, commit; and be paused."""

    def __init__(self, world: ClientWorld, name: str, group_id: str, plan: GroupPlan, instance_id: str | None) -> None:
        """`instance_id`: of a static member."""
        super().__init__(world, name, [])
        self.group_plan = plan
        self.link = CoordinatorLink(world, name, group_id)
        self.identity = Identity(group_id=group_id, instance_id=instance_id)
        self.owned: set[Place] = set()
        """What it was assigned; it knows where to begin in those that have positions."""
        self.committed: dict[Place, int] = {}
        """What it knows to be committed, or where it began."""
        self.is_over = False
        """It was told that another one has its place."""
        self._paused_until_s = 0.0

    @property
    def group_id(self) -> str:
        return self.identity.group_id

    @property
    def owner(self) -> str:
        """As whom it owns partitions: a static member is the same one after a restart."""
        return self.identity.instance_id or self.identity.member_id

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; what is under way is answered, and looked at later."""
        self._paused_until_s = self.world.around.loop.time() + seconds

    async def awake(self) -> None:
        """Return while it is not paused."""
        while self.world.around.loop.time() < self._paused_until_s:
            await self.world.clock.sleep(self._paused_until_s - self.world.around.loop.time())

    def hang_up(self) -> None:
        """Its program ends."""
        self.link.forget()
        self.move()

    async def ask_coordinator(self, connection: SimulatedConnection, api_key: int, version: int, body: bytes) -> bytes:
        """Raises `ConnectionLost`; the coordinator is to be found again then."""
        return await self._ask_within(connection, api_key, version, body, REQUEST_SECONDS)

    async def _ask_within(
        self, connection: SimulatedConnection, api_key: int, version: int, body: bytes, seconds: float
    ) -> bytes:
        is_compact = wire.is_compact(api_key, version)
        try:
            return await connection.ask(api_key, version, body, seconds, is_compact=is_compact)
        except ConnectionLost:
            self.link.forget()
            raise

    async def run(self) -> None:
        """Until another one has its place."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Say that it goes, if members of its kind do."""
        raise NotImplementedError

    def fails(self, error: int, what: str) -> None:
        """Act as the error says, where a member can get over it."""
        raise NotImplementedError

    def look_again(self, error: int, what: str) -> None:
        """What all members do alike: the coordinator is another one, or not ready."""
        if error in LOOK_AGAIN:
            self.link.forget()
        elif error != ErrorCode.coordinator_load_in_progress:
            self.world.around.history.violation(f"{self.name} was told {ErrorCode(error).name} for {what}")

    def is_heard_of(self, asked_s: float) -> None:
        """A heartbeat that was sent then was answered, and asked for nothing."""
        seconds = min(self.group_plan.session_ms, self.group_plan.rebalance_ms) / 1000
        self.world.groups.is_counted_in(self.identity.member_id, self.group_id, asked_s + seconds)

    # Reading.

    async def read_some(self) -> None:
        """Find out where to begin in what is new; fetch, process, and perhaps commit."""
        await self._seek()
        if not self.positions:
            await self.world.clock.sleep(RETRY_SECONDS)
            return
        if not await self.poll():
            await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())
        if self.chance.random() < self.group_plan.commit_chance:
            is_committed = await self.commit(list(self.positions))
            if not is_committed and self.chance.random() < REWIND_CHANCE:
                self.positions.update(self.committed)

    def _read(self, place: Place, position: int, fetched: bytes) -> None:
        super()._read(place, position, fetched)
        self.world.groups.processed(self.name, self.group_id, place, position, self.positions[place])

    async def _seek(self) -> None:
        """Begin where the group has come to, or at the log's start where it has not begun."""
        places = self.owned - self.positions.keys()
        offsets = await self._fetch_offsets(sorted(places)) if places else {}
        for place, offset in offsets.items():
            start = offset if offset >= 0 else await self.start_of(place)
            if start is not None:
                self.positions[place] = self.committed[place] = start

    async def _fetch_offsets(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Empty where it has to ask again."""
        connection = await self.link.connection()
        asked_s = self.world.around.loop.time()
        try:
            error, offsets = await self.ask_for_offsets(connection, places)
        except ConnectionLost:
            return {}
        if error:
            self.fails(error, "the group's offsets")
            await self.world.clock.sleep(RETRY_SECONDS)
            return {}
        self.told_offsets(offsets, asked_s)
        return offsets

    def told_offsets(self, offsets: Mapping[Place, int], asked_s: float) -> None:
        """Its OffsetFetch was answered."""
        self.world.groups.told_offsets(self.name, self.group_id, offsets, asked_s)

    async def ask_for_offsets(
        self, connection: SimulatedConnection, places: Collection[Place]
    ) -> tuple[int, Mapping[Place, int]]:
        """OffsetFetch: error, and offset of each. Raises `ConnectionLost`."""
        body = wire.offset_fetch(self.group_id, places)
        told = await self.ask_coordinator(connection, wire.OFFSET_FETCH, wire.OFFSET_FETCH_VERSION, body)
        return wire.read_offsets_fetched(told)

    async def commit(self, places: Iterable[Place]) -> bool:
        """Commit what was processed; whether all of it is."""
        connection = await self.link.connection()
        offsets = {
            place: self.positions[place]
            for place in places
            if place in self.positions and self.positions[place] != self.committed[place]
        }
        if self.identity.generation <= 0:
            return False
        if not offsets:
            return True
        commit = self.begins_commit(offsets)
        try:
            told = await self.ask_to_commit(connection, commit)
        except ConnectionLost:
            return False
        self.world.groups.commit_told(commit, told)
        self.committed.update((place, offset) for place, offset in offsets.items() if told[place] == NONE)
        error = next((error for error in told.values() if error), NONE)
        if error:
            self.fails(error, "a commit")
        return error == NONE

    def begins_commit(self, offsets: Mapping[Place, int]) -> Commit:
        """An OffsetCommit is about to be sent."""
        return self.world.groups.sends_commit(self.group_id, self.owner, self.identity.generation, offsets)

    async def ask_to_commit(self, connection: SimulatedConnection, commit: Commit) -> Mapping[Place, int]:
        """OffsetCommit: an error for each. Raises `ConnectionLost`."""
        body = wire.offset_commit(replace(self.identity, generation=commit.generation), commit.offsets)
        told = await self.ask_coordinator(connection, wire.OFFSET_COMMIT, wire.OFFSET_COMMIT_VERSION, body)
        return wire.read_offsets_committed(told)

    def give_up(self, places: Collection[Place]) -> None:
        """What it had is somebody else's, or will be."""
        self.owned.difference_update(places)
        for place in places:
            self.positions.pop(place, None)
            self.committed.pop(place, None)


class SimulatedClassicMember(GroupReader):
    """A member of a classic group."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        group_id: str,
        plan: GroupPlan,
        instance_id: str | None,
        places: Collection[Place],
    ) -> None:
        """`places`: all that there is to divide."""
        super().__init__(world, name, group_id, plan, instance_id)
        self._places = sorted(places)
        self._is_cooperative = plan.kind in {GroupKind.COOPERATIVE, GroupKind.MIXED}
        self._is_mixed = plan.kind is GroupKind.MIXED
        """Its generations may be epochs, which members have each for itself."""
        self._must_join = True
        self._is_lost = False
        """Its group has gone on without it: what it owned is nobody's, or somebody else's."""
        self._owned_generation = -1
        """In which it was given what it owns."""

    async def run(self) -> None:
        beating = self.world.around.loop.create_task(self._beat())
        try:
            while not self.is_over:
                await self.awake()
                if self._is_lost:
                    self._is_lost = False
                    self.give_up(set(self.owned))
                if self._must_join:
                    await self._join()
                else:
                    await self.read_some()
        finally:
            beating.cancel()

    async def leave(self) -> None:
        """Static members do not: their places are kept."""
        if self.identity.instance_id is not None or not self.identity.member_id:
            return
        await self.commit(set(self.positions))
        connection = await self.link.connection()
        self.world.groups.leaves(self.identity.member_id, self.group_id)
        body = wire.leave_group(self.identity)
        try:
            told = await self.ask_coordinator(connection, wire.LEAVE_GROUP, wire.LEAVE_GROUP_VERSION, body)
        except ConnectionLost:
            return
        self.world.around.history.note(self.name, "leaves", str(wire.read_left(told)))

    def fails(self, error: int, what: str) -> None:
        self.world.around.history.note(self.name, "group error", f"{ErrorCode(error).name} for {what}")
        match error:
            case ErrorCode.rebalance_in_progress:
                self._must_join = True
            case ErrorCode.unknown_member_id | ErrorCode.illegal_generation:
                self.world.groups.told_unknown(self.identity.member_id, self.group_id, error)
                is_known = error == ErrorCode.illegal_generation
                member_id = self.identity.member_id if is_known else ""
                self.identity = replace(self.identity, member_id=member_id, generation=-1)
                self._must_join = self._is_lost = True
            case ErrorCode.fenced_instance_id:
                self.is_over = True
            case _:
                self.look_again(error, what)

    async def _beat(self) -> None:
        while True:
            await self.world.clock.sleep(self.group_plan.heartbeat_s)
            await self.awake()
            connection = await self.link.connection()
            who, asked_s = self.identity, self.world.around.loop.time()
            if self._must_join or self._is_lost or asked_s < self._paused_until_s:
                continue
            body, seconds = wire.heartbeat(who), self.group_plan.session_ms / 1000
            try:
                told = await self._ask_within(connection, wire.HEARTBEAT, wire.HEARTBEAT_VERSION, body, seconds)
            except ConnectionLost:
                continue
            error = wire.read_heartbeat(told)
            if not error:
                self.world.groups.told_by(connection.answerers(asked_s), self.name, self.group_id, asked_s)
                if not self._is_mixed:
                    self.world.groups.told_alive(self.name, self.group_id, who.generation, asked_s)
                self.is_heard_of(asked_s)
            elif who == self.identity and not self._must_join:
                self.fails(error, "a heartbeat")

    @property
    def _generations(self) -> str:
        """By what name the auditor knows the line of generations that this member is told of."""
        return f"{self.group_id}/{self.identity.member_id}" if self._is_mixed else self.group_id

    def give_up(self, places: Collection[Place]) -> None:
        self.world.groups.gives_up(self.identity.member_id, self.group_id, places)
        super().give_up(places)

    def hang_up(self) -> None:
        super().hang_up()
        self.give_up(set(self.owned))

    def begins_commit(self, offsets: Mapping[Place, int]) -> Commit:
        if not self._is_mixed:
            return super().begins_commit(offsets)
        who, epoch = self.identity.member_id, self.identity.generation
        return self.world.groups.sends_commit_of_epoch(self.group_id, who, epoch, offsets)

    # Joining.

    async def _join(self) -> None:
        """One JoinGroup, and one SyncGroup; it is to be done again where they fail."""
        if not self._is_cooperative and self.owned:
            if self.chance.random() < COMMITS_BEFORE_REBALANCE_CHANCE:
                await self.commit(set(self.positions))
            self.give_up(set(self.owned))
        try:
            joined = await self._ask_to_join()
            assigned = None if joined is None else await self._ask_to_sync(joined)
        except ConnectionLost:
            return
        if assigned is None:
            await self.world.clock.sleep(RETRY_SECONDS * self.chance.random())
        else:
            await self._take(assigned)

    async def _ask_to_join(self) -> Joined | None:
        plan, connection = self.group_plan, await self.link.connection()
        if self._is_lost:
            return None
        at_least = self.world.groups.newest(self._generations)
        body = wire.join_group(
            self.identity,
            session_ms=plan.session_ms,
            rebalance_ms=plan.rebalance_ms,
            protocols=[(COOPERATIVE if self._is_cooperative else RANGE, wire.subscription(self._subscription()))],
        )
        seconds = plan.rebalance_ms / 1000 + MORE_THAN_REBALANCE_SECONDS
        told = await self._ask_within(connection, wire.JOIN_GROUP, wire.JOIN_GROUP_VERSION, body, seconds)
        joined = wire.read_joined(told)
        if joined.error == ErrorCode.member_id_required:
            self.identity = replace(self.identity, member_id=joined.member_id)
            return None
        if joined.error:
            self.fails(joined.error, "JoinGroup")
            return None
        self.identity = replace(self.identity, member_id=joined.member_id, generation=joined.generation)
        self.world.groups.told_generation(self.name, self._generations, joined.generation, at_least)
        return joined

    def _subscription(self) -> Subscription:
        topics = tuple(wire.by_topic(self._places))
        if not self._is_cooperative:
            return Subscription(topics=topics)
        return Subscription(topics=topics, owned=tuple(sorted(self.owned)), generation=self._owned_generation)

    async def _ask_to_sync(self, joined: Joined) -> list[Place] | None:
        connection = await self.link.connection()
        at_least = self.world.groups.newest(self._generations)
        assignments = self._assign(joined) if joined.leader == joined.member_id else {}
        body = wire.sync_group(self.identity, assignments)
        seconds = self.group_plan.rebalance_ms / 1000 + MORE_THAN_REBALANCE_SECONDS
        told = await self._ask_within(connection, wire.SYNC_GROUP, wire.SYNC_GROUP_VERSION, body, seconds)
        error, assignment = wire.read_synced(told)
        if error:
            self.fails(error, "SyncGroup")
            return None
        assigned = wire.read_assignment(assignment)
        self.world.groups.told_generation(self.name, self._generations, joined.generation, at_least)
        if self._is_mixed:
            self.world.groups.given(self.identity.member_id, self.group_id, assigned)
        else:
            self.world.groups.assigned(self.owner, self.group_id, joined.generation, assigned)
        return assigned

    def _assign(self, joined: Joined) -> dict[str, bytes]:
        members = {member_id: wire.read_subscription(metadata) for member_id, metadata in joined.members}
        if self._is_cooperative:
            found = assign_cooperatively(members, self._places)
        else:
            found = assign_ranges(list(members), self._places)
        return {member_id: wire.assignment(places) for member_id, places in found.items()}

    async def _take(self, assigned: Collection[Place]) -> None:
        """Give up what is not its own any more, which makes room for others in another rebalance; take what is new.

        A member that missed a generation does not know its commits, and begins again in the partitions it keeps. Where
        it had more, it joins again: the leader saw those in its subscription, and assigned them to no member.
        Source: ConsumerCoordinator.onJoinComplete.
        """
        generation = self.identity.generation
        self._must_join = False
        revoked = self.owned - set(assigned)
        if self._owned_generation + 1 < generation:
            self.give_up(set(self.owned))
        elif revoked:
            await self.commit(revoked)
            self.give_up(revoked)
        if revoked:
            self._must_join = True
        self.owned, self._owned_generation = set(assigned), generation
