"""How one member of a consumer group (KIP-848) comes from what it has to what the target assignment gives it.

Rule: pure; the next step of one member, from its own standing, its target, what it says that it still has, and who else
has partitions. A partition is given to a member only where no other has it: so none has two owners at a time. It stays
with a member that has to give it up until that one has said, by leaving it out, that it did.

| state | what is looked at | then |
|---|---|---|
| STABLE | target epoch is another | next step |
| | the same, but the subscription changed | gives up what it does not subscribe to |
| UNREVOKED_PARTITIONS | it still has, or does not say that it has not, what it is to give up | waits |
| | it has given all of it up | next step |
| UNRELEASED_PARTITIONS | | next step |

Next step: keep what is in the target; give up the rest first, in the old epoch; then take what is free, in the target's
epoch; STABLE where that is all of the target, else UNRELEASED_PARTITIONS.
Source: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder, Kafka 4.3.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import assert_never

from coordinator.commands.consumer_group_values import (
    MemberAssignment,
    MemberState,
    OwnedPartitions,
    Partitions,
    is_reconciled,
    owned,
)
from protocol.types import PartitionIndex, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The goal of a member's reconciliation."""

    epoch: int
    """The epoch of the target assignment."""
    target: Partitions
    subscribed: Callable[[], AbstractSet[TopicId]]
    """The topics that it subscribes to and that exist; asked only where there is something to do."""
    has_changed: bool
    """Its subscription is another than before: what it must not have any more goes at once."""
    is_free: Callable[[TopicId, PartitionIndex], bool]
    """Whether no other member has the partition."""


def reconcile(standing: MemberAssignment, aim: Aim, said: Partitions | None) -> MemberAssignment:
    """Where the member stands after one step; `standing` itself where nothing can be done.

    `said`: the partitions that it says it has; None where it says nothing of it.
    """
    if not aim.has_changed and is_reconciled(standing, aim.epoch):
        return standing
    match standing.state:
        case MemberState.STABLE:
            if standing.epoch != aim.epoch:
                return _next_step(standing, aim, said)
            return _drop_unsubscribed(standing, aim, said)
        case MemberState.UNREVOKED_PARTITIONS:
            if not _has_any(said, standing.revoking):
                return _next_step(standing, aim, said)
            return _drop_unsubscribed(standing, aim, said) if aim.has_changed else standing
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_step(standing, aim, said)
        case _:
            assert_never(standing.state)


def has_only(said: Partitions | None, assigned: OwnedPartitions) -> bool:
    """Whether the member says that it has partitions, and these are all its own."""
    if said is None:
        return False
    own = {topic_id: {index for index, _ in rows} for topic_id, rows in assigned}
    return all(own.get(topic_id, set()).issuperset(indexes) for topic_id, indexes in said)


def _has_any(said: Partitions | None, revoking: OwnedPartitions) -> bool:
    """Whether the member has some of them still, as far as it says."""
    if said is None:
        return True
    indexes_of = {topic_id: {index for index, _ in rows} for topic_id, rows in revoking}
    return any(not indexes_of[topic_id].isdisjoint(indexes) for topic_id, indexes in said if topic_id in indexes_of)


def _next_step(standing: MemberAssignment, aim: Aim, said: Partitions | None) -> MemberAssignment:
    subscribed = aim.subscribed()
    target = {topic_id: indexes for topic_id, indexes in aim.target if topic_id in subscribed}
    had = {topic_id: dict(rows) for topic_id, rows in standing.assigned}
    assigned: dict[TopicId, dict[PartitionIndex, int]] = {}
    given_up: dict[TopicId, dict[PartitionIndex, int]] = {}
    for topic_id, rows in had.items():
        stays = set(target.get(topic_id, ()))
        assigned[topic_id] = {index: epoch for index, epoch in rows.items() if index in stays}
        given_up[topic_id] = {index: epoch for index, epoch in rows.items() if index not in stays}
    revoking = owned(given_up)
    if revoking and _has_any(said, revoking):
        return replace(standing, state=MemberState.UNREVOKED_PARTITIONS, assigned=owned(assigned), revoking=revoking)
    has_all = True
    for topic_id, indexes in target.items():
        rows = assigned.setdefault(topic_id, {})
        for index in indexes:
            if index in rows:
                continue
            if aim.is_free(topic_id, index):
                rows[index] = aim.epoch
            else:
                has_all = False
    return MemberAssignment(
        epoch=aim.epoch,
        previous_epoch=_previous_epoch(standing, aim.epoch),
        state=MemberState.STABLE if has_all else MemberState.UNRELEASED_PARTITIONS,
        assigned=owned(assigned),
        revoking=(),
    )


def _drop_unsubscribed(standing: MemberAssignment, aim: Aim, said: Partitions | None) -> MemberAssignment:
    """Give up the topics that the member does not subscribe to any more, whatever the target still says."""
    subscribed = aim.subscribed()
    dropped = {topic_id: dict(rows) for topic_id, rows in standing.assigned if topic_id not in subscribed}
    if not dropped:
        return standing
    assigned = tuple((topic_id, rows) for topic_id, rows in standing.assigned if topic_id in subscribed)
    leaving = {topic_id: dict(rows) for topic_id, rows in standing.revoking}
    for topic_id, rows in dropped.items():
        leaving.setdefault(topic_id, {}).update(rows)
    revoking = owned(leaving)
    if _has_any(said, revoking):
        return replace(standing, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking)
    return replace(standing, assigned=assigned)


def _previous_epoch(standing: MemberAssignment, epoch: int) -> int:
    """The epoch that the member may still send where the answer with the new one was lost.

    Differs from Kafka: a step that leaves the epoch as it is leaves this as it is too, and costs no entry.
    """
    return standing.previous_epoch if epoch == standing.epoch else standing.epoch
