"""What consumers are given: whole batches, none skipped, whatever the limit and wherever the records lie."""

import pytest

from protocol.compression import Compression
from protocol.errors import ErrorCode
from storage.failing import Fault, FaultKind, Operation
from storage.object_store import ObjectMeta
from storage.refs import INTAKE_PREFIX
from tests.made_commands import TOPIC
from tests.made_records import Record, make_batch, read_batches
from tests.unit.agent.data_paths import DataPaths, data_paths

RECORDS = 40


def batch(count: int, compression: Compression = Compression.NONE, size: int = 200) -> bytes:
    return make_batch([Record(offset=n, timestamp=1_000 + n, value=b"x" * size) for n in range(count)], compression)


async def intake_objects(paths: DataPaths) -> list[ObjectMeta]:
    return [meta async for meta in paths.memory.list(INTAKE_PREFIX)]


@pytest.mark.parametrize("limit", [1, 700, 5_000, 1 << 20])
@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_no_limit_makes_a_consumer_skip_records(limit: int, cache_bytes: int, compression: Compression) -> None:
    async with data_paths(cache_bytes=cache_bytes) as paths:
        await paths.produce(*[batch(RECORDS, compression) for _ in range(3)])
        before = await paths.consume(partition_bytes_max=limit)
        await paths.archiver.archive_topic(TOPIC)
        await paths.produce(batch(RECORDS, compression))
        after = await paths.consume(partition_bytes_max=limit)
    assert [record.offset for record in before] == list(range(3 * RECORDS))
    assert [record.offset for record in after] == list(range(4 * RECORDS))
    assert [record.value for record in after] == [b"x" * 200] * (4 * RECORDS)


async def test_a_fetch_at_the_end_is_empty_and_one_beyond_it_is_out_of_range() -> None:
    async with data_paths() as paths:
        await paths.produce(batch(3))
        at_end, beyond = await paths.fetch(3), await paths.fetch(4)
    assert (at_end.error_code, at_end.record_bytes, at_end.high_watermark) == (ErrorCode.none, 0, 3)
    assert (beyond.error_code, beyond.record_bytes) == (ErrorCode.offset_out_of_range, 0)


async def test_a_damaged_object_is_an_error_and_not_an_end() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        (found,) = await intake_objects(paths)
        await paths.memory.put(found.key, [b"\x00" * found.size_bytes])
        read = await paths.fetch(0)
    assert (read.error_code, read.record_bytes) == (ErrorCode.kafka_storage_error, 0)


async def test_a_missing_object_is_an_error_and_not_an_end() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        await paths.memory.delete([meta.key for meta in await intake_objects(paths)])
        read = await paths.fetch(0)
    assert (read.error_code, read.record_bytes) == (ErrorCode.not_leader_or_follower, 0)


async def test_a_store_that_is_away_is_a_retriable_error() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        paths.store.script(Fault(kind=FaultKind.BEFORE, operation=Operation.GET))
        away, back = await paths.fetch(0), await paths.fetch(0)
    assert (away.error_code, back.error_code) == (ErrorCode.not_leader_or_follower, ErrorCode.none)


async def test_a_fetch_ends_where_the_log_ended_when_it_was_planned() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        paths.during_pause = lambda: paths.produce(batch(3))
        paths.store.script(Fault(kind=FaultKind.SLOW, operation=Operation.GET))
        read = await paths.fetch(0)
    served = read_batches(b"".join(bytes(part) for part in read.records))
    assert (served.ranges[-1][1], read.high_watermark) == (3, 3)
