"""What is remembered, how much of it, and who asks for those who wait."""

import asyncio

import pytest

from storage.caching import CachingStore
from storage.failing import FailingStore, Fault, FaultKind, Operation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing


async def made(bytes_max: int = 100) -> tuple[CachingStore, FailingStore, asyncio.Event]:
    gate = asyncio.Event()

    async def until_open(_seconds: float) -> None:
        await gate.wait()

    failing = FailingStore(MemoryStore(), sleep=until_open)
    await failing.put("a", [b"0123456789"])
    return CachingStore(failing, bytes_max=bytes_max), failing, gate


SLOW = Fault(kind=FaultKind.SLOW, operation=Operation.GET)


async def test_a_range_within_what_was_read_is_not_asked_for() -> None:
    store, _, _ = await made()
    assert await store.get_range("a", 2, 6) == b"234567"
    assert await store.get_range("a", 3, 2) == b"34"
    assert (store.hits_count, store.misses_count, store.bytes_held) == (1, 1, 6)


async def test_the_least_recently_used_goes_first() -> None:
    store, _, _ = await made(bytes_max=6)
    for byte_first in (0, 3, 0, 6):
        await store.get_range("a", byte_first, 3)
    assert store.misses_count == 3
    await store.get_range("a", 0, 3)
    assert (store.misses_count, store.bytes_held) == (3, 6)


async def test_readers_of_one_range_share_a_request() -> None:
    store, failing, gate = await made()
    failing.script(SLOW)
    readers = [asyncio.create_task(store.get("a")) for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*readers) == [b"0123456789"] * 5
    assert store.misses_count == 1


async def test_a_cancelled_reader_leaves_the_question_to_another() -> None:
    store, failing, gate = await made()
    failing.script(SLOW, SLOW)
    first, second = (asyncio.create_task(store.get("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == b"0123456789"
    assert first.cancelled()


async def test_what_was_deleted_is_forgotten() -> None:
    store, _, _ = await made()
    await store.get("a")
    await store.delete(["a"])
    assert store.bytes_held == 0
    with pytest.raises(ObjectMissing):
        await store.get("a")
