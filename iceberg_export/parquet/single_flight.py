"""A cache whose concurrent reads of one key are one read.

The least recently used values are evicted first. A failed read is not cached; every caller that waited for it gets the
same error.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from storage.object_store import StoreError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ReadOnce(Generic[Key, Value]):
    """Values by key, of at most `weight_max` together by `weigh`. A value that is heavier by itself is not cached."""

    def __init__(self, *, weight_max: int, weigh: Callable[[Value], int]) -> None:
        self._weight_max = weight_max
        self._weigh = weigh
        self._cached: OrderedDict[Key, Value] = OrderedDict()
        self._flights: dict[Key, asyncio.Future[Value]] = {}
        self.weight = 0

    async def get(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        """The value of `key`; `read` is called where it is neither cached nor being read.

        Raises what `read` raises. Where a caller that reads is cancelled, one that waits reads instead.
        """
        while True:
            value = self._cached.get(key)
            if value is not None:
                self._cached.move_to_end(key)
                return value
            flight = self._flights.get(key)
            if flight is None:
                return await self._read(key, read)
            await asyncio.wait([flight])
            if not flight.cancelled():
                return flight.result()

    def cached(self, key: Key) -> Value | None:
        """The value of `key` where it is cached. This does not count as a use of it."""
        return self._cached.get(key)

    def forget(self, key: Key) -> None:
        """Remove the value from the cache."""
        value = self._cached.pop(key, None)
        if value is not None:
            self.weight -= self._weigh(value)

    def forget_where(self, matches: Callable[[Key], bool]) -> None:
        """Remove the values of all keys for which `matches` is true."""
        for key in [key for key in self._cached if matches(key)]:
            self.forget(key)

    async def _read(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            value = await read()
        except StoreError as error:
            flight.set_exception(error)
            flight.exception()  # retrieved here: asyncio logs an exception that no caller retrieves
            raise
        else:
            flight.set_result(value)
            self._add(key, value)
            return value
        finally:
            del self._flights[key]
            flight.cancel()  # no effect once it has a result; after a cancellation a waiting caller reads instead

    def _add(self, key: Key, value: Value) -> None:
        weight = self._weigh(value)
        if weight > self._weight_max:
            return
        self._cached[key] = value
        self.weight += weight
        while self.weight > self._weight_max:
            _, evicted = self._cached.popitem(last=False)
            self.weight -= self._weigh(evicted)
