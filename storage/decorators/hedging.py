"""A store that puts once more when a put is slow, and takes whichever ends first.

Rule: only puts without a condition are hedged. Keys are written once, with the same bytes, so it does not matter which
of the two lands, or that both do (the one that is overwritten, `storage.refs.TAIL_KEY`, is looked at again); a
conditional put would find its own twin, and is left alone. The slower one is cancelled, which leaves it unknown, as
any put that is given up. A put that fails while nothing else is on its way fails at once: to ask again is
`storage.decorators.retrying`'s.
Source: Dean, Barroso: "The Tail at Scale", hedged requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from storage.decorators.wrapped_store import WrappedStore
from storage.object_store import Buffer, ObjectStore, StoreError


class HedgingStore(WrappedStore):
    """An `ObjectStore` over another one."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        hedge_s: float,
        sleep: Callable[[float], Awaitable[None]],
        count_hedge: Callable[[], None] = lambda: None,
    ) -> None:
        """`hedge_s`: for how long a put goes alone; `sleep` is the clock's; `count_hedge` is called for each twin."""
        super().__init__(inner)
        self._count_hedge = count_hedge
        self._hedge_s = hedge_s
        self._sleep = sleep

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """Raises what the put that ended last raised, if none succeeded."""
        if if_absent:
            await self._inner.put(key, parts, if_absent=True)
            return
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(self._attempt(key, parts))
            pause = tasks.create_task(self._pause())
            await asyncio.wait({first, pause}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
            puts = {first}
            if not first.done():
                self._count_hedge()
                puts.add(tasks.create_task(self._attempt(key, parts)))
            error = await _first_success(puts)
        if error is not None:
            raise error

    async def _attempt(self, key: str, parts: Sequence[Buffer]) -> StoreError | None:
        """One put; its error is a result, so that it does not cancel the other."""
        try:
            await self._inner.put(key, parts)
        except StoreError as error:
            return error
        return None

    async def _pause(self) -> None:
        await self._sleep(self._hedge_s)


async def _first_success(puts: set[asyncio.Task[StoreError | None]]) -> StoreError | None:
    """None once one succeeded, the others cancelled; else the last one's error."""
    error: StoreError | None = None
    while puts:
        done, puts = await asyncio.wait(puts, return_when=asyncio.FIRST_COMPLETED)
        for put in done:
            error = put.result()
            if error is None:
                for slower in puts:
                    slower.cancel()
                return None
    return error
