"""The checks of a put of an intake object, where no call of the store puts it but the ledger (`JointLedger`).

The store's own checks stand in the way of its puts: `agent.bucket.full_disk` and `agent.bucket.confirmation`.
"""

from collections.abc import Awaitable, Callable

from agent.bucket.confirmation import BucketConfirmation
from agent.bucket.full_disk import check_room


class IntakeAdmission:
    """Call it before the ledger entry that names the object is proposed (safety rule S22)."""

    def __init__(
        self,
        confirmation: BucketConfirmation,
        *,
        is_full: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._confirmation = confirmation
        self._is_full = is_full
        self._sleep = sleep

    async def __call__(self, key: str) -> None:
        """Raises the `StoreError` that a put of `key` would raise now."""
        await check_room(key, self._is_full, self._sleep)
        await self._confirmation.before_put()
        await self._confirmation.after_put()
