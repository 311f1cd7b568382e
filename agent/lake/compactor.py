"""Merges topics' small files into large ones, in the background.

Rule: as for archive passes, the agent that rendezvous hashing names for a topic does it, one merge at a time, and the
ledger decides: the entry names exactly what it replaces, so one that is late is refused and planned again (safety rule
S6). The topic's turn is taken for the commit alone: its passes do not wait while a merge reads and writes.

A merge replaces rows of the index and files of the table in one entry. Its snapshot is a `replace`, over which
streaming readers pass.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from agent.lake.compaction_commits import CompactionCommits, file_rules
from agent.lake.damaged_inputs import DamagedInputs
from agent.lake.table_commits import LakeName, TableCommits
from agent.lake.topic_work import TopicWork
from agent.lake.typed_columns import SchemasDeleted, TypedColumnsOfTopics
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.entry_objects import EntryObjects
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
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
    """A table as it was looked at, and by which `FileRules`."""

    metadata_key: str
    bytes_target: int
    span_ms_max: int | None


class FileCompactor:
    """Every agent has one."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        lake: TableCommits,
        clock: Clock,
        metrics: Metrics,
        broker_configs: Mapping[str, str],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._lake = lake
        self._commits = CompactionCommits(metadata=metadata, lake=lake)
        self._typed_columns = TypedColumnsOfTopics(metadata=metadata, lake=lake)
        self._clock = clock
        self._metrics = metrics
        self._broker_configs = broker_configs
        self._work = TopicWork(
            "file compactor", failing="small files of a topic are not merged", clock=clock, metrics=metrics
        )
        self._settled: dict[TopicId, _Rules] = {}
        """By which each topic had nothing to merge."""
        self._kept: set[str] = set()
        """Files with values of schemas that are gone, which would be lost."""
        self._damaged = DamagedInputs[str](clock=clock)

    async def run(self) -> None:
        """Merge what is worth it, indefinitely."""
        while True:
            await self._clock.sleep(COMPACTION_CHECK_INTERVAL_S)
            await self.turn()

    async def turn(self) -> None:
        """Merge what is worth it now, in the topics that are this agent's."""
        topics, object_ids = self._metadata.state.topics, self._metadata.state.object_ids
        self._kept &= object_ids.keys()
        self._damaged.forget_others(object_ids.keys())
        planned_again = self._damaged.end_pauses()
        self._settled = {
            topic_id: rules
            for topic_id, rules in self._settled.items()
            if topic_id in topics and topic_id not in planned_again
        }
        changed = [topic.topic_id for topic in topics.values() if self._may_be_due(topic)]
        owners = owners_of(changed, self._metadata.state.sessions)
        for topic_id, owner in zip(changed, owners, strict=True):
            topic = self._metadata.state.topics.get(topic_id)
            if topic is not None and owner == self._writer.session and self._work.is_due(topic):
                await self._work.run(topic, partial(self._compact_all, topic_id))
        self._work.forget_others(self._metadata.state.topics)

    async def _compact_all(self, topic_id: TopicId) -> None:
        """Merge until there is nothing to merge."""
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
        """Do one merge of a topic; None where there is nothing to merge, or it was refused and is planned again.

        Raises `StoreError`s and `OutcomeUnknown`: try again, but for `ObjectDamaged` and `TableUnreadable`, where
        people must look.
        """
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None or topic.table is None:
            return None
        rules = self._rules(topic, topic.table.metadata_key)
        if not rules.bytes_target or self._settled.get(topic_id) == rules:
            return None
        try:
            planned = await next_merge(
                self._metadata.state,
                topic,
                bytes_target=rules.bytes_target,
                span_ms_max=rules.span_ms_max,
                excluded_keys=self._kept | self._damaged.left_out,
                run_in_thread=run_in_thread,
            )
        except FilesOutOfOrder as error:
            planned = None
            log.warning("small files of a topic are not merged", extra={"topic": topic.name, "reason": str(error)})
        if planned is None:
            self._settled[topic_id] = rules
            return None
        began_s = self._clock.monotonic_s()
        name = await self._lake.name()
        await self._lake.check(topic_id)  # before the file is put that could not enter it (S6)
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
            self._metrics.compaction_runs.labels(COMPACTION_KIND, "refused").inc()
            log.info("a merge of files was refused", extra={"topic": planned.name, "outcome": str(outcome)})
            return None
        self._count(planned, merged, self._clock.monotonic_s() - began_s)
        return merged

    async def _merged(self, planned: Merge, name: LakeName, objects: EntryObjects) -> MergedFile | None:
        """The file that was put; None where its values would be lost. Raises `StoreError`."""
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
            self._kept.update(planned.keys)
            self._metrics.compaction_runs.labels(COMPACTION_KIND, "kept").inc()
            extra = {"topic": planned.name, "files": len(planned.keys), "reason": str(error)}
            log.info("files stay as they are: merged, they would lose typed values", extra=extra)
            return None
        except ObjectDamaged as error:
            # The others are merged without it; the message begins with its key.
            named = [key for key in planned.keys if str(error).startswith(key)]
            self._damaged.found(planned.topic_id, named or planned.keys)
            raise
        except ObjectMissing:
            self._damaged.found(planned.topic_id, await self._gone(planned, objects.store))
            raise

    async def _gone(self, planned: Merge, store: ObjectStore) -> Sequence[str]:
        """The files of a merge that are not in the bucket although the state, as of a barrier, has them still."""
        await self._metadata.barrier()
        gone: list[str] = []
        for key in planned.keys:
            if key not in self._metadata.state.object_ids:
                continue
            try:
                await store.head(key)
            except ObjectMissing:
                gone.append(key)
        return gone

    def _may_be_due(self, topic: TopicState) -> bool:
        """Whether it is worth a look, at little cost, for all topics are asked. A change of retention is overlooked."""
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
            "merged files",
            extra={
                "topic": planned.name,
                "files": len(planned.keys),
                "bytes": planned.file_bytes,
                "file": merged.command.object_key,
                "file_bytes": merged.command.object_bytes,
            },
        )
