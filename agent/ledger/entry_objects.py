"""The objects that this agent puts for one entry of the ledger, and their deletion where that entry is not committed.

Safety rule S6: a live session deletes an object of its own only where certainly no entry commits it. Either none that
names it was ever proposed, or the entry was seen applied as rejected. All other objects stay until the session has
ended in the ledger; the garbage collector deletes them then.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.metrics import Metrics
from coordinator.commands.commands import CommitTable, Outcome, Rejected, ReplaceChunks
from coordinator.ledger.port import LedgerUnavailable
from protocol.types import SessionId
from storage.decorators.wrapped_store import WrappedStore
from storage.gc_plan import EntryFate, may_discard
from storage.object_store import Buffer, ObjectStore, StoreError

log = logging.getLogger(__name__)


class EntryObjects:
    """The objects of one entry. They are put through `store`, which remembers their keys."""

    def __init__(self, store: ObjectStore, ledger: LedgerClient) -> None:
        self.store: ObjectStore = _RecordingStore(store, self._remember)
        self._ledger = ledger
        self.keys: dict[str, None] = {}
        """In the order in which they were put."""
        self.fate = EntryFate.UNPROPOSED

    async def propose(self, command: ReplaceChunks | CommitTable) -> Outcome:
        """Propose the entry; returns its outcome once it is applied. Raises `OutcomeUnknown`."""
        for key in keys_of(command):
            self._remember(key)
        # Before the await, which may be cancelled: an append of unknown outcome may still be applied, and its object
        # is the only copy then.
        self.fate = EntryFate.UNKNOWN
        outcome = await self._ledger.propose(command)
        # `Rejected` also where the command was never appended: it was too large, or the queue was full.
        self.fate = EntryFate.REJECTED if isinstance(outcome, Rejected) else EntryFate.APPLIED
        return outcome

    def _remember(self, key: str) -> None:
        self.keys[key] = None


class UncommittedObjects:
    """Deletes uncommitted objects. `is_bucket_ours` raises `StoreError` or `LedgerError` where that is not known."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        ledger: LedgerClient,
        is_bucket_ours: Callable[[], Awaitable[bool]],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._is_bucket_ours = is_bucket_ours
        self._metrics = metrics

    @asynccontextmanager
    async def of_entry(self, session: SessionId) -> AsyncIterator[EntryObjects]:
        """The objects of an entry of `session`, deleted at the end where certainly no entry commits them.

        A cancellation leaves them to the garbage collector, after the session's end.
        """
        objects = EntryObjects(self._store, self._ledger)
        try:
            yield objects
        except Exception:
            await self.settle(session, objects.fate, tuple(objects.keys))
            raise
        await self.settle(session, objects.fate, tuple(objects.keys))

    async def settle(self, session: SessionId, fate: EntryFate, keys: Sequence[str]) -> None:
        """Delete the objects that a session put, unless an entry has committed them, or still may."""
        if fate is EntryFate.APPLIED:
            return
        keys = self._not_in_state(keys)
        if not keys:
            return
        is_deleted = False
        if self._may_discard(session, fate):
            try:
                # A recovery of the ledger may commit objects of a session that was cut off (S9). It waits for a lease's
                # time first, so the agent deletes only while its session is confirmed and the bucket is the cluster's.
                is_ours = await self._is_bucket_ours()
                # Checked once more: a recovery may have begun during that await.
                uncommitted = self._not_in_state(keys)
                if uncommitted and is_ours and self._may_discard(session, fate):
                    await self._store.delete(uncommitted)
                    is_deleted = True
            except (StoreError, LedgerUnavailable) as error:
                log.debug(
                    "uncommitted objects were not deleted; the garbage collector does it after the session's end",
                    extra={"reason": str(error), "first": keys[0]},
                )
        self._metrics.uncommitted_objects.labels("deleted" if is_deleted else "left").inc(len(keys))

    def _may_discard(self, session: SessionId, fate: EntryFate) -> bool:
        return may_discard(fate, is_session_confirmed=session == self._ledger.session and self._ledger.is_confirmed)

    def _not_in_state(self, keys: Sequence[str]) -> Sequence[str]:
        """The keys without those that the state has: an entry may be rejected because another committed its object."""
        state = self._ledger.state
        return [key for key in keys if key not in state.object_ids and key not in state.released]


def keys_of(command: ReplaceChunks | CommitTable) -> tuple[str, ...]:
    """The keys of the table's objects that an entry commits.

    The data file is not among them: the store remembers it where this agent puts it, and a Spark job decides about its
    own.
    """
    table = command.table
    return () if table is None else (*(made.key for made in table.added), table.metadata.key)


class _RecordingStore(WrappedStore):
    """A store that reports every key before its put: a put that fails may have made the object."""

    def __init__(self, inner: ObjectStore, remember: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._remember = remember

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        self._remember(key)
        await self._inner.put(key, parts, if_absent=if_absent)
