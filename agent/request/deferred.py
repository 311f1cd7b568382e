"""Responses that are not known yet.

The bytes are made in the turn of the loop in which the result becomes known. The client may be gone by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent.request.messages import Values
from storage.object_store import Buffer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeferredValues(Generic[T]):
    """A result to come, and the function that makes a response's fields of it.

    Meanwhile the connection's next request is handled. It keeps nothing of the request's body.
    """

    pending: asyncio.Future[T]
    values: Callable[[T], Values]


def later(
    pending: asyncio.Future[T], write: Callable[[T], Sequence[Buffer]]
) -> Sequence[Buffer] | asyncio.Future[Sequence[Buffer]]:
    """The bytes that `write` makes of the result: at once where it is known, else a future of them."""
    if pending.done():
        return write(pending.result())
    future: asyncio.Future[Sequence[Buffer]] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[T]) -> None:
        if not future.done():
            future.set_result(write(done.result()))

    pending.add_done_callback(settle)
    return future
