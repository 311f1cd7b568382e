"""Has groups forget offsets that they need not keep any longer, and drops groups of which nothing is left.

Rule: the maintenance leader alone proposes it, with a time from a checked clock; without one no offset goes (safety
rule S2). What goes is worked out where the entry is applied (`coordinator.groups.offset_expiry`), by the state's time
or the proposed one, whichever is less. Nothing is written while nothing is due. An entry is small, and the next one is
written when it was applied: applying one holds up every agent. A group that has neither members nor offsets may just be
joined: it goes once it was found like this twice, with nothing changed in between. That needs no time: as long as no
clock is checked, such groups are proposed with none, and nothing else is due then. One that is nothing but a claim,
which is what is left of a request for an invented id, is looked for more often: there is room for so many groups. Time
and interval: offsets.retention.minutes, offsets.retention.check.interval.ms, as this agent was given them. Source:
org.apache.kafka.coordinator.group.GroupCoordinatorShard.cleanupGroupMetadata (Kafka 4.3).
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Refused
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
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        maintenance_leader: MaintenanceLeader,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        broker_configs: Mapping[str, str],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._maintenance_leader = maintenance_leader
        self._clock = clock
        self._proposed_time = proposed_time
        self._retention_ms = int(broker_value(broker_configs, "offsets.retention.minutes")) * MINUTE_MS
        self._interval_s = int(broker_value(broker_configs, "offsets.retention.check.interval.ms")) / 1000
        joining_s = int(broker_value(broker_configs, "group.initial.rebalance.delay.ms")) / 1000
        self._vacant_s = max(VACANT_GROUP_SECONDS, joining_s)
        self._bare: dict[str, tuple[int, int]] = {}
        """Claim and version of groups that had neither members nor offsets when it was last looked."""
        self._vacant: dict[str, tuple[int, float]] = {}
        """The claims of groups that were nothing but a claim, and since when that is known."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        looks_count = max(1, math.ceil(self._interval_s / VACANT_GROUPS_LOOK_SECONDS_MAX))
        while True:
            for look in range(looks_count):
                await self._clock.sleep(self._interval_s / looks_count)
                if not self._maintenance_leader.is_leader:
                    continue
                if look < looks_count - 1:
                    await self.drop_vacant()
                else:
                    await self.expire()

    async def expire(self) -> int:
        """Propose to drop what is due; returns in how many groups something was."""
        now_ms = self._proposed_time()
        due = await self._due(now_ms)
        await self._propose(NO_TIME if now_ms is None else now_ms, due)
        if due:
            log.info("dropped offsets that groups kept for long enough", extra={"groups": len(due)})
        return len(due)

    async def drop_vacant(self) -> int:
        """Propose to drop groups that are nothing but a claim; returns how many."""
        turns = CooperativeYield(self._clock)
        now_s = self._clock.monotonic_s()
        found: dict[str, tuple[int, float]] = {}
        for group_id in tuple(self._metadata.state.vacant_groups):
            group = self._metadata.state.groups.get(group_id)
            if group is not None and group.is_vacant:
                epoch, since_s = self._vacant.get(group_id, (group.claim_epoch, now_s))
                found[group_id] = group.claim_epoch, since_s if epoch == group.claim_epoch else now_s
            await turns.step()
        self._vacant = found
        due = [(group_id, 0) for group_id, (_, since_s) in found.items() if now_s - since_s >= self._vacant_s]
        await self._propose(NO_TIME, due)
        if due:
            log.info("dropped groups that nobody joined, nor committed offsets for", extra={"groups": len(due)})
        return len(due)

    async def _propose(self, now_ms: Milliseconds, due: Sequence[tuple[str, int]]) -> None:
        """At `NO_TIME` no offset is due (but for one that says itself that it is not kept), so only groups go."""
        for share in _shares(due):
            command = ExpireOffsets(now_ms=now_ms, retention_ms=self._retention_ms, group_ids=tuple(share))
            outcome = await self._writer.propose(command)
            if isinstance(outcome, Refused):
                log.warning("offsets that are due stay until the next time", extra={"reason": outcome.reason})

    async def _due(self, now_ms: Milliseconds | None) -> list[tuple[str, int]]:
        """The groups of which something has to go, with how many offsets each has."""
        turns = CooperativeYield(self._clock)
        found: list[tuple[str, int]] = []
        bare: dict[str, tuple[int, int]] = {}
        for group_id, group in list(self._metadata.state.groups.items()):
            offsets_count = count_offsets([group])
            if not offsets_count and not group.pending and not group.has_members:
                bare[group_id] = group.claim_epoch, group.version
            is_aged = now_ms is not None and self._is_due(group, now_ms)
            if is_aged or (group_id in bare and bare[group_id] == self._bare.get(group_id)):
                found.append((group_id, offsets_count))
            for _ in range(1 + offsets_count):
                await turns.step()
        self._bare = bare
        return found

    def _is_due(self, group: GroupState, now_ms: Milliseconds) -> bool:
        if _is_kept(group):
            return False
        topics = self._metadata.state.topics
        names = {topic_id: topics[topic_id].name for topic_id in group.offsets if topic_id in topics}
        return bool(due_offsets(group, names, now_ms, self._retention_ms))


def _is_kept(group: GroupState) -> bool:
    """Whether the group's offsets stay until it is deleted (`protocol.kept_offsets`). Nothing of it is proposed: what
    is due is worked out where the entry is applied, which knows of no such offset."""
    return any(found.metadata == KEPT_OFFSET for of_topic in group.offsets.values() for found in of_topic.values())


def _shares(groups: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """The groups in their order, as many of them together as one entry may have: by number, offsets, and their ids."""
    share: list[str] = []
    offsets_left, chars_left = OFFSETS_PER_COMMIT_ENTRY_MAX, EXPIRING_GROUP_CHARS_PER_ENTRY_MAX
    for group_id, offsets_count in groups:
        is_full = len(share) == EXPIRING_GROUPS_PER_ENTRY_MAX
        if share and (is_full or offsets_count > offsets_left or len(group_id) > chars_left):
            yield share
            share = []
            offsets_left, chars_left = OFFSETS_PER_COMMIT_ENTRY_MAX, EXPIRING_GROUP_CHARS_PER_ENTRY_MAX
        share.append(group_id)
        offsets_left -= offsets_count
        chars_left -= len(group_id)
    if share:
        yield share
