"""The data source `penstock`: the classes that Spark calls. Only this module imports pyspark at run time.

    from iceberg_export.spark.source import register
    register(spark)
    spark.read.format("penstock").option("subscribe", "orders").load("s3://bucket/prefix")

Other modules make all decisions. Spark pickles a reader to its tasks before it plans the partitions, so a reader has
only options, and nothing that is open. Spark starts one process for the schema, and another one for the plan. Imports
that only reading needs are inside functions, so that these processes start faster.

The source takes no filters from Spark. Spark 4.1 stores the plan of a push-down in an object that all scans of a frame
share. One scan's filter would apply to the others (SPARK-58551): ADR 0023.

Spark 4.2 passes position and limit to `latestOffset`, and asks readers that are made for it where a query with
Trigger.AvailableNow ends. Iceberg needs Spark 4.1, which has neither: the same class serves both.

Source: pyspark.sql.datasource, pyspark.sql.worker.plan_data_source_read (Spark 4.1);
pyspark.sql.streaming.{datasource,python_streaming_source_runner} (Spark 4.2).
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

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # type: ignore[import-not-found]
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing: Spark 4.1 asks no reader for its end."""


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit  # pyright: ignore[reportMissingImports]

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
"""The Spark types of the Kafka source's columns."""


def register(spark: SparkSession) -> None:
    """Register the format `penstock` in a session. Each query reads the topics as they are when it is planned."""
    spark.dataSource.register(PenstockDataSource)
    # A session of Spark Connect has no access to the driver's Java.
    if isinstance(spark, SparkSession):
        java: Any = spark._jsparkSession  # noqa: SLF001
        plan_each_query(spark._jvm, java.experimental())  # noqa: SLF001


class PenstockDataSource(DataSource):
    """The topics in a bucket, as a data source of Spark."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        """The columns that the options select, as Spark's DDL. Raises `OptionError`."""
        options = _parse(self.options, is_stream=not _is_of_batch(self.options))
        return ", ".join(f"{name} {TYPES[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> "PenstockReader":
        return PenstockReader(_parse(self.options, is_stream=False, schema=schema))

    def streamReader(self, schema: StructType) -> "PenstockStreamReader":
        return PenstockStreamReader(_parse(self.options, is_stream=True, schema=schema))


def _is_of_batch(options: Mapping[str, str]) -> bool:
    """True where the options are valid for batch queries only.

    Spark asks for the schema without the kind of query, so the options decide how they are parsed.
    """
    try:
        _parse(options, is_stream=True)
    except OptionError:
        return True
    return False


def _parse(options: Mapping[str, str], *, is_stream: bool, schema: StructType | None = None) -> ReadOptions:
    """The parsed options. `schema`: the one that the job set itself, if any.

    Raises `OptionError`, also where the schema has other columns or types than the source.
    """
    names: list[str] = []
    for column in [] if schema is None else schema.fields:
        if TYPES.get(column.name) != column.dataType.simpleString():
            types = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
            raise OptionError(
                f"the source has no column {column.name} {column.dataType.simpleString()}; its columns are {types}"
            )
        names.append(column.name)
    parsed = parse_options(dict(options), os.environ, is_stream=is_stream, schema_columns=names)
    if names and (HEADERS in names) > (HEADERS in parsed.columns):
        raise OptionError("the column headers needs the option includeHeaders=true")
    return parsed


def _task_count() -> int:
    """The default count of tasks of a read: the cores of this machine that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SplitPartition(InputPartition):
    """A split as Spark sends it to a task."""

    def __init__(self, split: "Split") -> None:
        self.split = split


class PenstockReader(DataSourceReader):
    """The reader of a batch query."""

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
        splits = divide(pieces, count or _task_count(), is_count_exact=count is not None)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return _read(self.options, partition)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of a streaming query. Spark has one in a planning process, and one in each task."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._stream: SourceStream | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._opened().initial_offset()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None) -> dict[str, Any]:
        """`start`, `limit`: given from Spark 4.2 on, where the limit is the default one, or all that is there."""
        if start is None:
            return self._opened().latest_offset()
        return self._opened().latest_offset_after(start, getattr(limit, "max_rows", None))

    def getDefaultReadLimit(self) -> "ReadLimit":
        """Asked for from Spark 4.2 on."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # pyright: ignore[reportMissingImports]

        offsets_max = self.options.offsets_per_trigger_max
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._opened().end_at_what_is_there()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._opened().newest_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SplitPartition(split) for split in self._opened().plan(start, end)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return _read(self.options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the position is in Spark's checkpoint, and no broker needs it."""

    def stop(self) -> None:
        """Does nothing: the process ends now, and its connections with it."""

    def _opened(self) -> "SourceStream":
        from iceberg_export.spark.stream import SourceStream

        if self._stream is None:
            self._stream = SourceStream(_lake(self.options), self.options, task_count=_task_count())
        return self._stream


def _lake(options: ReadOptions) -> "SparkLake":
    from iceberg_export.spark.bucket import open_agent, open_bucket
    from iceberg_export.spark.lake import SparkLake
    from iceberg_export.spark.manifests import AgentManifests

    if options.agent is not None:
        tenant = open_agent(options.agent)
        manifests = AgentManifests(tenant, options.subscription)
        return SparkLake(tenant, is_archive_only=options.is_archive_only, manifests=manifests)
    return SparkLake(open_bucket(options.store_url, options.variables), is_archive_only=options.is_archive_only)


def _read(options: ReadOptions, partition: InputPartition | None) -> Iterator[Any]:
    """The rows of a task. `partition`: None where the query has no rows to read."""
    from iceberg_export.spark.bounds import LossReporter
    from iceberg_export.spark.rows import Selection, read_split

    if partition is None:
        return iter(())
    assert isinstance(partition, SplitPartition)
    lake = _lake(options)
    losses = LossReporter(is_fatal=options.is_loss_fatal)
    plan_again = partial(_plan_again, lake, losses)
    return read_split(lake.bucket, partition.split, Selection(columns=options.columns), plan_again)


def _plan_again(lake: "SparkLake", losses: "LossReporter", ranges: "Sequence[OffsetRange]") -> "list[Piece]":
    from iceberg_export.spark.bounds import plan_ranges

    return plan_ranges(lake, ranges, losses)


assert tuple(TYPES) == (*COLUMNS, HEADERS)
