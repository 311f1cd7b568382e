"""The deadlines of groups, in order, and the wait for the next one.

In: the next deadline of a group, whenever it changes. Out: the group's id when a deadline passes. A deadline that moves
to a later time, as with each heartbeat, sets no timer: when the earlier one passes the group has nothing to do.
"""

import asyncio
import heapq
from collections.abc import Callable

from agent.runtime.clock import Clock
from protocol.limits import GROUP_LATE_SECONDS_MAX


class GroupTimers:
    """A heap of deadlines with group ids, not objects: an unloaded group is freed before its deadline."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, str]] = []
        self._has_earlier = asyncio.Event()
        """Set where a new deadline is earlier than all others."""

    def set(self, deadline_s: float, group_id: str) -> None:
        """Add a deadline, in seconds of the monotonic clock."""
        timer = (deadline_s, group_id)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._has_earlier.set()

    async def run(self, expire: Callable[[str, float, float], None]) -> None:
        """Call `expire` with the group's id, its deadline and the time as deadlines pass. Runs until cancelled."""
        while True:
            self._has_earlier.clear()
            now_s = self._clock.monotonic_s()
            if self._heap and now_s - self._heap[0][0] > GROUP_LATE_SECONDS_MAX:
                # This agent stood still: heartbeats that have arrived meanwhile are read before members time out.
                await self._clock.sleep(GROUP_LATE_SECONDS_MAX)
                now_s = self._clock.monotonic_s()
            while self._heap and self._heap[0][0] <= now_s:
                deadline_s, group_id = heapq.heappop(self._heap)
                expire(group_id, deadline_s, now_s)
            wait_s = self._heap[0][0] - now_s if self._heap else None
            if wait_s is None or wait_s > 0:
                try:
                    async with self._clock.timeout(wait_s):
                        await self._has_earlier.wait()
                except TimeoutError:
                    continue
            else:
                await self._clock.sleep(0)
