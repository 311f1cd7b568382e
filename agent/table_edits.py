"""Makes true what people change of a topic's table through the catalog: properties, tags and branches.

Rule: an edit is made of the table as the ledger names it, by an entry of the kind that every commit of a table is. One
that another agent was faster than is made again, of the newer table: its requirements are looked at anew each time.
"""

import logging

from agent.lake import Lake
from agent.ledger_writer import LedgerWriter
from agent.metadata_loop import MetadataLoop
from coordinator.commands import CommitTable, Done
from iceberg_export.tables.commit import Change
from iceberg_export.tables.edits import RequirementFailed, TableEdit
from protocol.limits import TABLE_EDIT_TRIES_MAX
from protocol.types import TopicId
from storage.object_store import ObjectMissing

log = logging.getLogger(__name__)


class TopicGone(Exception):
    """The topic was deleted meanwhile."""


class TableEdits:
    """Every agent has one."""

    def __init__(self, *, metadata: MetadataLoop, writer: LedgerWriter, lake: Lake) -> None:
        self._metadata = metadata
        self._writer = writer
        self._lake = lake

    async def make(self, topic_id: TopicId, edit: TableEdit) -> None:
        """Have the topic's table be so. Returns once it holds.

        Raises `RequirementFailed`, also where others committed to the table all the time; `EditInvalid`, `TopicGone`,
        `StoreError`, `LedgerError`, and `OutcomeUnknown`: it may hold.
        """
        outcome: object = None
        for _ in range(TABLE_EDIT_TRIES_MAX):
            await self._metadata.barrier()
            if topic_id not in self._metadata.state.topics:
                raise TopicGone(topic_id.hex())
            async with self._lake.turn(topic_id):
                name = await self._lake.name()
                try:
                    table = await self._lake.prepare(topic_id, Change(edit=edit), name.session)
                except ObjectMissing as error:  # the table moved on
                    outcome = error
                    continue
                if table is None:
                    continue
                entry = CommitTable(topic_id=topic_id, object_session=name.session, table=table)
                outcome = await self._writer.submit(entry)
            if isinstance(outcome, Done):
                log.info("a table was edited through the catalog", extra={"topic_id": topic_id.hex()})
                return
        raise RequirementFailed(f"others commit to the table all the time, the last time: {outcome}")
