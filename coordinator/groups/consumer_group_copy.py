"""A coordinator's copy of a consumer group (KIP-848): the group, what can be found in it, and the rows that change it.

Rule: whatever is changed here is written down as a row; `take_change` gives the rows since the last time, and replaying
them on what the group was gives what it is. So the copy runs ahead of the ledger by the changes that are on their way,
and is thrown away where one of them is rejected. Pure.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from msgspec.structs import replace

from coordinator.commands.consumer_group_values import (
    NO_TOPICS_HASH,
    AssignmentRow,
    ConsumerGroup,
    ConsumerGroupChange,
    ConsumerMember,
    MemberAssignment,
    Partitions,
)
from coordinator.groups.assignors import ASSIGNORS, Subscriber
from coordinator.groups.consumer_group_size import fits
from protocol.limits import CONSUMER_GROUP_TARGETS_BYTES_MAX
from protocol.types import PartitionIndex, TopicId

FindTopic = Callable[[str], tuple[TopicId, int] | None]
"""A topic's id and its number of partitions, by name; None where there is none.

The same object finds the same: where a topic came, went or grew, another one is given. So who has looked up thousands
of names need not do so again.
"""
TOPICS_HASH_BYTES = 8


class GroupCopy:
    """The coordinator's copy of a group, with changes that the ledger does not have yet."""

    def __init__(self, group: ConsumerGroup | None, *, is_new: bool = False) -> None:
        """Copies a group of the state, which stays as it is, or begins one: empty where `group` is None.

        `is_new`: the ledger has nothing of the group that is given.
        """
        self.is_new = is_new or group is None
        self.group = ConsumerGroup() if group is None else group.copy()
        self._before = _scalars(self.group)
        self._saved: ConsumerGroup | None = None
        """The group as it was when rows were taken last; None where nothing was changed since."""
        self._begin_rows()
        self._index()

    def _begin_rows(self) -> None:
        """Nothing is a row yet, or all of a group that the ledger has nothing of."""
        self._removed = set[str]()
        self._members = set(self.group.members if self.is_new else ())
        self._assignments = set(self.group.assignments if self.is_new else ())
        self._targets = set(self.group.targets if self.is_new else ())
        self._regexes = set(self.group.regexes if self.is_new else ())

    def _index(self) -> None:
        self._instances = {
            member.instance_id: member.member_id
            for member in self.group.members.values()
            if member.instance_id is not None
        }
        self._names = Counter[str]()
        self._regex_counts = Counter[str]()
        self._all_names: list[str] | None = None
        """All subscribed topics in order; None where they have to be gathered again."""
        self._look: list[tuple[TopicId, int] | None] = []
        self._look_hash: bytes | None = None
        """The hash of the subscribed topics in `_look`."""
        self._looked_with: FindTopic | None = None
        for member in self.group.members.values():
            self._count(member, 1)
        self._owners: dict[tuple[TopicId, PartitionIndex], str] = {}
        for member_id, assignment in self.group.assignments.items():
            self._own(member_id, assignment)

    # What can be found.

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.group.members[member_id]

    def owner(self, topic_id: TopicId, partition: PartitionIndex) -> str | None:
        """Who has the partition, or has yet to give it up."""
        return self._owners.get((topic_id, partition))

    def regex_count(self, regex: str) -> int:
        """How many members subscribe to the expression."""
        return self._regex_counts[regex]

    @property
    def has_classic(self) -> bool:
        """Whether any member speaks the classic protocol."""
        return any(member.classic is not None for member in self.group.members.values())

    @property
    def has_regexes(self) -> bool:
        """Whether any member subscribes to an expression."""
        return bool(self._regex_counts)

    @property
    def regexes_bytes(self) -> int:
        """The bytes of all expressions, each counted once."""
        return sum(len(regex.encode()) for regex in self._regex_counts)

    @property
    def regexes_count(self) -> int:
        """How many different expressions members subscribe to."""
        return len(self._regex_counts)

    def subscribed_regexes(self) -> list[str]:
        return sorted(self._regex_counts)

    def names_of(self, member: ConsumerMember) -> Iterable[str]:
        """The topics that a member subscribes to; an expression that was never resolved matches none."""
        matches = self.group.regexes.get(member.subscribed_regex, ())
        return {*member.subscribed_names, *matches} if matches else member.subscribed_names

    def topics_of(self, member: ConsumerMember, find_topic: FindTopic) -> frozenset[TopicId]:
        """The subscribed topics that exist."""
        topics = map(find_topic, self.names_of(member))
        return frozenset(topic_id for topic_id, _ in filter(None, topics))

    def topics_hash(self, find_topic: FindTopic) -> bytes:
        """The hash of the subscribed topics: it changes where one is created, deleted, or grows."""
        if self._look_hash is not None and find_topic is self._looked_with:
            return self._look_hash
        if self._all_names is None:
            matches = (self.group.regexes.get(regex, ()) for regex in self._regex_counts)
            self._all_names = sorted({*self._names, *chain.from_iterable(matches)})
        look = [find_topic(name) for name in self._all_names]
        if look != self._look or self._look_hash is None:
            rows = [(name, *topic) for name, topic in zip(self._all_names, look, strict=True) if topic is not None]
            digest = hashlib.blake2b(repr(rows).encode(), digest_size=TOPICS_HASH_BYTES).digest()
            self._look, self._look_hash = look, digest if rows else NO_TOPICS_HASH
        self._looked_with = find_topic
        return self._look_hash

    # What changes it.

    def put_member(self, member: ConsumerMember) -> None:
        before = self.group.members.get(member.member_id)
        if before == member:
            return
        self._save()
        if before is not None:
            self._count(before, -1)
            if before.instance_id is not None and before.instance_id != member.instance_id:
                del self._instances[before.instance_id]
        self.group.members[member.member_id] = member
        self._members.add(member.member_id)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._count(member, 1)

    def put_assignment(self, member_id: str, assignment: MemberAssignment) -> None:
        if self.group.assignments.get(member_id) == assignment:
            return
        self._save()
        self._disown(member_id)
        self.group.assignments[member_id] = assignment
        self._assignments.add(member_id)
        self._own(member_id, assignment)

    def put_target(self, member_id: str, target: Partitions) -> None:
        if self.group.targets.get(member_id, ()) == target:
            return
        self._save()
        if target:
            self.group.targets[member_id] = target
        else:
            del self.group.targets[member_id]
        self._targets.add(member_id)

    def put_regex(self, regex: str, names: tuple[str, ...]) -> None:
        if self.group.regexes.get(regex) != names:
            self._save()
            self.group.regexes[regex] = names
            self._regexes.add(regex)
            self._forget_look()

    def drop_unused_regexes(self) -> None:
        """Forget the matches of expressions to which no member subscribes any more."""
        for regex in [regex for regex in self.group.regexes if regex not in self._regex_counts]:
            self._save()
            del self.group.regexes[regex]
            self._regexes.add(regex)

    def remove(self, member_id: str) -> None:
        self._save()
        self._disown(member_id)
        member = self.group.members.pop(member_id)
        self.group.assignments.pop(member_id, None)
        self.group.targets.pop(member_id, None)
        self._count(member, -1)
        if member.instance_id is not None and self._instances.get(member.instance_id) == member_id:
            del self._instances[member.instance_id]
        for rows in (self._members, self._assignments, self._targets):
            rows.discard(member_id)
        self._removed.add(member_id)

    def raise_epoch(self, topics_hash: bytes) -> None:
        """Another target assignment is wanted, of topics that look like this."""
        self.put_topics_hash(topics_hash)
        self.group.epoch += 1

    def put_topics_hash(self, topics_hash: bytes) -> None:
        """The target assignment that is wanted is one of topics that look like this."""
        self._save()
        self.group.topics_hash = topics_hash

    def assign(self, name: str, find_topic: FindTopic) -> int | None:
        """Compute the target assignment of the group's epoch; gives how many members and partitions it is about.

        None where it does not fit into a ledger entry: then the group has the former one still.
        """
        subscribers: dict[str, Subscriber] = {}
        counts: dict[TopicId, int] = {}
        same: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
        for member_id, member in self.group.members.items():
            key = member.subscribed_names, member.subscribed_regex
            topics = same.get(key)
            if topics is None:
                topic_counts = list(filter(None, map(find_topic, self.names_of(member))))
                counts.update(topic_counts)
                topics = same[key] = frozenset(topic_id for topic_id, _ in topic_counts)
            subscribers[member_id] = Subscriber(instance_id=member.instance_id, topics=topics)
        targets = ASSIGNORS[name](subscribers, counts, self.group.targets)
        rows = {member_id: targets.get(member_id, ()) for member_id in self.group.members}
        if not self._would_fit(rows):
            return None
        for member_id, target in rows.items():
            self.put_target(member_id, target)
        self._save()
        self.group.target_epoch = self.group.epoch
        return len(subscribers) + sum(counts.values())

    def _would_fit(self, targets: Mapping[str, Partitions]) -> bool:
        """Whether an entry takes another target assignment, with what was changed since the last one."""
        before = self.group.targets
        changed = tuple(
            (member_id, target)
            for member_id, target in targets.items()
            if member_id in self._targets or target != before.get(member_id, ())
        )
        return fits(replace(self._rows(), targets=changed), CONSUMER_GROUP_TARGETS_BYTES_MAX)

    def pending(self) -> ConsumerGroupChange | None:
        """The rows of what was changed since they were taken last; None where nothing was."""
        has_rows = self._removed or self._members or self._assignments or self._targets or self._regexes
        if not (has_rows or self.is_new or self._before != _scalars(self.group)):
            return None
        return self._rows()

    def _rows(self) -> ConsumerGroupChange:
        group = self.group
        return ConsumerGroupChange(
            epoch=group.epoch,
            target_epoch=group.target_epoch,
            topics_hash=group.topics_hash,
            is_new=self.is_new,
            removed=tuple(sorted(self._removed)),
            members=tuple(group.members[member_id] for member_id in sorted(self._members)),
            assignments=tuple(AssignmentRow.of(each, group.assignments[each]) for each in sorted(self._assignments)),
            targets=tuple((member_id, group.targets.get(member_id, ())) for member_id in sorted(self._targets)),
            regexes=tuple((regex, group.regexes[regex]) for regex in sorted(self._regexes) if regex in group.regexes),
            regexes_removed=tuple(sorted(regex for regex in self._regexes if regex not in group.regexes)),
        )

    def take_change(self) -> ConsumerGroupChange | None:
        """`pending`, which is then on its way to the ledger."""
        change = self.pending()
        self.is_new = False
        self._before, self._saved = _scalars(self.group), None
        self._begin_rows()
        return change

    def undo(self) -> None:
        """Be what this was when rows were taken last."""
        if self._saved is not None:
            self.group, self._saved = self._saved, None
            self._begin_rows()
            self._index()

    def _save(self) -> None:
        """To be called before anything is changed."""
        if self._saved is None:
            self._saved = self.group.copy()

    def _count(self, member: ConsumerMember, by: int) -> None:
        for name in member.subscribed_names:
            _add(self._names, name, by)
        if member.subscribed_regex:
            _add(self._regex_counts, member.subscribed_regex, by)
        self._forget_look()

    def _forget_look(self) -> None:
        self._all_names = self._look_hash = None

    def _own(self, member_id: str, assignment: MemberAssignment) -> None:
        for rows in (assignment.assigned, assignment.revoking):
            for topic_id, partitions in rows:
                for partition, _ in partitions:
                    self._owners[topic_id, partition] = member_id

    def _disown(self, member_id: str) -> None:
        assignment = self.group.assignments.get(member_id)
        if assignment is None:
            return
        for rows in (assignment.assigned, assignment.revoking):
            for topic_id, partitions in rows:
                for partition, _ in partitions:
                    self._owners.pop((topic_id, partition), None)


def preferred_assignor(group: ConsumerGroup, default: str) -> str:
    """The assignor that most members ask for, of several the first by name; see computePreferredServerAssignor."""
    votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor is not None)
    return min(votes, key=lambda name: (-votes[name], name), default=default)


def _add(counts: Counter[str], name: str, by: int) -> None:
    counts[name] += by
    if not counts[name]:
        del counts[name]


def _scalars(group: ConsumerGroup) -> tuple[int, int, bytes]:
    return group.epoch, group.target_epoch, group.topics_hash
