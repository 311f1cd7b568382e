"""A slow put is put once more, and the first of the two that ends well is enough."""

import asyncio
from collections.abc import Sequence

import pytest

from storage.decorators.hedging import HedgingStore
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, ObjectExists, StoreUnavailable


class SteeredStore(MemoryStore):
    """Each put waits until the test lets it end: `outcomes[n]` of the nth put."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[asyncio.Future[None]] = []
        self.began = asyncio.Condition()

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        outcome = asyncio.get_running_loop().create_future()
        async with self.began:
            self.outcomes.append(outcome)
            self.began.notify_all()
        await outcome
        await super().put(key, parts, if_absent=if_absent)

    async def wait_for_puts(self, count: int) -> None:
        async with self.began:
            await self.began.wait_for(lambda: len(self.outcomes) == count)


class Pause:
    """The clock's sleep: over when the test says so."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        assert seconds == 0.2
        await self.is_over.wait()


async def test_a_fast_put_goes_alone() -> None:
    inner, pause = SteeredStore(), Pause()
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.put("a", [b"x"]))
        await inner.wait_for_puts(1)
        inner.outcomes[0].set_result(None)
    assert await store.get("a") == b"x"
    assert len(inner.outcomes) == 1


@pytest.mark.parametrize("faster", [0, 1])
async def test_of_a_slow_put_and_its_twin_the_faster_is_enough(faster: int) -> None:
    inner, pause = SteeredStore(), Pause()
    hedges: list[None] = []
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause, count_hedge=lambda: hedges.append(None))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.put("a", [b"x"]))
        await inner.wait_for_puts(1)
        pause.is_over.set()
        await inner.wait_for_puts(2)
        inner.outcomes[faster].set_result(None)
    assert await store.get("a") == b"x"
    assert inner.outcomes[1 - faster].cancelled()
    assert len(hedges) == 1


async def test_one_that_fails_leaves_the_other_its_chance() -> None:
    inner, pause = SteeredStore(), Pause()
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.put("a", [b"x"]))
        await inner.wait_for_puts(1)
        pause.is_over.set()
        await inner.wait_for_puts(2)
        inner.outcomes[0].set_exception(StoreUnavailable("away"))
        inner.outcomes[1].set_result(None)
    assert await store.get("a") == b"x"


async def test_two_that_fail_are_a_failure() -> None:
    inner, pause = SteeredStore(), Pause()
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause)

    async def put() -> None:
        with pytest.raises(StoreUnavailable):
            await store.put("a", [b"x"])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(put())
        await inner.wait_for_puts(1)
        pause.is_over.set()
        await inner.wait_for_puts(2)
        for outcome in inner.outcomes:
            outcome.set_exception(StoreUnavailable("away"))


async def test_a_put_that_fails_before_the_hedge_fails_at_once() -> None:
    inner, pause = SteeredStore(), Pause()
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause)

    async def put() -> None:
        with pytest.raises(StoreUnavailable):
            await store.put("a", [b"x"])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(put())
        await inner.wait_for_puts(1)
        inner.outcomes[0].set_exception(StoreUnavailable("away"))
    assert len(inner.outcomes) == 1


async def test_a_conditional_put_is_never_hedged() -> None:
    inner, pause = SteeredStore(), Pause()
    pause.is_over.set()
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.put("a", [b"x"], if_absent=True))
        await inner.wait_for_puts(1)
        inner.outcomes[0].set_result(None)
    assert len(inner.outcomes) == 1
    inner.outcomes.clear()

    async def put() -> None:
        with pytest.raises(ObjectExists):
            await store.put("a", [b"y"], if_absent=True)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(put())
        await inner.wait_for_puts(1)
        inner.outcomes[0].set_result(None)


async def test_a_cancelled_put_leaves_nothing_on_its_way() -> None:
    inner, pause = SteeredStore(), Pause()
    store = HedgingStore(inner, hedge_s=0.2, sleep=pause)
    async with asyncio.TaskGroup() as tasks:
        put = tasks.create_task(store.put("a", [b"x"]))
        await inner.wait_for_puts(1)
        pause.is_over.set()
        await inner.wait_for_puts(2)
        put.cancel()
    assert all(outcome.cancelled() for outcome in inner.outcomes)
