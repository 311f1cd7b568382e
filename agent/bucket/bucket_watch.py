"""Checks that the ledger and the bucket of a running agent still belong together (safety rule S9).

`agent.bucket.cluster_identity` has checked it at the start. Here a definite mismatch ends the agent; where the bucket
says nothing, the agent logs it and deletes no garbage.
"""

import logging
from collections.abc import Callable

from agent.bucket.cluster_file import (
    CLUSTER_KEY,
    REMEDY_CLUSTER_FILE,
    expected_content,
    is_match,
    read_own_cluster_file,
)
from agent.bucket.cluster_identity import AnotherBucket, check_reached
from agent.runtime.clock import Clock
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerIdentity, LedgerUnavailable
from protocol.limits import BUCKET_CHECK_INTERVAL_S
from protocol.types import Position
from storage.object_store import ObjectStore, StoreError

log = logging.getLogger(__name__)


class BucketWatch:
    """Checks while an agent runs that its ledger and bucket still belong together.

    The bucket may be recovered under another ledger meanwhile, or the ledger restored from a backup. An agent that had
    not read past the backup's end sees no gap in the ledger: only the bucket's objects show it.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        ledger: Ledger,
        identity: LedgerIdentity,
        position: Callable[[], Position],
        clock: Clock,
    ) -> None:
        """`position` returns the position that the agent has applied."""
        self._store = store
        self._ledger = ledger
        self._identity = identity
        self._position = position
        self._clock = clock
        self._is_doubt_logged = False

    async def run(self) -> None:
        """Check every BUCKET_CHECK_INTERVAL_S. Runs until it is cancelled; an outage is waited out."""
        position_checked = self._position()
        while True:
            await self._clock.sleep(BUCKET_CHECK_INTERVAL_S)
            position = self._position()
            try:
                # While no entry is applied, one GET is enough. New entries may be those of a restored backup: three
                # LISTs show whether the bucket has objects of a longer ledger.
                if position == position_checked:
                    await self._is_file_ours()
                else:
                    await self.is_ours()
            except (StoreError, LedgerUnavailable) as error:
                log.warning(
                    "the owner of the bucket could not be checked; the agent tries again", extra={"reason": str(error)}
                )
            else:
                position_checked = position

    async def is_ours(self) -> bool:
        """Whether the bucket names this ledger. False where its name cannot be read: then nothing may be deleted.

        Raises `LedgerCorrupt` where the bucket has objects of a longer ledger than this one is now, and `AnotherBucket`
        where it names another ledger; the agent has to end then (safety rule S9). Raises `StoreError` and
        `LedgerUnavailable`.
        """
        is_file_ours = await self._is_file_ours()
        await check_reached(self._store, self._ledger, is_recovery_foreign=True)
        return is_file_ours

    async def _is_file_ours(self) -> bool:
        """Whether `cluster.json` names this ledger; False where it says nothing. Raises `AnotherBucket`."""
        try:
            file = await read_own_cluster_file(self._store, self._identity)
        except LedgerCorrupt as error:
            return self._doubt(str(error))
        if file is None:
            return self._doubt(f"{CLUSTER_KEY} is gone from the bucket")
        self._is_doubt_logged = False
        own = self._identity
        if not is_match(own, file):
            # The other ledger decides what is garbage now: records that this agent acknowledges would be deleted.
            raise AnotherBucket(
                f"the bucket of this agent belongs to cluster {file.cluster_id}, incarnation {file.incarnation} now, "
                f"and the agent's ledger to {own.cluster_id}, incarnation {own.incarnation}: was the cluster "
                "recovered under another ledger's name while agents ran? This agent ends, as the other ledger would "
                'not know the records that it acknowledges. See docs/operations/recovery.md, "The bucket was '
                "recovered under another ledger's name\""
            )
        return True

    def _doubt(self, reason: str) -> bool:
        """Log that the owner is unknown, once until it is known again; returns False, the answer of `is_ours`."""
        if not self._is_doubt_logged:
            log.error(
                "the bucket names no owner: no garbage is deleted from it, no agent can be started on it, and "
                f"soon nothing is acknowledged into it, until {CLUSTER_KEY} names this cluster again "
                f"({REMEDY_CLUSTER_FILE})",
                extra={"reason": reason, "content": expected_content(self._identity)},
            )
        self._is_doubt_logged = True
        return False
