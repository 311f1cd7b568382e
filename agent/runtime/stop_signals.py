"""Stops the process at SIGTERM or SIGINT."""

import asyncio
import logging
import signal
import sys

from agent.runtime.clock import Clock

log = logging.getLogger(__name__)


class StopSignals:
    """The first signal stops the agent, by a drain where it serves, else at once. The second one ends the process."""

    def __init__(self, stopping: asyncio.Event, starting: "asyncio.Task[object]", clock: Clock) -> None:
        self._stopping = stopping
        self._starting = starting
        self._clock = clock
        self.is_serving = False
        self.stopped_s = 0.0
        """The monotonic time of the first signal."""

    def stop(self, number: int) -> None:
        """Handle a signal."""
        if self._stopping.is_set():
            log.warning("stopping at once after a second signal; unanswered requests are dropped")
            sys.stderr.flush()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._stopping.set()
        self.stopped_s = self._clock.monotonic_s()
        if not self.is_serving:
            self._starting.cancel()


def watch_signals(stopping: asyncio.Event, starting: "asyncio.Task[object]", clock: Clock) -> StopSignals:
    """Handle SIGTERM and SIGINT in the running loop. Sets `stopping`, or cancels `starting` before the agent serves."""
    signals = StopSignals(stopping, starting, clock)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.stop, number)
    return signals
