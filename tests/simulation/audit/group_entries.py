"""What the ledger says of groups: whose entries count, and how far each group has come at every moment.

Rule: judged apart from `coordinator.apply.groups`, by entries and what they changed. A group has the coordinator whom
rendezvous hashing named when it claimed the group last, and nothing else changes the group than that session's entries
under that claim, made of the newest version (safety rule S13); generations only grow. Offsets change by commits that a
member has asked for and that are not decided yet, or by the end of a transaction, which
`tests.simulation.audit.transaction_entries` judges; nothing is ever old enough here to be dropped.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator.commands.commands import Done, Outcome, Proposal
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group import (
    ClaimGroups,
    CommitOffsets,
    DeleteGroup,
    ExpireOffsets,
    GroupsClaimed,
    OffsetsCommitted,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import ClassicGroup, GroupState, group_key
from coordinator.commands.transaction import CommitTransactionalOffsets, EndTransaction, TransactionalOffsetsPending
from coordinator.ledger.port import LedgerRecord
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import ClusterState
from protocol.types import SessionId
from tests.simulation.clients.wire import Place
from tests.simulation.history import History

NOTHING_COMMITTED: Final = -1
GroupPlace = tuple[str, Place]
"""A group and a partition."""
Write = WriteClassicGroup | WriteConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A group between two entries."""

    claim: tuple[SessionId, int]
    version: int
    generation: int
    """Or group epoch."""
    members: tuple[str, ...]
    instances: Mapping[str, str]
    """Which member has the place of a static one, by its instance id."""
    offsets: Mapping[Place, int]
    is_consumer: bool = False
    """Whether it goes by the consumer protocol."""


class GroupEntries:
    """Of one run."""

    def __init__(
        self, *, history: History, now_s: Callable[[], float], committed: Callable[[GroupPlace, int], None]
    ) -> None:
        """`committed`: told of every offset that an entry commits."""
        self._history = history
        self._now_s = now_s
        self._committed = committed
        self._before: dict[str, _Seen] = {}
        self._claims: dict[str, tuple[SessionId, int]] = {}
        self._claim_epoch_last = 0
        self._offsets: defaultdict[GroupPlace, list[tuple[float, int]]] = defaultdict(
            lambda: [(0.0, NOTHING_COMMITTED)]
        )
        """Since when a group has come how far."""
        self.coordinators: defaultdict[str, list[tuple[float, str]]] = defaultdict(list[tuple[float, str]])
        """Since when which agent held the newest claim on a group."""
        self.generations: defaultdict[str, list[tuple[float, int]]] = defaultdict(list[tuple[float, int]])
        """When each generation, or group epoch, of a group began."""
        self.became_classic: set[str] = set()
        """Groups of the consumer protocol that went on under the classic one."""
        self.replaced: set[tuple[str, str]] = set()
        """Group and id of static members whose place another one has: also one that is older, and was heard later."""

    def before(self, state: ClusterState) -> None:
        """An entry is about to be applied."""
        self._before = _seen(state)

    def after(
        self, state: ClusterState, record: LedgerRecord, proposal: Proposal | None, outcome: Outcome | None
    ) -> None:
        """It was applied."""
        command = None if proposal is None else proposal.command
        after = _seen(state)
        if isinstance(command, ClaimGroups) and isinstance(outcome, GroupsClaimed):
            self._claimed(state, record.session, command, outcome)
        elif isinstance(command, CommitOffsets) and isinstance(outcome, OffsetsCommitted):
            self._look_at_commits(state, record.session, command, outcome)
        elif isinstance(command, CommitTransactionalOffsets) and isinstance(outcome, TransactionalOffsetsPending):
            self._check_claim(command.group_id, record.session, command.claim_epoch, "committed to in a transaction")
        elif isinstance(command, Write) and isinstance(outcome, Done):
            self._check_claim(command.group_id, record.session, command.claim_epoch, "written")
            before = self._before.get(command.group_id)
            if before is not None and before.version != command.version:
                self._fault(command.group_id, f"of version {before.version} is replaced by one made of others (S13)")
        for group_id in sorted(self._before.keys() | after.keys()):
            self._compare(group_id, self._before.get(group_id), after.get(group_id), command)

    def values_between(self, place: GroupPlace, from_s: float, to_s: float) -> set[int]:
        """How far a group had come at any moment between two."""
        moved = self._offsets[place]
        before = next(offset for moved_s, offset in reversed(moved) if moved_s <= from_s)
        return {before} | {offset for moved_s, offset in moved if from_s <= moved_s <= to_s}

    def value(self, place: GroupPlace) -> int:
        """How far a group has come."""
        return self._offsets[place][-1][1]

    def _claimed(self, state: ClusterState, session: SessionId, command: ClaimGroups, outcome: GroupsClaimed) -> None:
        for group_id, epoch, error in zip(command.group_ids, outcome.claim_epochs, outcome.error_codes, strict=True):
            if error:
                continue
            owner = owner_of(group_key(group_id), state.sessions)
            if owner != session:
                self._fault(group_id, f"is claimed by session {session}, though it is for {owner} to coordinate (S13)")
            if epoch <= self._claim_epoch_last:
                self._fault(group_id, f"is claimed under epoch {epoch} after {self._claim_epoch_last} (S13)")
            self._claim_epoch_last = max(self._claim_epoch_last, epoch)
            self._claims[group_id] = session, epoch
            self.coordinators[group_id].append((self._now_s(), state.sessions[session].name))

    def _look_at_commits(
        self, state: ClusterState, session: SessionId, command: CommitOffsets, outcome: OffsetsCommitted
    ) -> None:
        rows = zip(command.group, command.topic, command.partition, command.offset, outcome.error_codes, strict=True)
        for group, topic, partition, offset, error in rows:
            if not error:
                group_id, epoch = command.groups[group]
                self._check_claim(group_id, session, epoch, f"committed to {offset}")
                name = state.topics[command.topic_ids[topic]].name
                self._committed((group_id, (name, partition)), offset)

    def _check_claim(self, group_id: str, session: SessionId, epoch: int, what: str) -> None:
        if self._claims.get(group_id) != (session, epoch):
            claim = self._claims.get(group_id)
            self._fault(group_id, f"is {what} by session {session} under claim {epoch}, but {claim} holds it (S13)")

    def _compare(self, group_id: str, before: _Seen | None, after: _Seen | None, command: object) -> None:
        """What changed is what such an entry may change."""
        if after is None:
            if before is not None and not _may_go(before, command):
                self._fault(group_id, f"is dropped by {type(command).__name__}")
            self._move(group_id, {} if before is None else before.offsets, {})
            self.generations.pop(group_id, None)
            return
        if before is None:
            before = _Seen(claim=after.claim, version=0, generation=0, members=(), instances={}, offsets={})
        elif before.claim != after.claim and not isinstance(command, ClaimGroups):
            self._fault(group_id, f"has another coordinator by {type(command).__name__} (S13)")
        is_same_value = (before.version, before.generation, before.members) == (
            after.version,
            after.generation,
            after.members,
        )
        if not is_same_value and not isinstance(command, Write):
            self._fault(group_id, f"is changed by {type(command).__name__}")
        if after.generation < before.generation:
            self._fault(group_id, f"goes back from generation {before.generation} to {after.generation}")
        if after.generation != before.generation:
            self.generations[group_id].append((self._now_s(), after.generation))
            self._history.note(group_id, "generation", f"{after.generation}: {len(after.members)} members")
        if before.is_consumer and not after.is_consumer and after.members:
            self.became_classic.add(group_id)
        if before.instances != after.instances:
            self.replaced.difference_update((group_id, who) for who in after.instances.values())
            self.replaced.update(
                (group_id, who)
                for instance, who in before.instances.items()
                if after.instances.get(instance, who) != who
            )
        if before.offsets != after.offsets and not isinstance(command, CommitOffsets | EndTransaction):
            self._fault(group_id, f"forgets, or commits, offsets by {type(command).__name__}")
        self._move(group_id, before.offsets, after.offsets)

    def _move(self, group_id: str, before: Mapping[Place, int], after: Mapping[Place, int]) -> None:
        for place in sorted(before.keys() | after.keys()):
            offset = after.get(place, NOTHING_COMMITTED)
            if before.get(place, NOTHING_COMMITTED) != offset:
                self._offsets[group_id, place].append((self._now_s(), offset))

    def _fault(self, group_id: str, what: str) -> None:
        self._history.violation(f"group {group_id} {what}")


def _seen(state: ClusterState) -> dict[str, _Seen]:
    return {group_id: _seen_of(state, group) for group_id, group in state.groups.items()}


def _seen_of(state: ClusterState, group: GroupState) -> _Seen:
    value, generation = group.value, 0
    members: tuple[str, ...] = ()
    named: list[tuple[str | None, str]] = []
    if isinstance(value, ClassicGroup):
        generation, members = value.generation, tuple(member.member_id for member in value.members)
        named = [(member.group_instance_id, member.member_id) for member in value.members]
    elif value is not None:
        generation, members = value.epoch, tuple(sorted(value.members))
        named = [(member.instance_id, member_id) for member_id, member in value.members.items()]
    offsets = {
        (state.topics[topic_id].name, int(partition)): int(found.offset)
        for topic_id, partitions in group.offsets.items()
        for partition, found in partitions.items()
    }
    return _Seen(
        claim=(group.claimed_by, group.claim_epoch),
        version=group.version,
        generation=generation,
        members=members,
        instances={instance: who for instance, who in named if instance is not None},
        offsets=offsets,
        is_consumer=isinstance(value, ConsumerGroup),
    )


def _may_go(group: _Seen, command: object) -> bool:
    return isinstance(command, DeleteGroup | ExpireOffsets) and not group.offsets and not group.members
