"""Spark's Iceberg reads a table as it is written here: rows, counts, bounds, snapshots, and what came since."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.tables.data_file import DataFile
from protocol.types import NO_TIMESTAMP, ObjectNumber, Offset, PartitionIndex
from storage.embedded.local_store import LocalStore
from storage.refs import parquet_key
from tests.support.lake.table_fixtures import NAME, SESSION, TOPIC, MadeTable
from tests.support.records.plain_records import Record, make_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS, ROWS, DROPPED = 20, 10, 3


def key_of(number: int) -> str:
    return parquet_key(NAME, TOPIC, SESSION, ObjectNumber(number))


async def archive(table: MadeTable, number: int) -> DataFile:
    first = number * ROWS
    records = [Record(offset=o, timestamp=1_000 * o, value=b"v%d" % o) for o in range(first, first + ROWS)]
    with ArchiveWriter(topic_id=TOPIC) as writer:
        writer.add(
            SourceChunk(
                partition=PartitionIndex(0),
                offset_first=Offset(first),
                offset_end=Offset(first + ROWS),
                append_time_ms=NO_TIMESTAMP,
                records=make_batch(records),
            )
        )
        file = writer.finish()
    await table.store.put(key_of(number), file.parts)
    return file.data_file(key_of(number))


@pytest.fixture
async def table(tmp_path: Path) -> MadeTable:
    """Files added one by one, one dropped, and one more added: enough for manifests to be merged."""
    made = MadeTable(store=LocalStore(tmp_path, is_durable=False), root=f"file://{tmp_path}")
    for number in range(COMMITS):
        await made.commit(await archive(made, number))
    await made.commit(dropped=[key_of(DROPPED)])
    await made.commit(await archive(made, COMMITS))
    return made


@pytest.mark.slow
async def test_spark_reads_rows_snapshots_and_what_came_since(
    spark: "SparkSession", table: MadeTable, tmp_path: Path
) -> None:
    uri = f"{table.root}/{table.metadata_key}"
    rows = spark.read.format("iceberg").load(uri)
    expected = [n for n in range((COMMITS + 1) * ROWS) if n // ROWS != DROPPED]
    assert [row["offset"] for row in rows.orderBy("offset").collect()] == expected
    assert rows.count() == len(expected)  # out of the metadata
    assert rows.filter("offset between 45 and 62").count() == 18
    assert rows.selectExpr("max(offset)", "min(timestamp)").collect()[0][0] == expected[-1]
    metadata = json.loads(await table.store.get(table.metadata_key))
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    before = spark.read.format("iceberg").option("versionAsOf", ids[9]).load(uri)
    assert before.count() == 10 * ROWS
    since = spark.read.format("iceberg").option("start-snapshot-id", ids[9]).load(uri)
    assert since.count() == (COMMITS + 1 - 10) * ROWS
    query = (
        spark.readStream.format("iceberg")
        .option("stream-from-timestamp", "0")
        .load(uri)
        .writeStream.format("memory")
        .queryName("streamed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    # A stream sees every append and passes over the commit that dropped a file.
    assert spark.sql("select count(*) from streamed").collect()[0][0] == (COMMITS + 1) * ROWS
