"""The durable part of a group: its coordinator, its members and their assignment, and its committed offsets.

Rule: values only; pure. A group's live part (who joins just now, who was heard of last) is in its coordinator's memory
and is lost with it; what is here is enough for the next coordinator to go on without a rebalance. Times are the state's
at apply: `NO_TIME` where the entry had no time, until an entry has one (safety rule S2).
Source of the ideas: org.apache.kafka.coordinator.group.modern and .classic (Kafka 4.3).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.field_types import Index, Signed32
from coordinator.commands.forms import WireStruct
from protocol.limits import LEDGER_SESSION_SECONDS
from protocol.types import Milliseconds, Offset, PartitionIndex, ProducerId, SessionId, TopicId

NO_COMMITTED_EPOCH = -1


class ClassicMember(WireStruct, frozen=True, kw_only=True):
    """A member of a classic group, as its newest JoinGroup and its leader's SyncGroup say."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Signed32
    session_timeout_ms: Signed32
    protocols: tuple[tuple[str, bytes], ...]
    """Names with the member's metadata, in its order of preference."""
    assignment: bytes = b""


class ClassicGroup(WireStruct, frozen=True, kw_only=True):
    """One generation of a classic group, or what there is of one while its members join."""

    generation: Index
    protocol_type: str
    """"" while no member has named one."""
    protocol: str | None
    """The protocol that the members agreed on; None where there are none."""
    leader: str | None
    """A member id; None where there are no members."""
    members: tuple[ClassicMember, ...]
    """In the order of their ids."""
    is_synced: bool
    """The leader's assignment is there (Stable); until then members may ask for it (CompletingRebalance)."""
    is_rebalance_due: bool = False
    """The members have to join again under any coordinator: some partitions may be unassigned now."""


NO_GROUP: Final = ClassicGroup(generation=0, protocol_type="", protocol=None, leader=None, members=(), is_synced=True)
"""The value of a group that no member has joined yet."""


def check_generation(group: ClassicGroup) -> None:
    """Raises `ValueError` for what no entry may say of a generation: members out of order, another leader."""
    member_ids = [member.member_id for member in group.members]
    if any(first >= second for first, second in pairwise(member_ids)):
        raise ValueError(f"members of a group out of order: {member_ids}")
    is_led = group.leader in member_ids if member_ids else group.leader is None
    if not is_led or (group.protocol is None) != (not member_ids):
        raise ValueError(f"{group.leader!r} leads {group.protocol!r} of the members {member_ids}")


class CommittedOffset(NamedTuple):
    """How far a group has come in one partition."""

    offset: Offset
    leader_epoch: int
    metadata: str
    commit_ms: Milliseconds
    retention_ms: int | None = None
    """How long it is kept, where its commit says so itself (OffsetCommit 2 to 4)."""
    number: int = 0
    """Which of the group's commits it is, counted from 1 on: the newest of them counts, in or out of transactions."""


@dataclass(slots=True, kw_only=True)
class GroupState:
    group_id: str
    claim_epoch: int
    """Every claim of any group has another, larger one. Entries of the group carry it (safety rule S13)."""
    claimed_by: SessionId
    """Whose entries count; that session may be over."""
    version: int = 0
    """How often `value` was written."""
    value: ClassicGroup | ConsumerGroup | None = None
    """None where no member ever joined: then the group has offsets alone, or is nothing but a claim."""
    offsets: dict[TopicId, dict[PartitionIndex, CommittedOffset]] = field(
        default_factory=dict[TopicId, dict[PartitionIndex, CommittedOffset]]
    )
    """No topic without a partition."""
    pending: dict[ProducerId, dict[TopicId, dict[PartitionIndex, CommittedOffset]]] = field(
        default_factory=dict[ProducerId, dict[TopicId, dict[PartitionIndex, CommittedOffset]]]
    )
    """The offsets that a producer's open transaction commits, by producer (KIP-98). No empty mapping in it."""
    empty_since_ms: Milliseconds | None = None
    """Since when `value` has had no members; None where it has some, or where there is no value."""
    commits_count: int = 0
    """Offsets committed so far, pending ones too; at least the `number` of each."""

    @property
    def is_vacant(self) -> bool:
        """Nothing but a claim, and never more: to clients there is no such group."""
        return self.value is None and not self.offsets and not self.pending

    def pending_partitions(self) -> frozenset[tuple[TopicId, PartitionIndex]]:
        """Partitions whose offset may be another one soon: a transaction that commits one is open (KIP-447)."""
        return frozenset(
            (topic_id, partition)
            for pending in self.pending.values()
            for topic_id, partitions in pending.items()
            for partition in partitions
        )

    @property
    def has_members(self) -> bool:
        return self.value is not None and bool(self.value.members)


def vacant_of(groups: Mapping[str, GroupState]) -> dict[str, None]:
    """The ids of those that are nothing but a claim, the oldest claim first."""
    vacant = [group for group in groups.values() if group.is_vacant]
    return dict.fromkeys(group.group_id for group in sorted(vacant, key=lambda group: group.claim_epoch))


def generation_of(value: ClassicGroup | ConsumerGroup) -> int:
    """The generation of a classic group; the group epoch of another, which takes its place where the group changes."""
    return value.generation if isinstance(value, ClassicGroup) else value.epoch


def group_key(group_id: str) -> bytes:
    """The bytes that `coordinator.state.rendezvous` hashes to find the group's coordinator."""
    return b"group " + group_id.encode()


def count_offsets(groups: Iterable[GroupState]) -> int:
    """Committed offsets of all of them."""
    return sum(len(partitions) for group in groups for partitions in group.offsets.values())


def heard_until_s(now_s: float) -> float:
    """Until when members of a group that is taken up `now_s` may be heard by the coordinator before.

    That one goes on while its watch lags and has not delivered the new claim, at most for a lease (safety rule S4). So
    session time-outs begin then: the next coordinator would otherwise remove members that were never silent.
    """
    return now_s + LEDGER_SESSION_SECONDS
