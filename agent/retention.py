"""Has records dropped that are older or more than their topics keep.

Rule: the housekeeper alone proposes it, with a time from a checked clock; without one nothing is dropped (safety rule
S2). What goes is worked out where the entry is applied; nothing is written while nothing is due. Interval and defaults:
log.retention.check.interval.ms, log.retention.* and log.cleanup.policy, as this agent was given them.
Source: org.apache.kafka.storage.internals.log.LogManager.cleanupLogs (Kafka 4.3).
"""

import logging
from collections.abc import Callable, Mapping

from agent.clock import Clock
from agent.housekeeper import Housekeeper
from agent.ledger_writer import LedgerWriter
from agent.metadata_loop import MetadataLoop
from agent.turns import Turns
from coordinator.apply_retention import is_due
from coordinator.broker_configs import broker_value
from coordinator.commands import ApplyRetention, Refused
from coordinator.config_types import split_list
from coordinator.topic_configs import effective
from protocol.limits import RETENTION_TOPICS_PER_ENTRY_MAX
from protocol.types import Milliseconds, TopicId

log = logging.getLogger(__name__)


class Retention:
    """Every agent has one; the housekeeper's works."""

    def __init__(
        self,
        *,
        metadata: MetadataLoop,
        writer: LedgerWriter,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        housekeeper: Housekeeper,
        broker_configs: Mapping[str, str],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._proposed_time = proposed_time
        self._housekeeper = housekeeper
        self._broker_configs = broker_configs
        self._interval_s = int(broker_value(broker_configs, "log.retention.check.interval.ms")) / 1000

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self._clock.sleep(self._interval_s)
            if self._housekeeper.is_mine:
                await self.retain()

    async def retain(self) -> int:
        """Propose to drop what is due; returns in how many topics something was."""
        now_ms = self._proposed_time()
        if now_ms is None:
            return 0
        topic_ids = await self._due(self._proposal(now_ms, ()))
        for first in range(0, len(topic_ids), RETENTION_TOPICS_PER_ENTRY_MAX):
            ids = tuple(topic_ids[first : first + RETENTION_TOPICS_PER_ENTRY_MAX])
            outcome = await self._writer.submit(self._proposal(now_ms, ids))
            if isinstance(outcome, Refused):
                log.warning("records that are due stay until the next time", extra={"reason": outcome.reason})
            else:
                log.info("dropped records that were too old or too many", extra={"topics": len(ids)})
        return len(topic_ids)

    def _proposal(self, now_ms: Milliseconds, topic_ids: tuple[TopicId, ...]) -> ApplyRetention:
        """With the defaults of this agent, for topics that do not say themselves."""
        return ApplyRetention(
            now_ms=now_ms,
            topic_ids=topic_ids,
            retention_ms=int(effective({}, self._broker_configs, "retention.ms")),
            retention_bytes=int(effective({}, self._broker_configs, "retention.bytes")),
            is_deleting="delete" in split_list(effective({}, self._broker_configs, "cleanup.policy")),
        )

    async def _due(self, proposed: ApplyRetention) -> list[TopicId]:
        turns = Turns(self._clock)
        due: list[TopicId] = []
        for topic in list(self._metadata.state.topics.values()):
            if is_due(topic, proposed):
                due.append(topic.topic_id)
            for _ in topic.partitions:
                await turns.row()
        return due
