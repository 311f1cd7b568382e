"""Behind an archive pass consumers get the batches that were produced, from memory, only where these are right."""

import random
from collections.abc import Sequence

import pytest

from agent.cache import produced_chunks
from agent.fetch.partition_read import PartitionRead
from agent.fetch.read_ahead import FetchStep
from coordinator.commands.commands import DeleteTopic
from protocol.errors import ErrorCode
from protocol.limits import PRODUCED_CHUNK_BYTES_MIN
from protocol.records.batch import walk_batches
from protocol.records.compression import Compression
from protocol.types import PartitionIndex, TopicId
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths
from tests.support.agent.fetch_paths import batch, consumer_of
from tests.support.agent.transactional_paths import (
    COMMITTED,
    Producer,
    partition_of,
    produce_chunk,
    read_all,
    values_of,
)
from tests.support.commands.commands import TOPIC, create, delete_before
from tests.support.records.plain_records import Record, make_batch, read_batches

RECORDS = 30
VALUE = b"v" * 300
BATCH = make_batch([Record(offset=n, timestamp=1_000 + n, value=VALUE) for n in range(RECORDS)])
ROWS_DIFFER = "the archive has other batches than producers sent"


def bytes_of(read: PartitionRead) -> bytes:
    assert read.error_code is ErrorCode.none, read
    return b"".join(bytes(part) for part in read.records)


def is_as_produced(read: PartitionRead) -> bool:
    """Whether these are the batches that producers sent: the archive's have other bounds."""
    return {header.record_count for header in walk_batches(bytes_of(read))} == {RECORDS}


def store_fails(paths: DataPaths) -> None:
    """No read of the store succeeds."""
    faults = [InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET, key_prefix="")] * 20
    paths.store.script(*faults)


async def produced_and_archived(paths: DataPaths, count: int = 3) -> None:
    await paths.produce(*[BATCH] * count)
    await paths.archiver.archive_topic(TOPIC)


async def records_of(paths: DataPaths, partition_bytes_max: int = 1 << 20) -> Sequence[Record]:
    await paths.parts.ledger.barrier()
    return await paths.consume(partition_bytes_max=partition_bytes_max)


async def test_what_was_produced_is_served_behind_a_pass_without_a_read() -> None:
    async with data_paths() as paths:
        await paths.produce(*[BATCH] * 3)
        before = await paths.fetch(0)
        await paths.archiver.archive_topic(TOPIC)
        assert all(chunk.is_archived for chunk in partition_of(paths).index.rows_from(0))
        store_fails(paths)
        after, inside = await paths.fetch(0), await paths.fetch(RECORDS + 3)
    assert bytes_of(after) == bytes_of(before)
    assert bytes_of(inside) == bytes_of(before)[len(BATCH) :]
    assert (after.high_watermark, after.last_stable, after.offset_next) == (3 * RECORDS,) * 3


async def test_limits_cut_it_at_whole_batches_and_nothing_is_skipped() -> None:
    async with data_paths() as paths:
        await produced_and_archived(paths)
        await paths.produce(BATCH)
        store_fails(paths)
        first = await paths.fetch(0, partition_bytes_max=2 * len(BATCH) - 1)
        assert (bytes_of(first), first.offset_next) == (bytes_of(first)[: len(BATCH)], RECORDS)
        for limit in (1, len(BATCH), 3 * len(BATCH) - 1, 1 << 20):
            offsets = [record.offset for record in await paths.consume(partition_bytes_max=limit)]
            assert offsets == list(range(4 * RECORDS))


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
async def test_records_are_those_of_the_archive(timestamp_type: str, compression: Compression) -> None:
    records = [
        Record(
            offset=n,
            timestamp=1_000 - n,
            key=b"k%d" % n if n % 3 else None,
            value=None if n % 5 == 0 else random.Random(n).randbytes(300),
            headers=((b"h", b"%d" % n), (b"none", None)) if n % 2 else (),
        )
        for n in range(RECORDS)
    ]
    async with data_paths(timestamp_type=timestamp_type) as writes, another_agent(writes) as reads:
        for _ in range(3):
            await writes.produce(make_batch(records, compression))
            writes.parts.clock.seconds += 1
        await writes.archiver.archive_topic(TOPIC)
        store_fails(writes)
        produced, archived = await writes.fetch(0), await records_of(reads)
        assert await records_of(writes) == archived
    assert is_as_produced(produced)
    assert len(archived) == 3 * RECORDS


async def test_many_partitions_are_served_together_without_a_read() -> None:
    async with data_paths(partitions=4) as paths:
        for _ in range(2):
            await paths.produce_together(dict.fromkeys(range(4), BATCH))
        await paths.archiver.archive_topic(TOPIC)
        store_fails(paths)
        requested = [consumer_of("t", partition=partition) for partition in range(4)]
        reads = await paths.fetch_path.fetch(requested, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
    assert [is_as_produced(read) for read in reads] == [True] * 4
    assert [read.offset_next for read in reads] == [2 * RECORDS] * 4


async def test_an_archived_chunk_in_memory_is_served_where_another_consumer_has_read_it() -> None:
    """It joins small batches, and is one piece."""
    async with data_paths() as paths:
        await produced_and_archived(paths)
        archived = partition_of(paths).index.row(0)
        await paths.reader.read(paths.parts.ledger.state, [archived], [Compression.NONE])
        read = await paths.fetch(0)
    assert [header.record_count for header in walk_batches(bytes_of(read))] == [3 * RECORDS], ROWS_DIFFER


async def test_the_archive_is_read_where_a_chunk_is_not_in_memory_any_more() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH)
        paths.cache.drop_chunks(partition_of(paths).index.row(0).object_id)
        await paths.archiver.archive_topic(TOPIC)
        await produced_and_archived(paths)
        hits = paths.cache.hits_count
        read = await paths.fetch(0)
        assert paths.cache.hits_count == hits + 3, "all but the first chunk"
    assert [record.offset for record in read_batches(bytes_of(read)).records] == list(range(4 * RECORDS))


async def test_a_run_with_a_gap_is_read_from_the_archive() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH, BATCH, BATCH)
        chunk = partition_of(paths).index.row(1)
        paths.cache.drop_chunks(chunk.object_id)
        await paths.archiver.archive_topic(TOPIC)
        read = await paths.fetch(0)
        assert not is_as_produced(read)
        assert [record.offset for record in read_batches(bytes_of(read)).records] == list(range(3 * RECORDS))
        tail = await paths.fetch(2 * RECORDS)
    assert [record.offset for record in read_batches(bytes_of(tail)).records][-1] == 3 * RECORDS - 1


async def test_small_chunks_are_read_from_the_archive_which_joins_them() -> None:
    small = batch(3)
    assert len(small) < PRODUCED_CHUNK_BYTES_MIN <= len(BATCH)
    async with data_paths() as paths:
        await paths.produce(small, small)
        await paths.archiver.archive_topic(TOPIC)
        read = await paths.fetch(0)
    assert [header.record_count for header in walk_batches(bytes_of(read))] == [6]


async def test_a_merge_of_files_changes_no_record_so_what_was_produced_is_still_served() -> None:
    async with data_paths() as paths:
        for _ in range(2):
            await produced_and_archived(paths)
        index = partition_of(paths).index
        first, second = index.row(0), index.row(1)
        # As a merge of both files: one chunk with all of their rows.
        merged = first._replace(offset_end=second.offset_end, row_count=first.row_count + second.row_count)
        index.replace(0, 2, [merged])
        store_fails(paths)
        read = await paths.fetch(RECORDS)
    assert is_as_produced(read)
    assert read.offset_next == 6 * RECORDS


class TestSafety:
    """S5: the archive leaves records out, and lists no transaction as aborted."""

    @pytest.fixture(autouse=True)
    def chunks_of_any_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(produced_chunks, "PRODUCED_CHUNK_BYTES_MIN", 0)

    @pytest.mark.parametrize("is_commit", [True, False])
    async def test_s5_batches_of_transactions_are_not_served_behind_their_pass(self, *, is_commit: bool) -> None:
        async with data_paths() as paths:
            producer = Producer(paths, "tx")
            await producer.begin()
            await produce_chunk(paths, [producer.batch(b"a", b"b")])
            assert paths.cache.produced_range((TOPIC, PartitionIndex(0)), 0, 2) is None
            await produce_chunk(paths, [BATCH])
            await producer.end(is_commit=is_commit)
            await paths.archiver.archive_topic(TOPIC)
            values = values_of(await read_all(paths, 0, COMMITTED))
        assert values == [*([b"a", b"b"] if is_commit else []), *[VALUE] * RECORDS]

    async def test_s5_a_chunk_of_which_the_archive_lacks_a_record_is_read_from_it(self) -> None:
        """As if transactions could be found: the archive's gaps alone keep them from consumers."""
        async with data_paths() as paths:
            producer = Producer(paths, "tx")
            await producer.begin()
            await produce_chunk(paths, [BATCH, producer.batch(b"aborted")])
            chunk = partition_of(paths).index.row(0)
            served = paths.cache.get(chunk)
            assert served is not None
            paths.cache.drop_chunks(chunk.object_id)
            paths.cache.put_produced((TOPIC, PartitionIndex(0)), chunk, served, [0])
            await producer.end(is_commit=False)
            await paths.archiver.archive_topic(TOPIC)
            index = partition_of(paths).index
            archived, marker = index.row(0), chunk.offset_end
            # As by a pass that ended before the marker, which is a gap of its own.
            behind = archived._replace(offset_first=marker, row_count=0, byte_count=0)
            index.replace(0, 1, [archived._replace(offset_end=marker), behind])
            assert paths.cache.produced_range((TOPIC, PartitionIndex(0)), 0, marker) == (0, marker)
            assert values_of(await read_all(paths, 0, COMMITTED)) == [VALUE] * RECORDS

    async def test_what_is_in_the_intake_yet_is_served_as_ever(self) -> None:
        async with data_paths() as paths:
            producer = Producer(paths, "tx")
            await producer.begin()
            await produce_chunk(paths, [producer.batch(b"open")])
            await produce_chunk(paths, [BATCH])
            reader = await read_all(paths, 0, COMMITTED)
        assert values_of(reader) == []


async def test_deleted_records_are_out_of_range() -> None:
    async with data_paths() as paths:
        await produced_and_archived(paths)
        await paths.parts.ledger.propose(delete_before(2 * RECORDS))
        read = await paths.fetch(RECORDS)
        left = await paths.fetch(2 * RECORDS)
    assert (read.error_code, read.record_bytes) == (ErrorCode.offset_out_of_range, 0)
    assert [record.offset for record in read_batches(bytes_of(left)).records] == list(range(2 * RECORDS, 3 * RECORDS))


async def test_a_topic_that_is_created_again_has_none_of_the_records() -> None:
    async with data_paths() as paths:
        await produced_and_archived(paths)
        await paths.parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        gone = await paths.fetch(0)
        await paths.parts.ledger.propose(create(topic_id=TopicId(b"u" * 16)))
        empty = await paths.fetch(0)
    assert gone.error_code is ErrorCode.unknown_topic_or_partition
    assert (empty.error_code, empty.record_bytes, empty.high_watermark) == (ErrorCode.none, 0, 0)


async def test_nothing_is_read_ahead_of_a_consumer_that_finds_the_rest_in_memory() -> None:
    async with data_paths() as writes, another_agent(writes, reads_ahead=True) as paths:
        await paths.produce(*[BATCH] * 3)
        last = partition_of(paths).index.row(2)
        await paths.archiver.archive_topic(TOPIC)
        archived = partition_of(paths).index.row(0)
        state, key = paths.parts.ledger.state, (TOPIC, PartitionIndex(0))
        held = list[bool]()
        for is_in_memory in (True, False):
            if not is_in_memory:
                paths.cache.drop_chunks(last.object_id)
            for offset in (0, RECORDS):
                step = FetchStep(key, offset, offset + RECORDS, len(BATCH), Compression.NONE)
                paths.ahead.answered(state, [step], has_read=True)
            while paths.budget.bytes_held:
                await paths.parts.clock.sleep(0)
            held.append(paths.cache.holds(archived))
    assert held == [False, True]
