"""A small pool of threads for CPU work above about a millisecond, so that the event loop goes on serving.

Rule: functions that run here are pure, or own what they change. Their heavy part releases the interpreter's lock.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from agent.runtime.cpu_meter import CPU_METER
from protocol.limits import CPU_THREADS_MAX

P = ParamSpec("P")
T = TypeVar("T")

_POOL = ThreadPoolExecutor(max_workers=CPU_THREADS_MAX, thread_name_prefix="cpu")
_OWN = ThreadPoolExecutor(max_workers=1, thread_name_prefix="own")


async def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result. Cancelling the caller does not stop a running call."""
    meter = CPU_METER.get()
    work = partial(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_POOL, work if meter is None else partial(meter.call, work))


class PatientThread:
    """A thread for calls that may block for long on another system, and must not occupy a thread of the pool.

    It makes one call at a time. A call that is cancelled before its turn is not made.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result. Cancelling the caller does not stop a running call."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))


async def run_in_own_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result, from a thread of its own: for work on which all requests wait."""
    return await asyncio.get_running_loop().run_in_executor(_OWN, lambda: function(*args, **kwargs))
