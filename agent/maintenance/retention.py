"""Has records dropped that are older or more than their topics keep.

Rule: the maintenance leader alone proposes it, with a time from a checked clock; without one nothing is dropped (safety
rule S2). What goes is worked out where the entry is applied; nothing is written while nothing is due. An entry is
small, and the next one is written when it was applied: applying one holds up every agent
(`agent.ledger.entry_batches`). Interval and defaults: log.retention.check.interval.ms, log.retention.* and
log.cleanup.policy, as they hold on this agent. Source: org.apache.kafka.storage.internals.log.LogManager.cleanupLogs
(Kafka 4.3).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.entry_batches import batches, split
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.yielding import CooperativeYield
from coordinator.apply.retention import due_chunks
from coordinator.commands.commands import ApplyRetention, Refused
from coordinator.configs.broker_configs import broker_value
from coordinator.configs.config_types import split_list
from coordinator.configs.topic_configs import effective
from protocol.limits import DROPPED_CHUNKS_PER_ENTRY_MAX, RETENTION_TOPICS_LISTED_MAX
from protocol.types import Milliseconds, TopicId

log = logging.getLogger(__name__)

PartitionId = tuple[TopicId, int]
"""A topic and a partition's index."""


class Retention:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        maintenance_leader: MaintenanceLeader,
        broker_configs: Mapping[str, str],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._proposed_time = proposed_time
        self._maintenance_leader = maintenance_leader
        self._broker_configs = broker_configs
        self._interval_s = int(broker_value(broker_configs, "log.retention.check.interval.ms")) / 1000

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self._clock.sleep(self._interval_s)
            if self._maintenance_leader.is_leader:
                await self.retain()

    async def retain(self) -> int:
        """Propose to drop what is due; returns in how many partitions something was."""
        now_ms = self._proposed_time()
        if now_ms is None:
            return 0
        due = await self._due(self._proposal(now_ms, ()))
        for batch in batches((partition, chunks) for partition, count in due for chunks in split(count)):
            outcome = await self._writer.propose(self._proposal(now_ms, batch))
            if isinstance(outcome, Refused):
                log.warning("records that are due stay until the next time", extra={"reason": outcome.reason})
        if due:
            state = self._metadata.state
            topics = {state.topics[topic_id].name for (topic_id, _), _ in due if topic_id in state.topics}
            names = ", ".join(sorted(topics)[:RETENTION_TOPICS_LISTED_MAX])
            log.info(
                "dropped records that were too old or too many",
                extra={"partitions": len(due), "topics_count": len(topics), "topics": names},
            )
        return len(due)

    def _proposal(self, now_ms: Milliseconds, partitions: Sequence[PartitionId]) -> ApplyRetention:
        """With the defaults of this agent, for topics that do not say themselves."""
        ranges = list(_ranges(partitions))
        return ApplyRetention(
            now_ms=now_ms,
            topic_ids=tuple(topic_id for topic_id, _, _ in ranges),
            retention_ms=int(effective({}, self._broker_configs, "retention.ms")),
            retention_bytes=int(effective({}, self._broker_configs, "retention.bytes")),
            is_deleting="delete" in split_list(effective({}, self._broker_configs, "cleanup.policy")),
            partitions=tuple((first, end) for _, first, end in ranges),
            chunks_max=DROPPED_CHUNKS_PER_ENTRY_MAX,
        )

    async def _due(self, proposed: ApplyRetention) -> list[tuple[PartitionId, int]]:
        """The partitions of which something has to go, with the number of chunks."""
        turns = CooperativeYield(self._clock)
        due: list[tuple[PartitionId, int]] = []
        for topic in list(self._metadata.state.topics.values()):
            for index, chunk_count in enumerate(due_chunks(self._metadata.state, topic, proposed)):
                if chunk_count is not None:
                    due.append(((topic.topic_id, index), chunk_count))
                await turns.step()
        return due


def _ranges(partitions: Sequence[PartitionId]) -> Iterator[tuple[TopicId, int, int]]:
    """Neighbours of one topic together, as the first of them and the end."""
    first = 0
    for end in range(1, len(partitions) + 1):
        topic_id, index = partitions[end - 1]
        if end == len(partitions) or partitions[end] != (topic_id, index + 1):
            yield topic_id, partitions[first][1], index + 1
            first = end
