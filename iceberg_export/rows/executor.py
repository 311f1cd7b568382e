"""The ports to the caller's threads and memory: this package computes, the caller chooses the thread and says when."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a function off the event loop, as `asyncio.to_thread` does."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


ReserveMemory = Callable[[int], AbstractContextManager[None]]
"""Waits, in the thread that calls, until so many bytes may be taken; they are given back at the end of the block."""


def no_reservation(_byte_count: int) -> AbstractContextManager[None]:
    """Never waits: for a process that unpacks one batch at a time, such as Spark's."""
    return nullcontext()
