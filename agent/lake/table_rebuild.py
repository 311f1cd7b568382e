"""Rebuilds a topic's table from the data files of its log, on request: when its metadata is damaged, for example.

Data files of the log stay as they are. Objects that only the old table and its snapshots referred to are released, and
deleted after the grace. One entry can release `TABLE_RELEASED_PER_COMMIT_MAX` objects, so a large table needs several;
after an interruption the operator starts the rebuild again.
"""

import logging
from dataclasses import dataclass
from functools import partial, reduce

from agent.lake.table_commits import TableCommits
from agent.ledger.ledger_client import LedgerClient
from coordinator.commands.commands import CommitTable, Done
from coordinator.state.state import ClusterState, TableState
from iceberg_export.tables.columns import newest
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.table_reader import gather_bounded
from iceberg_export.typed.columns import TypedColumns
from protocol.limits import TABLE_REBUILD_TRIES_MAX, TABLE_RELEASED_PER_COMMIT_MAX
from protocol.types import TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from storage.refs import ObjectKind

log = logging.getLogger(__name__)

_Described = tuple[DataFile, TypedColumns | None]


class NothingToRebuild(Exception):
    """The topic has no table yet, or was deleted."""


class FileLost(Exception):
    """A data file of the log is missing or damaged, so no table can contain it. The message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The result of a rebuild. `released`: the number of objects of the old table that were released."""

    topic: str
    files: int
    records: int
    version: int
    released: int

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "topic": self.topic,
            "files": self.files,
            "records": self.records,
            "version": self.version,
            "released": self.released,
        }


class TableRebuild:
    """Every agent has one."""

    def __init__(self, *, ledger: LedgerClient, lake: TableCommits) -> None:
        self._ledger = ledger
        self._lake = lake

    async def rebuild(self, topic_id: TopicId) -> Rebuilt:
        """Rebuild the topic's table; return once all entries are applied.

        Raises `NothingToRebuild`, `FileLost`, `StoreError`, `LedgerError`, and `OutcomeUnknown`: it may be applied.
        """
        released_count, failed_attempts = 0, 0
        described: dict[str, _Described] = {}
        while True:
            await self._ledger.barrier()
            await self._describe(topic_id, described)  # before the turn: it reads a footer of each file
            async with self._lake.turn(topic_id):
                name = await self._lake.name()
                await self._describe(topic_id, described)
                state = self._ledger.state
                topic, table = state.topics[topic_id], _table_of(state, topic_id)
                files = [described[key] for key in _live(state, table)]
                released = _released(state, table)
                command = await self._lake.prepare_again(
                    topic_id,
                    [file for file, _ in files],
                    columns=reduce(newest, (columns for _, columns in files), None),
                    released=released[:TABLE_RELEASED_PER_COMMIT_MAX],
                    session=name.session,
                )
                outcome = None
                # The entry is an ordinary commit of a table. The ledger compares the old pointer and the released
                # objects, and rejects it if another agent committed first (safety rule S6).
                if command is not None:
                    entry = CommitTable(topic_id=topic_id, object_session=name.session, table=command)
                    outcome = await self._lake.propose(entry)
            if not isinstance(outcome, Done):
                failed_attempts += 1
                log.info(
                    "the ledger rejected the rebuild of a table; it is tried again",
                    extra={"topic": topic.name, "outcome": str(outcome)},
                )
                if failed_attempts == TABLE_REBUILD_TRIES_MAX:
                    raise StoreUnavailable(f"other commits change the table of {topic.name} all the time: try again")
                continue
            released_count += min(len(released), TABLE_RELEASED_PER_COMMIT_MAX)
            if len(released) <= TABLE_RELEASED_PER_COMMIT_MAX:
                break
        rebuilt = Rebuilt(
            topic=topic.name,
            files=len(files),
            records=sum(file.record_count for file, _ in files),
            version=_table_of(self._ledger.state, topic_id).version,
            released=released_count,
        )
        log.warning("rebuilt a table from its data files, on request", extra=rebuilt.to_dict())
        return rebuilt

    async def _describe(self, topic_id: TopicId, described: dict[str, _Described]) -> None:
        """Add the table's missing files to `described`."""
        state = self._ledger.state
        missing = [key for key in _live(state, _table_of(state, topic_id)) if key not in described]
        descriptions = await gather_bounded([partial(self._described, topic_id, key) for key in missing])
        described.update(zip(missing, descriptions, strict=True))

    async def _described(self, topic_id: TopicId, key: str) -> _Described:
        try:
            return await self._lake.describe(key)
        except (ObjectMissing, ObjectDamaged) as error:
            await self._ledger.barrier()
            state = self._ledger.state
            if key not in _live(state, _table_of(state, topic_id)):
                raise StoreUnavailable(f"{key} left the log meanwhile: try again") from error
            raise FileLost(f"the data file {key} of the log is missing or damaged: {error}") from error


def _table_of(state: ClusterState, topic_id: TopicId) -> TableState:
    topic = state.topics.get(topic_id)
    if topic is None or topic.table is None:
        raise NothingToRebuild("the topic was deleted" if topic is None else f"{topic.name} has no table yet")
    return topic.table


def _live(state: ClusterState, table: TableState) -> list[str]:
    """Keys of the table's data files that the log needs, the oldest first."""
    needed = (state.objects[object_id] for object_id in sorted(table.objects - table.unneeded))
    return [stored.key for stored in needed if stored.kind is ObjectKind.PARQUET]


def _released(state: ClusterState, table: TableState) -> tuple[str, ...]:
    """Keys of the objects that only the old table refers to, its metadata first: every commit has to release that."""
    excluded = {table.metadata_key, *_live(state, table)}
    stored = [state.objects[object_id] for object_id in sorted(table.objects)]
    # Data files last: if the rebuild ends after its first entry, snapshot expiry removes them from the new table.
    stored.sort(key=lambda each: each.kind is ObjectKind.PARQUET)
    return (table.metadata_key, *(each.key for each in stored if each.key not in excluded))
