"""One copy: what was produced is archived as Parquet, read by Kafka consumers and by Spark from the same files, and
stands nowhere else.

The whole million takes less than a minute on two cores and is marked slow; the other sizes are for every run.
"""

from typing import TYPE_CHECKING

import pandas as pd
import pytest
from confluent_kafka import Consumer
from pyarrow import fs

from tests.archiving import AT_ONCE, Archive, archive_and_clean, archive_by_command, archive_by_http
from tests.bucket_listing import faults, list_bucket, local_bucket, minio_bucket
from tests.flights import Flights, LogHash, PartitionHash, consume, create_topic, differences, log_ends, produce
from tests.services import Minio, Penstock, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "flights"
PARTITIONS = 6
EVENT = "month int, carrier string, origin string, tailnum string, arr_delay double, distance bigint"


def empty_log() -> LogHash:
    return {partition: PartitionHash() for partition in range(PARTITIONS)}


def ends(log: LogHash) -> dict[int, int]:
    return {partition: hashed.count for partition, hashed in log.items()}


def local(broker: Penstock) -> fs.FileSystem:
    return local_bucket(broker.data / "store")


def assert_clients_see(broker: Penstock, log: LogHash) -> None:
    """A Kafka consumer from offset 0 gets every record with every byte, and nothing after them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ends"})
    try:
        assert log_ends(consumer, TOPIC, PARTITIONS) == ends(log)
    finally:
        consumer.close()
    assert differences(consume(broker.bootstrap, TOPIC, PARTITIONS), log) == []


@pytest.mark.parametrize(
    ("records", "archive"),
    [
        pytest.param(100_000, archive_by_command, id="100000"),
        pytest.param(1_000_000, archive_by_http, id="1000000", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_flights_are_kept_once_for_kafka_and_spark(
    penstock: PenstockFactory, spark: "SparkSession", records: int, archive: Archive
) -> None:
    # Passes run while records come in, too.
    broker = penstock(options={**AT_ONCE, "archive-bytes": "8MiB"})
    flights, log, bucket = Flights(records), empty_log(), local(broker)
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    produce(broker.bootstrap, TOPIC, flights.events(), log)
    assert sum(ends(log).values()) == records
    archive_and_clean(broker, bucket, TOPIC, archive)

    assert_clients_see(broker, log)

    listing = list_bucket(bucket, TOPIC)
    assert faults(listing, ends(log)) == []
    assert listing.tail_counts == {}

    (folder,) = (broker.data / "store" / "lake").glob(f"{TOPIC}-*/data")
    assert_spark_agrees(spark.read.parquet(str(folder)), flights.table, log)


def assert_spark_agrees(archived: "DataFrame", source: pd.DataFrame, log: LogHash) -> None:
    """Counts, sums and groups of the archived files are those of the table from which the events were made."""
    rows = archived.groupBy("partition").agg({"*": "count", "offset": "max"}).collect()
    assert {row["partition"]: (row["count(1)"], row["max(offset)"] + 1) for row in rows} == {
        partition: (hashed.count, hashed.count) for partition, hashed in log.items() if hashed.count
    }

    totals = archived.selectExpr(
        "count(*)", "count(key)", "sum(length(value))", "sum(unix_millis(timestamp))", "sum(size(headers))"
    ).first()
    assert totals is not None
    with_headers = (len(source) + 2) // 3
    assert tuple(totals) == (
        len(source),
        source["tailnum"].count(),
        source["value_bytes"].sum(),
        source["timestamp_ms"].sum(),
        2 * with_headers,
    )

    keys = archived.selectExpr("coalesce(cast(key as string), '-') as key").groupBy("key").count().collect()
    assert {row["key"]: row["count"] for row in keys} == source["tailnum"].fillna("-").value_counts().to_dict()

    # What is inside the values, per carrier, airport and month.
    names = ["carrier", "origin", "month"]
    events = archived.selectExpr(f"from_json(cast(value as string), '{EVENT}') as event").select("event.*")
    grouped = events.groupBy(*names).agg({"*": "count", "arr_delay": "sum", "distance": "sum", "tailnum": "count"})
    found = {
        tuple(row[name] for name in names): (
            row["count(1)"],
            row["sum(arr_delay)"] or 0.0,
            row["sum(distance)"],
            row["count(tailnum)"],
        )
        for row in grouped.collect()
    }
    groups = source.groupby(names)
    expected = groups.agg({"year": "size", "arr_delay": "sum", "distance": "sum", "tailnum": "count"})
    assert found == {tuple(row[0]): tuple(row[1:]) for row in expected.itertuples()}


def produce_archive_and_produce(broker: Penstock, bucket: fs.FileSystem, records: int) -> LogHash:
    """Archives the first records in two passes, and leaves as many as were in the second in the intake."""
    events, log = Flights(records).events(), empty_log()
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    for part in (records // 2, records // 4):
        produce(broker.bootstrap, TOPIC, events, log, count=part)
        assert archive_and_clean(broker, bucket, TOPIC, archive_by_http) == part
    produce(broker.bootstrap, TOPIC, events, log)
    return log


def assert_one_copy_with_tail(bucket: fs.FileSystem, log: LogHash, records: int) -> None:
    listing = list_bucket(bucket, TOPIC, with_records=True)
    assert faults(listing, ends(log)) == []
    assert sum(listing.tail_counts.values()) == records // 4
    assert differences(listing.records, log) == []


def test_what_came_after_the_last_pass_stands_once_in_the_intake(penstock: PenstockFactory) -> None:
    records = 20_000
    broker = penstock(options=AT_ONCE)
    log = produce_archive_and_produce(broker, local(broker), records)
    assert_clients_see(broker, log)
    assert_one_copy_with_tail(local(broker), log, records)


def test_one_copy_on_s3(penstock: PenstockFactory, minio: Minio) -> None:
    records = 20_000
    name = minio.make_bucket("one-copy")
    broker = penstock(store=f"s3://{name}", env=minio.settings, options=AT_ONCE)
    bucket = minio_bucket(minio, name)
    log = produce_archive_and_produce(broker, bucket, records)
    assert_clients_see(broker, log)
    assert_one_copy_with_tail(bucket, log, records)
    assert archive_and_clean(broker, bucket, TOPIC, archive_by_command) == records // 4
    assert_clients_see(broker, log)
    listing = list_bucket(bucket, TOPIC)
    assert faults(listing, ends(log)) == []
    assert listing.tail_counts == {}
    assert not (broker.data / "store").exists()
