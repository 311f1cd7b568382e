"""The credentials that the catalog vends to engines: they read one table's files and nothing else.

Rule: all requests of one principal for a table get the same credentials until half of their lifetime is over. The
session has the principal's name. Rights that are revoked end new credentials at once, and old ones with their time. A
failure is cached for a minute, logged once, and returned to each caller. Access control is in
`agent.http.access_guard`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agent.runtime.clock import Clock
from agent.runtime.outages import Outage, OutageWords
from protocol.limits import (
    CATALOG_CREDENTIALS_CACHED_MAX,
    CATALOG_CREDENTIALS_PAUSE_SECONDS,
    CATALOG_CREDENTIALS_SECONDS_MAX,
    CATALOG_CREDENTIALS_SPARE_SHARE,
)
from storage.object_store import StoreError, StoreUnavailable
from storage.s3.session_credentials import SessionCredentials

_Scope = tuple[str, str]
"""A folder, and the user whose credentials read it."""
WORDS = OutageWords(
    fails="the catalog cannot vend credentials: give engines their own, or see --catalog-vended-credentials",
    answers="the catalog vends credentials again",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedCredentials:
    credentials: SessionCredentials
    requested_s: float
    """The monotonic time of the request for them."""


class CredentialVendor:
    """Vends credentials. `ask` requests new ones for a folder and a user; it blocks, and raises `StoreError`."""

    def __init__(
        self,
        *,
        ask: Callable[[str, str], SessionCredentials],
        clock: Clock,
        is_required: bool,
        seconds: int = CATALOG_CREDENTIALS_SECONDS_MAX,
    ) -> None:
        """
        Args:
            is_required: whether loading a table fails where there are no credentials for it.
            seconds: the lifetime of what `ask` requests.
        """
        self.is_required = is_required
        self.seconds = seconds
        self._ask = ask
        self._clock = clock
        self._outage = Outage(WORDS, monotonic_s=clock.monotonic_s)
        self._cache: OrderedDict[_Scope, _CachedCredentials] = OrderedDict()
        self._requests: dict[_Scope, asyncio.Future[SessionCredentials]] = {}
        self._failure: StoreError | None = None
        self._retry_at_s = float("-inf")

    async def of_folder(self, folder: str, user: str) -> SessionCredentials:
        """Credentials for a user to read the objects below `folder`. Raises `StoreError` where there are none."""
        now_s, scope = self._clock.monotonic_s(), (folder, user)
        cached = self._cache.get(scope)
        if cached is not None:
            self._cache.move_to_end(scope)
            if now_s - cached.requested_s < self.seconds / 2:
                return cached.credentials
        try:
            return await self._new(scope, now_s)
        except StoreError:
            used_seconds = self.seconds * (1 - CATALOG_CREDENTIALS_SPARE_SHARE)
            if cached is not None and self._clock.monotonic_s() - cached.requested_s < used_seconds:
                return cached.credentials
            raise

    async def _new(self, scope: _Scope, now_s: float) -> SessionCredentials:
        """New credentials. A cancelled call leaves the request running for the other callers."""
        if self._failure is not None and now_s < self._retry_at_s:
            raise self._failure
        pending = self._requests.get(scope)
        if pending is None:
            pending = asyncio.get_running_loop().run_in_executor(None, self._ask, *scope)
            pending.add_done_callback(partial(self._answered, scope, now_s))
            self._requests[scope] = pending
        return await asyncio.shield(pending)

    def _answered(self, scope: _Scope, requested_s: float, pending: "asyncio.Future[SessionCredentials]") -> None:
        del self._requests[scope]
        if pending.cancelled():
            return
        error = pending.exception()
        if error is None:
            self._failure = None
            self._outage.answered("AssumeRole")
            self._cache[scope] = _CachedCredentials(credentials=pending.result(), requested_s=requested_s)
            self._cache.move_to_end(scope)
            if len(self._cache) > CATALOG_CREDENTIALS_CACHED_MAX:
                self._cache.popitem(last=False)
        elif isinstance(error, StoreError):
            self._retry_at_s = self._clock.monotonic_s() + CATALOG_CREDENTIALS_PAUSE_SECONDS
            self._failure = StoreUnavailable(str(error))
            self._outage.failed("AssumeRole", str(error))
