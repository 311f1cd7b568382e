"""The agent's clock: the only module that reads a clock or sleeps.

Rule: code that needs time takes a `Clock`, so that tests and simulations control it. Wall time is for people and record
timestamps only; elapsed time is measured with the monotonic clock.
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
        """Wall time. It may jump, also backwards: never use it to measure elapsed time."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment in the past; never goes back."""
        ...

    def uptime_s(self) -> float:
        """Seconds since a fixed moment in the past, including the machine's sleep; never goes back."""
        ...

    def thread_cpu_s(self) -> float:
        """CPU seconds of the calling thread: the cost of its work, however busy the machine is."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; 0 lets other tasks run once."""
        ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """A block that is cancelled and raises `TimeoutError` when it takes longer; None waits indefinitely."""
        ...


class SystemClock:
    """The machine's clocks and the running loop's timers."""

    def now_ms(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)

    monotonic_s = staticmethod(time.monotonic)

    def uptime_s(self) -> float:
        return time.clock_gettime(_CLOCK_WITH_SLEEP)

    def thread_cpu_s(self) -> float:
        return time.thread_time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)
