"""The memory for record batches that unpack to much: one budget for produce, searches and archive passes.

A compressed batch of a few hundred KiB may unpack to DECOMPRESSED_BYTES_MAX. Up to UNPACKED_BYTES_UNRESERVED_MAX it is
unpacked at once, and `protocol.limits.CPU_THREADS_MAX` bounds how many are. A batch that needs more is begun again with
a reservation, for which it waits in turn.

Rule: a reservation is held by a thread that works, and waits for nothing else. So there is no deadlock.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Concatenate, Final, ParamSpec, TypeVar

from agent.runtime.cpu_meter import CPU_METER
from agent.runtime.threads import run_in_thread
from protocol.errors import DoesNotUnpack
from protocol.limits import DECOMPRESSED_BYTES_MAX, UNPACKED_BYTES_AT_ONCE_MAX, UNPACKED_BYTES_UNRESERVED_MAX

P = ParamSpec("P")
T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="unpack")
"""A thread of its own: in the pool of `agent.runtime.threads` batches that wait would keep other work out."""


class UnpackingBudget:
    """Counts the bytes that batches may unpack to at once. Calls block a thread, in the order in which they come.

    A reservation larger than the budget is granted once nothing else is held.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._turns: deque[object] = deque()
        self.held_bytes = 0

    @property
    def waiting_count(self) -> int:
        return len(self._turns)

    @contextmanager
    def reserve(self, byte_count: int) -> Iterator[None]:
        """Wait for `byte_count` bytes, and hold them within the block. A thread must not reserve twice."""
        turn = object()
        with self._changed:
            self._turns.append(turn)
            # In turn, also past a small one that would fit sooner: else large batches would starve.
            self._changed.wait_for(lambda: self._turns[0] is turn and self._fits(byte_count))
            self._turns.popleft()
            self.held_bytes += byte_count
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.held_bytes -= byte_count
                self._changed.notify_all()

    def _fits(self, byte_count: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + byte_count <= self._bytes_max


UNPACKING: Final = UnpackingBudget(UNPACKED_BYTES_AT_ONCE_MAX)
"""The budget of this process."""


async def run_unpacking(function: Callable[Concatenate[int, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `function(unpacked_bytes_max, *args)` in a thread, first with the limit that needs no reservation.

    It is called again with a reservation where it raises `DoesNotUnpack`, so it must not have changed anything by then.
    Cancelling the caller does not stop a running call.
    """
    try:
        return await run_in_thread(function, UNPACKED_BYTES_UNRESERVED_MAX, *args, **kwargs)
    except DoesNotUnpack:
        pass  # outside the handler: its traceback refers to what was unpacked
    meter = CPU_METER.get()
    work = partial(function, DECOMPRESSED_BYTES_MAX, *args, **kwargs)
    measured = work if meter is None else partial(meter.call, work)
    return await asyncio.get_running_loop().run_in_executor(_POOL, _reserved, measured)


def _reserved(work: Callable[[], T]) -> T:
    with UNPACKING.reserve(DECOMPRESSED_BYTES_MAX):
        return work()
