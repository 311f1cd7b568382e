"""Begins a topic's table anew from the files of its log, where people ask for it: its metadata is damaged, say.

Rule: the entry is one that every table's commit is, so the ledger compares the pointer and what leaves, and refuses it
where anybody else was faster. Files that the log needs stay as they are; what the table alone referred to, and its
snapshots needed, is let go of with them, and deleted after the grace. Where one entry cannot name all of that, the same
is done again: whoever is interrupted in between asks anew.
"""

import logging
from dataclasses import dataclass
from functools import partial, reduce

from agent.lake.table_commits import TableCommits
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from coordinator.commands.commands import CommitTable, Done
from coordinator.state.state import ClusterState, TableState
from iceberg_export.tables.columns import newest
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.table_reader import gather_bounded
from iceberg_export.typed.union import TypedColumns
from protocol.limits import TABLE_REBUILD_TRIES_MAX, TABLE_RELEASED_PER_COMMIT_MAX
from protocol.types import TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from storage.refs import ObjectKind

log = logging.getLogger(__name__)

_Described = tuple[DataFile, TypedColumns | None]


class NothingToRebuild(Exception):
    """The topic has no table yet, or is gone."""


class FileLost(Exception):
    """A data file of the log is gone or damaged, so a table with it cannot be made. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The result of a rebuild. `released`: how many objects of the table before went."""

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

    def __init__(self, *, metadata: ApplyLoop, writer: LedgerWriter, lake: TableCommits) -> None:
        self._metadata = metadata
        self._writer = writer
        self._lake = lake

    async def rebuild(self, topic_id: TopicId) -> Rebuilt:
        """Begin the topic's table anew. Returns once it holds.

        Raises `NothingToRebuild`, `FileLost`, `StoreError`, `LedgerError`, and `OutcomeUnknown`: it may hold.
        """
        released_count, tries = 0, 0
        described: dict[str, _Described] = {}
        while True:
            await self._metadata.barrier()
            await self._describe(topic_id, described)  # before its turn, as it takes long
            async with self._lake.turn(topic_id):
                name = await self._lake.name()
                await self._describe(topic_id, described)
                state = self._metadata.state
                topic, table = state.topics[topic_id], _table_of(state, topic_id)
                held = [described[key] for key in _live(state, table)]
                released = _released(state, table)
                command = await self._lake.prepare_again(
                    topic_id,
                    [file for file, _ in held],
                    columns=reduce(newest, (columns for _, columns in held), None),
                    released=released[:TABLE_RELEASED_PER_COMMIT_MAX],
                    session=name.session,
                )
                outcome = None
                if command is not None:
                    entry = CommitTable(topic_id=topic_id, object_session=name.session, table=command)
                    outcome = await self._lake.propose(entry)
            if not isinstance(outcome, Done):
                tries += 1
                log.info("a table is begun anew later", extra={"topic": topic.name, "outcome": str(outcome)})
                if tries == TABLE_REBUILD_TRIES_MAX:
                    raise StoreUnavailable(f"others change the table of {topic.name} all the time: ask again")
                continue
            released_count += min(len(released), TABLE_RELEASED_PER_COMMIT_MAX)
            if len(released) <= TABLE_RELEASED_PER_COMMIT_MAX:
                break
        rebuilt = Rebuilt(
            topic=topic.name,
            files=len(held),
            records=sum(file.record_count for file, _ in held),
            version=_table_of(self._metadata.state, topic_id).version,
            released=released_count,
        )
        log.warning("a table was begun anew from its files, as was asked for", extra=rebuilt.to_dict())
        return rebuilt

    async def _describe(self, topic_id: TopicId, described: dict[str, _Described]) -> None:
        """Have `described` hold every file that the table is to have."""
        state = self._metadata.state
        missing = [key for key in _live(state, _table_of(state, topic_id)) if key not in described]
        found = await gather_bounded([partial(self._described, topic_id, key) for key in missing])
        described.update(zip(missing, found, strict=True))

    async def _described(self, topic_id: TopicId, key: str) -> _Described:
        try:
            return await self._lake.describe(key)
        except (ObjectMissing, ObjectDamaged) as error:
            await self._metadata.barrier()
            state = self._metadata.state
            if key not in _live(state, _table_of(state, topic_id)):
                raise StoreUnavailable(f"{key} left the log meanwhile: ask again") from error
            raise FileLost(f"the data file {key} of the log is gone or damaged: {error}") from error


def _table_of(state: ClusterState, topic_id: TopicId) -> TableState:
    topic = state.topics.get(topic_id)
    if topic is None or topic.table is None:
        raise NothingToRebuild("the topic is gone" if topic is None else f"{topic.name} has no table yet")
    return topic.table


def _live(state: ClusterState, table: TableState) -> list[str]:
    """Keys of the table's data files that the log needs, the oldest first."""
    needed = (state.objects[object_id] for object_id in sorted(table.objects - table.unneeded))
    return [found.key for found in needed if found.kind is ObjectKind.PARQUET]


def _released(state: ClusterState, table: TableState) -> tuple[str, ...]:
    """Keys of all else that the table refers to, its metadata first, which every commit has to let go of.

    Data files come last: those that are left where nobody goes on after the first entry leave the table by its upkeep.
    """
    stays = {table.metadata_key, *_live(state, table)}
    held = [state.objects[object_id] for object_id in sorted(table.objects)]
    held.sort(key=lambda each: each.kind is ObjectKind.PARQUET)
    return (table.metadata_key, *(each.key for each in held if each.key not in stays))
