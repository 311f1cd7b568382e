"""Commits to topics' tables: object names, the lock of each topic, and the table metadata of each commit.

All writers of an agent to the lake share one `TableCommits`. Between agents the ledger decides: an entry names the
table version that it replaces, so the later one is rejected and planned again (safety rule S6).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from weakref import WeakValueDictionary

from agent.context import AgentContext
from agent.ledger.entry_objects import EntryObjects, UncommittedObjects
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
from iceberg_export.typed.columns import TypedColumns
from protocol.limits import TABLE_FILES_PER_COMMIT_MAX
from protocol.types import ObjectId, ObjectNumber, SessionId, TopicId
from storage.object_store import ObjectMissing, ObjectStore
from storage.refs import session_of_key, table_metadata_key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeName:
    """The name of a new lake object: the session that may commit it, and a number unique in that session."""

    session: SessionId
    number: ObjectNumber


class TableCommits:
    """Every agent has one.

    `root` is the bucket's URI, as tables name it. `proposed_time` returns None while this machine's clock is not
    trusted (safety rule S2).
    """

    def __init__(
        self, context: AgentContext, *, root: str, archive: ParquetReader, uncommitted: UncommittedObjects
    ) -> None:
        self.root = root
        self._uncommitted = uncommitted
        self._store = context.store
        self._archive = archive
        self._ledger = context.ledger
        self._proposed_time = context.proposed_time
        self._cache = TableCache()
        self._number_next = 0
        self._completed: set[TopicId] = set()
        self._turns: WeakValueDictionary[TopicId, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, topic_id: TopicId) -> AsyncIterator[None]:
        """Hold the lock of the topic's table: no other task of this agent commits to it meanwhile."""
        lock = self._turns.get(topic_id)
        if lock is None:
            lock = self._turns[topic_id] = asyncio.Lock()
        async with lock:
            yield

    async def name(self) -> LakeName:
        """A name that was never used. Waits until this agent's session is in the ledger (safety rule S9)."""
        return self._name(await self._ledger.until_live())

    def entry_objects(self, session: SessionId) -> AbstractAsyncContextManager[EntryObjects]:
        """The objects of one entry of `session`, deleted at the end if the entry certainly never commits (S6)."""
        return self._uncommitted.of_entry(session)

    async def check(self, topic_id: TopicId) -> None:
        """Check that the topic's table can be read, before the caller puts a file for it.

        Raises `StoreError` as `prepare` does. Makes no request where this agent made the table's last commit.
        """
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None:
            return
        before = self._before(topic)
        async with self._damage_as_unreadable(before):
            await check_readable(before, store=self._store, cache=self._cache, run_in_thread=run_in_thread)

    async def prepare(self, topic_id: TopicId, change: Change, session: SessionId) -> TableCommit | None:
        """Write the next version of a topic's table, and return its part of an entry of `session`.

        None where the topic was deleted or the session ended: plan again. The caller holds the topic's turn.

        Raises `StoreError`: `ObjectMissing`, `FilesNotInTable` and `ColumnsMovedOn` where the table changed meanwhile:
        plan again; `TableUnreadable` where an operator has to repair it.
        """
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None or self._ledger.session != session:
            return None
        before = self._before(topic)
        async with self._damage_as_unreadable(before), self._deleted_on_error(session) as store:
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
        """Like `prepare`, for a table with exactly these files. The versions before it are neither read nor kept."""
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None or self._ledger.session != session:
            return None
        self._completed.discard(topic_id)
        async with self._deleted_on_error(session) as store:
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
    async def _deleted_on_error(self, session: SessionId) -> AsyncIterator[ObjectStore]:
        """A store whose puts are deleted if the block raises: no entry will name them then (safety rule S6)."""
        objects = EntryObjects(self._store, self._ledger)
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
        """Add the files that are in the topic's log but not in its table; False: try again.

        Files are missing that were archived before tables existed, and after a recovery found the table damaged. The
        caller holds the topic's turn. Once a topic is complete, later calls return at once.
        """
        while topic_id not in self._completed:
            # The table must name the bucket correctly first: the next commit writes URIs below its root.
            if not await self._relocate_if_moved(topic_id, session):
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
                log.info(
                    "the ledger rejected a table's commit; it is made again",
                    extra={"topic_id": topic_id.hex(), "outcome": str(outcome)},
                )
                return False
            log.info("added files of the log to their table", extra={"topic_id": topic_id.hex(), "files": len(missing)})
        return True

    async def _relocate_if_moved(self, topic_id: TopicId, session: SessionId) -> bool:
        """Rewrite the table's metadata if it names the bucket by an old URI; False: try again.

        The URI changes when the data folder is moved, or the bucket renamed or copied. Raises `TableUnreadable` where a
        live agent uses the old URI.
        """
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None or topic.table is None:
            return True
        before = self._before(topic)
        async with self._damage_as_unreadable(before):
            old_root = await root_before(before, store=self._store, cache=self._cache, run_in_thread=run_in_thread)
        if old_root is None:
            return True
        writer = session_of_key(before.metadata_key)
        sessions = self._ledger.state.sessions
        # A live agent with another --store would move the table back with its next commit, and this one forth again.
        if writer is not None and writer != session and writer in sessions:
            agent = sessions[writer].name
            raise TableUnreadable(
                f"the agent {agent} writes this table to {old_root}, and this agent's --store is {self.root}: start "
                'all agents with the same --store (docs/operations/bucket.md, "A bucket or data folder was moved")'
            )
        async with self._damage_as_unreadable(before), self._deleted_on_error(session) as store:
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
            log.info(
                "the ledger rejected the move of a table to a new URL; it is tried again",
                extra={"topic": topic.name, "outcome": str(outcome)},
            )
            return False
        log.warning(
            "the bucket or data folder was moved; a table's metadata now has the new URL",
            extra={"topic": topic.name, "before": old_root, "now": self.root, "objects": len(table.added) + 1},
        )
        return True

    async def columns(self, topic_id: TopicId) -> TypedColumns | None:
        """The typed columns of the topic's table; None where there are none. Raises as `prepare` does."""
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None:
            return None
        before = self._before(topic)
        async with self._damage_as_unreadable(before):
            return await typed_columns(before, store=self._store, cache=self._cache, run_in_thread=run_in_thread)

    async def _columns_with(self, topic_id: TopicId, keys: Sequence[str]) -> ColumnsChange | None:
        """The table's typed columns, and those after the files are added."""
        before = after = await self.columns(topic_id)
        for key in keys:
            after = newest(after, await self._archive.typed_columns(key))
        return None if after is None else ColumnsChange(before=before, after=after)

    def is_complete(self, topic_id: TopicId) -> bool:
        """Whether `complete` found all files of the topic's log in its table."""
        return topic_id in self._completed

    def _missing(self, topic_id: TopicId) -> list[str]:
        """Keys of the data files with rows that are in the topic's log but not in its table."""
        state = self._ledger.state
        topic = state.topics.get(topic_id)
        if topic is None:
            return []
        table_ids = frozenset[ObjectId]() if topic.table is None else topic.table.objects
        log_ids = set(chain.from_iterable(partition.index.archived_objects() for partition in topic.partitions))
        return [state.objects[ObjectId(object_id)].key for object_id in sorted(log_ids - table_ids)]

    async def expire_snapshots(self, topic_id: TopicId, *, superseded_ms: int) -> Change | None:
        """The change that removes files from a topic's table which have left the log; None where there is none yet.

        Snapshots that were superseded more than `superseded_ms` ago expire for it. Raises `StoreError` as `prepare`.
        """
        state = self._ledger.state
        topic = state.topics.get(topic_id)
        now_ms = self._proposed_time()
        # Without a trusted clock nothing expires: an expired snapshot cannot be restored (safety rule S2).
        if topic is None or topic.table is None or not topic.table.unneeded or now_ms is None:
            return None
        before = self._before(topic)
        async with self._damage_as_unreadable(before):
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
    async def _damage_as_unreadable(self, before: TableBefore) -> AsyncIterator[None]:
        """Turn `ObjectMissing` into `TableUnreadable` where the table is still at the same version.

        If the table has a newer version, the garbage collector deleted the object, and the caller plans again. If not,
        something else deleted it, and the table is damaged.
        """
        try:
            yield
        except ObjectMissing as error:
            try:
                await self._ledger.barrier()
            except LedgerUnavailable:
                raise error from None
            topic = self._ledger.state.topics.get(before.topic_id)
            if topic is None or topic.table is None or topic.table.metadata_key != before.metadata_key:
                raise
            raise TableUnreadable(f"{before.metadata_key} needs an object that is gone: {error}") from error

    def _now_ms(self, topic: TopicState) -> int:
        """The timestamp of the next snapshot."""
        # Time travel goes by it, and a future timestamp would stay in the history of the table. So without a trusted
        # clock it is the state's time, which only checked clocks move (safety rule S2).
        now_ms = self._proposed_time()
        return max(self._ledger.state.time_ms, topic.created_ms) if now_ms is None else now_ms

    def _before(self, topic: TopicState) -> TableBefore:
        return TableBefore(
            name=topic.name,
            folder_name=folder_name(self._ledger.state, topic),
            topic_id=topic.topic_id,
            created_ms=topic.created_ms,
            metadata_key="" if topic.table is None else topic.table.metadata_key,
            root=self.root,
        )

    def _next_key(self, topic: TopicState, session: SessionId) -> Callable[[str], str]:
        name = folder_name(self._ledger.state, topic)

        def next_key(suffix: str) -> str:
            return table_metadata_key(name, topic.topic_id, session, self._name(session).number, suffix)

        return next_key

    def _name(self, session: SessionId) -> LakeName:
        number = ObjectNumber(self._number_next)
        self._number_next += 1
        return LakeName(session=session, number=number)
