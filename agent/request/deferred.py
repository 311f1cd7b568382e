"""Answers that are not known yet, as the bytes that they will be.

Rule: the bytes are made in the turn in which the answer becomes known; who asked may be gone by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from storage.object_store import Buffer

T = TypeVar("T")


def later(
    pending: asyncio.Future[T], write: Callable[[T], Sequence[Buffer]]
) -> Sequence[Buffer] | asyncio.Future[Sequence[Buffer]]:
    """The bytes that `write` makes of the answer: at once where it is known, else a future of them."""
    if pending.done():
        return write(pending.result())
    future: asyncio.Future[Sequence[Buffer]] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[T]) -> None:
        if not future.done():
            future.set_result(write(done.result()))

    pending.add_done_callback(settle)
    return future
