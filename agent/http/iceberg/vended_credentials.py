"""Keys that the catalog hands to engines, so that they read a table's files and nothing else.

Rule: a table's keys are made once and handed to everybody who asks until they are half over; a failure is remembered
for a minute, said in the log once, and told to whoever asks. Whoever may ask at all is decided in
`agent.config.http_auth`.
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
    CATALOG_CREDENTIALS_RENEWED_SECONDS,
    CATALOG_CREDENTIALS_SECONDS,
    CATALOG_CREDENTIALS_SPARE_SECONDS,
)
from storage.object_store import StoreError, StoreUnavailable
from storage.s3.session_credentials import SessionCredentials

WORDS = OutageWords(
    fails="the catalog can hand out no credentials: engines need their own, or see --catalog-vended-credentials",
    answers="the catalog hands out credentials again",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    credentials: SessionCredentials
    asked_s: float
    """By the monotonic clock, when they began to hold."""


class CredentialVendor:
    """`of_folder` gives keys. `ask` makes some for a folder; it blocks, and raises `StoreError`."""

    def __init__(self, *, ask: Callable[[str], SessionCredentials], clock: Clock, is_required: bool) -> None:
        """`is_required`: whether a table is not told of at all where there are no keys for it."""
        self.is_required = is_required
        self._ask = ask
        self._clock = clock
        self._outage = Outage(WORDS, monotonic_s=clock.monotonic_s)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._asking: dict[str, asyncio.Future[SessionCredentials]] = {}
        self._failure: StoreError | None = None
        self._ask_again_s = float("-inf")

    async def of_folder(self, folder: str) -> SessionCredentials:
        """Keys that read what lies below `folder`. Raises `StoreError` that says why there are none."""
        now_s = self._clock.monotonic_s()
        kept = self._kept.get(folder)
        if kept is not None:
            self._kept.move_to_end(folder)
            if now_s - kept.asked_s < CATALOG_CREDENTIALS_RENEWED_SECONDS:
                return kept.credentials
        try:
            return await self._new(folder, now_s)
        except StoreError:
            if kept is not None and self._clock.monotonic_s() - kept.asked_s < _USED_SECONDS:
                return kept.credentials
            raise

    async def _new(self, folder: str, now_s: float) -> SessionCredentials:
        """A cancelled call leaves the question going on for the others."""
        if self._failure is not None and now_s < self._ask_again_s:
            raise self._failure
        asking = self._asking.get(folder)
        if asking is None:
            asking = asyncio.get_running_loop().run_in_executor(None, self._ask, folder)
            asking.add_done_callback(partial(self._answered, folder, now_s))
            self._asking[folder] = asking
        return await asyncio.shield(asking)

    def _answered(self, folder: str, asked_s: float, asking: "asyncio.Future[SessionCredentials]") -> None:
        del self._asking[folder]
        if asking.cancelled():
            return
        error = asking.exception()
        if error is None:
            self._failure = None
            self._outage.answered("AssumeRole")
            self._kept[folder] = _Kept(credentials=asking.result(), asked_s=asked_s)
            self._kept.move_to_end(folder)
            if len(self._kept) > CATALOG_CREDENTIALS_CACHED_MAX:
                self._kept.popitem(last=False)
        elif isinstance(error, StoreError):
            self._ask_again_s = self._clock.monotonic_s() + CATALOG_CREDENTIALS_PAUSE_SECONDS
            self._failure = StoreUnavailable(str(error))
            self._outage.failed("AssumeRole", str(error))


_USED_SECONDS = CATALOG_CREDENTIALS_SECONDS - CATALOG_CREDENTIALS_SPARE_SECONDS
