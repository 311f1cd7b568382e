"""Regular expressions of a live consumer group (KIP-848): when they are looked up, and what is taken of what is found.

Rule: pure; what they match is looked up by the caller. A group has room for so many expressions, and for so many names
that they match: one for which there is none matches nothing, or what it did before, and its members are told.
Source: GroupMetadataManager.maybeUpdateRegularExpressions, Kafka 4.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.consumer_group_copy import FindTopic, GroupCopy
from coordinator.consumer_group_messages import ConsumerGroupConfig, Problems, too_large
from coordinator.consumer_group_size import TEXT_HEAD_BYTES, fits
from coordinator.consumer_group_values import ConsumerGroupChange
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
    """What a coordinator knows of them beside the group itself."""

    def __init__(self, group_id: str, problems: Problems) -> None:
        self._group_id = group_id
        self._problems = problems
        self._resolved_s: float | None = None
        """When they were last looked up."""
        self._refused: dict[str, str] = {}
        """Those for whose names there is no room; why."""

    def check_room(self, copy: GroupCopy, regex: str) -> None:
        """Raise `GroupRefusal` where the group takes no other expression, which this is."""
        self._refused.pop(regex, None)
        if copy.regexes_count >= CONSUMER_GROUP_REGEXES_MAX:
            raise too_large(
                f"group {self._group_id!r} subscribes to {CONSUMER_GROUP_REGEXES_MAX} expressions, that is the most"
            )
        if copy.regexes_bytes + len(regex.encode()) > CONSUMER_GROUP_REGEXES_BYTES_MAX:
            raise too_large(
                f"expressions of group {self._group_id!r} may have {CONSUMER_GROUP_REGEXES_BYTES_MAX} bytes together"
            )

    def check_match(self, regex: str) -> None:
        """Raise `GroupRefusal` where the expression was found to match more than there is room for.

        There is nothing wrong with it, so that it is not INVALID_REGULAR_EXPRESSION: the group is full.
        """
        problem = self._refused.get(regex)
        if problem is not None:
            raise too_large(f"SubscribedTopicRegex {regex!r} of group {self._group_id!r} cannot be followed: {problem}")

    def due(self, copy: GroupCopy, config: ConsumerGroupConfig, now_s: float, *, are_topics_new: bool) -> list[str]:
        """Expressions that are to be looked up now, all of the group at once, so that they cause one rebalance."""
        regexes = copy.subscribed_regexes()
        if not regexes:
            return []
        since_s = None if self._resolved_s is None else now_s - self._resolved_s
        if since_s is not None and since_s <= CONSUMER_GROUP_REGEX_REFRESH_SECONDS_MIN:
            return []
        is_unresolved = any(regex not in copy.group.regexes and regex not in self._refused for regex in regexes)
        is_old = since_s is None or since_s * 1000 > config.regex_refresh_ms
        return regexes if is_unresolved or are_topics_new or is_old else []

    def put(
        self, copy: GroupCopy, found: Mapping[str, tuple[str, ...]], find_topic: FindTopic, now_s: float
    ) -> list[ConsumerGroupChange]:
        """Take in what expressions match, as far as there is room: the rows, by entries. Only the last of them raises
        the group epoch, where any expression matches something else than before.

        Differs from Kafka: also where an expression that is new matches nothing. Its members may have had another one
        before, and what that gave them would else be nobody's.
        """
        self._resolved_s = now_s
        before = copy.group.regexes
        room = room_for({regex: names for regex, names in found.items() if copy.regex_count(regex)}, before)
        self._refused = room.refused
        self._problems.note(_PROBLEM, is_so=bool(room.kept or room.refused))
        has_changed = any(before.get(regex) != names for regex, names in room.taken.items())
        changes: list[ConsumerGroupChange | None] = []
        bytes_count = 0
        for regex, names in sorted(room.taken.items()):
            size = names_bytes(names)
            if bytes_count and bytes_count + size > CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX:
                changes.append(copy.take_change())
                bytes_count = 0
            bytes_count += size
            copy.put_regex(regex, names)
        topics_hash = copy.topics_hash(find_topic)
        if has_changed or topics_hash != copy.group.topics_hash:
            copy.raise_epoch(topics_hash)
        changes.append(copy.take_change())
        return [change for change in changes if change is not None]


@dataclass(slots=True, kw_only=True)
class Room:
    """What a group has room for of what its expressions were found to match."""

    taken: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """These match what was found."""
    kept: list[str] = field(default_factory=list[str])
    """These match what they did before."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """These match nothing, and never did; why."""


def room_for(found: Mapping[str, tuple[str, ...]], before: Mapping[str, tuple[str, ...]]) -> Room:
    """Which expressions take what was found; `before` is what those of the group match until now.

    First those that matched something before: what members have is not taken away for others. Then small ones.
    """
    room = Room()
    total = sum(names_bytes(names) for regex, names in before.items() if regex not in found)
    for regex, names in sorted(found.items(), key=lambda row: (row[0] not in before, names_bytes(row[1]), row[0])):
        size = names_bytes(names)
        if total + size > CONSUMER_GROUP_NAMES_BYTES_MAX:
            problem = f"those of all expressions of a group may take {CONSUMER_GROUP_NAMES_BYTES_MAX}"
        elif size > CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX and not fits(_row(regex, names)):
            problem = "they do not fit into a ledger entry"
        else:
            room.taken[regex] = names
            total += size
            continue
        if regex in before:
            room.kept.append(regex)
            total += names_bytes(before[regex])
        else:
            room.refused[regex] = f"it matches {len(names)} topics, whose names take {size} bytes; {problem}"
    return room


def names_bytes(names: Sequence[str]) -> int:
    """What names of topics, which are ASCII, take before compression."""
    return sum(map(len, names)) + TEXT_HEAD_BYTES * len(names)


def _row(regex: str, names: tuple[str, ...]) -> ConsumerGroupChange:
    return ConsumerGroupChange(epoch=1, target_epoch=1, topics_hash=b"", regexes=((regex, names),))
