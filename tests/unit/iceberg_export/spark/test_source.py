"""What Spark calls, without a session: schemas, filters and pickles."""

import pickle

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThan
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
    with pytest.raises(OptionError, match="the source has no column value string"):
        source.reader(StructType([StructField("value", StringType())]))


def test_no_filter_is_taken_so_that_scans_of_one_frame_cannot_narrow_each_other() -> None:
    filters: list[Filter] = [EqualTo(("partition",), 1), GreaterThan(("offset",), 5)]
    made = reader()
    assert list(made.pushFilters(filters)) == filters
    # By this Spark knows that there is nothing to push down to, whether its setting is on or off.
    assert getattr(made.pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_a_reader_is_pickled_with_its_options() -> None:
    made = reader()
    again = pickle.loads(pickle.dumps(made))
    assert again.options == made.options
    assert list(again.read(None)) == []
