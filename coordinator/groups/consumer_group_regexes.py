"""Regular expressions of a live consumer group (KIP-848): when they are looked up, and what is taken of what is found.

Rule: pure; the caller looks up what an expression matches. A group has room for so many expressions, and for so many
names that they match. One beyond that matches nothing, or what it did before, and its members get an error.
Source: GroupMetadataManager.maybeUpdateRegularExpressions, Kafka 4.3.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.commands.consumer_group_values import ConsumerGroupChange
from coordinator.groups.consumer_group_copy import FindTopic, GroupCopy
from coordinator.groups.consumer_group_messages import ConsumerGroupConfig, Problems, too_large
from coordinator.groups.consumer_group_size import TEXT_HEAD_BYTES, fits
from protocol.limits import (
    CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX,
    CONSUMER_GROUP_NAMES_BYTES_MAX,
    CONSUMER_GROUP_REGEX_REFRESH_SECONDS_MIN,
    CONSUMER_GROUP_REGEXES_BYTES_MAX,
    CONSUMER_GROUP_REGEXES_MAX,
)

_PROBLEM = (
    "its expressions match more topics than there is room for; some match what they did before, or nothing: let fewer "
    "expressions match fewer topics"
)


class GroupRegexes:
    """The coordinator's knowledge of a group's expressions that is not part of the group."""

    def __init__(self, group_id: str, problems: Problems) -> None:
        self._group_id = group_id
        self._problems = problems
        self._resolved_s: float | None = None
        """When they were last looked up."""
        self._rejected: dict[str, str] = {}
        """By expression whose names exceed the limits: the problem."""

    def check_room(self, copy: GroupCopy, regex: str) -> None:
        """Raise `GroupRejection` where the group takes no other expression, which this is."""
        self._rejected.pop(regex, None)
        if copy.regexes_count >= CONSUMER_GROUP_REGEXES_MAX:
            raise too_large(
                f"group {self._group_id!r} subscribes to {CONSUMER_GROUP_REGEXES_MAX} expressions, that is the most"
            )
        if copy.regexes_bytes + len(regex.encode()) > CONSUMER_GROUP_REGEXES_BYTES_MAX:
            raise too_large(
                f"expressions of group {self._group_id!r} may have {CONSUMER_GROUP_REGEXES_BYTES_MAX} bytes together"
            )

    def check_match(self, regex: str) -> None:
        """Raise `GroupRejection` where the expression was found to match more than there is room for.

        There is nothing wrong with it, so that it is not INVALID_REGULAR_EXPRESSION: the group is full.
        """
        problem = self._rejected.get(regex)
        if problem is not None:
            raise too_large(f"SubscribedTopicRegex {regex!r} of group {self._group_id!r} cannot be followed: {problem}")

    def to_resolve(
        self, copy: GroupCopy, config: ConsumerGroupConfig, now_s: float, *, are_topics_new: bool
    ) -> list[str]:
        """Expressions that are to be looked up now, all of the group at once, so that they cause one rebalance."""
        regexes = copy.subscribed_regexes()
        if not regexes:
            return []
        since_s = None if self._resolved_s is None else now_s - self._resolved_s
        if since_s is not None and since_s <= CONSUMER_GROUP_REGEX_REFRESH_SECONDS_MIN:
            return []
        is_unresolved = any(regex not in copy.group.regexes and regex not in self._rejected for regex in regexes)
        is_old = since_s is None or since_s * 1000 > config.regex_refresh_ms
        return regexes if is_unresolved or are_topics_new or is_old else []

    def put(
        self, copy: GroupCopy, room: "RegexCapacity", find_topic: FindTopic, now_s: float
    ) -> list[ConsumerGroupChange]:
        """Take in what expressions match that members still subscribe to: the rows, by entries. The first of them
        raises the group epoch, where any expression matches something else than before: if the others get lost, the
        next coordinator looks again, and finds that only these are wanting.

        Differs from Kafka: also where an expression that is new matches nothing. Its members may have had another one
        before, whose partitions would otherwise stay unassigned.
        """
        self._resolved_s = now_s
        before = copy.group.regexes
        taken = {regex: names for regex, names in room.taken.items() if copy.regex_count(regex)}
        self._rejected = {regex: problem for regex, problem in room.rejected.items() if copy.regex_count(regex)}
        self._problems.note(_PROBLEM, is_so=bool(room.unchanged or self._rejected))
        has_changed = any(before.get(regex) != names for regex, names in taken.items())
        if has_changed:
            copy.raise_epoch(copy.group.topics_hash)
        changes: list[ConsumerGroupChange | None] = []
        bytes_count = 0
        for regex, names in sorted(taken.items()):
            size = names_bytes(names)
            if bytes_count and bytes_count + size > CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX:
                changes.append(copy.take_change())
                bytes_count = 0
            bytes_count += size
            copy.put_regex(regex, names)
        topics_hash = copy.topics_hash(find_topic)
        if has_changed:
            copy.put_topics_hash(topics_hash)
        elif topics_hash != copy.group.topics_hash:
            copy.raise_epoch(topics_hash)
        changes.append(copy.take_change())
        return [change for change in changes if change is not None]


@dataclass(slots=True, kw_only=True)
class RegexCapacity:
    """A group's expressions by the matches that its limits allow them."""

    taken: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """These match what was found."""
    unchanged: list[str] = field(default_factory=list[str])
    """These match what they did before."""
    rejected: dict[str, str] = field(default_factory=dict[str, str])
    """These match nothing, and never did; why."""


def room_for(
    regexes: Iterable[str], match: Callable[[str], tuple[str, ...]], before: Mapping[str, tuple[str, ...]]
) -> RegexCapacity:
    """Which expressions take what `match` finds for them; `before` is what all of the group match until now.

    First those that matched something before: what members have is not taken away for others. Then small ones. One
    expression is looked up after the other, and no more is held than there is room for. Takes seconds where many match
    many topics: belongs into a thread.
    """
    room, entries = RegexCapacity(), _Entries()
    total = sum(map(names_bytes, before.values()))
    for regex in sorted(before.keys() & set(regexes)):
        names = match(regex)
        more = names_bytes(names) - names_bytes(before[regex])
        if total + more <= CONSUMER_GROUP_NAMES_BYTES_MAX and entries.take(regex, names):
            room.taken[regex] = names
            total += more
        else:
            room.unchanged.append(regex)
    sizes: dict[str, int] = {}
    for regex in sorted(set(regexes) - before.keys()):
        names = match(regex)
        size = names_bytes(names)
        if total + size + sum(other for other in sizes.values() if other <= size) > CONSUMER_GROUP_NAMES_BYTES_MAX:
            room.rejected[regex] = _problem(names, _GROUP_IS_FULL)
        elif not entries.take(regex, names):
            room.rejected[regex] = _problem(names, "they do not fit into a ledger entry")
        else:
            room.taken[regex], sizes[regex] = names, size
        while total + sum(sizes.values()) > CONSUMER_GROUP_NAMES_BYTES_MAX:
            largest = max(sizes, key=lambda each: (sizes[each], each))
            room.rejected[largest] = _problem(room.taken.pop(largest), _GROUP_IS_FULL)
            del sizes[largest]
    return room


_GROUP_IS_FULL = f"those of all expressions of a group may take {CONSUMER_GROUP_NAMES_BYTES_MAX}"


def _problem(names: Sequence[str], problem: str) -> str:
    return f"it matches {len(names)} topics, whose names take {names_bytes(names)} bytes; {problem}"


class _Entries:
    """Whether ledger entries take what expressions match: the same names are encoded once."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}

    def take(self, regex: str, names: tuple[str, ...]) -> bool:
        if names_bytes(names) <= CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX:
            return True
        digest = hashlib.blake2b("\0".join(names).encode()).digest()
        if digest not in self._known:
            self._known[digest] = fits(_row(regex, names))
        return self._known[digest]


def names_bytes(names: Sequence[str]) -> int:
    """The bytes of topic names, which are ASCII, before compression."""
    return sum(map(len, names)) + TEXT_HEAD_BYTES * len(names)


def _row(regex: str, names: tuple[str, ...]) -> ConsumerGroupChange:
    return ConsumerGroupChange(epoch=1, target_epoch=1, topics_hash=b"", regexes=((regex, names),))
