"""Plans rewrites of a topic's data files for Spark jobs, and commits the files that the jobs wrote.

A job is not trusted: `commit` checks its file in the bucket. The entry is that of a compaction
(`agent.lake.compaction_commits`). It names exactly what it replaces (safety rule S6), so a job and a compaction never
both replace a file. The garbage collector deletes the file of a job that lost, once this agent's session has ended.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from agent.lake.compaction_commits import CompactionCommits, file_rules
from agent.lake.table_commits import TableCommits
from agent.lake.typed_columns import TypedColumnsOfTopics
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.threads import run_in_thread
from coordinator.commands.commands import Done, PartitionReplacement
from coordinator.configs.topic_configs import TABLE_FILE_BYTES
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.state import ObjectState, TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.compaction.merge import Merge
from iceberg_export.compaction.plan import SizedFile
from iceberg_export.compaction.rewrites import Purpose, RewritePlan, RewriteTask, Rewritten, select
from iceberg_export.compaction.topic_files import FilesOutOfOrder, TopicFile, merge_chunks, topic_files
from iceberg_export.parquet.reader import ParquetReader
from iceberg_export.tables.columns import ColumnsChange, ColumnsMovedOn
from iceberg_export.tables.manifest_changes import FilesNotInTable
from iceberg_export.tables.table_reader import gather_bounded
from iceberg_export.typed.columns import decode
from protocol.types import ObjectNumber, SessionId
from storage.object_store import ObjectDamaged, ObjectMissing
from storage.refs import parquet_key


class NoRewrite(Exception):
    """A rewrite cannot be planned or committed; the message has the reason.

    `is_overtaken`: the topic changed meanwhile, so a new plan may succeed.
    """

    def __init__(self, message: str, *, is_overtaken: bool = False) -> None:
        super().__init__(message)
        self.is_overtaken = is_overtaken


class _RewriteJob(NamedTuple):
    """A data file of the topic, as its index and the state know it."""

    file: TopicFile
    stored: ObjectState


class LakeRewrites:
    """Every agent has one."""

    def __init__(
        self,
        *,
        archive: ParquetReader,
        ledger: LedgerClient,
        lake: TableCommits,
        broker_configs: Mapping[str, str],
        is_authorizer_enabled: bool = False,
    ) -> None:
        self._archive = archive
        self._ledger = ledger
        self._lake = lake
        self._commits = CompactionCommits(ledger=ledger, lake=lake)
        self._typed_columns = TypedColumnsOfTopics(ledger=ledger, lake=lake, are_subjects_own=is_authorizer_enabled)
        self._broker_configs = broker_configs

    async def plan(self, topic: TopicState, purpose: Purpose, *, behind: str = "") -> RewritePlan:
        """The plan of the files to rewrite now; without tasks where there are none.

        `behind`: the key of a file. The plan skips the files up to it, which an earlier plan had.

        Raises `NoRewrite`, `StoreError`.
        """
        rules = file_rules(topic, self._broker_configs)
        if purpose is Purpose.REWRITE and not rules.bytes_target:
            raise NoRewrite(f"{TABLE_FILE_BYTES} of {topic.name} is 0, so its files are never rewritten: set it first")
        columns = await self._typed_columns.plan(topic.topic_id)
        if purpose is Purpose.BACKFILL and columns is None:
            raise NoRewrite(f"{topic.name} has no typed columns: set penstock.table.columns=key, value or both first")
        indexes = [partition.index.archived() for partition in topic.partitions]
        try:
            files = await run_in_thread(topic_files, indexes)
        except FilesOutOfOrder as error:
            raise NoRewrite(f"files of {topic.name} cannot be rewritten: {error}") from error
        objects = self._ledger.state.objects
        jobs = [_RewriteJob(file, objects[file.object_id]) for file in files if file.object_id in objects]
        if len(jobs) < len(files):
            raise NoRewrite("files of the topic were deleted while they were planned", is_overtaken=True)
        candidates = range(len(jobs)) if purpose is Purpose.REWRITE else await self._without_columns(jobs)
        number_first = next((number + 1 for number, (_, stored) in enumerate(jobs) if stored.key == behind), 0)
        chosen = select(
            [
                SizedFile(object_bytes=stored.object_bytes, chunk_count=file.chunk_count, newest_ms=file.newest_ms)
                for file, stored in jobs
            ],
            {number for number in candidates if number >= number_first},
            purpose=purpose,
            bytes_target=rules.bytes_target,
            span_ms_max=rules.span_ms_max,
        )
        tasks: list[RewriteTask] = []
        for run in chosen:
            task_files = jobs[run.start : run.stop]
            name = await self._lake.name()
            merge = Merge(
                topic_id=topic.topic_id,
                name=topic.name,
                folder_name=folder_name(self._ledger.state, topic),
                keys=tuple(stored.key for _, stored in task_files),
                file_bytes=sum(stored.object_bytes for _, stored in task_files),
                chunks=await run_in_thread(merge_chunks, [file for file, _ in task_files], indexes),
            )
            tasks.append(RewriteTask(merge=merge, session=name.session, number=name.number))
        return RewritePlan(tasks=tuple(tasks), columns=columns)

    async def commit(self, topic: TopicState, rewritten: Rewritten) -> None:
        """Replace the source files by the file that a job wrote; return once the entry is applied.

        Raises `NoRewrite`, `StoreError`.
        """
        command = rewritten.command
        if command.topic_id != topic.topic_id or command.table is not None:
            raise NoRewrite(f"the file is not of topic {topic.name}")
        if command.object_session != self._ledger.session:
            raise NoRewrite("the plan is of another agent, or of an earlier session of this one", is_overtaken=True)
        if not command.object_key.startswith(self._keys_of(topic, command.object_session)):
            raise NoRewrite(f"{command.object_key} is not a key of this agent's plans")
        # The bucket decides, not the job's report: the footer, the row groups that the new rows of the index name, and
        # as many rows in each partition as the index has.
        try:
            file = await self._archive.describe(command.object_key)
            after = await self._archive.typed_columns(command.object_key)
            for swap in command.partitions:
                _check_count(topic, swap)
                await self._archive.check_places(command.object_key, swap.archived)
        except (ObjectDamaged, ObjectMissing) as error:
            raise NoRewrite(f"{command.object_key} is not as the job reported it: {error}") from error
        row_count = sum(chunk.row_count for swap in command.partitions for chunk in swap.archived)
        if (file.record_count, file.object_bytes) != (row_count, command.object_bytes):
            raise NoRewrite(
                f"{command.object_key} has {file.record_count} rows and {file.object_bytes} bytes, and the job "
                f"reported {row_count} and {command.object_bytes}"
            )
        before = None if rewritten.before is None else decode(rewritten.before)
        columns = None if after is None else ColumnsChange(before=before, after=after)
        try:
            async with self._lake.entry_objects(command.object_session) as objects:
                outcome = await self._commits.commit(command, file, columns, objects)
        except (ColumnsMovedOn, FilesNotInTable, ObjectMissing) as error:
            raise NoRewrite(str(error), is_overtaken=True) from error
        except OutcomeUnknown as error:
            raise NoRewrite(f"the outcome of the commit is unknown: {error}", is_overtaken=True) from error
        if not isinstance(outcome, Done):
            raise NoRewrite(f"the log or the table changed meanwhile: {outcome}", is_overtaken=True)

    async def _without_columns(self, files: Sequence[_RewriteJob]) -> set[int]:
        """The numbers of the files that have rows and no typed columns."""
        are_raw = await gather_bounded([partial(self._is_without_columns, stored.key) for _, stored in files])
        return {number for number, is_raw in enumerate(are_raw) if is_raw}

    def _keys_of(self, topic: TopicState, session: SessionId) -> str:
        """The key prefix of a session's files of a topic."""
        name = folder_name(self._ledger.state, topic)
        key = parquet_key(name, topic.topic_id, session, ObjectNumber(0))
        return key[: key.rindex("-") + 1]

    async def _is_without_columns(self, key: str) -> bool:
        is_raw = await self._archive.typed_columns(key) is None
        return is_raw and (await self._archive.describe(key)).record_count > 0


def _check_count(topic: TopicState, swap: PartitionReplacement) -> None:
    """Raise `NoRewrite` unless the file has as many rows of a partition as the archived chunks that it replaces."""
    if not 0 <= swap.partition < len(topic.partitions) or not swap.replaced:
        raise NoRewrite(f"{topic.name} has no partition {swap.partition}, or the file replaces no chunk of it")
    index = topic.partitions[swap.partition].index
    rows = list(islice(index.rows_from(swap.replaced[0].offset_first), len(swap.replaced)))
    # The index has row counts of archived chunks only, so lost records of an intake chunk would not be noticed here.
    if not all(row.is_archived for row in rows):
        raise NoRewrite(f"partition {swap.partition}: only archive passes replace chunks of the intake")
    index_count = sum(row.row_count for row in rows if row.offset_end <= swap.replaced[-1].offset_end)
    record_count = sum(chunk.row_count for chunk in swap.archived)
    if index_count != record_count:
        raise NoRewrite(
            f"partition {swap.partition}: the replaced chunks have {index_count} rows, the new file {record_count}",
            is_overtaken=True,
        )
