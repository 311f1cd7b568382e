"""A classic group as tests talk to it: members by short names, answers by the request that they belong to."""

import itertools

from coordinator.commands.group_values import NO_GROUP, ClassicGroup
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import (
    GroupLimits,
    Join,
    JoinAnswer,
    Leaver,
    Protocols,
    Sync,
    SyncAnswer,
    Ticket,
)
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode

RANGE: Protocols = (("range", b"topics"),)
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
_tickets = itertools.count()


class Room:
    """One group at one moment, which tests move on."""

    def __init__(
        self,
        value: ClassicGroup = NO_GROUP,
        *,
        delay_ms: int = DELAY_MS,
        members_max: int = 100,
        now_s: float = 1_000.0,
    ) -> None:
        limits = GroupLimits(initial_rebalance_delay_ms=delay_ms, members_max=members_max)
        self.now_s = now_s
        self.group = LiveClassicGroup(value, limits, now_s)
        self.written: list[ClassicGroup] = []
        self.joined: dict[Ticket, JoinAnswer] = {}
        self.synced: dict[Ticket, SyncAnswer] = {}
        self.log_messages: list[str] = []

    def is_in(self, state: ClassicGroupState) -> bool:
        return self.group.state is state

    def join(
        self,
        member_id: str = "",
        *,
        new: str = "new",
        instance: str | None = None,
        kind: str = "consumer",
        protocols: Protocols = RANGE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 3,
    ) -> Ticket:
        """A JoinGroup; below version 4 a member needs no id to join."""
        ticket = Ticket(next(_tickets))
        join = Join(
            ticket=ticket,
            member_id=member_id,
            member_id_new=new,
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            protocol_type=kind,
            protocols=protocols,
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            needs_known_id=version >= 4,
            may_skip_assignment=version >= 9,
            reason="why not",
        )
        self.group.join(join, self.now_s)
        self._take()
        return ticket

    def sync(
        self,
        member_id: str,
        *given: tuple[str, bytes],
        generation: int | None = None,
        instance: str | None = None,
        kind: str | None = None,
        protocol: str | None = None,
    ) -> Ticket:
        ticket = Ticket(next(_tickets))
        sync = Sync(
            ticket=ticket,
            member_id=member_id,
            group_instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=kind,
            protocol=protocol,
            assignments=given,
        )
        self.group.sync(sync, self.now_s)
        self._take()
        return ticket

    def heartbeat(self, member_id: str, *, instance: str | None = None, generation: int | None = None) -> ErrorCode:
        told = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance, told, self.now_s)

    def leave(self, *leavers: str | Leaver) -> tuple[ErrorCode, ...]:
        named = [Leaver(leaver, None) if isinstance(leaver, str) else leaver for leaver in leavers]
        answers = self.group.leave(named, self.now_s)
        self._take()
        return answers

    def commit(
        self,
        member_id: str = "",
        *,
        generation: int | None = None,
        instance: str | None = None,
    ) -> ErrorCode:
        told = self.group.generation if generation is None else generation
        return self.group.check_commit(member_id, instance, told, self.now_s)

    def wait(self, seconds: float) -> None:
        """Let time pass as a coordinator does: by each deadline that comes meanwhile."""
        until_s = self.now_s + seconds
        while (deadline_s := self.group.deadline_s) is not None and deadline_s <= until_s:
            self.now_s = max(self.now_s, deadline_s)
            self.group.expire(self.now_s)
            self._take()
        self.now_s = until_s

    def error(self, ticket: Ticket) -> ErrorCode | None:
        """What a request was answered; None while it waits."""
        answer = self.joined.get(ticket) or self.synced.get(ticket)
        return None if answer is None else answer.error_code

    def assigned(self, ticket: Ticket) -> bytes:
        return self.synced[ticket].assignment

    def _take(self) -> None:
        work = self.group.take_work()
        if work.write is not None:
            self.written.append(work.write)
        for ticket, answer in work.answers:
            assert ticket not in self.joined, f"request {ticket} was answered twice"
            assert ticket not in self.synced, f"request {ticket} was answered twice"
            if isinstance(answer, JoinAnswer):
                self.joined[ticket] = answer
            else:
                self.synced[ticket] = answer
        self.log_messages += work.log_messages


def preparing(*members: str, members_max: int = 100) -> Room:
    """Members in their first rebalance."""
    room = Room(members_max=members_max)
    for member in members:
        room.join(new=member)
    assert room.is_in(ClassicGroupState.PREPARING)
    return room


def completing(*members: str, members_max: int = 100) -> Room:
    """Members of generation 1 that wait for the first one's assignment."""
    room = preparing(*members, members_max=members_max)
    while room.is_in(ClassicGroupState.PREPARING):
        room.wait(DELAY_MS / 1000)
    assert room.is_in(ClassicGroupState.COMPLETING)
    return room


def stable(*members: str, members_max: int = 100) -> Room:
    """Members of generation 1, each with its own name as its assignment."""
    room = completing(*members, members_max=members_max)
    tickets = [room.sync(member, *((name, name.encode()) for name in members)) for member in reversed(members)]
    assert [room.assigned(ticket) for ticket in tickets] == [member.encode() for member in reversed(members)]
    assert room.is_in(ClassicGroupState.STABLE)
    return room
