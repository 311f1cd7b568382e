"""Makes true what people change of a topic's table through the catalog: properties, tags and branches.

Rule: an edit is made of the table as the ledger names it, by an entry of the kind that every commit of a table is. One
that another agent was faster than is made again, of the newer table: its requirements are looked at anew each time.
Its client waits for so long and no longer: what is not in the ledger's queue by then is never made.
"""

import logging

from agent.lake.table_commits import TableCommits
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from coordinator.commands.commands import CommitTable, Done, Refused
from coordinator.ledger.port import OutcomeUnknown
from iceberg_export.tables.commit import Change
from iceberg_export.tables.edits import RequirementFailed, TableEdit
from protocol.errors import ErrorCode
from protocol.limits import TABLE_EDIT_SECONDS_MAX, TABLE_EDIT_TRIES_MAX
from protocol.types import TopicId
from storage.object_store import ObjectMissing, StoreUnavailable

log = logging.getLogger(__name__)


class TopicGone(Exception):
    """The topic was deleted meanwhile."""


class TableUpdates:
    """Every agent has one."""

    def __init__(self, *, metadata: ApplyLoop, writer: LedgerWriter, lake: TableCommits, clock: Clock) -> None:
        self._metadata = metadata
        self._writer = writer
        self._lake = lake
        self._clock = clock

    async def make(self, topic_id: TopicId, edit: TableEdit) -> None:
        """Have the topic's table be so. Returns once it holds.

        Raises `RequirementFailed`, also where others committed to the table all the time; `EditInvalid`, `TopicGone`,
        `StoreError`, also where it could not be begun in time; `LedgerError`, and `OutcomeUnknown`: it may hold.
        """
        outcome: object = None
        for _ in range(TABLE_EDIT_TRIES_MAX):
            await self._metadata.barrier()
            if topic_id not in self._metadata.state.topics:
                raise TopicGone(topic_id.hex())
            outcome = await self._try(topic_id, edit)
            if isinstance(outcome, Done):
                log.info("a table was edited through the catalog", extra={"topic_id": topic_id.hex()})
                return
        raise RequirementFailed(f"others commit to the table all the time, the last time: {outcome}")

    async def _try(self, topic_id: TopicId, edit: TableEdit) -> object:
        """The outcome: `Done`, or why it has to be made again."""
        is_queued = False
        try:
            async with self._clock.timeout(TABLE_EDIT_SECONDS_MAX), self._lake.turn(topic_id):
                name = await self._lake.name()
                table = await self._lake.prepare(topic_id, Change(edit=edit), name.session)
                if table is None:
                    return None
                entry = CommitTable(topic_id=topic_id, object_session=name.session, table=table)
                is_queued = True
                outcome = await self._lake.propose(entry)
        except ObjectMissing as error:  # the table moved on
            return error
        except TimeoutError as error:
            if is_queued:
                raise OutcomeUnknown(f"the ledger did not tell within {TABLE_EDIT_SECONDS_MAX:.0f} s") from error
            raise StoreUnavailable(
                f"{TABLE_EDIT_SECONDS_MAX:.0f} s were not enough, as the store is slow or away, or the table is being "
                "changed: nothing was done, try again"
            ) from error
        if isinstance(outcome, Refused) and outcome.error_code is ErrorCode.request_timed_out:
            raise StoreUnavailable(f"nothing was done: {outcome.reason}")
        return outcome
