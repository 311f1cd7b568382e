"""Keeps topics' tables in step with the log where no pass does: files whose last chunks left the log leave the table.

Rule: what has to go is derived state (`TableState.unneeded`); a commit of the table alone drops it, and the object goes
when no snapshot that is kept needs it any more (safety rule S6). Snapshots that have not been current for the grace
expire for that, so that a topic without traffic does not keep what retention removed. The agent that rendezvous hashing
names for the topic does it, as for archive passes. A refused commit is made anew from the state at the next look.
"""

import logging
from functools import partial

from agent.lake.table_commits import TableCommits
from agent.lake.topic_work import TopicWork
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.commands.commands import CommitTable, Done
from coordinator.state.rendezvous import owner_of
from protocol.limits import SNAPSHOT_EXPIRY_CHECK_INTERVAL_S, TABLE_LOOKS_PER_GRACE
from protocol.types import TopicId

log = logging.getLogger(__name__)


class SnapshotExpiry:
    """Every agent has one."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        lake: TableCommits,
        clock: Clock,
        metrics: Metrics,
        superseded_ms: int,
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._lake = lake
        self._clock = clock
        self._metrics = metrics
        self._superseded_ms = superseded_ms
        self._work = TopicWork(
            "snapshot expiry",
            failing="a table is not kept up, and files that left the log stay",
            clock=clock,
            metrics=metrics,
        )
        self._waiting: dict[TopicId, tuple[int, float]] = {}
        """How many files wait for a snapshot to expire, and when to look again."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self._clock.sleep(SNAPSHOT_EXPIRY_CHECK_INTERVAL_S)
            for topic_id in list(self._metadata.state.topics):
                topic = self._metadata.state.topics.get(topic_id)
                if topic is not None and self._is_due(topic_id) and self._work.is_due(topic):
                    await self._work.run(topic, partial(self.keep, topic_id))
            self._work.forget_others(self._metadata.state.topics)

    def _is_due(self, topic_id: TopicId) -> bool:
        state = self._metadata.state
        topic = state.topics.get(topic_id)
        if topic is None or owner_of(topic_id, state.sessions) != self._writer.session:
            self._waiting.pop(topic_id, None)
            return False
        if not self._lake.is_complete(topic_id):
            return True
        if topic.table is None or not topic.table.unneeded:
            self._waiting.pop(topic_id, None)
            return False
        seen, until_s = self._waiting.get(topic_id, (0, 0.0))
        return seen != len(topic.table.unneeded) or self._clock.monotonic_s() >= until_s

    async def keep(self, topic_id: TopicId) -> int:
        """Have a topic's table hold all files of the log, and no other for longer than snapshots stay.

        Returns how many files it let go of. Raises `StoreError`s and `OutcomeUnknown`: try again, but for
        `TableUnreadable`, where people must look.
        """
        async with self._lake.turn(topic_id):
            name = await self._lake.name()
            if not await self._lake.complete(topic_id, name.session):
                return 0
            change = await self._lake.expire_snapshots(topic_id, superseded_ms=self._superseded_ms)
            if change is None:
                self._wait(topic_id)
                return 0
            table = await self._lake.prepare(topic_id, change, name.session)
            if table is None:
                return 0
            outcome = await self._lake.propose(CommitTable(topic_id=topic_id, object_session=name.session, table=table))
        if not isinstance(outcome, Done):
            log.info("a table's commit was refused", extra={"topic_id": topic_id.hex(), "outcome": str(outcome)})
            return 0
        self._metrics.table_files_dropped.inc(len(change.dropped))
        log.info(
            "a table let go of files that had left the log",
            extra={"topic_id": topic_id.hex(), "files": len(change.dropped), "released": len(table.released)},
        )
        return len(change.dropped)

    def _wait(self, topic_id: TopicId) -> None:
        """Until more has to go, or a snapshot may have become old enough."""
        topic = self._metadata.state.topics.get(topic_id)
        if topic is not None and topic.table is not None:
            later_s = max(SNAPSHOT_EXPIRY_CHECK_INTERVAL_S, self._superseded_ms / 1000 / TABLE_LOOKS_PER_GRACE)
            self._waiting[topic_id] = (len(topic.table.unneeded), self._clock.monotonic_s() + later_s)
