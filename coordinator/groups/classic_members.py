"""The members of one live classic group: who is in it, who leads, and which protocol they vote for.

Rule: bookkeeping only; what follows from it for the group's state is decided in `coordinator.groups.classic_group`.
Times are seconds of the coordinator's monotonic clock, given by the caller; pure. Members are kept in the order in
which they came, so that every choice among equals is the same in every run. Source:
org.apache.kafka.coordinator.group.classic.ClassicGroup and ClassicGroupMember (Kafka 4.3).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.commands.group_values import ClassicMember
from coordinator.groups.classic_messages import (
    NO_ASSIGNMENT,
    NO_MEMBER_ID,
    Join,
    JoinedMember,
    Protocols,
    Ticket,
)
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_PROTOCOL_BYTES


@dataclass(slots=True, kw_only=True)
class LiveMember:
    """One member, and what it waits for."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    deadline_s: float
    """When it counts as gone, unless it is heard of before."""
    silent_from_s: float = float("-inf")
    """Until then the coordinator before may hear it: its silence begins no earlier."""
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """It has joined no generation yet, and so cannot send heartbeats."""
    join_ticket: Ticket | None = None
    """The JoinGroup that is to be answered when the join phase ends: one at most."""
    sync_ticket: Ticket | None = None
    """The SyncGroup that is to be answered when the leader's came: one at most."""

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def expires_s(self) -> float | None:
        """When its session ends; None while it waits for the others, which counts as being heard of.

        A new member's client may be gone without anybody noticing: its wait has an end.
        """
        is_heard_of = self.join_ticket is not None or self.sync_ticket is not None
        return None if is_heard_of and not self.is_new else self.deadline_s

    def heard_of(self, now_s: float) -> None:
        self.deadline_s = max(now_s, self.silent_from_s) + self.session_timeout_ms / 1000

    def still_heard_of(self, now_s: float) -> None:
        """Like `heard_of`, but never moves the deadline to an earlier time."""
        self.deadline_s = max(self.deadline_s, now_s + self.session_timeout_ms / 1000)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for that protocol; empty where it has none."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def update(self, join: Join) -> None:
        """Take over what a JoinGroup of the same member says, but for the ticket."""
        self.protocols = join.protocols
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.session_timeout_ms = join.session_timeout_ms

    def value(self) -> ClassicMember:
        return ClassicMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )


def member_of(join: Join, member_id: str, deadline_s: float) -> LiveMember:
    """The new member that a JoinGroup is from."""
    return LiveMember(
        member_id=member_id,
        group_instance_id=join.group_instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        session_timeout_ms=join.session_timeout_ms,
        protocols=join.protocols,
        deadline_s=deadline_s,
        is_new=True,
        join_ticket=join.ticket,
    )


def size_of(member: Join | LiveMember) -> int:
    """Characters and bytes of a member's description of itself, without its id, and a surcharge for each protocol."""
    names = len(member.client_id) + len(member.group_instance_id or "")
    return names + sum(CLASSIC_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in member.protocols)


class Members:
    """Members by id, members by instance id, and ids that were given out and that no member has joined with yet."""

    def __init__(self, members: Iterable[ClassicMember], leader: str | None, now_s: float) -> None:
        self.by_id: dict[str, LiveMember] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance ids."""
        self.pending: dict[str, float] = {}
        """Ids that were given out, with the time until which their members may come."""
        self.leader = leader
        self.size = 0
        """The sum of `size_of` of all members."""
        self._supported: dict[str, int] = {}
        """How many members know each protocol."""
        for member in members:
            live = LiveMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                protocols=member.protocols,
                assignment=member.assignment,
                deadline_s=0.0,
                silent_from_s=now_s,
            )
            live.heard_of(now_s)
            self._keep(live)

    def __len__(self) -> int:
        return len(self.by_id)

    def all(self) -> Sequence[LiveMember]:
        """A copy of the current members: the caller may add and remove some meanwhile."""
        return tuple(self.by_id.values())

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether a request may speak for that member: not for one that was replaced by its successor (KIP-345)."""
        if group_instance_id is not None:
            known = self.static_ids.get(group_instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.by_id else ErrorCode.unknown_member_id

    def known(self, join: Join) -> LiveMember | None:
        """The member that a JoinGroup is from, or, of a static one that has lost its id, whose place it takes."""
        if join.member_id == NO_MEMBER_ID and join.group_instance_id is not None:
            return self.by_id.get(self.static_ids.get(join.group_instance_id, NO_MEMBER_ID))
        return self.by_id.get(join.member_id)

    def add(self, member: LiveMember) -> None:
        """Let a new member in; the first one leads."""
        assert member.member_id not in self.by_id, f"{member.member_id} is a member already"
        assert member.group_instance_id not in self.static_ids, f"{member.group_instance_id} is a member already"
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)
        self._keep(member)

    def remove(self, member_id: str) -> LiveMember | None:
        """Drop a member, or an id that was given out; None where it is none. Where it led, another member does."""
        self.pending.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.group_instance_id is not None:
                del self.static_ids[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        return member

    def replace(self, old: LiveMember, member_id: str) -> LiveMember:
        """Give a static member's place to its successor, with its assignment and, where it led, its lead."""
        self._count(old, -1)
        del self.by_id[old.member_id]
        member = LiveMember(
            member_id=member_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
            deadline_s=old.deadline_s,
        )
        if self.leader == old.member_id:
            self.leader = member_id
        self._keep(member)
        return member

    def update(self, member: LiveMember, join: Join) -> None:
        """Take over what a member says of itself when it joins again."""
        self._count(member, -1)
        member.update(join)
        self._count(member, 1)

    def elect(self) -> bool:
        """Make a member that has joined the leader; False where none has joined, or the group has no leader."""
        leader = None if self.leader is None else self.by_id[self.leader]
        if leader is None:
            return False
        if not leader.is_awaiting_join:
            joined = next((member for member in self.by_id.values() if member.is_awaiting_join), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def support(self, protocols: Protocols) -> bool:
        """Whether all members know one of these protocols."""
        return any(self._supported.get(name, 0) == len(self.by_id) for name, _ in protocols)

    def vote(self) -> str:
        """The protocol that most members prefer among those that all know; there are members.

        Among equals it is the newest member's: who comes with a new version may know better.
        """
        votes: dict[str, int] = {}
        for member in reversed(self.by_id.values()):
            choice = next(name for name, _ in member.protocols if self._supported[name] == len(self.by_id))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    @property
    def have_all_joined(self) -> bool:
        return not self.pending and all(member.is_awaiting_join for member in self.by_id.values())

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.is_awaiting_join for member in self.by_id.values())

    @property
    def rebalance_timeout_s(self) -> float:
        """How long the slowest member may take to join again, or to ask for its assignment."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0) / 1000

    def rebalance_ends_s(self, now_s: float) -> float:
        """By when all have to do what they are asked to now; who is heard of elsewhere still need not know of it."""
        begins_s = max((member.silent_from_s for member in self.by_id.values()), default=now_s)
        return max(begins_s, now_s) + self.rebalance_timeout_s

    @property
    def deadline_s(self) -> float | None:
        """When the next session ends."""
        expiries = [expires_s for member in self.by_id.values() if (expires_s := member.expires_s) is not None]
        return min([*expiries, *self.pending.values()], default=None)

    def values(self) -> tuple[ClassicMember, ...]:
        """For the ledger."""
        return tuple(self.by_id[member_id].value() for member_id in sorted(self.by_id))

    def joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """For the leader."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol))
            for member in self.by_id.values()
        )

    def _keep(self, member: LiveMember) -> None:
        self.by_id[member.member_id] = member
        self._count(member, 1)
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id

    def _count(self, member: LiveMember, by: int) -> None:
        self.size += by * size_of(member)
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self._supported[name] = self._supported.get(name, 0) + by
            if not self._supported[name]:
                del self._supported[name]
