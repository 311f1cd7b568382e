"""The ports to the caller's threads and memory: this package computes, the caller chooses the thread and says when."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a function off the event loop, as `asyncio.to_thread` does."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class LeftToCaller(Exception):
    """Another process did not do the work, for whatever reason: the caller does it itself."""


class RunElsewhere(Protocol):
    """Makes a call in another process, for the role that it has there."""

    def __call__(self, role: str, byte_count: int, work: Callable[[], T], /) -> Awaitable[T]:
        """The result of `work`, a `partial` of a module's function. Raises `LeftToCaller`.

        `byte_count`: how much it reads.
        Its memoryviews are read in place; so are those of the result, which last as long as they are referred to.
        """
        ...


async def nowhere_else(_role: str, _byte_count: int, _work: Callable[[], T], /) -> T:
    """Leaves everything to the caller: for a process that has no other one."""
    raise LeftToCaller("this process has no other one")


ReserveMemory = Callable[[int], AbstractContextManager[None]]
"""Waits, in the thread that calls, until so many bytes may be taken; they are given back at the end of the block."""


def no_reservation(_byte_count: int) -> AbstractContextManager[None]:
    """Never waits: for a process that unpacks one batch at a time, such as Spark's."""
    return nullcontext()


def left_to_caller(byte_count: int) -> AbstractContextManager[None]:
    """Never gives memory: the caller's process alone knows what it has left."""
    raise LeftToCaller(f"a batch that may unpack to {byte_count} bytes waits for memory")
