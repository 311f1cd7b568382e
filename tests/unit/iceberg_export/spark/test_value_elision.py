"""What a Spark task reads of files that leave values out, whichever columns and rows it wants."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from iceberg_export.spark import row_groups
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.planning import FilePiece, OffsetRange, Piece, Split
from iceberg_export.spark.rows import Selection, read_split
from protocol.types import Offset, PartitionIndex, TopicId
from storage.memory_store import MemoryStore
from tests.support.lake.typed_records import avro_bytes, framed, record
from tests.support.lake.value_elision import made_file

KEY = "lake/t/data/0.parquet"
SCHEMA = record("R", ("a", "long"), ("s", ["null", "string"]))
VALUES: list[bytes | None] = [
    None if number % 5 == 0 else b"plain" if number % 5 == 1 else framed(3, avro_bytes(SCHEMA, {"a": number, "s": "x"}))
    for number in range(40)
]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket(MemoryStore())
    data = made_file(VALUES, {3: SCHEMA}).data
    bucket.run(bucket.store.put(KEY, [data]))
    yield bucket
    bucket.close()


def read(bucket: Bucket, *columns: str, first: int = 0, end: int = len(VALUES)) -> list[dict[str, Any]]:
    wanted_rows = OffsetRange(
        topic="t", topic_id=TopicId(bytes(16)), partition=PartitionIndex(0), first=Offset(first), end=Offset(end)
    )
    size = bucket.run(bucket.store.head(KEY)).size_bytes
    piece = FilePiece(key=KEY, object_bytes=size, ranges=(wanted_rows,), byte_count=size)
    selection = Selection(columns=columns)

    def plan_again(_: Sequence[OffsetRange]) -> list[Piece]:
        raise AssertionError("nothing is missing")

    return [
        row for batch in read_split(bucket, Split(pieces=(piece,)), selection, plan_again) for row in batch.to_pylist()
    ]


def test_values_are_those_that_were_sent(bucket: Bucket) -> None:
    assert read(bucket, "value") == [{"value": value} for value in VALUES]
    rows = read(bucket, "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    assert [(row["offset"], row["value"]) for row in rows] == list(enumerate(VALUES))
    assert {(row["topic"], row["partition"], row["timestampType"], row["headers"]) for row in rows} == {
        ("t", 0, 0, None)
    }


def test_values_of_some_rows_are_those_that_were_sent(bucket: Bucket) -> None:
    assert read(bucket, "value", first=3, end=9) == [{"value": value} for value in VALUES[3:9]]
    assert read(bucket, "value", "offset", first=33) == [
        {"value": value, "offset": 33 + row} for row, value in enumerate(VALUES[33:])
    ]


def test_who_wants_no_values_reads_none_of_their_columns(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes: list[int] = []
    begin = bucket.begin_range

    def begin_range(key: str, byte_first: int, byte_count: int) -> Any:  # noqa: ANN401
        read_bytes.append(byte_count)
        return begin(key, byte_first, byte_count)

    monkeypatch.setattr(bucket, "begin_range", begin_range)
    # As of a file that is too large to be read whole.
    monkeypatch.setattr(row_groups, "READ_GAP_BYTES_MAX", 0)
    monkeypatch.setattr(row_groups, "tail_bytes_first", lambda _: 8)
    assert read(bucket, "offset") == [{"offset": offset} for offset in range(len(VALUES))]
    without = sum(read_bytes)
    read_bytes.clear()
    read(bucket, "offset", "value")
    assert sum(read_bytes) > without
