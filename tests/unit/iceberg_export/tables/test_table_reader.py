"""What is read once is kept, within its bounds; what fails is told, and stops the rest."""

from functools import partial

import pytest

from iceberg_export.tables.table_reader import TableCache, gather_bounded
from protocol.limits import TABLE_REQUESTS_IN_FLIGHT_MAX
from storage.object_store import ObjectMissing
from tests.support.lake.table_fixtures import MadeTable, data_file


def test_the_cache_lets_the_least_recently_used_go() -> None:
    cache = TableCache(10)
    cache.keep("a", 4, "A")
    cache.keep("b", 4, "B")
    assert cache.get("a") == "A"
    cache.keep("c", 4, "C")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")


def test_the_cache_keeps_a_key_once_and_nothing_above_its_size() -> None:
    cache = TableCache(10)
    cache.keep("a", 6, "old")
    cache.keep("a", 6, "new")
    assert cache.get("a") == "new"
    cache.keep("b", 11, "B")
    assert (cache.get("a"), cache.get("b")) == (None, None)
    cache.forget("b")
    cache.keep("c", 10, "C")
    assert cache.get("c") == "C"


async def test_a_commit_after_another_reads_nothing_from_the_bucket() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    await table.store.delete(sorted(table.objects))
    await table.commit(data_file(2))


async def test_metadata_that_went_away_is_missing() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    await table.store.delete([table.metadata_key])
    with pytest.raises(ObjectMissing):
        await table.live_keys()


async def test_calls_are_answered_in_their_order_and_a_few_at_a_time() -> None:
    under_way, most = 0, 0

    async def call(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        under_way -= 1
        return number

    assert await gather_bounded([partial(call, number) for number in range(40)]) == list(range(40))
    assert most <= TABLE_REQUESTS_IN_FLIGHT_MAX


async def test_after_a_failure_nothing_more_is_begun() -> None:
    begun = []

    async def call(number: int) -> None:
        begun.append(number)
        raise ObjectMissing(str(number))

    with pytest.raises(ObjectMissing, match="0"):
        await gather_bounded([partial(call, number) for number in range(40)])
    assert begun == [0]


async def test_a_bug_is_not_taken_for_a_failure_of_the_store() -> None:
    async def call() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await gather_bounded([call])
