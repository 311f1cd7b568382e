"""Whatever clients do and however late they are: a classic group keeps its promises.

Generations never go backwards; who waits is answered once, and a member waits for one JoinGroup and one SyncGroup at
most; an assignment is only told to a member of the generation that it is of; a coordinator that is new at any moment
goes on from what was written.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.commands.group_values import NO_GROUP
from coordinator.groups.classic_messages import Leaver, Protocols, Ticket
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode
from tests.support.groups.classic_group import Room

CLIENTS = st.integers(0, 3)
PROTOCOLS = st.sampled_from(
    [(("range", b"1"),), (("range", b"2"),), (("sticky", b"1"), ("range", b"1")), (("range", b"1"), ("sticky", b"2"))]
)


class Client:
    """What a member knows of itself."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.members: tuple[str, ...] = ()
        self.join: Ticket | None = None
        self.sync: Ticket | None = None


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room(delay_ms=0)
        self.clients = [Client("static" if number == 0 else None) for number in range(4)]
        self.ids = 0
        self.generations: list[int] = [0]
        self.assigned: dict[int, dict[str, bytes]] = {}

    @initialize(delay_ms=st.sampled_from([0, 3_000]), members_max=st.sampled_from([2, 100]))
    def open(self, delay_ms: int, members_max: int) -> None:
        self.room = Room(delay_ms=delay_ms, members_max=members_max)

    @rule(number=CLIENTS, protocols=PROTOCOLS, version=st.sampled_from([3, 5, 9]), is_lost=st.booleans())
    def join(self, number: int, protocols: Protocols, version: int, is_lost: bool) -> None:
        client = self.clients[number]
        self.ids += 1
        member_id = "" if is_lost else client.member_id
        instance = client.instance if version >= 5 else None
        if client.instance is not None and version < 5:
            return
        client.join = self.room.join(
            member_id, new=f"m{self.ids}", instance=instance, protocols=protocols, version=version
        )
        self._hear()

    @rule(number=CLIENTS, is_stale=st.booleans())
    def sync(self, number: int, is_stale: bool) -> None:
        client = self.clients[number]
        if not client.member_id:
            return
        generation = client.generation - is_stale
        given = [(name, f"{generation} {name}".encode()) for name in client.members] if client.is_leader else []
        client.sync = self.room.sync(client.member_id, *given, generation=generation, instance=client.instance)
        self._hear()

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        told = self.room.heartbeat(client.member_id, instance=client.instance, generation=client.generation)
        if told in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            client.member_id, client.generation = "", -1

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.room.leave(Leaver(client.member_id, client.instance))
        self._hear()

    @rule(seconds=st.sampled_from([0.5, 3.0, 9.0, 11.0, 61.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.room.wait(seconds)
        self._hear()

    @precondition(lambda self: self.room.written)
    @rule()
    def another_coordinator(self) -> None:
        value = self.room.written[-1]
        self.room = Room(value, now_s=self.room.now_s, delay_ms=0)
        self.room.written.append(value)
        for client in self.clients:
            client.join = client.sync = None
        assert self.room.group.value() == value

    def _hear(self) -> None:
        for client in self.clients:
            if client.join is not None and client.join in self.room.joined:
                told = self.room.joined[client.join]
                client.join = None
                if told.error_code in (ErrorCode.none, ErrorCode.member_id_required):
                    client.member_id, client.generation = told.member_id, told.generation
                    client.is_leader = told.leader == told.member_id and not told.skip_assignment
                    client.members = tuple(member.member_id for member in told.members)
                elif told.error_code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
                    client.member_id, client.generation = "", -1
            if client.sync is not None and client.sync in self.room.synced:
                answer = self.room.synced[client.sync]
                client.sync = None
                if answer.error_code is ErrorCode.none and answer.assignment:
                    generation, _ = answer.assignment.decode().split(" ")
                    assert int(generation) == client.generation, "an assignment of another generation"

    @invariant()
    def generations_never_go_backwards(self) -> None:
        written = [value.generation for value in self.room.written]
        assert written == sorted(written)
        self.generations.append(self.room.group.generation)
        assert self.generations[-1] >= self.generations[-2] or self.room.group.value() == NO_GROUP

    @invariant()
    def the_group_is_what_its_state_says(self) -> None:
        group = self.room.group
        waiting = [member for member in group.members.all() if member.join_ticket is not None]
        syncing = [member for member in group.members.all() if member.sync_ticket is not None]
        assert (group.state is ClassicGroupState.EMPTY) <= (not group.members)
        assert (group.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE)) <= bool(group.members)
        assert not waiting or group.state is ClassicGroupState.PREPARING
        assert not syncing or group.state is ClassicGroupState.COMPLETING
        assert (group.members.leader is None) == (not group.members)
        assert group.members.leader in (None, *group.members.by_id)
        assert sorted(group.members.static_ids.values()) == sorted(
            member.member_id for member in group.members.all() if member.group_instance_id is not None
        )
        if group.state is not ClassicGroupState.EMPTY:
            assert group.deadline_s is not None, "a group with members that nobody looks after"
        if group.members:
            assert group.members.vote()


TestClassicGroup = ClassicGroupMachine.TestCase
