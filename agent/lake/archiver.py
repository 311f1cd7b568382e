"""Runs archive passes: in the background by age and size, and on demand.

A pass writes the oldest chunks of a topic's intake as one Parquet file. Its ledger entry swaps the rows of the index,
moves the table's pointer and releases the intake chunks.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from agent.cache.chunk_cache import ChunkCache
from agent.context import AgentContext
from agent.lake.damaged_intake import DamagedIntake
from agent.lake.table_commits import LakeName, TableCommits
from agent.lake.topic_work import TopicWork
from agent.lake.typed_columns import TypedColumnsOfTopics
from agent.ledger.entry_objects import EntryObjects
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from agent.runtime.unpacking import UNPACKING
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Done, ReplaceChunks
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import TopicState
from iceberg_export.archive.archive_pass import (
    UNREADABLE,
    ArchivedPass,
    InMemory,
    archive,
    sound_in_memory,
    unreadable_chunks,
)
from iceberg_export.archive.plan import ArchivePass, ArchivePolicy, ArchiveSchedule
from iceberg_export.archive.topic_intake import intake_end, intake_first, next_pass, partition_intake_bytes
from iceberg_export.tables.columns import ColumnsChange, ColumnsMovedOn
from iceberg_export.tables.commit import Change
from iceberg_export.tables.manifest_changes import FilesNotInTable
from iceberg_export.tables.metadata import TableUnreadable
from protocol.limits import (
    ARCHIVE_CHECK_INTERVAL_S,
    ARCHIVE_CHECK_PARTITIONS_PER_S,
    ARCHIVE_PASS_ATTEMPTS_MAX,
    ARCHIVE_RETRY_SECONDS,
)
from protocol.types import NO_TIMESTAMP, Milliseconds, PartitionIndex, TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError, StoreUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """The result of the passes over one topic."""

    topic: str
    records: int
    source_bytes: int
    object_keys: tuple[str, ...]

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return {
            "topic": self.topic,
            "records": self.records,
            "bytes": self.source_bytes,
            "objects": list(self.object_keys),
        }


class PassFailed(StoreUnavailable):
    """A pass was not committed, for a reason that may be temporary: it is planned again."""


class _ChunksExcluded(Exception):
    """Chunks of a pass are unreadable: the next pass stops before them in their partitions."""


class Archiver:
    """Every agent has one."""

    def __init__(self, context: AgentContext, *, lake: TableCommits, cache: ChunkCache, policy: ArchivePolicy) -> None:
        self._ledger = context.ledger
        self._cache = cache
        self._lake = lake
        self._typed_columns = TypedColumnsOfTopics(
            ledger=context.ledger, lake=lake, are_subjects_own=context.is_authorizer_enabled
        )
        self._clock = context.clock
        self._metrics = context.metrics
        self._schedule = ArchiveSchedule(policy)
        self._work = TopicWork(
            "archiver",
            failing="a topic is not archived; its records are still served from the intake",
            clock=context.clock,
            metrics=context.metrics,
        )
        self._damaged = DamagedIntake(ledger=context.ledger, clock=context.clock, metrics=context.metrics)
        self._one_at_a_time = asyncio.Lock()
        self._failure: StoreError | None = None

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(name="archiver", interval_s=self._pause_s, run_once=self._archive_due, is_first_at_once=True)

    def _pause_s(self) -> float:
        partition_count = sum(len(topic.partitions) for topic in self._ledger.state.topics.values())
        return max(ARCHIVE_CHECK_INTERVAL_S, partition_count / ARCHIVE_CHECK_PARTITIONS_PER_S)

    async def _archive_due(self) -> None:
        """Archive topics by age and size, then hot ones early."""
        self._damaged.end_pauses()
        intake = await self._intake()
        for topic_id in self._schedule.topics_due(intake, self._now_ms()):
            await self._archive_in_background(topic_id)
        for topic_id in self._schedule.topics_early(self._now_ms()):
            if not self._schedule.has_early_time:
                break
            began_s = self._clock.monotonic_s()
            await self._archive_in_background(topic_id)
            self._schedule.spend_early_time((self._clock.monotonic_s() - began_s) * 1000)
        self._work.forget_others(self._ledger.state.topics)

    async def _intake(self) -> list[tuple[TopicId, int]]:
        """Every topic, with the bytes that could be archived; other tasks run between some partitions and the next."""
        pacer = CooperativeYield(self._clock)
        intake: list[tuple[TopicId, int]] = []
        for topic_id, topic in list(self._ledger.state.topics.items()):
            waiting = self._damaged.waiting(topic_id)
            byte_count = 0
            for number, partition in enumerate(topic.partitions):
                byte_count += partition_intake_bytes(partition, waiting.get(PartitionIndex(number)))
                if pacer.is_turn_over():
                    await pacer.turn()
            intake.append((topic_id, byte_count))
        return intake

    async def _archive_in_background(self, topic_id: TopicId) -> None:
        topic = self._ledger.state.topics.get(topic_id)
        # Rendezvous hashing spreads topics over the agents. It is no lock: two agents may archive one topic at once
        # while they see different sessions. Each entry names exactly the chunks that it replaces, so apply rejects
        # the later one (safety rule S6).
        if topic is not None and self._owns(topic_id) and self._work.is_due(topic):
            await self._work.run(topic, partial(self._background_pass, topic))

    async def _background_pass(self, topic: TopicState) -> None:
        """One pass, planned again at once without chunks that turn out to be unreadable.

        Any other failure ends it with an exception, so that `TopicWork` pauses the topic.
        """
        is_planned = False
        try:
            while not is_planned:
                try:
                    await self._pass(topic.topic_id)
                    is_planned = True
                except _ChunksExcluded:
                    self._metrics.archive_passes.labels("failed").inc()
        except Exception:
            self._metrics.archive_passes.labels("failed").inc()
            raise
        if self._failure is not None:
            raise PassFailed(str(self._failure))

    def _owns(self, topic_id: TopicId) -> bool:
        return owner_of(topic_id, self._ledger.state.sessions) == self._ledger.session

    async def archive_topics(self, topic_ids: Sequence[TopicId]) -> Sequence[ArchiveReport]:
        """Archive topics one after another as `archive_topic` does; return a report for each.

        A failure of one topic is raised after the others are archived; the first one where there are several.
        """
        reports: list[ArchiveReport] = []
        failures: list[StoreError] = []
        for topic_id in topic_ids:
            try:
                reports.append(await self.archive_topic(topic_id))
            except (ObjectDamaged, ObjectMissing, PassFailed, TableUnreadable) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return reports

    async def archive_topic(self, topic_id: TopicId) -> ArchiveReport:
        """Archive the records that are in the topic's intake now; return once the entries are applied.

        In each partition the passes stop at the first record of a transaction that is open now.

        Raises `ObjectDamaged` or `ObjectMissing` for unreadable intake objects, after everything else is archived;
        `TableUnreadable` where the table is damaged; `PassFailed` after `ARCHIVE_PASS_ATTEMPTS_MAX` failed passes in a
        row: try again.
        """
        await self._ledger.barrier()
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None:
            return ArchiveReport(topic="", records=0, source_bytes=0, object_keys=())
        ends = intake_end(self._ledger.state, topic_id)
        passes: list[ArchivedPass] = []
        failed_attempts = 0
        self._damaged.try_again(topic_id)
        while not self._is_archived(topic_id, ends):
            try:
                archived = await self._pass(topic_id)
            except _ChunksExcluded:
                continue
            if archived is not None:
                passes.append(archived)
                failed_attempts = 0
                continue
            failed_attempts += 1
            if failed_attempts == ARCHIVE_PASS_ATTEMPTS_MAX:
                kind = ObjectMissing if isinstance(self._failure, ObjectMissing) else PassFailed
                raise kind(f"{topic.name} is not archived after {failed_attempts} failed attempts: {self._failure}")
            # A missing object means that the plan is out of date, or that the object is lost. Only the state behind a
            # barrier can distinguish the two (safety rules S4, S6).
            await self._clock.sleep(ARCHIVE_RETRY_SECONDS)
            await self._ledger.barrier()
        self._damaged.check(topic_id, ends)
        return ArchiveReport(
            topic=topic.name,
            records=sum(archived.file.record_count for archived in passes),
            source_bytes=sum(archived.source_bytes for archived in passes),
            object_keys=tuple(archived.command.object_key for archived in passes),
        )

    def _is_archived(self, topic_id: TopicId, ends: Sequence[int]) -> bool:
        state = self._ledger.state
        if topic_id not in state.topics:
            return True
        waiting = self._damaged.waiting(topic_id)
        return all(
            first >= min(end, waiting.get(PartitionIndex(number), end))
            for number, (first, end) in enumerate(zip(intake_first(state, topic_id), ends, strict=False))
        )

    async def _pass(self, topic_id: TopicId) -> ArchivedPass | None:
        """One pass; None where there was nothing to do, or it was not committed and has to be planned again.

        `_failure` has the reason. Raises `_ChunksExcluded` where chunks of it are unreadable.
        """
        # One pass at a time: each reads up to `ARCHIVE_PASS_BYTES_MAX`. The turn keeps other writers of this agent from
        # the topic's table, so that its commits do not make the ledger reject each other.
        async with self._one_at_a_time, self._lake.turn(topic_id):
            self._failure = None  # under the lock: a pass on demand for another topic may have failed meanwhile
            planned = next_pass(self._ledger.state, topic_id, waiting=self._damaged.waiting(topic_id))
            if planned is None:
                return None
            self._schedule.passed(topic_id, self._now_ms())
            began_s = self._clock.monotonic_s()
            name = await self._lake.name()
            try:
                if not await self._lake.complete(topic_id, name.session):
                    self._failure = PassFailed("older files of the log could not be added to the table")
                    return None
                # Before the put: while the table is unreadable each attempt would leave a file for the garbage
                # collector (safety rule S6).
                await self._lake.check(topic_id)
                async with self._lake.entry_objects(name.session) as objects:
                    # The file and the table's next version are durable before the entry that names them is proposed.
                    archived = await self._archived(planned, name, objects)
                    command = await self._with_table(archived)
                    if command is None:
                        self._failure = PassFailed("the topic was deleted, or this agent's session ended")
                        return None
                    outcome = await objects.propose(command)
            except (ObjectMissing, FilesNotInTable, ColumnsMovedOn, OutcomeUnknown) as error:
                self._failure = error if isinstance(error, ObjectMissing) else PassFailed(str(error))
                self._metrics.archive_passes.labels("retried").inc()
                log.info(
                    "an archive pass failed and is planned again", extra={"topic": planned.name, "reason": str(error)}
                )
                return None
            if not isinstance(outcome, Done):
                self._failure = PassFailed(str(outcome))
                self._metrics.archive_passes.labels("rejected").inc()
                log.info(
                    "the ledger rejected an archive pass; it is planned again",
                    extra={"topic": planned.name, "outcome": str(outcome)},
                )
                return None
            self._count(archived, self._clock.monotonic_s() - began_s)
            log.info(
                "archived a topic's intake",
                extra={
                    "topic": planned.name,
                    "records": archived.file.record_count,
                    "intake_bytes": archived.source_bytes,
                    "file": archived.command.object_key,
                    "file_bytes": archived.command.object_bytes,
                },
            )
            return archived

    async def _archived(self, planned: ArchivePass, name: LakeName, objects: EntryObjects) -> ArchivedPass:
        """Write the pass's file. Raises `_ChunksExcluded` where chunks of it are unreadable."""
        write = partial(
            archive,
            planned,
            store=objects.store,
            session=name.session,
            number=name.number,
            run_in_thread=run_in_thread,
            columns_of=self._typed_columns.of(planned.topic_id),
            reserve=UNPACKING.reserve,
        )
        in_memory = self._in_memory(planned)  # what was just produced
        if in_memory:
            with contextlib.suppress(*UNREADABLE):
                return await write(in_memory=in_memory)
            in_memory = await self._sound(planned, in_memory)
        try:
            return await write(in_memory=in_memory)
        except UNREADABLE as error:
            unreadable = await unreadable_chunks(
                planned,
                store=objects.store,
                run_in_thread=run_in_thread,
                reserve=UNPACKING.reserve,
                in_memory=in_memory,
            )
            # Another agent may have archived or deleted the chunks: then they are neither damaged nor lost (S4).
            await self._ledger.barrier()
            if self._damaged.exclude(planned, unreadable):
                raise _ChunksExcluded(str(error)) from error
            raise

    def _in_memory(self, planned: ArchivePass) -> InMemory:
        """The bytes of chunks that the read cache holds as they were produced, by their index in the pass."""
        return {
            index: buffer
            for index, chunk in enumerate(planned.chunks)
            # With the time of the append the cache holds batches of another checksum.
            if chunk.append_time_ms == NO_TIMESTAMP
            and (buffer := self._cache.intake_bytes(chunk.object_id, chunk.byte_first)) is not None
            and len(buffer) == chunk.byte_count
        }

    async def _sound(self, planned: ArchivePass, in_memory: InMemory) -> InMemory:
        """The sound chunks of those in memory. The others leave the cache: the store's copies count (S20)."""
        sound = await sound_in_memory(planned, in_memory, run_in_thread=run_in_thread, reserve=UNPACKING.reserve)
        for index in in_memory.keys() - sound.keys():
            chunk = planned.chunks[index]
            log.error(
                "a chunk of the read cache is damaged: it is read from the store instead. Memory of this machine may "
                "be faulty",
                extra={"topic": planned.name, "partition": chunk.partition, "offset": chunk.offset_first},
            )
            self._cache.drop_chunks(chunk.object_id)
        return sound

    def _count(self, archived: ArchivedPass, seconds: float) -> None:
        self._metrics.archive_passes.labels("done").inc()
        self._metrics.archive_bytes.inc(archived.source_bytes)
        self._metrics.archive_records.inc(archived.file.record_count)
        self._metrics.archive_duration_seconds.observe(seconds)

    async def _with_table(self, archived: ArchivedPass) -> ReplaceChunks | None:
        """The pass's entry with the table's commit; None where it has to be planned again."""
        command = archived.command
        if not archived.file.record_count:
            return command  # nothing but aborted records and markers: such a file does not enter the table
        columns = archived.columns
        change = Change(
            added=(archived.file,),
            columns=None if columns is None else ColumnsChange(before=columns.before, after=columns.columns),
            offsets={
                swap.partition: (swap.replaced[0].offset_first, swap.replaced[-1].offset_end)
                for swap in command.partitions
            },
        )
        table = await self._lake.prepare(command.topic_id, change, command.object_session)
        return None if table is None else replace(command, table=table)

    def _now_ms(self) -> Milliseconds:
        return Milliseconds(int(self._clock.monotonic_s() * 1000))
