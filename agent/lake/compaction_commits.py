"""Makes a file that stands for others true: the one entry that swaps them, in the log's index and in the table.

Rule: whoever wrote the file, the entry names exactly what it replaces, so one that is late is refused (safety rule S6).
The topic's turn is taken for this alone.
"""

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from agent.lake.table_commits import TableCommits
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.entry_objects import EntryObjects
from coordinator.commands.commands import Outcome, ReplaceChunks
from coordinator.configs.topic_configs import AS_THE_LOG, TABLE_FILE_BYTES, TABLE_RETENTION, effective
from coordinator.state.state import TopicState
from iceberg_export.tables.columns import ColumnsChange
from iceberg_export.tables.commit import Change
from iceberg_export.tables.data_file import DataFile
from protocol.limits import COMPACTION_SPAN_SHARE


class FileRules(NamedTuple):
    """How large a topic's files should become, 0 for no merges, and how far apart in time what is merged may be, None
    for no bound."""

    bytes_target: int
    span_ms_max: int | None


def file_rules(topic: TopicState, broker_configs: Mapping[str, str]) -> FileRules:
    """By the topic's configs."""
    configs = topic.configs, broker_configs
    kept_ms = [int(effective(*configs, "retention.ms"))]
    table_kept_ms = int(effective(*configs, TABLE_RETENTION))
    if table_kept_ms != AS_THE_LOG:
        kept_ms.append(table_kept_ms)
    # A file stays while the log wants it, or the table.
    span_ms_max = None if min(kept_ms) < 0 else max(kept_ms) // COMPACTION_SPAN_SHARE
    return FileRules(int(effective(*configs, TABLE_FILE_BYTES)), span_ms_max)


class CompactionCommits:
    """Every agent has one."""

    def __init__(self, *, metadata: ApplyLoop, lake: TableCommits) -> None:
        self._metadata = metadata
        self._lake = lake

    async def commit(
        self, command: ReplaceChunks, file: DataFile, columns: ColumnsChange | None, objects: EntryObjects
    ) -> Outcome | None:
        """The outcome; None where the table, the topic or the session has moved on: plan again.

        `objects`: what was put for the entry (`TableCommits.entry_objects`).

        Raises `StoreError` as `TableCommits.prepare`, and `OutcomeUnknown`.
        """
        async with self._lake.turn(command.topic_id):
            if not await self._lake.complete(command.topic_id, command.object_session):
                return None
            whole = await self._with_table(command, file, columns)
            return None if whole is None else await objects.propose(whole)

    async def _with_table(
        self, command: ReplaceChunks, file: DataFile, columns: ColumnsChange | None
    ) -> ReplaceChunks | None:
        """The entry, which changes the table too; None: plan again."""
        state = self._metadata.state
        topic = state.topics.get(command.topic_id)
        if topic is None or topic.table is None:
            return None
        held = topic.table.objects
        keys = {each.object_key for each in chain.from_iterable(swap.replaced for swap in command.partitions)}
        change = Change(
            added=(file,) if file.record_count else (),
            columns=columns,
            dropped=frozenset(key for key in keys if state.object_ids.get(key) in held),
        )
        if not change.makes_snapshot:
            return command  # nothing but aborted records: the table knows none of it
        table = await self._lake.prepare(command.topic_id, change, command.object_session)
        return None if table is None else replace(command, table=table)
