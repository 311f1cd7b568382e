"""The objects that the store did not delete, with the reason of each and the time of its next attempt.

A bucket policy, a lock or a damaged pack may protect a single object. Such an object comes after all others and is
tried again with a growing pause, so that garbage collection goes on (`storage.gc_plan`). The list is in this agent's
memory only: the ledger has the objects to delete, and another agent makes its own attempts.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from protocol.limits import GC_FAILED_KEYS_MAX, GC_RETRY_SECONDS_FIRST, GC_RETRY_SECONDS_MAX
from protocol.types import SessionId
from storage.object_store import StoreError
from storage.refs import session_of_key

log = logging.getLogger(__name__)

UNDELETABLE = 'docs/operations/bucket.md, "An object that cannot be deleted"'


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDeletion:
    """One object's failed attempts. `retry_s`: the monotonic time of the next one."""

    reason: str
    attempts_count: int
    retry_s: float


class FailedDeletions:
    """The keys that wait for another attempt, with their reasons."""

    def __init__(self, *, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._failed: dict[str, FailedDeletion] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._failed

    def __len__(self) -> int:
        return len(self._failed)

    @property
    def is_full(self) -> bool:
        """Whether GC_FAILED_KEYS_MAX keys wait: then the bucket is not listed for more leftovers."""
        return len(self._failed) >= GC_FAILED_KEYS_MAX

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reason of each key's last attempt."""
        return {key: failed.reason for key, failed in self._failed.items()}

    @property
    def postponed(self) -> set[str]:
        """The keys whose pause is not over."""
        now_s = self._monotonic_s()
        return {key for key, failed in self._failed.items() if failed.retry_s > now_s}

    @property
    def retriable(self) -> list[str]:
        """The keys to try again now, in the order in which they failed first."""
        now_s = self._monotonic_s()
        return [key for key, failed in self._failed.items() if failed.retry_s <= now_s]

    @property
    def sessions(self) -> set[SessionId]:
        """The sessions that wrote the waiting objects: none may be forgotten (`storage.gc_plan.plan_sessions`)."""
        return {session for key in self._failed if (session := session_of_key(key)) is not None}

    def settle(self, tried: Iterable[str], reasons: Mapping[str, StoreError]) -> None:
        """Note the results of one attempt on the keys `tried`. A failure is logged once, and so is its end.

        Args:
            tried: all keys of the attempt.
            reasons: the error of each key that was not deleted.
        """
        now_s = self._monotonic_s()
        new_keys = [key for key in reasons if key not in self._failed]
        deleted = [key for key in tried if key not in reasons and self._failed.pop(key, None) is not None]
        for key, reason in reasons.items():
            before = self._failed.get(key)
            attempts_count = 1 if before is None else before.attempts_count + 1
            pause_s = min(GC_RETRY_SECONDS_FIRST * 2.0 ** min(attempts_count - 1, 30), GC_RETRY_SECONDS_MAX)
            self._failed[key] = FailedDeletion(
                reason=str(reason), attempts_count=attempts_count, retry_s=now_s + pause_s
            )
        if new_keys:
            log.error(
                f"the object store did not delete objects that are garbage; the agent tries again ({UNDELETABLE})",
                extra={"count": len(new_keys), "first": new_keys[0], "reason": str(reasons[new_keys[0]])},
            )
        if deleted:
            log.info(
                "objects were deleted that could not be before", extra={"count": len(deleted), "first": deleted[0]}
            )

    def forget(self, keys: Iterable[str]) -> None:
        """Drop keys that are no longer this agent's to delete."""
        for key in keys:
            self._failed.pop(key, None)
