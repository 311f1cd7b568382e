"""Ends a put only where the bucket was lately confirmed to be the cluster's own (safety rule S22).

A bucket that was deleted and created again under its name, or an endpoint that leads to another one, accepts puts, and
records that are acknowledged into it are lost. So a put ends only where this agent has read its own cluster's name in
`cluster.json` within the last BUCKET_CONFIRMED_SECONDS_MAX.

- While there are puts the object is read every BUCKET_CONFIRM_INTERVAL_S, in parallel with them. After a pause the next
  put waits for a read that begins with it.
- A definite mismatch fails all later puts: the object or the bucket is missing, or the object names another cluster.
  The object is read again with the next put, at most once in BUCKET_CONFIRM_RETRY_S.
- No answer is an outage: puts wait, and fail like other requests to a store that is away.
"""

import asyncio
import logging
import math
from collections.abc import Sequence

import msgspec

from agent.bucket.cluster_file import CLUSTER_KEY, ClusterFile, is_match, read_own_cluster_file
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import LedgerCorrupt, LedgerIdentity
from protocol.limits import BUCKET_CONFIRM_INTERVAL_S, BUCKET_CONFIRM_RETRY_S, BUCKET_CONFIRMED_SECONDS_MAX
from storage.decorators.wrapped_store import WrappedStore
from storage.object_store import (
    BucketMissing,
    Buffer,
    ObjectStore,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

log = logging.getLogger(__name__)

REMEDY = 'docs/operations/bucket.md, "The bucket is not the cluster\'s"'


class BucketNotOurs(StoreMisconfigured):
    """The bucket is not this cluster's, so the put must not be acknowledged, whether it succeeded or not."""


class BucketConfirmation:
    """The last confirmation that the bucket is this agent's cluster's; `run` reads the bucket."""

    def __init__(self, *, store: ObjectStore, identity: LedgerIdentity, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._metrics = metrics
        self._confirmed_s = -math.inf
        """The monotonic time at which the newest read began that found this cluster."""
        self._read_s = -math.inf
        """The monotonic time at which the newest read began."""
        self._is_read_due = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._is_over = False
        self._mismatch: str | None = None
        """The reason of a mismatch, by the newest definite answer; None without one."""

    async def run(self) -> None:
        """Read `cluster.json` whenever a put needs it. Runs until it is cancelled."""
        try:
            while True:
                await self._is_read_due.wait()
                self._is_read_due.clear()
                self._read_s = self._clock.monotonic_s()
                self._answer(await self._read())
        finally:
            self._is_over = True  # a put in flight must not wait for a read that never comes
            self._answer(StoreUnavailable("the agent is ending, and does not confirm its bucket any more"))

    def _answer(self, error: StoreError | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    async def before_put(self) -> None:
        """Return once a put may begin. Raises `BucketNotOurs` where its object would go into another bucket."""
        age_s = self._clock.monotonic_s() - self._read_s
        if self._mismatch is None:
            if age_s >= BUCKET_CONFIRM_INTERVAL_S:
                self._is_read_due.set()  # in parallel: the put does not wait for it
            return
        if age_s >= BUCKET_CONFIRM_RETRY_S:
            await self._until_read()
        self._check()

    async def after_put(self) -> None:
        """Return once the bucket is confirmed. Raises `BucketNotOurs`, or the store's error of a read."""
        self._check()
        while self._clock.monotonic_s() - self._confirmed_s >= BUCKET_CONFIRMED_SECONDS_MAX:
            await self._until_read()
            self._check()

    def _check(self) -> None:
        if self._mismatch is not None:
            raise BucketNotOurs(f"nothing is acknowledged into this bucket: {self._mismatch} ({REMEDY})")

    async def _until_read(self) -> None:
        if self._is_over:
            raise StoreUnavailable("the agent is ending")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._is_read_due.set()
        await waiter

    async def _read(self) -> StoreError | None:
        """Read the object once, and note a definite answer; returns the error where there was none."""
        # The bucket is confirmed as of the read's beginning: it may have been replaced while the answer was on its way.
        began_s = self._clock.monotonic_s()
        try:
            file = await read_own_cluster_file(self._store, self._identity)
        except BucketMissing as error:
            self._fail(str(error))
        except StoreError as error:
            return error
        except LedgerCorrupt as error:  # a damaged object, or a damaged answer, names no cluster (S20)
            return StoreMisconfigured(str(error))
        else:
            if file is None:
                self._fail(f"{CLUSTER_KEY} is not in it")
            elif is_match(self._identity, file):
                self._succeed(began_s)
            else:  # compared, not only looked for: another cluster's file is as wrong as none
                self._fail(f"it belongs to cluster {file.cluster_id}, incarnation {file.incarnation}")
        return None

    def _succeed(self, began_s: float) -> None:
        self._confirmed_s = began_s
        if self._mismatch is not None:
            log.warning("the bucket is this cluster's again: records are acknowledged again")
        self._mismatch = None
        self._metrics.bucket_mismatch.set(0)

    def _fail(self, reason: str) -> None:
        self._confirmed_s = -math.inf
        if self._mismatch is None:
            log.error(
                "the bucket is not this cluster's: nothing is acknowledged, and producers get retriable errors, until "
                f"{CLUSTER_KEY} names this cluster again ({REMEDY})",
                extra={"reason": reason, "content": msgspec.json.encode(ClusterFile.of(self._identity)).decode()},
            )
        self._mismatch = reason
        self._metrics.bucket_mismatch.set(1)


class ConfirmedStore(WrappedStore):
    """An `ObjectStore` over another one, whose puts count only in the cluster's own bucket (safety rule S22)."""

    def __init__(self, inner: ObjectStore, confirmation: BucketConfirmation) -> None:
        super().__init__(inner)
        self._confirmation = confirmation

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """Raises `BucketNotOurs`. The object may be in the bucket then, and no ledger entry may name it."""
        await self._confirmation.before_put()
        await self._inner.put(key, parts, if_absent=if_absent)
        # After the put, and before the caller proposes the ledger entry that names the object (S22).
        await self._confirmation.after_put()
