"""One copy: what was produced is archived as Parquet, read by Kafka consumers and by Spark from the same files, and
stands nowhere else.

The whole million takes less than a minute on two cores and is marked slow; the other sizes are for every run.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.support.lake.archiving import AT_ONCE, Archive, archive_and_clean, archive_by_command, archive_by_http
from tests.support.lake.bucket_listing import (
    METADATA,
    ListedBucket,
    faults,
    list_bucket,
    list_topics,
    local_bucket,
    minio_bucket,
)
from tests.support.lake.flight_events import (
    Flights,
    LogHash,
    PartitionHash,
    consume,
    create_topic,
    differences,
    log_ends,
    produce,
)
from tests.support.services.local_services import Minio, Penstock, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "flights"
PARTITIONS = 6
SHARED_RECORDS = 4_000
EVENT = "month int, carrier string, origin string, tailnum string, arr_delay double, distance bigint"


def empty_log() -> LogHash:
    return {partition: PartitionHash() for partition in range(PARTITIONS)}


def ends(log: LogHash) -> dict[int, int]:
    return {partition: hashed.count for partition, hashed in log.items()}


def local(broker: Penstock) -> ListedBucket:
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
        pytest.param(30_000, archive_by_command, id="30000"),
        pytest.param(1_000_000, archive_by_http, id="1000000", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_flights_are_kept_once_for_kafka_and_spark(
    penstock: PenstockFactory, spark: "SparkSession", records: int, archive: Archive
) -> None:
    # Passes run while records come in, too.
    broker = penstock(options={**AT_ONCE, "archive-bytes": "2MiB"})
    flights, log, bucket = Flights(records), empty_log(), local(broker)
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    produce(broker.bootstrap, TOPIC, flights.events(), log)
    assert sum(ends(log).values()) == records
    archive_and_clean(broker, bucket, TOPIC, archive)

    assert_clients_see(broker, log)

    assert_archived_once(bucket, log)

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


def assert_archived_once(bucket: ListedBucket, log: LogHash) -> None:
    listing = list_bucket(bucket)
    assert faults(listing, ends(log)) == []
    assert listing.tail_counts == {}


def assert_one_copy_with_tail(bucket: ListedBucket, log: LogHash, tail: int) -> None:
    listing = list_bucket(bucket, with_records=True)
    assert faults(listing, ends(log)) == []
    assert sum(listing.tail_counts.values()) == tail
    assert differences(listing.records, log) == []


def test_what_came_after_the_last_pass_stands_once_in_the_intake(penstock: PenstockFactory) -> None:
    broker, log, events = penstock(options=AT_ONCE), empty_log(), Flights(20_000).events()
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    produce(broker.bootstrap, TOPIC, events, log, count=10_000)
    assert archive_and_clean(broker, local(broker), TOPIC, archive_by_http) == 10_000
    produce(broker.bootstrap, TOPIC, events, log, count=5_000)
    broker.process.kill()
    again = penstock(data=broker.data, options=AT_ONCE)
    produce(again.bootstrap, TOPIC, events, log)
    assert_clients_see(again, log)
    assert_one_copy_with_tail(local(again), log, 10_000)


@pytest.mark.slow  # on a folder the others show it, and passes over S3 test_topic_tables
def test_one_copy_on_s3(penstock: PenstockFactory, minio: Minio) -> None:
    name = minio.make_bucket("one-copy")
    broker = penstock(store=f"s3://{name}", env=minio.settings, options=AT_ONCE)
    bucket, log, events = minio_bucket(minio, name), empty_log(), Flights(20_000).events()
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    for part in (10_000, 5_000):
        produce(broker.bootstrap, TOPIC, events, log, count=part)
        assert archive_and_clean(broker, bucket, TOPIC, archive_by_http) == part
    produce(broker.bootstrap, TOPIC, events, log)
    assert_clients_see(broker, log)
    assert_one_copy_with_tail(bucket, log, 5_000)
    assert archive_and_clean(broker, bucket, TOPIC, archive_by_command) == 5_000
    assert_clients_see(broker, log)
    assert_archived_once(bucket, log)
    assert not (broker.data / "store").exists()


def test_topics_that_share_intake_objects_are_each_kept_once_and_leave_nothing(penstock: PenstockFactory) -> None:
    broker = penstock(options={**AT_ONCE, "flush-interval-ms": "500"})
    bucket, logs = local(broker), {"first": empty_log(), "second": empty_log()}
    for topic in logs:
        create_topic(broker.bootstrap, topic, PARTITIONS)
    with ThreadPoolExecutor() as threads:
        sent = [
            threads.submit(produce, broker.bootstrap, topic, Flights(SHARED_RECORDS).events(), log)
            for topic, log in logs.items()
        ]
        for each in sent:
            each.result()
    assert archive_by_http(broker, "first") == SHARED_RECORDS
    # An object stays as long as the other topic's records in it wait, and with it what is archived of the first.
    (first,) = (listing for listing in list_topics(bucket).values() if listing.names == {"first"})
    assert first.tail_counts
    assert archive_and_clean(broker, bucket, "second", archive_by_http) == SHARED_RECORDS
    for listing in list_topics(bucket).values():
        (topic,) = listing.names
        assert faults(listing, ends(logs[topic])) == []
        assert listing.tail_counts == {}
        assert differences(consume(broker.bootstrap, topic, PARTITIONS), logs[topic]) == []

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for deleted in admin.delete_topics(list(logs)).values():
        deleted.result(30)
    broker.process.wait_until(lambda: all(map(METADATA.fullmatch, bucket.keys())), "the cleaner", seconds_max=60)
