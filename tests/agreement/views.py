"""The views that have to agree: a Kafka consumer's, and what Spark reads of tables and through our source.

Rule: each is read as its users read it, and made into `records.VIEW` without any other change. Spark writes what it
reads to Parquet files of its own, so that no view has to fit into its driver.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.agreement.compare import View
from tests.agreement.records import PREFIX, VIEW
from tests.agreement.world import STORE, World
from tests.support.services.local_services import Minio

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KAFKA, TABLE, BATCH, STREAM = "kafka", "table", "format(penstock), batch", "format(penstock), stream"
MESSAGES_PER_CALL = 10_000
SILENT_SECONDS_MAX = 60.0
BATCH_FOLDER = "batch"


def kafka_view(world: World) -> View:
    """All that a read_committed consumer gets, up to the ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": "agreement",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "log_level": 3,
        }
    )
    logs = {(name, partition) for name in world.topic_names for partition in range(world.partitions)}
    consumer.assign([TopicPartition(name, partition, 0) for name, partition in logs])
    pieces: list[pa.Table] = []
    heard_s = time.monotonic()
    try:
        while logs:
            messages = consumer.consume(MESSAGES_PER_CALL, timeout=1)
            assert time.monotonic() - heard_s < SILENT_SECONDS_MAX, f"the consumer hears nothing, left: {len(logs)}"
            heard_s = time.monotonic() if messages else heard_s
            rows = [_row(message) for message in messages if not _is_end(message, logs)]
            pieces.append(pa.Table.from_pylist(rows, schema=VIEW))
    finally:
        consumer.close()
    return View.of(KAFKA, pa.concat_tables(pieces) if pieces else VIEW.empty_table())


def _is_end(message: Message, logs: set[tuple[str, int]]) -> bool:
    error = message.error()
    if error is None:
        return False
    assert error.code() == KafkaError._PARTITION_EOF, error
    logs.discard((message.topic() or "", message.partition() or 0))
    return True


def _row(message: Message) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    assert kind == 1, "the time is not the producer's"
    headers = message.headers()
    assert not isinstance(headers, dict)
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "key": message.key(),
        "value": message.value(),
        "headers": None if headers is None else [{"key": key, "value": value} for key, value in headers],
    }


def shaped(frame: "DataFrame", *more: "Column") -> "DataFrame":
    """The columns of a view, out of those of our source or of a table, and some more."""
    from pyspark.sql import functions as F

    columns = ("topic", "partition", "offset", F.unix_millis("timestamp").alias("timestamp"), "key", "value", "headers")
    return frame.select(*columns, *more)


@dataclass(slots=True, kw_only=True)
class SparkViews:
    """What one Spark session reads of a world."""

    spark: "SparkSession"
    world: World
    folder: Path
    _catalogs: set[str] = field(default_factory=set[str])

    def table(self) -> View:
        """The topics' Iceberg tables, by the catalog of an agent."""
        from pyspark.sql import functions as F

        catalog = open_catalog(self.spark, self.world.http, self.world.minio)
        frames = [
            shaped(self.spark.table(f"{catalog}.lake.`{name}`").withColumn("topic", F.lit(name)))
            for name in self.world.topic_names
        ]
        return self._read(TABLE, reduce(lambda one, two: one.unionAll(two), frames))

    def batch(self) -> View:
        """All that a batch of our source reads."""
        options = {"subscribePattern": f"{PREFIX}.*", "includeHeaders": "true", **self.world.minio.settings}
        return self._read(BATCH, shaped(self.spark.read.format("penstock").options(**options).load(STORE)))

    def _read(self, name: str, frame: "DataFrame") -> View:
        folder = self.folder / "view"
        frame.write.mode("overwrite").parquet(str(folder))
        try:
            return View.of(name, read_written(folder))
        finally:
            shutil.rmtree(folder)


def read_written(folder: Path) -> pa.Table:
    """A view out of Parquet files that Spark wrote."""
    if not any(folder.rglob("*.parquet")):
        return VIEW.empty_table()
    return ds.dataset(folder, format="parquet", partitioning=None).to_table(columns=VIEW.names).cast(VIEW)


def open_catalog(spark: "SparkSession", http: str, minio: Minio) -> str:
    """Name of a catalog of this session for an agent's."""
    name = f"agreement_{http.rpartition(':')[2]}"
    properties = {
        "type": "rest",
        "uri": f"http://{http}/iceberg",
        "cache-enabled": "false",
        "s3.access-key-id": minio.access_key,
        "s3.secret-access-key": minio.secret_key,
    }
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return name


@dataclass(slots=True, kw_only=True)
class Stream:
    """A streaming query over all topics whose batches are Parquet files in `folder`, once each by their numbers."""

    spark: "SparkSession"
    minio: Minio
    folder: Path
    done_ms: dict[int, int] = field(default_factory=dict[int, int])
    """When the rows of each batch had been written."""
    restarts: int = 0
    durations_ms: list[tuple[int, dict[str, int]]] = field(default_factory=list[tuple[int, dict[str, int]]])
    """When each batch with rows began, and what it took, by Spark's names of its parts."""
    _query: "StreamingQuery | None" = None

    def start(self) -> None:
        """Start it, or go on where its checkpoint stands."""
        options = {"subscribePattern": f"{PREFIX}.*", "includeHeaders": "true", "startingOffsets": "earliest"}
        frame = self.spark.readStream.format("penstock").options(**options, **self.minio.settings).load(STORE)
        self._query = (
            shaped(frame)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    def restart(self) -> None:
        """Stop it wherever it is, and go on from the checkpoint."""
        self.stop()
        self.restarts += 1
        self.start()

    def finish(self) -> None:
        """Returns when it has all that there is. Raises what ended it."""
        assert self._query is not None, "start it first"
        self._query.processAllAvailable()

    def stop(self) -> None:
        if self._query is not None:
            for told in self._query.recentProgress:
                if told.numInputRows:
                    began_ms = int(datetime.fromisoformat(told.timestamp).timestamp() * 1000)
                    self.durations_ms.append((began_ms, dict(told.durationMs)))
            self._query.stop()
            self._query = None

    def view(self) -> View:
        return View.of(STREAM, read_written(self.folder / "rows"))

    def batches(self) -> Iterator[tuple[int, pa.Table]]:
        """When each batch was done, and its rows."""
        for number, done_ms in sorted(self.done_ms.items()):
            yield done_ms, read_written(self._place(number))

    def _take(self, batch: "DataFrame", number: int) -> None:
        batch.write.mode("overwrite").parquet(str(self._place(number)))
        self.done_ms[number] = time.time_ns() // 1_000_000

    def _place(self, number: int) -> Path:
        return self.folder / "rows" / f"{BATCH_FOLDER}-{number}"
