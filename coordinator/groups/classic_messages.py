"""Requests to the live part of a classic group, and its answers.

Rule: values only, with Kafka's error codes in the answers; pure. A request that may have to wait brings a ticket, and
every ticket is answered once. Source: org.apache.kafka.common.message.JoinGroupRequestData and its like (Kafka 4.3).
"""

from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from coordinator.commands.group_values import ClassicGroup
from protocol.errors import ErrorCode

Ticket = NewType("Ticket", int)
"""Whom an answer is for."""

NO_MEMBER_ID = ""


def is_without_member(member_id: str, group_instance_id: str | None, generation: int) -> bool:
    """Whether who commits offsets says nothing of a member: TxnOffsetCommit knows of members since KIP-447 only."""
    return generation < 0 and member_id == NO_MEMBER_ID and group_instance_id is None


NO_GENERATION = -1
NO_ASSIGNMENT = b""

Protocols = tuple[tuple[str, bytes], ...]
"""Names with the member's metadata, in its order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The broker configs group.initial.rebalance.delay.ms and group.max.size."""

    initial_rebalance_delay_ms: int
    members_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup, whatever its version."""

    ticket: Ticket
    member_id: str
    """`NO_MEMBER_ID` from a member that has none yet."""
    member_id_new: str
    """An unused id, for such a member."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    needs_known_id: bool
    """From version 4 on a dynamic member first gets its id as an answer, and joins with it (KIP-394)."""
    may_skip_assignment: bool
    """From version 9 on the answer can let a leader keep the assignment (KIP-814)."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup. Type and name of the protocol are None in versions without these fields."""

    ticket: Ticket
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """Member ids with what the leader assigns to them; empty from others."""


class Leaver(NamedTuple):
    """One of a LeaveGroup. Without a member id it is meant by its instance id: an administrator's doing (KIP-345)."""

    member_id: str
    group_instance_id: str | None
    reason: str = "no reason given"


class JoinedMember(NamedTuple):
    """A member in the leader's JoinGroup answer."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    error_code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = NO_ASSIGNMENT


class DescribedMember(NamedTuple):
    """A member in DescribeGroups; with metadata and assignment only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A group in DescribeGroups and ListGroups."""

    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(slots=True, kw_only=True)
class Work:
    """The effects of an event in a group, for its coordinator to carry out.

    Answers are sent once `write`, and all writes before it, are applied: they depend on these.
    """

    write: ClassicGroup | None = None
    answers: list[tuple[Ticket, JoinAnswer | SyncAnswer]] = field(
        default_factory=list[tuple[Ticket, JoinAnswer | SyncAnswer]]
    )
    log_messages: list[str] = field(default_factory=list[str])
    """Lines for the log."""
