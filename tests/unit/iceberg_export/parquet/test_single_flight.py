"""One reads for all who ask meanwhile; errors are shared and forgotten; a reader that is cancelled is replaced."""

import asyncio

import pytest

from iceberg_export.parquet.single_flight import ReadOnce
from storage.object_store import ObjectMissing


class Source:
    """Reads that end when they are told to."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[bytes]] = []

    async def read(self) -> bytes:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]


def cache(weight_max: int = 100) -> ReadOnce[str, bytes]:
    return ReadOnce(weight_max=weight_max, weigh=len)


async def turns() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def put(values: ReadOnce[str, bytes], key: str, value: bytes) -> bytes:
    async def read() -> bytes:
        return value

    return await values.get(key, read)


async def test_those_who_ask_meanwhile_and_later_get_what_the_first_one_read() -> None:
    values, source = cache(), Source()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(values.get("a", source.read)) for _ in range(3)]
        await turns()
        source.begun[0].set_result(b"x")
    assert [task.result() for task in asked] == [b"x"] * 3
    assert await put(values, "a", b"never read") == b"x"
    assert (values.cached("a"), values.cached("b")) == (b"x", None)
    assert len(source.begun) == 1


async def test_an_error_reaches_all_who_wait_and_the_next_one_reads_again() -> None:
    values, source = cache(), Source()
    asked = [asyncio.ensure_future(values.get("a", source.read)) for _ in range(3)]
    await turns()
    source.begun[0].set_exception(ObjectMissing("gone"))
    for error in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(error, ObjectMissing)
    assert await put(values, "a", b"back") == b"back"


async def test_another_one_reads_where_the_reader_was_cancelled() -> None:
    values, source = cache(), Source()
    first, second = (asyncio.ensure_future(values.get("a", source.read)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    source.begun[1].set_result(b"x")
    assert await second == b"x"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_one_that_waited_and_was_cancelled_takes_nothing_from_the_others() -> None:
    values, source = cache(), Source()
    first, second = (asyncio.ensure_future(values.get("a", source.read)) for _ in range(2))
    await turns()
    second.cancel()
    await turns()
    source.begun[0].set_result(b"x")
    assert await first == b"x"


async def test_the_least_recently_used_make_room() -> None:
    values = cache(weight_max=3)
    for key in ("a", "b", "c", "a", "d"):
        assert await put(values, key, key.encode()) == key.encode()
    assert values.weight == 3
    assert [await put(values, key, b"!") for key in "acd"] == [b"a", b"c", b"d"]
    assert await put(values, "b", b"!") == b"!"


async def test_what_is_forgotten_is_read_again_and_makes_room() -> None:
    values = cache(weight_max=3)
    assert await put(values, "a", b"old") == b"old"
    values.forget("a")
    values.forget("never")
    assert values.weight == 0
    assert await put(values, "a", b"new") == b"new"


async def test_what_is_heavier_than_the_bound_is_not_kept() -> None:
    values = cache(weight_max=3)
    assert await put(values, "a", b"kept") == b"kept"
    assert values.weight == 0
    assert await put(values, "a", b"new") == b"new"
