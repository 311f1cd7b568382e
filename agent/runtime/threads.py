"""Where work above about a millisecond runs: a small pool of threads, so that the loop goes on serving.

Rule: functions given here are pure, or own what they change; the heavy part runs without the interpreter's lock.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from protocol.limits import CPU_THREADS_MAX

P = ParamSpec("P")
T = TypeVar("T")

_POOL = ThreadPoolExecutor(max_workers=CPU_THREADS_MAX, thread_name_prefix="cpu")
_OWN = ThreadPoolExecutor(max_workers=1, thread_name_prefix="own")


async def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result. Cancelling the caller does not stop a call that began."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, lambda: function(*args, **kwargs))


class PatientThread:
    """A thread for calls that may wait for somebody else for long: they must not hold a thread of the pool.

    One call at a time is made; those that are cancelled before their turn are not made.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result. Cancelling the caller does not stop a call that began."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))


async def run_in_own_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The same where everybody waits for the result, so that it must not wait for a thread of the pool."""
    return await asyncio.get_running_loop().run_in_executor(_OWN, lambda: function(*args, **kwargs))
