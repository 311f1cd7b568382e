"""The data source `penstock`: what Spark calls, and the only module that imports pyspark.

    from iceberg_export.spark.source import register
    register(spark)
    spark.read.format("penstock").option("subscribe", "orders").load("s3://bucket/prefix")

Rule: everything is decided elsewhere; here are Spark's classes, types and processes. A reader is pickled to the tasks
before its partitions are planned, so it holds options, and nothing that is open. Spark starts a process to ask for the
schema, and another to plan: what only reading needs is imported there.

Rule: no filter is taken from Spark. Spark 4.1 keeps the plan that a push-down made at the object that all scans
of a frame share, so one scan's filter would hold for the others (SPARK-58551): ADR 0023.

Source: pyspark.sql.datasource, pyspark.sql.worker.plan_data_source_read (Spark 4.1).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from iceberg_export.spark.options import COLUMNS, HEADERS, OptionError, ReadOptions, parse_options
from iceberg_export.spark.query_plans import plan_each_query

if TYPE_CHECKING:
    from iceberg_export.spark.bounds import LossReporter
    from iceberg_export.spark.lake import SparkLake
    from iceberg_export.spark.planning import OffsetRange, Piece, Split
    from iceberg_export.spark.stream import SourceStream

TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Those of the Kafka source's columns."""


def register(spark: SparkSession) -> None:
    """Make the format `penstock` known to a session. Each of its queries reads what is there when it is planned."""
    spark.dataSource.register(PenstockDataSource)
    if isinstance(spark, SparkSession):
        # Of Spark Connect's sessions no Java can be reached from here.
        java: Any = spark._jsparkSession  # noqa: SLF001
        plan_each_query(spark._jvm, java.experimental())  # noqa: SLF001


class PenstockDataSource(DataSource):
    """Topics in a bucket."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        """The columns that the options ask for. Raises `OptionError`, of options of either kind of query."""
        options = _parse(self.options, is_stream=not _is_of_batch(self.options))
        return ", ".join(f"{name} {TYPES[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> "PenstockReader":
        return PenstockReader(_parse(self.options, is_stream=False, schema=schema))

    def streamReader(self, schema: StructType) -> "PenstockStreamReader":
        return PenstockStreamReader(_parse(self.options, is_stream=True, schema=schema))


def _is_of_batch(options: Mapping[str, str]) -> bool:
    """Whether options make sense in batches alone. Whether a query is one, its schema is asked for without saying."""
    try:
        _parse(options, is_stream=True)
    except OptionError:
        return True
    return False


def _parse(options: Mapping[str, str], *, is_stream: bool, schema: StructType | None = None) -> ReadOptions:
    """Raises `OptionError`, also for a schema of the job's own that has other columns or types than the source."""
    names: list[str] = []
    for column in [] if schema is None else schema.fields:
        if TYPES.get(column.name) != column.dataType.simpleString():
            types = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
            raise OptionError(f"column {column.name} {column.dataType.simpleString()} is none of the source: {types}")
        names.append(column.name)
    parsed = parse_options(dict(options), os.environ, is_stream=is_stream, schema_columns=names)
    if names and (HEADERS in names) > (HEADERS in parsed.columns):
        raise OptionError("the column headers needs the option includeHeaders=true")
    return parsed


def _task_count() -> int:
    """How many tasks a read should have if nobody says: as many as this machine has cores for."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SplitPartition(InputPartition):
    """A split on its way to its task."""

    def __init__(self, split: "Split") -> None:
        self.split = split


class PenstockReader(DataSourceReader):
    """Reads a batch."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        from iceberg_export.spark.bounds import LossReporter, plan_ranges, resolve_batch
        from iceberg_export.spark.planning import divide

        lake = _lake(self.options)
        losses = LossReporter(is_fatal=self.options.is_loss_fatal)
        ranges = resolve_batch(lake, self.options, losses)
        pieces = plan_ranges(lake, ranges, losses, manifest=lake.newest)
        count = self.options.partitions_min
        splits = divide(pieces, count or _task_count(), is_count_wanted=count is not None)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return _read(self.options, partition)


class PenstockStreamReader(DataSourceStreamReader):
    """Reads a stream. Spark has one in a process of its own that plans, and one in each task."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._stream: SourceStream | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._opened().initial_offset()

    def latestOffset(self) -> dict[str, Any]:
        return self._opened().latest_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SplitPartition(split) for split in self._opened().plan(start, end)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return _read(self.options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the position is Spark's, and no broker waits for it."""

    def stop(self) -> None:
        """Nothing that is open outlives the process, which ends now."""

    def _opened(self) -> "SourceStream":
        from iceberg_export.spark.stream import SourceStream

        if self._stream is None:
            self._stream = SourceStream(_lake(self.options), self.options, task_count=_task_count())
        return self._stream


def _lake(options: ReadOptions) -> "SparkLake":
    from iceberg_export.spark.bucket import open_bucket
    from iceberg_export.spark.lake import SparkLake

    return SparkLake(open_bucket(options.store_url, options.variables), is_archive_only=options.is_archive_only)


def _read(options: ReadOptions, partition: InputPartition | None) -> Iterator[Any]:
    """The rows of a task; of none where nothing was planned."""
    from iceberg_export.spark.bounds import LossReporter
    from iceberg_export.spark.rows import Wanted, read_split

    if partition is None:
        return iter(())
    assert isinstance(partition, SplitPartition)
    lake = _lake(options)
    losses = LossReporter(is_fatal=options.is_loss_fatal)
    plan_again = partial(_plan_again, lake, losses)
    return read_split(lake.bucket, partition.split, Wanted(columns=options.columns), plan_again)


def _plan_again(lake: "SparkLake", losses: "LossReporter", ranges: "Sequence[OffsetRange]") -> "list[Piece]":
    from iceberg_export.spark.bounds import plan_ranges

    return plan_ranges(lake, ranges, losses)


assert tuple(TYPES) == (*COLUMNS, HEADERS)
