"""What is costly to read and wanted again soon, or by several at once: read once, and kept for a while.

Rule: the least recently used go first when the bound is reached. What cannot be read is kept by nobody; those who
waited for it get the same error.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from storage.object_store import StoreError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ReadOnce(Generic[Key, Value]):
    """Values by key. `weigh` says how much of `weight_max` one takes; one that is heavier is not kept."""

    def __init__(self, *, weight_max: int, weigh: Callable[[Value], int]) -> None:
        self._weight_max = weight_max
        self._weigh = weigh
        self._held: OrderedDict[Key, Value] = OrderedDict()
        self._flights: dict[Key, asyncio.Future[Value]] = {}
        self.weight = 0

    async def get(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        """The value of `key`, which `read` finds out if nobody has and nobody is about to.

        Raises what `read` raises. If a caller that reads is cancelled, another one that waits reads in its place.
        """
        while True:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held
            flight = self._flights.get(key)
            if flight is None:
                return await self._read(key, read)
            await asyncio.wait([flight])
            if not flight.cancelled():
                return flight.result()

    def held(self, key: Key) -> Value | None:
        """The value of `key` where it is kept; this is no use of it."""
        return self._held.get(key)

    def forget(self, key: Key) -> None:
        """Let the value go: the next one who asks reads again."""
        dropped = self._held.pop(key, None)
        if dropped is not None:
            self.weight -= self._weigh(dropped)

    def forget_where(self, is_meant: Callable[[Key], bool]) -> None:
        """`forget` every key for which `is_meant` says so."""
        for key in [key for key in self._held if is_meant(key)]:
            self.forget(key)

    async def _read(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            value = await read()
        except StoreError as error:
            flight.set_exception(error)
            flight.exception()  # seen, even where nobody waits
            raise
        else:
            flight.set_result(value)
            self._keep(key, value)
            return value
        finally:
            del self._flights[key]
            flight.cancel()  # where it was not settled

    def _keep(self, key: Key, value: Value) -> None:
        weight = self._weigh(value)
        if weight > self._weight_max:
            return
        self._held[key] = value
        self.weight += weight
        while self.weight > self._weight_max:
            _, dropped = self._held.popitem(last=False)
            self.weight -= self._weigh(dropped)
