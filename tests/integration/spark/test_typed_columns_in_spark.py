"""Spark's Iceberg reads typed columns of every type, those of files with older schemas too."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage.embedded.local_store import LocalStore
from tests.support.lake.typed_table_fixtures import (
    BOTH,
    FIRST,
    FIRST_VALUES,
    SECOND,
    SECOND_VALUES,
    TypedTable,
    without_nulls,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
async def test_values_are_what_was_written_whatever_became_of_their_schemas(
    spark: "SparkSession", tmp_path: Path
) -> None:
    made = TypedTable(store=LocalStore(tmp_path, is_durable=False), root=f"file://{tmp_path}")
    await made.add(FIRST, FIRST_VALUES)
    await made.add(SECOND, SECOND_VALUES)
    await made.add(None, None)
    frame = spark.read.format("iceberg").load(f"{made.root}/{made.metadata_key}")
    rows = [without_nulls(as_written(row.asDict(recursive=True))) for row in frame.orderBy("offset").collect()]
    assert rows == [as_spark_has_it(row) for row in BOTH]
    assert [row.offset for row in frame.where("value_int = -5").collect()] == [0]
    assert [row.offset for row in frame.where("value_small > 1000").collect()] == [1]
    assert [row.offset for row in frame.where("error is not null").select("offset").collect()] == [2]
    assert frame.selectExpr("sum(value_int) AS total").collect()[0].total == (1 << 35) - 5
    assert frame.where("value_struct.x > 1").count() == 1


def as_written(row: dict[str, Any]) -> dict[str, Any]:
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()}


def as_spark_has_it(row: dict[str, Any]) -> dict[str, Any]:
    """A UUID is its text, a map a dictionary, and a moment is told by the clock on the wall."""
    row = dict(row)
    if "uuid" in row:
        row["uuid"] = str(row["uuid"])
        row["map"] = dict(row["map"])
        row["timestamptz"] = row["timestamptz"].astimezone().replace(tzinfo=None)
    return row
