"""Expires committed offsets, and deletes groups without members and offsets.

The maintenance leader proposes `ExpireOffsets` for the groups with something to expire. Apply decides again what goes
(`coordinator.groups.offset_expiry`): by the state's time or the proposed time, whichever is less (safety rule S2).

Retention and interval: offsets.retention.minutes, offsets.retention.check.interval.ms of this agent. Source:
org.apache.kafka.coordinator.group.GroupCoordinatorShard.cleanupGroupMetadata (Kafka 4.3).
"""

import logging
import math
from collections.abc import Iterator, Sequence

from agent.context import AgentContext
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Rejected
from coordinator.commands.group import ExpireOffsets
from coordinator.commands.group_values import GroupState, count_offsets
from coordinator.configs.broker_configs import broker_value
from coordinator.groups.offset_expiry import due_offsets
from coordinator.state.state import NO_TIME
from protocol.kept_offsets import KEPT_OFFSET
from protocol.limits import (
    EXPIRING_GROUP_CHARS_PER_ENTRY_MAX,
    EXPIRING_GROUPS_PER_ENTRY_MAX,
    OFFSETS_PER_COMMIT_ENTRY_MAX,
    VACANT_GROUP_SECONDS,
    VACANT_GROUPS_LOOK_SECONDS_MAX,
)
from protocol.types import Milliseconds

log = logging.getLogger(__name__)

MINUTE_MS = 60_000


class OffsetExpiry:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(self, context: AgentContext, *, maintenance_leader: MaintenanceLeader) -> None:
        self._ledger = context.ledger
        self._maintenance_leader = maintenance_leader
        self._clock = context.clock
        self._proposed_time = context.proposed_time
        self._retention_ms = int(broker_value(context.broker_configs, "offsets.retention.minutes")) * MINUTE_MS
        self._interval_s = int(broker_value(context.broker_configs, "offsets.retention.check.interval.ms")) / 1000
        # A request for any group id leaves a claim, and the state holds a bounded number of groups. So groups that
        # consist of a claim only are looked for more often than `offsets.retention.check.interval.ms`.
        self._checks_per_interval = max(1, math.ceil(self._interval_s / VACANT_GROUPS_LOOK_SECONDS_MAX))
        self._checks_count = 0
        """The number of checks in the present interval."""
        joining_s = int(broker_value(context.broker_configs, "group.initial.rebalance.delay.ms")) / 1000
        self._vacant_s = max(VACANT_GROUP_SECONDS, joining_s)
        self._bare: dict[str, tuple[int, int]] = {}
        """The claim epoch and version of groups that had neither members nor offsets at the last check."""
        self._vacant: dict[str, tuple[int, float]] = {}
        """The claim epoch of groups that consist of a claim only, and the monotonic time of their first check."""

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="offset expiry",
            interval_s=self._interval_s / self._checks_per_interval,
            run_once=self._drop_vacant_or_expire,
        )

    async def _drop_vacant_or_expire(self) -> None:
        """Delete vacant groups, and once in the interval expire offsets."""
        # An error begins the interval again.
        checks_count, self._checks_count = self._checks_count + 1, 0
        is_expiring = checks_count == self._checks_per_interval
        if self._maintenance_leader.is_leader:
            await (self.expire() if is_expiring else self.drop_vacant())
        self._checks_count = 0 if is_expiring else checks_count

    async def expire(self) -> int:
        """Propose to expire offsets. Returns the number of groups with something to expire."""
        now_ms = self._proposed_time()
        due_groups = await self._due_groups(now_ms)
        # Without a checked clock no offset expires (safety rule S2). Groups without members and offsets need no time.
        await self._propose(NO_TIME if now_ms is None else now_ms, due_groups)
        if due_groups:
            log.info("expired committed offsets, or deleted empty groups", extra={"groups": len(due_groups)})
        return len(due_groups)

    async def drop_vacant(self) -> int:
        """Propose to delete groups that consist of a claim only. Returns their number."""
        turns = CooperativeYield(self._clock)
        now_s = self._clock.monotonic_s()
        vacant: dict[str, tuple[int, float]] = {}
        for group_id in tuple(self._ledger.state.vacant_groups):
            group = self._ledger.state.groups.get(group_id)
            if group is not None and group.is_vacant:
                epoch, since_s = self._vacant.get(group_id, (group.claim_epoch, now_s))
                vacant[group_id] = group.claim_epoch, since_s if epoch == group.claim_epoch else now_s
            await turns.step()
        self._vacant = vacant
        due_groups = [(group_id, 0) for group_id, (_, since_s) in vacant.items() if now_s - since_s >= self._vacant_s]
        await self._propose(NO_TIME, due_groups)
        if due_groups:
            log.info("deleted groups that never had members or offsets", extra={"groups": len(due_groups)})
        return len(due_groups)

    async def _propose(self, now_ms: Milliseconds, due_groups: Sequence[tuple[str, int]]) -> None:
        """Propose small entries, one after the other. At `NO_TIME` only offsets with their own retention expire."""
        for batch in _batches(due_groups):
            command = ExpireOffsets(now_ms=now_ms, retention_ms=self._retention_ms, group_ids=tuple(batch))
            # The next entry waits until this one is applied: applying it delays every agent.
            outcome = await self._ledger.propose(command)
            if isinstance(outcome, Rejected):
                log.warning("offsets were not expired; the next check tries again", extra={"reason": outcome.reason})

    async def _due_groups(self, now_ms: Milliseconds | None) -> list[tuple[str, int]]:
        """The groups with something to expire, and the number of offsets of each."""
        turns = CooperativeYield(self._clock)
        due_groups: list[tuple[str, int]] = []
        bare: dict[str, tuple[int, int]] = {}
        for group_id, group in list(self._ledger.state.groups.items()):
            offsets_count = count_offsets([group])
            if not offsets_count and not group.pending and not group.has_members:
                bare[group_id] = group.claim_epoch, group.version
            is_expired = now_ms is not None and self._is_expired(group, now_ms)
            # A group without members and offsets may be about to get its first member. It is deleted once two checks in
            # a row found it unchanged.
            if is_expired or (group_id in bare and bare[group_id] == self._bare.get(group_id)):
                due_groups.append((group_id, offsets_count))
            for _ in range(1 + offsets_count):
                await turns.step()
        self._bare = bare
        return due_groups

    def _is_expired(self, group: GroupState, now_ms: Milliseconds) -> bool:
        if _has_kept_offsets(group):
            return False
        topics = self._ledger.state.topics
        names = {topic_id: topics[topic_id].name for topic_id in group.offsets if topic_id in topics}
        return bool(due_offsets(group, names, now_ms, self._retention_ms))


def _has_kept_offsets(group: GroupState) -> bool:
    """Whether the group's offsets stay until it is deleted (`protocol.kept_offsets`).

    Such a group is never proposed, because apply does not know about these offsets, and would expire them.
    """
    return any(offset.metadata == KEPT_OFFSET for of_topic in group.offsets.values() for offset in of_topic.values())


def _batches(groups: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """The groups in order, in batches for one entry each: limited in groups, offsets, and characters of their ids."""
    batch: list[str] = []
    offsets_left, chars_left = OFFSETS_PER_COMMIT_ENTRY_MAX, EXPIRING_GROUP_CHARS_PER_ENTRY_MAX
    for group_id, offsets_count in groups:
        is_full = len(batch) == EXPIRING_GROUPS_PER_ENTRY_MAX
        if batch and (is_full or offsets_count > offsets_left or len(group_id) > chars_left):
            yield batch
            batch = []
            offsets_left, chars_left = OFFSETS_PER_COMMIT_ENTRY_MAX, EXPIRING_GROUP_CHARS_PER_ENTRY_MAX
        batch.append(group_id)
        offsets_left -= offsets_count
        chars_left -= len(group_id)
    if batch:
        yield batch
