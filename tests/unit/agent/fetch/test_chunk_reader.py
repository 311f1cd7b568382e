"""Chunks read together: what can be read is served up to what cannot, each in the compression that was asked for."""

import asyncio

import pytest
from msgspec.structs import asdict

from agent.cache.chunk_cache import ServedChunk
from coordinator.commands.commands import ArchivedChunk
from coordinator.commands.rules import RULES_FIRST
from coordinator.state.chunk_index import NO_CHECKSUM, ChunkRef
from protocol.limits import DAMAGED_CHUNK_REMEMBERED_S, DAMAGED_CHUNK_REREAD_INTERVAL_S, MIB
from protocol.records.batch import walk_batches
from protocol.records.compression import Compression
from protocol.types import ObjectId
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from tests.support.agent.data_paths import Ticket, another_agent, data_paths, group_of
from tests.support.commands.commands import TOPIC
from tests.support.lake.checksummed_files import archived
from tests.support.records.plain_records import Record, make_batch, read_batches

BATCH = make_batch([Record(offset=n, timestamp=1_000, value=b"x" * 50) for n in range(3)])


async def test_a_damaged_chunk_fails_alone_among_those_read_with_it() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        damaged = state.topics[TOPIC].partitions[0].index.row(0)
        whole = damaged._replace(byte_first=damaged.byte_first + len(BATCH))
        await paths.memory.put(state.objects[whole.object_id].key, [bytes(damaged.byte_first + len(BATCH)), BATCH])
        both, alone = await asyncio.gather(
            paths.reader.read(state, [damaged, whole], [Compression.NONE] * 2),
            paths.reader.read(state, [whole], [Compression.NONE]),
            return_exceptions=True,
        )
    assert isinstance(both, ObjectDamaged)
    assert isinstance(alone, list)
    assert alone[0].buffer == BATCH


async def test_what_can_be_read_is_served_up_to_what_cannot() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH, BATCH, BATCH)
        state = paths.parts.ledger.state
        index = state.topics[TOPIC].partitions[0].index
        first, damaged, last = (index.row(row) for row in range(3))
        await paths.memory.put(state.objects[damaged.object_id].key, [bytes(damaged.byte_first + len(BATCH))])
        served = await paths.reader.read(state, [first, damaged, last], [Compression.NONE] * 3)
    assert [chunk.buffer for chunk in served] == [BATCH]


@pytest.mark.parametrize("is_shared", [False, True], ids=["by ranges", "whole"])
async def test_of_an_object_that_was_cut_what_is_left_is_served(*, is_shared: bool) -> None:
    async with data_paths(cache_bytes=8 * MIB if is_shared else 0, partitions=3) as paths:
        await paths.produce_together(dict.fromkeys(range(3), BATCH))
        state = paths.parts.ledger.state
        chunks = [partition.index.row(0) for partition in state.topics[TOPIC].partitions]
        key = state.objects[chunks[0].object_id].key
        await paths.memory.put(key, [(await paths.memory.get(key))[: chunks[2].byte_first + 5]])
        async with another_agent(paths) as reader:
            answers = await asyncio.gather(
                *(reader.reader.read(state, [chunk], [Compression.NONE]) for chunk in chunks), return_exceptions=True
            )
            with pytest.raises(ObjectDamaged, match=key):
                await reader.reader.read(state, [chunks[2]], [Compression.NONE])
            damaged_count = reader.reader.damaged.count({key})
    assert [isinstance(answer, list) for answer in answers] == [True, True, False]
    assert isinstance(answers[2], ObjectDamaged)
    assert damaged_count == 1


async def test_an_object_that_does_not_answer_fails_nobody_who_waits_for_another_one() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH, BATCH)
        state = paths.parts.ledger.state
        index = state.topics[TOPIC].partitions[0].index
        away, good = index.row(0), index.row(1)
        key = state.objects[away.object_id].key
        paths.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET, key_prefix=key))
        both, alone = await asyncio.gather(
            paths.reader.read(state, [away, good], [Compression.NONE] * 2),
            paths.reader.read(state, [good], [Compression.NONE]),
            return_exceptions=True,
        )
    assert isinstance(both, StoreUnavailable)
    assert isinstance(alone, list)
    assert [header.base_offset for header in walk_batches(alone[0].buffer)] == [3]


async def test_a_read_that_meets_an_object_out_of_the_state_leaves_nothing_that_others_wait_for_in_vain() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        good = state.topics[TOPIC].partitions[0].index.row(0)
        gone = good._replace(object_id=ObjectId(999))
        async with asyncio.timeout(5):
            served = await paths.reader.read(state, [good, gone], [Compression.NONE] * 2)
            with pytest.raises(ObjectMissing, match="999"):
                await paths.reader.read(state, [gone, good], [Compression.NONE] * 2)
            again = await paths.reader.read(state, [good], [Compression.NONE])
    assert [chunk.buffer for chunk in (*served, *again)] == [BATCH, BATCH]


async def test_a_read_whose_only_caller_gives_up_is_finished_for_the_next() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        is_reading, go_on = asyncio.Event(), asyncio.Event()

        async def pause() -> None:
            is_reading.set()
            await go_on.wait()

        paths.during_pause = pause
        paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            given_up = tasks.create_task(paths.reader.read(state, [row], [Compression.NONE]))
            await is_reading.wait()
            given_up.cancel()
            await asyncio.wait([given_up])
            # A second request to the store would strike this fault.
            paths.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
            go_on.set()
            served = await paths.reader.read(state, [row], [Compression.NONE])
    assert given_up.cancelled()
    assert [chunk.buffer for chunk in served] == [BATCH]


async def test_archived_rows_are_served_in_the_compression_of_each_request() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH)
        await paths.archiver.archive_topic(TOPIC)
        state = paths.parts.ledger.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        at_once = await asyncio.gather(
            *(paths.reader.read(state, [row], [codec]) for codec in (Compression.NONE, Compression.ZSTD))
        )
        later = await paths.reader.read(state, [row, row], [Compression.ZSTD, Compression.NONE])
    assert [compression_of(served) for (served,) in at_once] == [Compression.NONE, Compression.ZSTD]
    assert [compression_of(served) for served in later] == [Compression.ZSTD, Compression.NONE]


def compression_of(served: ServedChunk) -> Compression:
    return next(iter(walk_batches(served.buffer))).compression


@pytest.mark.parametrize("cache_bytes", [0, 8 * MIB], ids=["by ranges", "whole"])
async def test_another_objects_chunk_in_its_place_is_not_served(cache_bytes: int) -> None:
    """Safety rule S20: it is whole, of as many records and bytes, and of another topic."""
    other = make_batch([Record(offset=n, timestamp=1_000, value=b"y" * 50) for n in range(3)])
    async with data_paths(cache_bytes=cache_bytes, partitions=2) as paths:
        await paths.produce_together({0: BATCH, 1: BATCH})
        await paths.produce_together({0: other, 1: BATCH})
        state = paths.parts.ledger.state
        rows = [partition.index.row(row) for partition in state.topics[TOPIC].partitions for row in range(2)]
        keys = [state.objects[row.object_id].key for row in rows[:2]]
        one, two = [await paths.memory.get(key) for key in keys]
        assert len(one) == len(two)
        await paths.memory.put(keys[0], [two])
        await paths.memory.put(keys[1], [one])
        async with another_agent(paths) as reader:
            answers = await asyncio.gather(
                *(reader.reader.read(state, [row], [Compression.NONE]) for row in rows), return_exceptions=True
            )
            damaged_count = reader.reader.damaged.count(set(keys))
    assert [type(answer) for answer in answers] == [ObjectDamaged, ObjectDamaged, list, list]
    assert all("checksum" in str(answer) for answer in answers[:2])
    assert damaged_count == 2


async def test_batches_in_another_order_are_not_served() -> None:
    other = make_batch([Record(offset=n, timestamp=1_000, value=b"y" * 50) for n in range(3)])
    async with data_paths(cache_bytes=0) as paths:
        paths.produce_path.add(group_of(BATCH, ticket := Ticket()))
        paths.produce_path.add(group_of(other, Ticket()))
        await ticket.settled
        state = paths.parts.ledger.state
        (row,) = state.topics[TOPIC].partitions[0].index.rows_from(0)
        key = state.objects[row.object_id].key
        (served,) = await paths.reader.read(state, [row], [Compression.NONE])
        await paths.memory.put(key, [(await paths.memory.get(key)).replace(BATCH + other, other + BATCH)])
        with pytest.raises(ObjectDamaged, match="checksum"):
            await paths.reader.read(state, [row], [Compression.NONE])
    assert len(served.buffer) == len(BATCH + other)


async def test_a_chunk_that_was_written_under_older_rules_is_served_as_before() -> None:
    async with data_paths(cache_bytes=0, rules=RULES_FIRST) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        (served,) = await paths.reader.read(state, [row], [Compression.NONE])
    assert (row.checksum, served.buffer) == (NO_CHECKSUM, BATCH)


async def test_no_bit_of_a_stored_chunk_can_change_and_be_served() -> None:
    """Safety rule S20. The base offset and the leader epoch alone are not looked at: they are written again."""
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        chunk = state.topics[TOPIC].partitions[0].index.row(0)
        key = state.objects[chunk.object_id].key
        stored = await paths.memory.get(key)
        for byte in range(len(BATCH)):
            damaged = bytearray(stored)
            damaged[chunk.byte_first + byte] ^= 1 << byte % 8
            await paths.memory.put(key, [damaged])
            paths.parts.clock.seconds += DAMAGED_CHUNK_REREAD_INTERVAL_S
            if byte in {*range(8), *range(12, 16)}:
                (served,) = await paths.reader.read(state, [chunk], [Compression.NONE])
                assert served.buffer == BATCH
                continue
            with pytest.raises(ObjectDamaged, match="does not hold what the ledger says"):
                await paths.reader.read(state, [chunk], [Compression.NONE])


def older_file(value: bytes, count: int) -> tuple[bytes, list[ArchivedChunk]]:
    """A file without checksums, of `count` records."""
    return archived(None, [Record(offset=n, timestamp=n, key=b"k", value=value + b" %d" % n) for n in range(count)])


async def test_rows_of_a_damaged_file_without_checksums_are_not_kept_and_the_right_ones_come_back() -> None:
    """The first chunk is read without an error, and wrong; the second one shows that the file is damaged."""
    right, chunks = older_file(b"right", 60)
    wrong, fewer = older_file(b"wrong", 30)
    assert fewer[0] == chunks[0]
    assert len(fewer) < len(chunks)
    async with data_paths() as paths:
        await paths.produce(BATCH)
        await paths.archiver.archive_topic(TOPIC)
        state = paths.parts.ledger.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        key = state.objects[row.object_id].key
        first, last = (row._replace(**asdict(chunk)) for chunk in (chunks[0], chunks[-1]))

        async def value(chunk: ChunkRef) -> bytes | None:
            (served,) = await paths.reader.read(state, [chunk], [Compression.NONE])
            return read_batches(bytes(served.buffer)).records[0].value

        await paths.memory.put(key, [wrong])
        assert await value(first) == b"wrong 0"
        with pytest.raises(ObjectDamaged, match="row groups, the index names number"):
            await value(last)
        assert await value(first) == b"wrong 0", "read again: nothing says that it is wrong"
        await paths.memory.put(key, [right])
        assert await value(first) == b"right 0"
        with pytest.raises(ObjectDamaged):
            await value(last)
        paths.parts.clock.seconds += DAMAGED_CHUNK_REREAD_INTERVAL_S
        assert await value(last) == b"right %d" % last.offset_first
        assert not paths.reader.damaged.is_known(key)
        assert paths.reader.holds(last, Compression.NONE)


async def test_intact_chunks_of_a_damaged_file_with_checksums_are_kept_and_the_damaged_one_comes_back() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH)
        await paths.archiver.archive_topic(TOPIC)
        state = paths.parts.ledger.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        key = state.objects[row.object_id].key
        right, chunks = archived(key)
        assert len(chunks) == 3
        intact, other, damaged = (row._replace(**asdict(chunk)) for chunk in (*chunks[:2], chunks[-1]))
        wrong = bytearray(right)
        wrong[damaged.byte_first + 5] ^= 1
        await paths.memory.put(key, [wrong])

        async def values(chunk: ChunkRef) -> int:
            (served,) = await paths.reader.read(state, [chunk], [Compression.NONE])
            return len(read_batches(bytes(served.buffer)).records)

        with pytest.raises(ObjectDamaged, match="damaged"):
            await values(damaged)
        assert paths.reader.damaged.is_known(key)
        assert await values(intact) == intact.row_count
        assert paths.reader.holds(intact, Compression.NONE)
        # Its footer and its bytes are in memory now: nothing of the file is read again.
        paths.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
        assert await values(other) == other.row_count
        await paths.memory.put(key, [right])
        paths.parts.clock.seconds += DAMAGED_CHUNK_REREAD_INTERVAL_S
        with pytest.raises(StoreUnavailable):
            await values(damaged)  # not out of the bytes that were kept for the intact chunks
        assert await values(damaged) == damaged.row_count
        assert not paths.reader.damaged.is_known(key)


async def test_rows_of_a_file_without_checksums_are_kept_again_once_its_damage_is_forgotten() -> None:
    file, chunks = older_file(b"x", 30)
    async with data_paths() as paths:
        await paths.produce(BATCH)
        await paths.archiver.archive_topic(TOPIC)
        state = paths.parts.ledger.state
        row = state.topics[TOPIC].partitions[0].index.row(0)
        key = state.objects[row.object_id].key
        await paths.memory.put(key, [file])
        intact = row._replace(**asdict(chunks[0]))
        given_up = intact._replace(row_group=99, row_first=7)
        with pytest.raises(ObjectDamaged):
            await paths.reader.read(state, [given_up], [Compression.NONE])
        for is_kept in (False, True):
            await paths.reader.read(state, [intact], [Compression.NONE])
            assert paths.reader.holds(intact, Compression.NONE) == is_kept
            assert paths.reader.damaged.count({key}) == (not is_kept)
            paths.parts.clock.seconds += DAMAGED_CHUNK_REMEMBERED_S
