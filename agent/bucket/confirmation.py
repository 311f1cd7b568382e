"""Lets no put count before the bucket was seen to be the cluster's own (safety rule S22).

A bucket that was deleted and made again under its name, or an endpoint that leads to another one, takes puts as the
right bucket does; what is acknowledged into it is lost. So a put ends only where this agent has read `cluster.json`
and found its own cluster in it within the last `BUCKET_CONFIRMED_SECONDS_MAX`.

- While there are puts the object is read every `BUCKET_CONFIRM_INTERVAL_S`, beside them; without puts it is not. After
  a pause the next put waits for the read, which began with it.
- A definite answer (the object or the bucket is missing, or names another cluster) fails every put from then on. The
  object is read again with the next put, at most once in `BUCKET_CONFIRM_RETRY_S`, so the agent goes on by itself.
- No answer is an outage: the puts wait and fail like any other request to a store that is away.

The object is read and compared, not only looked for: another cluster's `cluster.json` is as wrong as none.
"""

import asyncio
import logging
import math
from collections.abc import Sequence

import msgspec

from agent.bucket.cluster_identity import CLUSTER_KEY, ClusterFile, is_named, read_own_cluster_file
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
    """The bucket is not, or no longer, this cluster's: the put does not count, whatever became of it."""


class BucketConfirmation:
    """When this agent last saw that the bucket is its cluster's; `run` asks the bucket."""

    def __init__(self, *, store: ObjectStore, identity: LedgerIdentity, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._metrics = metrics
        self._confirmed_s = -math.inf
        """When the newest read began that found this cluster."""
        self._asked_s = -math.inf
        self._is_wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._is_over = False
        self._mismatch: str | None = None
        """Why the bucket is not this cluster's, by the newest definite answer; None where it is."""

    async def run(self) -> None:
        """Read `cluster.json` whenever a put asks for it, indefinitely."""
        try:
            while True:
                await self._is_wanted.wait()
                self._is_wanted.clear()
                self._asked_s = self._clock.monotonic_s()
                self._answer(await self._read())
        finally:
            self._is_over = True  # a put that is still on its way must not wait for a read that never comes
            self._answer(StoreUnavailable("the agent ends, and does not ask any more whose the bucket is"))

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
        age_s = self._clock.monotonic_s() - self._asked_s
        if self._mismatch is None:
            if age_s >= BUCKET_CONFIRM_INTERVAL_S:
                self._is_wanted.set()  # the read goes on beside the put
            return
        if age_s >= BUCKET_CONFIRM_RETRY_S:
            await self._until_read()
        self._check()

    async def after_put(self) -> None:
        """Return once the bucket is confirmed. Raises `BucketNotOurs`, or what the store answered a read with."""
        self._check()
        while self._clock.monotonic_s() - self._confirmed_s >= BUCKET_CONFIRMED_SECONDS_MAX:
            await self._until_read()
            self._check()

    def _check(self) -> None:
        if self._mismatch is not None:
            raise BucketNotOurs(f"nothing is acknowledged into this bucket: {self._mismatch} ({REMEDY})")

    async def _until_read(self) -> None:
        if self._is_over:
            raise StoreUnavailable("the agent ends")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._is_wanted.set()
        await waiter

    async def _read(self) -> StoreError | None:
        """Read the object once; the error where it has not told anything definite."""
        began_s = self._clock.monotonic_s()
        try:
            found = await read_own_cluster_file(self._store, self._identity)
        except BucketMissing as error:
            self._fail(str(error))
        except StoreError as error:
            return error
        except LedgerCorrupt as error:  # damaged on its way, or in the bucket: it tells nothing
            return StoreMisconfigured(str(error))
        else:
            if found is None:
                self._fail(f"{CLUSTER_KEY} is not in it")
            elif is_named(self._identity, found):
                self._succeed(began_s)
            else:
                self._fail(f"it belongs to cluster {found.cluster_id}, incarnation {found.incarnation}")
        return None

    def _succeed(self, began_s: float) -> None:
        self._confirmed_s = began_s
        if self._mismatch is not None:
            log.warning("the bucket is this cluster's again: records are acknowledged")
        self._mismatch = None
        self._metrics.bucket_mismatch.set(0)

    def _fail(self, reason: str) -> None:
        self._confirmed_s = -math.inf
        if self._mismatch is None:
            log.error(
                "the bucket is not this cluster's: nothing is acknowledged, and producers get retriable errors, until "
                f"{CLUSTER_KEY} is back as it was ({REMEDY})",
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
        """Raises `BucketNotOurs`; the object may be there then, and nothing may refer to it."""
        await self._confirmation.before_put()
        await self._inner.put(key, parts, if_absent=if_absent)
        # After the put and before its caller goes on: the ledger's entry that names the object makes it true.
        await self._confirmation.after_put()
