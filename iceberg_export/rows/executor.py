"""The port to the caller's threads: this package computes, the caller chooses the thread."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a function off the event loop, as `asyncio.to_thread` does."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...
