"""Shared parts of all writers to the lake: names for objects, turns at a topic, and commits of its table.

Rule: one at a time writes to a topic's table, so that an agent does not refuse its own commits; between agents the
ledger decides, and the later one plans again (safety rule S6). Objects are durable before the entry that names them is
appended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from weakref import WeakValueDictionary

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.entry_objects import EntryObjects, UncommittedObjects
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.threads import run_in_thread
from coordinator.commands.commands import CommitTable, Done, Outcome, TableCommit
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.state import TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.parquet.reader import ParquetReader
from iceberg_export.tables.columns import ColumnsChange, newest
from iceberg_export.tables.commit import Change, TableBefore, check_readable, commit, expire_snapshots, typed_columns
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import TableUnreadable
from iceberg_export.tables.rebuild import rebuild
from iceberg_export.tables.relocate import relocate, root_before
from iceberg_export.tables.table_reader import TableCache
from iceberg_export.typed.union import TypedColumns
from protocol.limits import TABLE_FILES_PER_COMMIT_MAX
from protocol.types import Milliseconds, ObjectId, ObjectNumber, SessionId, TopicId
from storage.object_store import ObjectMissing, ObjectStore
from storage.refs import session_of_key, table_metadata_key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeName:
    """The name of a new object: the session that may commit it, and its number among what that session wrote to the
    lake."""

    session: SessionId
    number: ObjectNumber


class TableCommits:
    """Every agent has one. `root` is the bucket's URI, as tables name it. `proposed_time`: None while this machine's
    clock is not to be believed (safety rule S2)."""

    def __init__(
        self,
        *,
        root: str,
        store: ObjectStore,
        archive: ParquetReader,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        proposed_time: Callable[[], Milliseconds | None],
        uncommitted: UncommittedObjects,
    ) -> None:
        self.root = root
        self._uncommitted = uncommitted
        self._store = store
        self._archive = archive
        self._metadata = metadata
        self._writer = writer
        self._proposed_time = proposed_time
        self._cache = TableCache()
        self._number_next = 0
        self._completed: set[TopicId] = set()
        self._turns: WeakValueDictionary[TopicId, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, topic_id: TopicId) -> AsyncIterator[None]:
        """Nobody else of this agent changes the topic's table meanwhile."""
        lock = self._turns.get(topic_id)
        if lock is None:
            lock = self._turns[topic_id] = asyncio.Lock()
        async with lock:
            yield

    async def name(self) -> LakeName:
        """A name that was never given, once this agent's session is in the ledger (safety rule S9)."""
        return self._name(await self._writer.until_live())

    def entry_objects(self, session: SessionId) -> AbstractAsyncContextManager[EntryObjects]:
        """The objects that are put for one entry of `session`; deleted at the end where it certainly does not come
        (S6)."""
        return self._uncommitted.of_entry(session)

    async def check(self, topic_id: TopicId) -> None:
        """Read what a commit to the topic's table begins with: before a file is put that the commit is to bring in.

        Raises `StoreError` as `prepare`. Asks for nothing where an earlier commit was of this agent.
        """
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None:
            return
        before = self._before(topic)
        async with self._whole(before):
            await check_readable(before, store=self._store, cache=self._cache, run_in_thread=run_in_thread)

    async def prepare(self, topic_id: TopicId, change: Change, session: SessionId) -> TableCommit | None:
        """Make the next version of a topic's table durable, and return what an entry of `session` has to say.

        None where the topic is gone, or the session: plan again. To be called in the topic's turn. Raises `StoreError`:
        `ObjectMissing`, `FilesNotInTable` and `ColumnsMovedOn` mean that the table moved on, `TableUnreadable` that
        people must look.
        """
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None or self._writer.session != session:
            return None
        before = self._before(topic)
        async with self._whole(before), self._kept_if_done(session) as store:
            prepared = await commit(
                before,
                change,
                store=store,
                next_key=self._next_key(topic, session),
                now_ms=self._now_ms(topic),
                cache=self._cache,
                run_in_thread=run_in_thread,
            )
        return prepared.table

    async def prepare_again(
        self,
        topic_id: TopicId,
        files: Sequence[DataFile],
        *,
        columns: TypedColumns | None,
        released: tuple[str, ...],
        session: SessionId,
    ) -> TableCommit | None:
        """Like `prepare`: a version of the topic's table that holds these files, and nothing of the versions before it,
        which are not read."""
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None or self._writer.session != session:
            return None
        self._completed.discard(topic_id)
        async with self._kept_if_done(session) as store:
            return await rebuild(
                self._before(topic),
                files,
                columns=columns,
                released=released,
                store=store,
                next_key=self._next_key(topic, session),
                now_ms=self._now_ms(topic),
                cache=self._cache,
                run_in_thread=run_in_thread,
            )

    @asynccontextmanager
    async def _kept_if_done(self, session: SessionId) -> AsyncIterator[ObjectStore]:
        """A store whose puts are deleted again where not all of them are made: no entry names them then (S6)."""
        objects = EntryObjects(self._store, self._writer)
        try:
            yield objects.store
        except Exception:
            await self._uncommitted.settle(session, objects.fate, tuple(objects.keys))
            raise

    async def propose(self, command: CommitTable) -> Outcome:
        """Propose a prepared commit; returns its outcome once it is applied. Raises `OutcomeUnknown`."""
        async with self.entry_objects(command.object_session) as objects:
            return await objects.propose(command)

    async def describe(self, key: str) -> tuple[DataFile, TypedColumns | None]:
        """The table's entry for a data file of the log, and its typed columns. Raises `StoreError`."""
        return await self._archive.describe(key), await self._archive.typed_columns(key)

    async def complete(self, topic_id: TopicId, session: SessionId) -> bool:
        """Have every file of the topic's log in its table; False where that must be tried again.

        Files are missing that were archived before there were tables, or because a recovery found the table damaged. As
        `prepare`, to be called in the topic's turn; looks once at each topic.
        """
        while topic_id not in self._completed:
            if not await self._is_here(topic_id, session):
                return False
            missing = self._missing(topic_id)[:TABLE_FILES_PER_COMMIT_MAX]
            if not missing:
                self._completed.add(topic_id)
                return True
            change = Change(
                added=tuple([await self._archive.describe(key) for key in missing]),
                columns=await self._columns_with(topic_id, missing),
            )
            table = await self.prepare(topic_id, change, session)
            if table is None:
                return False
            outcome = await self.propose(CommitTable(topic_id=topic_id, object_session=session, table=table))
            if not isinstance(outcome, Done):
                log.info("a table's commit was refused", extra={"topic_id": topic_id.hex(), "outcome": str(outcome)})
                return False
            log.info("files of the log entered their table", extra={"topic_id": topic_id.hex(), "files": len(missing)})
        return True

    async def _is_here(self, topic_id: TopicId, session: SessionId) -> bool:
        """Have the table's metadata name the bucket by its URI of now; False where that must be tried again.

        It names another one where the folder was moved, or the bucket renamed or copied. An agent that lives and wrote
        it there has another `--store` for the same bucket: the two would move the table back and forth.
        """
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None or topic.table is None:
            return True
        before = self._before(topic)
        async with self._whole(before):
            old_root = await root_before(before, store=self._store, cache=self._cache, run_in_thread=run_in_thread)
        if old_root is None:
            return True
        writer = session_of_key(before.metadata_key)
        sessions = self._metadata.state.sessions
        if writer is not None and writer != session and writer in sessions:
            agent = sessions[writer].name
            raise TableUnreadable(
                f"the agent {agent} writes this table to {old_root}, and this agent's --store is {self.root}: give all "
                'agents the same --store (docs/operations/bucket.md, "A bucket or data folder was moved")'
            )
        async with self._whole(before), self._kept_if_done(session) as store:
            table = await relocate(
                before,
                old_root,
                store=store,
                next_key=self._next_key(topic, session),
                cache=self._cache,
                run_in_thread=run_in_thread,
            )
        outcome = await self.propose(CommitTable(topic_id=topic_id, object_session=session, table=table))
        if not isinstance(outcome, Done):
            log.info("a table's move was refused", extra={"topic": topic.name, "outcome": str(outcome)})
            return False
        log.warning(
            "the bucket or data folder was moved: a table names its files by the new URL now",
            extra={"topic": topic.name, "before": old_root, "now": self.root, "objects": len(table.added) + 1},
        )
        return True

    async def columns(self, topic_id: TopicId) -> TypedColumns | None:
        """The typed columns of the topic's table; None where there are none. As `prepare`."""
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None:
            return None
        before = self._before(topic)
        async with self._whole(before):
            return await typed_columns(before, store=self._store, cache=self._cache, run_in_thread=run_in_thread)

    async def _columns_with(self, topic_id: TopicId, keys: Sequence[str]) -> ColumnsChange | None:
        """The table's typed columns after those of the files."""
        before = after = await self.columns(topic_id)
        for key in keys:
            after = newest(after, await self._archive.typed_columns(key))
        return None if after is None else ColumnsChange(before=before, after=after)

    def is_complete(self, topic_id: TopicId) -> bool:
        """Whether this agent has seen all files of the topic's log in its table."""
        return topic_id in self._completed

    def _missing(self, topic_id: TopicId) -> list[str]:
        """Keys of data files with rows that the topic's log has, and its table has not."""
        state = self._metadata.state
        topic = state.topics.get(topic_id)
        if topic is None:
            return []
        held = frozenset[ObjectId]() if topic.table is None else topic.table.objects
        found = set(chain.from_iterable(partition.index.archived_objects() for partition in topic.partitions))
        return [state.objects[ObjectId(object_id)].key for object_id in sorted(found - held)]

    async def expire_snapshots(self, topic_id: TopicId, *, superseded_ms: int) -> Change | None:
        """What has to be done to a topic's table lest it keep files that the log let go of; None if nothing has yet.

        Snapshots that another one followed `superseded_ms` ago may expire for it: none while the clock is not believed,
        for a snapshot that is gone does not come back. Raises `StoreError` as `prepare`.
        """
        state = self._metadata.state
        topic = state.topics.get(topic_id)
        now_ms = self._proposed_time()
        if topic is None or topic.table is None or not topic.table.unneeded or now_ms is None:
            return None
        before = self._before(topic)
        async with self._whole(before):
            return await expire_snapshots(
                before,
                [state.objects[object_id].key for object_id in topic.table.unneeded],
                expires_before_ms=now_ms - superseded_ms,
                now_ms=now_ms,
                store=self._store,
                cache=self._cache,
                run_in_thread=run_in_thread,
            )

    @asynccontextmanager
    async def _whole(self, before: TableBefore) -> AsyncIterator[None]:
        """What a table lacks that moved on was deleted by the garbage collector; what one lacks that did not, by
        others."""
        try:
            yield
        except ObjectMissing as error:
            try:
                await self._metadata.barrier()
            except LedgerUnavailable:
                raise error from None
            topic = self._metadata.state.topics.get(before.topic_id)
            if topic is None or topic.table is None or topic.table.metadata_key != before.metadata_key:
                raise
            raise TableUnreadable(f"{before.metadata_key} needs an object that is gone: {error}") from error

    def _now_ms(self, topic: TopicState) -> int:
        """The time of a snapshot. Readers go by it, and what is too late stays with the table: so by a clock that is
        not believed none is later than the ledger has told."""
        now_ms = self._proposed_time()
        return max(self._metadata.state.time_ms, topic.created_ms) if now_ms is None else now_ms

    def _before(self, topic: TopicState) -> TableBefore:
        return TableBefore(
            name=topic.name,
            folder_name=folder_name(self._metadata.state, topic),
            topic_id=topic.topic_id,
            created_ms=topic.created_ms,
            metadata_key="" if topic.table is None else topic.table.metadata_key,
            root=self.root,
        )

    def _next_key(self, topic: TopicState, session: SessionId) -> Callable[[str], str]:
        name = folder_name(self._metadata.state, topic)

        def next_key(suffix: str) -> str:
            return table_metadata_key(name, topic.topic_id, session, self._name(session).number, suffix)

        return next_key

    def _name(self, session: SessionId) -> LakeName:
        number = ObjectNumber(self._number_next)
        self._number_next += 1
        return LakeName(session=session, number=number)
