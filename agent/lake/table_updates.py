"""Commits the changes that clients make to a topic's table through the catalog: properties, tags and branches.

An edit is an ordinary commit to the table that the ledger names. If another commit comes first, the edit is applied to
the newer table, and its requirements are checked again.
"""

import logging

from agent.lake.table_commits import TableCommits
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.commands.commands import CommitTable, Done, Rejected
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

    def __init__(self, *, ledger: LedgerClient, lake: TableCommits, clock: Clock) -> None:
        self._ledger = ledger
        self._lake = lake
        self._clock = clock

    async def make(self, topic_id: TopicId, edit: TableEdit) -> None:
        """Apply an edit to the topic's table; return once it is committed.

        Raises `RequirementFailed`, also after `TABLE_EDIT_TRIES_MAX` attempts; `EditInvalid`; `TopicGone`;
        `StoreError`, also where no attempt was proposed in time; `LedgerError`; `OutcomeUnknown`: the edit may be
        committed.
        """
        outcome: object = None
        for _ in range(TABLE_EDIT_TRIES_MAX):
            await self._ledger.barrier()
            if topic_id not in self._ledger.state.topics:
                raise TopicGone(topic_id.hex())
            outcome = await self._try(topic_id, edit)
            if isinstance(outcome, Done):
                log.info("a table was edited through the catalog", extra={"topic_id": topic_id.hex()})
                return
        raise RequirementFailed(f"other commits change the table all the time: try again; the last one: {outcome}")

    async def _try(self, topic_id: TopicId, edit: TableEdit) -> object:
        """One attempt. Returns `Done`, or the reason for another attempt."""
        is_queued = False
        try:
            async with self._clock.timeout(TABLE_EDIT_SECONDS_MAX), self._lake.turn(topic_id):
                name = await self._lake.name()
                table = await self._lake.prepare(topic_id, Change(edit=edit), name.session)
                if table is None:
                    return None
                entry = CommitTable(topic_id=topic_id, object_session=name.session, table=table)
                is_queued = True  # from here on a time-out leaves the outcome unknown
                outcome = await self._lake.propose(entry)
        except ObjectMissing as error:  # another commit replaced the table's metadata
            return error
        except TimeoutError as error:
            if is_queued:
                raise OutcomeUnknown(f"the ledger did not answer within {TABLE_EDIT_SECONDS_MAX:.0f} s") from error
            raise StoreUnavailable(
                f"the edit was not ready within {TABLE_EDIT_SECONDS_MAX:.0f} s: the store is slow or unavailable, or "
                "another commit holds the table. Nothing was changed, try again"
            ) from error
        if isinstance(outcome, Rejected) and outcome.error_code is ErrorCode.request_timed_out:
            raise StoreUnavailable(f"nothing was changed, try again: {outcome.reason}")
        return outcome
