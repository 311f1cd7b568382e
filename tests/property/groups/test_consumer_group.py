"""Whatever members say, in whatever order, and wherever the coordinator moves: what has to be true of a group is true.

No partition has two owners; epochs never go backwards; the rows of every change make of the group before it the group
after it (`Coordinated.take` compares them); and members that go on talking come to their target assignment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.consumer_group_values import (
    GroupPhase,
    MemberState,
    Partitions,
    is_reconciled,
    partitions,
    without_epochs,
)
from coordinator.groups.classic_messages import Join, Leaver
from coordinator.groups.consumer_group_messages import ConsumerHeartbeat, GroupRejection, HeartbeatAnswer
from protocol.consumer_protocol import read_assignment
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex, TopicId
from tests.support.groups.consumer_groups import REBALANCE_TIMEOUT_MS, beat, topic_id
from tests.support.groups.mixed_group import Mixed, ask

MEMBERS = ("a", "b", "c", "d")
CLASSIC_MEMBERS = ("k", "l")
TOPICS = ("t", "u", "v")
REGEXES = {"x": ("t", "v"), "y": ("u",), "z": ()}
ROUNDS_TO_CONVERGE = 12
MAY_BE_TOLD = (
    ErrorCode.none,
    ErrorCode.fenced_member_epoch,
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.unreleased_instance_id,
)


@dataclass(slots=True)
class Client:
    """A member's client: it uses what it is told to, and lets go of the rest when it next speaks."""

    member_id: str
    epoch: int = 0
    has: frozenset[tuple[TopicId, int]] = frozenset()
    instance: str | None = None
    names: tuple[str, ...] = ("t",)
    regex: str = ""
    assignor: str | None = None
    is_unsure: bool = False
    """No answer came to what it said last: it says everything again."""

    def begin_anew(self) -> None:
        self.epoch, self.has = 0, frozenset()

    def said(self) -> Partitions:
        found: dict[TopicId, list[int]] = {}
        for topic, index in sorted(self.has):
            found.setdefault(topic, []).append(index)
        return partitions(found)

    def heartbeat(self) -> ConsumerHeartbeat:
        is_join = self.epoch <= 0
        is_full = is_join or self.is_unsure
        return beat(
            self.member_id,
            max(0, self.epoch),
            said=() if is_join else self.said(),
            instance=self.instance,
            names=self.names if is_full else None,
            regex=self.regex if is_full else None,
            assignor=self.assignor,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else None,
        )


@dataclass(slots=True)
class ClassicClient:
    """A member's client that speaks the classic protocol, cooperatively: it joins again with what it has."""

    member_id: str
    generation: int = -1
    has: frozenset[tuple[str, int]] = frozenset()

    def begin_anew(self) -> None:
        self.generation, self.has = -1, frozenset()

    def join(self) -> Join:
        found: dict[str, list[int]] = {}
        for topic, index in sorted(self.has):
            found.setdefault(topic, []).append(index)
        return ask(self.member_id, ("t", "u"), has=found)


def pairs(found: Partitions) -> Iterator[tuple[TopicId, int]]:
    return ((topic, index) for topic, indexes in found for index in indexes)


class World:
    """A group and its clients."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.group = Mixed(counts)
        self.clients = {name: Client(name) for name in MEMBERS}
        self.classic = {name: ClassicClient(name) for name in CLASSIC_MEMBERS}
        self.group_epoch = 0

    def speak(self, client: Client, *, is_answer_lost: bool = False) -> None:
        """A heartbeat of a client that is in the group, or wants to be."""
        if client.epoch <= 0:
            client.has = frozenset()
        error_code, answer = self.answer(client.heartbeat())
        assert error_code in MAY_BE_TOLD
        self.check()
        if answer is None:
            client.begin_anew()
            return
        client.is_unsure = is_answer_lost
        if not is_answer_lost:
            client.epoch = answer.epoch
            if answer.assigned is not None:
                client.has = frozenset(pairs(without_epochs(answer.assigned)))
        self.check()

    def change(self, client: Client) -> None:
        """The client subscribes to something else, and says everything."""
        client.is_unsure = True
        self.speak(client)

    def leave(self, client: Client, *, for_a_while: bool) -> None:
        epoch = -2 if for_a_while and client.instance is not None else -1
        error_code, _ = self.answer(beat(client.member_id, epoch, instance=client.instance))
        assert error_code in MAY_BE_TOLD
        client.begin_anew()
        self.check()

    def answer(self, request: ConsumerHeartbeat) -> tuple[ErrorCode, HeartbeatAnswer | None]:
        try:
            return ErrorCode.none, self.group.say(request)
        except GroupRejection as rejection:
            return rejection.error_code, None

    def speak_classic(self, client: ClassicClient) -> None:
        """A heartbeat, and where that asks for it, a JoinGroup and a SyncGroup."""
        error_code = ErrorCode.rebalance_in_progress
        if client.generation >= 0:
            error_code = self.group.report(client.member_id, client.generation)
        self.check()
        if error_code is ErrorCode.none:
            return
        if error_code is not ErrorCode.rebalance_in_progress:
            client.begin_anew()
        answer = self.group.join(client.join())
        self.check()
        synced = self.group.sync(client.member_id, answer.generation)
        client.generation = answer.generation
        if synced.error_code is ErrorCode.none:
            told = read_assignment(synced.assignment).partitions
            client.has = frozenset((topic, index) for topic, indexes in told for index in indexes)
        else:
            assert synced.error_code is ErrorCode.rebalance_in_progress
        self.check()

    def leave_classic(self, client: ClassicClient) -> None:
        if client.member_id in self.group.group.members:
            self.group.leave(Leaver(client.member_id, None))
        client.begin_anew()
        self.check()

    def check(self) -> None:
        group = self.group.group
        owners: dict[tuple[TopicId, PartitionIndex], str] = {}
        for member_id, assignment in group.assignments.items():
            for topic, rows in (*assignment.assigned, *assignment.revoking):
                for index, epoch in rows:
                    assert owners.setdefault((topic, index), member_id) == member_id, "a partition has two owners"
                    assert epoch <= group.epoch
            assert bool(assignment.revoking) <= (assignment.state is MemberState.UNREVOKED_PARTITIONS)
            assert assignment.epoch <= group.target_epoch
        for (topic, index), member_id in owners.items():
            assert self.group.live.copy.owner(topic, index) == member_id
        members = (client for client in self.clients.values() if client.member_id in group.members and client.epoch > 0)
        used = [pair for client in members for pair in client.has]
        others = (
            client for client in self.classic.values() if client.member_id in group.members and client.generation > 0
        )
        used += [(topic_id(topic), index) for client in others for topic, index in client.has]
        assert len(used) == len(set(used)), "two clients use a partition"
        assert self.group_epoch <= group.epoch
        assert group.target_epoch <= group.epoch
        self.group_epoch = group.epoch
        targets = [pair for target in group.targets.values() for pair in pairs(target)]
        assert len(targets) == len(set(targets))
        assert set(group.targets) <= set(group.members)
        assert set(group.assignments) <= set(group.members)

    def resolve(self) -> None:
        regexes = self.group.live.regexes.to_resolve(
            self.group.live.copy, self.group.config, self.group.now_s, are_topics_new=True
        )
        if regexes:
            found = {regex: tuple(name for name in REGEXES[regex] if name in self.group.topics) for regex in regexes}
            self.group.resolve(found)
        self.check()

    def converge(self) -> None:
        """Everybody talks and does what it is told; after some rounds all have what they are to have."""
        for _ in range(ROUNDS_TO_CONVERGE):
            self.group.now_s += 11
            self.resolve()
            for client in self.clients.values():
                if client.member_id in self.group.group.members or client.epoch > 0:
                    self.speak(client)
            for classic in self.classic.values():
                if classic.member_id in self.group.group.members:
                    self.speak_classic(classic)
        group = self.group.group
        if not group.members:
            assert group.phase() is GroupPhase.EMPTY
            return
        assert group.phase() is GroupPhase.STABLE
        for member_id in group.members:
            assert is_reconciled(group.assignment(member_id), group.target_epoch)
            assert self.group.has(member_id) == group.targets.get(member_id, ())
            if member_id in self.clients:
                assert self.clients[member_id].has == frozenset(pairs(self.group.has(member_id)))
            else:
                has = {(topic_id(topic), index) for topic, index in self.classic[member_id].has}
                assert has == set(pairs(self.group.has(member_id)))
        for name, count in self.group.topics.items():
            wanted = any(name in set(self.group.live.copy.names_of(member)) for member in group.members.values())
            given_to = [
                pair for target in group.targets.values() for pair in pairs(target) if pair[0] == topic_id(name)
            ]
            assert len(given_to) == (count if wanted else 0)


clients = st.sampled_from(MEMBERS)
names = st.lists(st.sampled_from(TOPICS), unique=True, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), clients),
        st.tuples(st.just("beat"), clients),
        st.tuples(st.just("beat"), clients),
        st.tuples(st.just("lost"), clients),
        st.tuples(st.just("subscribe"), clients, names),
        st.tuples(st.just("regex"), clients, st.sampled_from(["", *REGEXES])),
        st.tuples(st.just("assignor"), clients, st.sampled_from(["uniform", "range"])),
        st.tuples(st.just("leave"), clients, st.booleans()),
        st.tuples(st.just("forget"), clients),
        st.tuples(st.just("beat"), st.sampled_from(CLASSIC_MEMBERS)),
        st.tuples(st.just("leave"), st.sampled_from(CLASSIC_MEMBERS), st.booleans()),
        st.tuples(st.just("forget"), st.sampled_from(CLASSIC_MEMBERS)),
        st.tuples(st.just("topic"), st.sampled_from(TOPICS), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 20.0, 46.0, 61.0])),
        st.tuples(st.just("resolve")),
        st.tuples(st.just("move")),
    ),
    max_size=40,
)


@given(st.fixed_dictionaries({name: st.integers(1, 5) for name in TOPICS}), steps, st.booleans())
def test_a_group_stays_sound_and_comes_to_its_target(
    counts: dict[str, int], plan: list[tuple[object, ...]], is_static: bool
) -> None:
    world = World(dict(counts))
    if is_static:
        for client in world.clients.values():
            client.instance = f"instance of {client.member_id}"
    for step in plan:
        match step:
            case (str(what), str(name), *rest) if name in MEMBERS:
                client_step(world, what, world.clients[name], *rest)
            case (str(what), str(name), *_) if name in CLASSIC_MEMBERS:
                classic_step(world, what, world.classic[name])
            case ("topic", str(name), int(count)):
                world.group.topics[name] = max(count, world.group.topics.get(name, 0))
                if count == 0:
                    del world.group.topics[name]
            case ("wait", float(seconds)):
                world.group.now_s += seconds
                world.group.expire()
                world.check()
            case ("resolve",):
                world.resolve()
            case _:
                assert step == ("move",)
                if world.group.written is not None:
                    world.group.move_coordinator()
    world.converge()


def classic_step(world: World, what: str, client: ClassicClient) -> None:
    match what:
        case "beat":
            world.speak_classic(client)
        case "leave":
            world.leave_classic(client)
        case _:
            assert what == "forget"
            client.begin_anew()


def client_step(world: World, what: str, client: Client, *rest: object) -> None:
    match what, rest:
        case "beat", ():
            world.speak(client)
        case "lost", ():
            world.speak(client, is_answer_lost=True)
        case "subscribe", (list(found),):
            client.names = tuple(found)
            world.change(client)
        case "regex", (str(regex),):
            client.regex = regex
            world.change(client)
        case "assignor", (str(assignor),):
            client.assignor = assignor
            world.speak(client)
        case "leave", (bool(for_a_while),):
            world.leave(client, for_a_while=for_a_while)
        case _:
            assert what == "forget"
            client.begin_anew()
