"""Time, as the agent sees it: the only module that reads a clock or sleeps.

Rule: whoever needs time takes a `Clock`, so that a test or a simulation decides what time it is. Wall time is for what
people and records see; elapsed time is measured on the monotonic clock alone (architecture: the ledger, "Time").
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from protocol.types import Milliseconds

_CLOCK_WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux counts a machine's sleep in CLOCK_BOOTTIME alone (clock_gettime(2)), macOS in CLOCK_MONOTONIC."""


class Clock(Protocol):
    def now_ms(self) -> Milliseconds:
        """Wall time. It may jump, also backwards: never subtract two of them to measure how long something took."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment in the past; never goes back."""
        ...

    def uptime_s(self) -> float:
        """Seconds since some fixed moment in the past, the machine's sleep included; never goes back."""
        ...

    def thread_cpu_s(self) -> float:
        """Seconds of a processor that the calling thread has used: what work takes, however busy the machine is."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; 0 lets other tasks run once."""
        ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """A block that is cancelled and raises `TimeoutError` when it takes longer; None waits without end."""
        ...


class SystemClock:
    """The machine's clocks and the running loop's timers."""

    def now_ms(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def uptime_s(self) -> float:
        return time.clock_gettime(_CLOCK_WITH_SLEEP)

    def thread_cpu_s(self) -> float:
        return time.thread_time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)
