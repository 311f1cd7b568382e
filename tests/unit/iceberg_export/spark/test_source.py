"""What Spark calls, without a session: schemas, filters and pickles."""

import pickle
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from iceberg_export.spark.options import OptionError
from iceberg_export.spark.source import PenstockDataSource, PenstockReader

OPTIONS = {"path": "file:///nowhere", "subscribe": "orders"}


def reader(**options: str) -> PenstockReader:
    return PenstockDataSource({**OPTIONS, **options}).reader(StructType())


def test_the_schema_is_the_kafka_sources() -> None:
    assert PenstockDataSource(OPTIONS).schema() == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    with_headers = PenstockDataSource({**OPTIONS, "includeHeaders": "true", "columns": "headers,offset"})
    assert with_headers.schema() == "headers array<struct<key:string,value:binary>>, offset bigint"


def test_options_of_either_kind_of_query_have_a_schema() -> None:
    for option in ({"maxOffsetsPerTrigger": "5"}, {"endingOffsets": "latest"}, {"startingOffsets": "latest"}):
        assert PenstockDataSource({**OPTIONS, **option}).schema().startswith("key binary")
    with pytest.raises(OptionError, match="unknown option"):
        PenstockDataSource({**OPTIONS, "offsets": "5"}).schema()


def test_a_schema_of_the_jobs_own_chooses_columns_and_nothing_else() -> None:
    source = PenstockDataSource(OPTIONS)
    chosen = source.reader(StructType([StructField("offset", LongType()), StructField("key", BinaryType())]))
    assert chosen.options.columns == ("offset", "key")
    with pytest.raises(OptionError, match="column value string is none of the source"):
        source.reader(StructType([StructField("value", StringType())]))


def test_filters_that_are_kept_are_not_given_back() -> None:
    made = reader()
    filters: list[Filter] = [
        IsNotNull(("offset",)),
        EqualTo(("partition",), 1),
        Not(EqualTo(("offset",), 5)),
        In(("offset",), (1, 2, 3)),
        GreaterThan(("timestamp",), datetime(2024, 1, 1, tzinfo=UTC)),
        LessThanOrEqual(("headers", "key"), 3),
        StringContains(("topic",), "x"),
    ]
    assert list(made.pushFilters(filters)) == [filters[2], filters[5], filters[6]]
    assert made.conditions.partitions.bounds == ((1, 2),)
    assert made.conditions.offsets.bounds == ((1, 4),)


def test_spark_takes_the_push_down_for_inherited_where_it_may_not_push() -> None:
    assert getattr(reader().pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_a_reader_is_pickled_with_its_filters() -> None:
    made = reader()
    made.pushFilters([EqualTo(("partition",), 7)])
    again = pickle.loads(pickle.dumps(made))
    assert again.conditions == made.conditions
    assert again.options == made.options
    assert list(again.read(None)) == []
