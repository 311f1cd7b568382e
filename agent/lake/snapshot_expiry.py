"""Expires snapshots, and removes data files from tables after their last chunks left the log.

`TableState.unneeded` names these files. A commit of the table removes them, and an object is deleted once no snapshot
of the table refers to it any more (safety rule S6). So a topic without traffic does not keep what retention removed.
As with archive passes, rendezvous hashing names the agent for each topic.
"""

import logging
from functools import partial

from agent.context import AgentContext
from agent.lake.table_commits import TableCommits
from agent.lake.topic_work import TopicWork
from agent.runtime.periodic_job import PeriodicJob
from coordinator.commands.commands import CommitTable, Done
from coordinator.state.rendezvous import owner_of
from protocol.limits import SNAPSHOT_EXPIRY_CHECK_INTERVAL_S, TABLE_LOOKS_PER_GRACE
from protocol.types import TopicId

log = logging.getLogger(__name__)


class SnapshotExpiry:
    """Every agent has one."""

    def __init__(self, context: AgentContext, *, lake: TableCommits, superseded_ms: int) -> None:
        self._ledger = context.ledger
        self._lake = lake
        self._clock = context.clock
        self._metrics = context.metrics
        self._superseded_ms = superseded_ms
        self._work = TopicWork(
            "snapshot expiry",
            failing="snapshots of a table do not expire, and files that left the log stay",
            clock=context.clock,
            metrics=context.metrics,
        )
        self._waiting: dict[TopicId, tuple[int, float]] = {}
        """The number of files that wait for a snapshot to expire, and the time of the next check."""

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="snapshot expiry", interval_s=SNAPSHOT_EXPIRY_CHECK_INTERVAL_S, run_once=self._update_due
        )

    async def _update_due(self) -> None:
        """Update the tables of this agent's topics."""
        for topic_id in list(self._ledger.state.topics):
            topic = self._ledger.state.topics.get(topic_id)
            if topic is not None and self._is_due(topic_id) and self._work.is_due(topic):
                await self._work.run(topic, partial(self.update_table, topic_id))
        self._work.forget_others(self._ledger.state.topics)

    def _is_due(self, topic_id: TopicId) -> bool:
        state = self._ledger.state
        topic = state.topics.get(topic_id)
        if topic is None or owner_of(topic_id, state.sessions) != self._ledger.session:
            self._waiting.pop(topic_id, None)
            return False
        if not self._lake.is_complete(topic_id):
            return True
        if topic.table is None or not topic.table.unneeded:
            self._waiting.pop(topic_id, None)
            return False
        file_count, until_s = self._waiting.get(topic_id, (0, 0.0))
        return file_count != len(topic.table.unneeded) or self._clock.monotonic_s() >= until_s

    async def update_table(self, topic_id: TopicId) -> int:
        """Add the log's missing files to a topic's table, expire old snapshots, and remove files that left the log.

        Returns the number of removed files. Raises `StoreError`s and `OutcomeUnknown`: try again. `TableUnreadable`
        needs an operator.
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
            log.info(
                "the ledger rejected a table's commit; it is made again",
                extra={"topic_id": topic_id.hex(), "outcome": str(outcome)},
            )
            return 0
        self._metrics.table_files_dropped.inc(len(change.dropped))
        log.info(
            "removed files from a table that had left the log",
            extra={"topic_id": topic_id.hex(), "files": len(change.dropped), "released": len(table.released)},
        )
        return len(change.dropped)

    def _wait(self, topic_id: TopicId) -> None:
        """Skip the topic until more files are unneeded, or a snapshot may be old enough."""
        topic = self._ledger.state.topics.get(topic_id)
        if topic is not None and topic.table is not None:
            later_s = max(SNAPSHOT_EXPIRY_CHECK_INTERVAL_S, self._superseded_ms / 1000 / TABLE_LOOKS_PER_GRACE)
            self._waiting[topic_id] = (len(topic.table.unneeded), self._clock.monotonic_s() + later_s)
