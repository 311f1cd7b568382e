"""Applies retention: deletes records beyond their topics' retention.ms and retention.bytes.

The maintenance leader proposes `ApplyRetention` for the partitions with something to delete; apply decides again what
goes. Interval and defaults: log.retention.check.interval.ms, log.retention.* and log.cleanup.policy of this agent.
Source: org.apache.kafka.storage.internals.log.LogManager.cleanupLogs (Kafka 4.3).
"""

import logging
from collections.abc import Iterator, Sequence

from agent.context import AgentContext
from agent.ledger.entry_batches import batches, split
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import CooperativeYield
from coordinator.apply.retention import due_chunks
from coordinator.commands.commands import ApplyRetention, Rejected
from coordinator.configs.broker_configs import broker_value
from coordinator.configs.config_types import split_list
from coordinator.configs.topic_configs import effective
from protocol.limits import DROPPED_CHUNKS_PER_ENTRY_MAX, RETENTION_TOPICS_LISTED_MAX
from protocol.types import Milliseconds, TopicId

log = logging.getLogger(__name__)

PartitionId = tuple[TopicId, int]
"""A topic and a partition's index."""


class Retention:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(self, context: AgentContext) -> None:
        self._ledger = context.ledger
        self._clock = context.clock
        self._proposed_time = context.proposed_time
        self._broker_configs = context.broker_configs
        self._interval_s = int(broker_value(context.broker_configs, "log.retention.check.interval.ms")) / 1000

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(name="retention", interval_s=self._interval_s, run_once=self.retain, is_for_leader=True)

    async def retain(self) -> int:
        """Propose to delete expired records. Returns the number of partitions with any."""
        now_ms = self._proposed_time()
        if now_ms is None:  # no checked clock: nothing is deleted (safety rule S2)
            return 0
        due_partitions = await self._due_partitions(self._proposal(now_ms, ()))
        for batch in batches((partition, chunks) for partition, count in due_partitions for chunks in split(count)):
            # The next entry waits until this one is applied: applying it delays every agent.
            outcome = await self._ledger.propose(self._proposal(now_ms, batch))
            if isinstance(outcome, Rejected):
                log.warning(
                    "expired records were not deleted; the next check tries again", extra={"reason": outcome.reason}
                )
        if due_partitions:
            state = self._ledger.state
            topics = {state.topics[topic_id].name for (topic_id, _), _ in due_partitions if topic_id in state.topics}
            names = ", ".join(sorted(topics)[:RETENTION_TOPICS_LISTED_MAX])
            log.info(
                "deleted records by retention",
                extra={"partitions": len(due_partitions), "topics_count": len(topics), "topics": names},
            )
        return len(due_partitions)

    def _proposal(self, now_ms: Milliseconds, partitions: Sequence[PartitionId]) -> ApplyRetention:
        """The entry for some partitions. It carries this agent's defaults for topics without overrides."""
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

    async def _due_partitions(self, proposed: ApplyRetention) -> list[tuple[PartitionId, int]]:
        """The partitions with expired chunks, and the number of these chunks."""
        turns = CooperativeYield(self._clock)
        due_partitions: list[tuple[PartitionId, int]] = []
        for topic in list(self._ledger.state.topics.values()):
            for index, chunk_count in enumerate(due_chunks(self._ledger.state, topic, proposed)):
                if chunk_count is not None:
                    due_partitions.append(((topic.topic_id, index), chunk_count))
                await turns.step()
        return due_partitions


def _ranges(partitions: Sequence[PartitionId]) -> Iterator[tuple[TopicId, int, int]]:
    """Ranges of neighbouring partitions of one topic: the topic, the first partition, and the end."""
    first = 0
    for end in range(1, len(partitions) + 1):
        topic_id, index = partitions[end - 1]
        if end == len(partitions) or partitions[end] != (topic_id, index + 1):
            yield topic_id, partitions[first][1], index + 1
            first = end
