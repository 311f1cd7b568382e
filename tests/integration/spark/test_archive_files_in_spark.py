"""Spark reads an archived file as it stands: the same types, counts and sums as the records that went in."""

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from protocol.records.compression import Compression
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, PartitionIndex, TopicId
from tests.support.records.plain_records import Record, make_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
BATCHES = 20
RECORDS_PER_BATCH = 100
NOON = 1_700_049_600_000


def record(partition: int, offset: int) -> Record:
    key = None if offset % 10 == 0 else f"key-{offset % 7}".encode()
    value = None if offset % 25 == 0 else json.dumps({"partition": partition, "n": offset, "pad": "x" * 50}).encode()
    headers = ((b"\xff", None), (b"trace", str(offset).encode())) if offset % 4 == 0 else ()
    return Record(offset=offset, timestamp=NOON + offset, key=key, value=value, headers=headers)


RECORDS = {p: [record(p, o) for o in range(BATCHES * RECORDS_PER_BATCH)] for p in range(PARTITIONS)}


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all records, many row groups; the last partition stamped by the broker."""
    writer = ArchiveWriter(topic_id=TopicId(b"t" * 16), row_group_bytes_target=64 * 1024)
    for partition, records in RECORDS.items():
        batches = [records[first : first + RECORDS_PER_BATCH] for first in range(0, len(records), RECORDS_PER_BATCH)]
        writer.add(
            SourceChunk(
                partition=PartitionIndex(partition),
                offset_first=Offset(0),
                offset_end=Offset(len(records)),
                append_time_ms=Milliseconds(NOON) if partition == PARTITIONS - 1 else NO_TIMESTAMP,
                records=b"".join(make_batch(batch, Compression.ZSTD) for batch in batches),
            )
        )
    path = tmp_path_factory.mktemp("lake") / "1-1.parquet"
    path.write_bytes(b"".join(writer.finish().parts))
    return path


@pytest.fixture
def table(spark: "SparkSession", archived: Path) -> "DataFrame":
    return spark.read.parquet(str(archived))


def all_records() -> list[Record]:
    return [record for records in RECORDS.values() for record in records]


def test_types_are_those_of_the_schema(table: "DataFrame") -> None:
    assert [(name, kind) for name, kind in table.dtypes] == [
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestamp_type", "int"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("header_keys", "array<binary>"),
    ]


def test_counts_and_sums_per_partition(table: "DataFrame") -> None:
    rows = table.groupBy("partition").agg({"offset": "sum", "value": "count", "*": "count"}).collect()
    counted = {row["partition"]: (row["count(1)"], row["sum(offset)"], row["count(value)"]) for row in rows}
    assert counted == {
        partition: (
            len(records),
            sum(record.offset for record in records),
            sum(record.value is not None for record in records),
        )
        for partition, records in RECORDS.items()
    }


def test_every_byte_of_every_value_and_key(table: "DataFrame") -> None:
    row = table.selectExpr("sum(crc32(value))", "sum(crc32(key))", "sum(length(value))").first()
    assert row is not None
    values = [record.value for record in all_records() if record.value is not None]
    keys = [record.key for record in all_records() if record.key is not None]
    assert tuple(row) == (sum(map(zlib.crc32, values)), sum(map(zlib.crc32, keys)), sum(map(len, values)))


def test_groups_by_key_and_nulls_among_them(table: "DataFrame") -> None:
    rows = table.selectExpr("cast(key as string) as key").groupBy("key").count().collect()
    expected = Counter(None if record.key is None else record.key.decode() for record in all_records())
    assert {row["key"]: row["count"] for row in rows} == expected


def test_timestamps_to_the_millisecond_and_their_type(table: "DataFrame") -> None:
    rows = (
        table.selectExpr("partition", "timestamp_type", "unix_millis(timestamp) as ms")
        .groupBy("partition", "timestamp_type")
        .agg({"ms": "sum"})
        .collect()
    )
    stamped = PARTITIONS - 1
    assert {(row["partition"], row["timestamp_type"]): row["sum(ms)"] for row in rows} == {
        (partition, int(partition == stamped)): sum(
            NOON if partition == stamped else record.timestamp for record in records
        )
        for partition, records in RECORDS.items()
    }


def test_headers_byte_for_byte(table: "DataFrame") -> None:
    counts = table.selectExpr("size(headers) as n").groupBy("n").count().collect()
    assert {row["n"]: row["count"] for row in counts} == Counter(len(record.headers) for record in all_records())
    row = (
        table.where("partition = 1 and offset = 8")
        .selectExpr("headers.key as text", "header_keys as k", "headers.value as v")
        .first()
    )
    assert row is not None
    assert row["text"] == ["\N{REPLACEMENT CHARACTER}", "trace"]
    assert [bytes(key) for key in row["k"]] == [b"\xff", b"trace"]
    assert row["v"] == [None, bytearray(b"8")]


def test_a_range_of_offsets_in_order(table: "DataFrame") -> None:
    rows = table.where("partition = 2 and offset between 500 and 509").select("offset").collect()
    assert [row["offset"] for row in rows] == list(range(500, 510))
