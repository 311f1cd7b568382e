"""Whether files answer for all that is archived: each offset looked at one by one, and tables whose bounds are wrong.

Safety rule S20. The manifests here are those that a program of before wrote, or carried a damaged bound into: their
checksums are right, or there are none.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.spark.bounds import LossReporter, plan_ranges, resolve_batch
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.coverage import FileSpan, beside, doubled, uncovered
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import parse_options
from iceberg_export.spark.planning import divide
from iceberg_export.spark.rows import Selection, read_split
from iceberg_export.tables.column_counts import ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from iceberg_export.tables.manifests import encode_manifest
from iceberg_export.tables.metadata import TableUnreadable
from iceberg_export.tables.table_reader import TableCache, TableReader
from iceberg_export.tail.manifest import encode_manifest as encode_tail
from storage.memory_store import MemoryStore
from storage.refs import TAIL_KEY
from tests.support.lake.bucket_fixtures import MadeLake

SPANS = st.lists(
    st.builds(lambda p, f, n: FileSpan(p, f, f + n), st.integers(0, 2), st.integers(0, 30), st.integers(1, 9))
)


@given(SPANS, SPANS)
def test_what_no_span_has_is_uncovered(wanted: list[FileSpan], spans: list[FileSpan]) -> None:
    missing = {(span.partition, offset) for span in uncovered(wanted, spans) for offset in range(span.first, span.end)}
    asked, answered = (
        {(span.partition, offset) for span in some for offset in range(span.first, span.end)}
        for some in (wanted, spans)
    )
    assert missing == asked - answered


@given(SPANS)
def test_what_two_files_have_is_doubled(spans: list[FileSpan]) -> None:
    held = [(span.partition, offset) for span in spans for offset in range(span.first, span.end)]
    found = doubled((str(number), span) for number, span in enumerate(spans))
    assert (found is not None) == (len(set(held)) < len(held))
    if found is not None:
        assert held.count((found[0].partition, found[0].first)) > 1
        assert found[1] != found[2]


def file_of(number: int, first: int, last: int, partitions: tuple[int, int] = (0, 0)) -> DataFile:
    return DataFile(
        key=str(number),
        object_bytes=1,
        record_count=1,
        bounds=RowBounds(
            partition_min=partitions[0],
            partition_max=partitions[1],
            offset_min=first,
            offset_max=last,
            timestamp_us_min=0,
            timestamp_us_max=0,
        ),
        counts=ColumnCounts.of(()),
        split_offsets=(),
    )


def test_files_beside_a_gap_are_asked_and_no_others() -> None:
    files = [file_of(0, 0, 9), file_of(1, 11, 19), file_of(2, 20, 29), file_of(3, 31, 39), file_of(4, 0, 9, (0, 1))]
    assert [file.key for file in beside(files[:4], [FileSpan(0, 10, 11)])] == ["0", "1"]
    assert [file.key for file in beside(files[:4], [FileSpan(0, 30, 31), FileSpan(0, 40, 50)])] == ["2", "3"]
    assert [file.key for file in beside(files, [FileSpan(1, 5, 7)])] == ["4"]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket(MemoryStore())
    yield bucket
    bucket.close()


async def made_lake(bucket: Bucket) -> MadeLake:
    """Of one partition, so that bounds are believed, with markers at the ends of files and between them, and a file of
    which nothing was committed."""
    made = MadeLake(bucket.store)
    made.create("orders", 1)
    made.mark("orders", 0)
    await made.produce("orders", [20])
    made.mark("orders", 0)
    await made.archive("orders")
    await made.produce_aborted("orders", 0, 5)
    await made.archive("orders")
    for _ in range(2):
        await made.produce("orders", [10])
        await made.archive("orders")
    await made.produce("orders", [10])
    await made.produce_aborted("orders", 0, 5)
    await made.archive("orders")
    await made.produce("orders", [3])
    for offset in (*range(22, 27), *range(58, 63)):
        made.topics["orders"].partitions[0].rows.pop(offset, None)
    await made.publish()
    return made


def read(bucket: Bucket, **given: str) -> list[int]:
    options = parse_options({"path": "file:///made", "subscribe": "orders", **given}, {}, is_stream=False)
    lake, losses = SparkLake(bucket), LossReporter(is_fatal=True)
    pieces = plan_ranges(lake, resolve_batch(lake, options, losses), losses, manifest=lake.newest)
    return sorted(
        row["offset"]
        for split in divide(pieces, 2)
        for batch in read_split(bucket, split, Selection(columns=options.columns), lambda _: [])
        for row in batch.to_pylist()
    )


async def with_bounds(made: MadeLake, number: int, change: dict[str, Any]) -> str:
    """Have the manifest of the n-th file, by offsets, say other bounds of it. Returns the manifest's key."""
    reader = TableReader(root=made.root, store=made.store, cache=TableCache(), run_in_thread=asyncio.to_thread)
    metadata = await reader.metadata(made.topics["orders"].metadata_key)
    current = metadata.current()
    assert current is not None
    found = [(row, entry) for row in await reader.manifests(current) for entry in await reader.entries(row)]
    found.sort(key=lambda each: each[1].file.bounds.offset_min if each[1].file.bounds else -1)
    row, entry = found[number]
    assert entry.file.bounds is not None
    file = replace(entry.file, bounds=replace(entry.file.bounds, **change))
    entries = [replace(each, file=file) if each == entry else each for each in await reader.entries(row)]
    await made.store.put(row.key, [encode_manifest(entries, key=row.key, root=made.root)])
    return row.key


def test_offsets_without_rows_are_no_gaps(bucket: Bucket) -> None:
    made = bucket.run(made_lake(bucket))
    assert read(bucket) == [record.offset for _, record in made.visible("orders")]
    assert read(bucket, startingOffsets='{"orders": {"0": 23}}', endingOffsets='{"orders": {"0": 26}}') == []
    bucket.run(made.rewrite("orders"))
    bucket.run(made.publish())
    assert read(bucket) == [record.offset for _, record in made.visible("orders")]


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (2, {"offset_min": 5_000, "offset_max": 6_000}, "footer that it answers for"),
        (2, {"offset_min": 0}, "both answer for offsets"),
        (2, {"offset_max": 70}, "both answer for offsets|footer that it answers"),
        (3, {"offset_max": 700}, "answers for offsets up to 700 of partition 0, which is archived up to 64"),
    ],
)
def test_bounds_that_contradict_files_or_each_other_are_refused(
    bucket: Bucket, number: int, change: dict[str, int], words: str
) -> None:
    made = bucket.run(made_lake(bucket))
    key = bucket.run(with_bounds(made, number, change))
    with pytest.raises(TableUnreadable, match=words) as raised:
        read(bucket)
    assert key in str(raised.value)


def test_a_file_of_another_partition_by_its_bounds_is_missed(bucket: Bucket) -> None:
    made = bucket.run(made_lake(bucket))
    bucket.run(with_bounds(made, 3, {"partition_min": 1, "partition_max": 1}))
    with pytest.raises(TableUnreadable, match=r"no file answers for offsets 48 to \d+ of partition 0"):
        read(bucket)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"offset_min": 5}),
        (0, {"offset_max": 4}),
        (1, {"offset_max": 30}),
        (1, {"offset_min": 31}),
        (3, {"offset_max": 50}),
    ],
)
def test_bounds_that_are_too_narrow_leave_no_row_out(bucket: Bucket, number: int, change: dict[str, int]) -> None:
    made = bucket.run(made_lake(bucket))
    bucket.run(with_bounds(made, number, change))
    assert read(bucket) == [record.offset for _, record in made.visible("orders")]


def test_a_manifest_of_before_does_not_say_which_offsets_have_no_rows(bucket: Bucket) -> None:
    made = bucket.run(made_lake(bucket))
    topics = tuple(
        replace(topic, partitions=tuple(replace(each, without_rows=None) for each in topic.partitions))
        for topic in made.manifest().topics
    )
    bucket.run(bucket.store.put(TAIL_KEY, [encode_tail(replace(made.manifest(), topics=topics))]))
    assert read(bucket) == [record.offset for _, record in made.visible("orders")]
