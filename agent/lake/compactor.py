"""Compacts the small data files of topics into larger ones, in the background (Iceberg: rewrite data files).

One ledger entry replaces the rows of the index and the files of the table. Its Iceberg snapshot has the operation
`replace`, which streaming readers skip (Iceberg specification, "Snapshots").
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from agent.context import AgentContext
from agent.lake.compaction_commits import CompactionCommits, file_rules
from agent.lake.damaged_inputs import DamagedInputs
from agent.lake.table_commits import LakeName, TableCommits
from agent.lake.topic_work import TopicWork
from agent.lake.typed_columns import SchemasDeleted, TypedColumnsOfTopics
from agent.ledger.entry_objects import EntryObjects
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from coordinator.commands.commands import Done
from coordinator.configs.topic_configs import TABLE_FILE_BYTES
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.rendezvous import owners_of
from coordinator.state.state import TopicState
from iceberg_export.compaction.merge import Merge, MergedFile, merge, next_merge
from iceberg_export.compaction.topic_files import FilesOutOfOrder
from iceberg_export.tables.columns import ColumnsChange
from protocol.limits import COMPACTION_CHECK_INTERVAL_S
from protocol.types import TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore, StoreError, StoreUnavailable

log = logging.getLogger(__name__)

COMPACTION_KIND = "files"
"""The label `kind` of compaction metrics: data files of tables, not Kafka's compaction of logs."""


class _Rules(NamedTuple):
    """The table version that a plan saw, and the `FileRules` that it used."""

    metadata_key: str
    bytes_target: int
    span_ms_max: int | None


class FileCompactor:
    """Every agent has one."""

    def __init__(self, context: AgentContext, *, lake: TableCommits) -> None:
        self._ledger = context.ledger
        self._lake = lake
        self._commits = CompactionCommits(ledger=context.ledger, lake=lake)
        self._typed_columns = TypedColumnsOfTopics(
            ledger=context.ledger, lake=lake, are_subjects_own=context.is_authorizer_enabled
        )
        self._clock = context.clock
        self._metrics = context.metrics
        self._broker_configs = context.broker_configs
        self._work = TopicWork(
            "file compactor",
            failing="the small files of a topic are not compacted",
            clock=context.clock,
            metrics=context.metrics,
        )
        self._settled: dict[TopicId, _Rules] = {}
        """By which each topic had nothing to merge."""
        self._unmergeable: set[str] = set()
        """Files with values of schemas that are gone, which would be lost."""
        self._damaged = DamagedInputs[str](clock=context.clock)

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(name="file compactor", interval_s=COMPACTION_CHECK_INTERVAL_S, run_once=self.turn)

    async def turn(self) -> None:
        """Compact the topics of this agent now."""
        topics, object_ids = self._ledger.state.topics, self._ledger.state.object_ids
        self._unmergeable &= object_ids.keys()
        self._damaged.forget_others(object_ids.keys())
        planned_again = self._damaged.end_pauses()
        self._settled = {
            topic_id: rules
            for topic_id, rules in self._settled.items()
            if topic_id in topics and topic_id not in planned_again
        }
        changed = [topic.topic_id for topic in topics.values() if self._may_be_due(topic)]
        owners = owners_of(changed, self._ledger.state.sessions)
        # As with archive passes, rendezvous hashing only spreads the work; the ledger rejects a late entry (S6).
        for topic_id, owner in zip(changed, owners, strict=True):
            topic = self._ledger.state.topics.get(topic_id)
            if topic is not None and owner == self._ledger.session and self._work.is_due(topic):
                await self._work.run(topic, partial(self._compact_all, topic_id))
        self._work.forget_others(self._ledger.state.topics)

    async def _compact_all(self, topic_id: TopicId) -> None:
        """Compact a topic until no compaction is left."""
        try:
            while await self.compact(topic_id) is not None:
                pass
        except (StoreUnavailable, ObjectMissing, OutcomeUnknown):
            self._metrics.compaction_runs.labels(COMPACTION_KIND, "retried").inc()
            raise
        except StoreError:
            self._metrics.compaction_runs.labels(COMPACTION_KIND, "failed").inc()
            raise

    async def compact(self, topic_id: TopicId) -> MergedFile | None:
        """Do one compaction of a topic; None where there is none to do, or it was rejected and is planned again.

        Raises `StoreError`s and `OutcomeUnknown`: try again. `ObjectDamaged` and `TableUnreadable` need an operator.
        """
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None or topic.table is None:
            return None
        rules = self._rules(topic, topic.table.metadata_key)
        if not rules.bytes_target or self._settled.get(topic_id) == rules:
            return None
        try:
            planned = await next_merge(
                self._ledger.state,
                topic,
                bytes_target=rules.bytes_target,
                span_ms_max=rules.span_ms_max,
                excluded_keys=self._unmergeable | self._damaged.excluded,
                run_in_thread=run_in_thread,
            )
        except FilesOutOfOrder as error:
            planned = None
            log.warning(
                "the small files of a topic are not compacted: no order of them fits all partitions",
                extra={"topic": topic.name, "reason": str(error)},
            )
        if planned is None:
            self._settled[topic_id] = rules
            return None
        began_s = self._clock.monotonic_s()
        name = await self._lake.name()
        # Before the put: while the table is unreadable each attempt would leave a file for the garbage collector (S6).
        await self._lake.check(topic_id)
        async with self._lake.entry_objects(name.session) as objects:
            merged = await self._merged(planned, name, objects)
            if merged is None:
                return None
            columns = merged.columns
            change = None if columns is None else ColumnsChange(before=columns.before, after=columns.columns)
            outcome = await self._commits.commit(merged.command, merged.file, change, objects)
        if outcome is None:
            return None
        if not isinstance(outcome, Done):
            self._metrics.compaction_runs.labels(COMPACTION_KIND, "rejected").inc()
            log.info(
                "the ledger rejected a compaction of files; it is planned again",
                extra={"topic": planned.name, "outcome": str(outcome)},
            )
            return None
        self._count(planned, merged, self._clock.monotonic_s() - began_s)
        return merged

    async def _merged(self, planned: Merge, name: LakeName, objects: EntryObjects) -> MergedFile | None:
        """Write the compacted file; None where typed values would be lost. Raises `StoreError`."""
        try:
            return await merge(
                planned,
                store=objects.store,
                session=name.session,
                number=name.number,
                run_in_thread=run_in_thread,
                columns_of=await self._typed_columns.of_merge(planned.topic_id),
            )
        except SchemasDeleted as error:
            self._unmergeable.update(planned.keys)
            self._metrics.compaction_runs.labels(COMPACTION_KIND, "kept").inc()
            extra = {"topic": planned.name, "files": len(planned.keys), "reason": str(error)}
            log.info("files are not compacted: their schemas are deleted, so typed values would be lost", extra=extra)
            return None
        except ObjectDamaged as error:
            # The next plan excludes only the damaged file. The message begins with its key.
            damaged = [key for key in planned.keys if str(error).startswith(key)]
            self._damaged.exclude(planned.topic_id, damaged or planned.keys)
            raise
        except ObjectMissing:
            self._damaged.exclude(planned.topic_id, await self._missing(planned, objects.store))
            raise

    async def _missing(self, planned: Merge, store: ObjectStore) -> Sequence[str]:
        """The files of a compaction that the bucket lacks although the state, behind a barrier, refers to them."""
        await self._ledger.barrier()
        missing: list[str] = []
        for key in planned.keys:
            if key not in self._ledger.state.object_ids:
                continue
            try:
                await store.head(key)
            except ObjectMissing:
                missing.append(key)
        return missing

    def _may_be_due(self, topic: TopicState) -> bool:
        """Whether a topic may need a compaction. Cheap, because it is called for all topics.

        It misses a change of retention, which becomes effective with the table's next version.
        """
        if topic.table is None:
            return False
        seen = self._settled.get(topic.topic_id)
        return seen is None or seen.metadata_key != topic.table.metadata_key or TABLE_FILE_BYTES in topic.configs

    def _rules(self, topic: TopicState, metadata_key: str) -> _Rules:
        return _Rules(metadata_key, *file_rules(topic, self._broker_configs))

    def _count(self, planned: Merge, merged: MergedFile, seconds: float) -> None:
        self._metrics.compaction_runs.labels(COMPACTION_KIND, "done").inc()
        self._metrics.compaction_bytes.labels(COMPACTION_KIND).inc(planned.file_bytes)
        self._metrics.compaction_duration_seconds.labels(COMPACTION_KIND).observe(seconds)
        log.info(
            "compacted files",
            extra={
                "topic": planned.name,
                "files": len(planned.keys),
                "bytes": planned.file_bytes,
                "file": merged.command.object_key,
                "file_bytes": merged.command.object_bytes,
            },
        )
