"""The record for a time is found in batches as they are served: with real offsets, append times and markers."""

import pytest

from agent.cache.chunk_cache import ServedChunk
from agent.fetch.timestamp_search import RecordAt, first_at_or_after, latest
from protocol.errors import DoesNotUnpack
from protocol.limits import MIB
from protocol.records.batch import patch_offsets, set_log_append_time
from protocol.records.compression import Compression
from protocol.records.control_batches import empty_control_batch
from tests.support.records.plain_records import Record, make_batch

BATCH = make_batch([Record(offset=0, timestamp=50), Record(offset=1, timestamp=70), Record(offset=2, timestamp=60)])


def served(*batches: bytes, base_offset: int) -> ServedChunk:
    buffer = bytearray(b"".join(batches))
    patch_offsets(buffer, base_offset)
    return ServedChunk(memoryview(buffer))


def test_a_chunk_that_does_not_begin_at_offset_0_is_searched_too() -> None:
    chunk = served(BATCH, BATCH, base_offset=700)
    assert first_at_or_after(MIB, chunk, 50, 0) == RecordAt(50, 700)
    assert first_at_or_after(MIB, chunk, 51, 0) == RecordAt(70, 701)
    assert first_at_or_after(MIB, chunk, 71, 0) is None


def test_records_before_the_log_start_are_passed_over() -> None:
    chunk = served(BATCH, BATCH, base_offset=700)
    assert first_at_or_after(MIB, chunk, 0, 702) == RecordAt(60, 702)
    assert first_at_or_after(MIB, chunk, 70, 702) == RecordAt(70, 704)


def test_with_append_time_every_record_has_the_time_of_its_batch() -> None:
    buffer = bytearray(BATCH)
    patch_offsets(buffer, 9)
    set_log_append_time(buffer, 1_000)
    chunk = ServedChunk(memoryview(buffer))
    assert first_at_or_after(MIB, chunk, 1_000, 10) == RecordAt(1_000, 10)


def test_markers_have_no_time() -> None:
    chunk = served(empty_control_batch(0, 5), BATCH, base_offset=20)
    assert first_at_or_after(MIB, chunk, -1, 0) == RecordAt(50, 25)


def test_the_latest_is_the_first_of_those_with_the_greatest_time() -> None:
    chunk = served(BATCH, BATCH, base_offset=700)
    assert latest(MIB, chunk, 0) == RecordAt(70, 701)
    assert latest(MIB, chunk, 702) == RecordAt(70, 704)
    assert latest(MIB, chunk, 705) == RecordAt(60, 705)
    assert latest(MIB, chunk, 706) is None
    assert latest(MIB, served(make_batch([Record(offset=0, timestamp=-1)]), base_offset=0), 0) is None


def test_a_batch_that_unpacks_to_more_than_is_allowed_is_not_searched() -> None:
    chunk = served(
        make_batch([Record(offset=0, timestamp=5, value=bytes(MIB))], compression=Compression.ZSTD), base_offset=0
    )
    with pytest.raises(DoesNotUnpack):
        first_at_or_after(MIB, chunk, 0, 0)
    with pytest.raises(DoesNotUnpack):
        latest(MIB, chunk, 0)
    assert latest(2 * MIB, chunk, 0) == RecordAt(5, 0)
