"""Commits a compacted file: one ledger entry replaces its source files in the log's index and in the table.

The file compactor and the jobs of Spark (`agent.lake.rewrite_jobs`) commit through it.
"""

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from agent.lake.table_commits import TableCommits
from agent.ledger.entry_objects import EntryObjects
from agent.ledger.ledger_client import LedgerClient
from coordinator.commands.commands import Outcome, ReplaceChunks
from coordinator.configs.topic_configs import AS_THE_LOG, TABLE_FILE_BYTES, TABLE_RETENTION, effective
from coordinator.state.state import TopicState
from iceberg_export.tables.columns import ColumnsChange
from iceberg_export.tables.commit import Change
from iceberg_export.tables.data_file import DataFile
from protocol.limits import COMPACTION_SPAN_SHARE


class FileRules(NamedTuple):
    """The limits of file compaction for a topic."""

    bytes_target: int
    """The size of a compacted file; 0 turns compaction off."""
    span_ms_max: int | None
    """The greatest distance in time between records of one file; None for no limit."""


def file_rules(topic: TopicState, broker_configs: Mapping[str, str]) -> FileRules:
    """The limits that the topic's configs set, with the broker's as defaults."""
    configs = topic.configs, broker_configs
    retentions_ms = [int(effective(*configs, "retention.ms"))]
    table_retention_ms = int(effective(*configs, TABLE_RETENTION))
    if table_retention_ms != AS_THE_LOG:
        retentions_ms.append(table_retention_ms)
    # A file stays while the log or the table needs it, so the longer retention counts; a negative one has no limit.
    # Retention drops whole files: a file that spans long delays the deletion of its oldest records.
    span_ms_max = None if min(retentions_ms) < 0 else max(retentions_ms) // COMPACTION_SPAN_SHARE
    return FileRules(int(effective(*configs, TABLE_FILE_BYTES)), span_ms_max)


class CompactionCommits:
    """Every agent has one."""

    def __init__(self, *, ledger: LedgerClient, lake: TableCommits) -> None:
        self._ledger = ledger
        self._lake = lake

    async def commit(
        self, command: ReplaceChunks, file: DataFile, columns: ColumnsChange | None, objects: EntryObjects
    ) -> Outcome | None:
        """The outcome of the entry; None where the table, the topic or the session changed: plan again.

        `objects`: the objects of the entry (`TableCommits.entry_objects`), with the file among them.

        Raises `StoreError` as `TableCommits.prepare`, and `OutcomeUnknown`.
        """
        # The turn covers the commit only: archive passes do not wait while a compaction reads and writes files. A pass
        # in between does no harm, for the entry names exactly what it replaces (safety rule S6).
        async with self._lake.turn(command.topic_id):
            if not await self._lake.complete(command.topic_id, command.object_session):
                return None
            entry = await self._with_table(command, file, columns)
            return None if entry is None else await objects.propose(entry)

    async def _with_table(
        self, command: ReplaceChunks, file: DataFile, columns: ColumnsChange | None
    ) -> ReplaceChunks | None:
        """The entry with the table's commit; None where it has to be planned again."""
        state = self._ledger.state
        topic = state.topics.get(command.topic_id)
        if topic is None or topic.table is None:
            return None
        table_objects = topic.table.objects
        keys = {each.object_key for each in chain.from_iterable(swap.replaced for swap in command.partitions)}
        change = Change(
            added=(file,) if file.record_count else (),
            columns=columns,
            dropped=frozenset(key for key in keys if state.object_ids.get(key) in table_objects),
        )
        if not change.makes_snapshot:
            return command  # all rows are of aborted records, so the table has none of these files
        table = await self._lake.prepare(command.topic_id, change, command.object_session)
        return None if table is None else replace(command, table=table)
