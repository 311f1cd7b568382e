"""Spark reads topics from the bucket alone, by `format("penstock")`: batches, and streams that stop and go on."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from iceberg_export.spark.bucket import Bucket, open_bucket
from iceberg_export.spark.lake import SparkLake
from storage.decorators.routed import RoutedStore
from storage.embedded.local_store import PACKS_FOLDER, LocalStore
from storage.embedded.pack_store import PackStore
from storage.refs import INTAKE_PREFIX
from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.lake.bucket_fixtures import NOON, MadeLake
from tests.support.lake.flight_events import create_topic
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.records.plain_records import Record
from tests.support.services.local_services import Minio, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFolder:
    """A bucket in a directory, held open by its writer as by a broker."""

    url: str
    lake: MadeLake
    bucket: Bucket


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LakeFolder]:
    root = tmp_path / "store"
    files = LocalStore(root, is_durable=False)
    packs = PackStore(root / PACKS_FOLDER, now_ms=lambda: NOON, new_nonce=lambda: os.urandom(16), is_durable=False)
    bucket = Bucket(RoutedStore(INTAKE_PREFIX, packs, files))
    yield LakeFolder(url=f"file://{root}", lake=MadeLake(bucket.store, root=f"file://{root}"), bucket=bucket)
    bucket.close()


@pytest.fixture
def source(spark: "SparkSession") -> "SparkSession":
    from iceberg_export.spark.source import register

    register(spark)
    return spark


@contextmanager
def spark_setting(session: "SparkSession", name: str, value: str) -> Iterator[None]:
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.unset(name)


Rows = list[tuple[int, int, bytes | None, bytes | None, Any]]
TOPIC_AND_TIME = (
    f"upper(topic) = 'ORDERS' and timestampType + 0 = 0 and unix_millis(timestamp) = {NOON} + 1000 * offset + partition"
)
"""Of every record that a made bucket holds."""


def rows_of(frame: "DataFrame") -> Rows:
    found = frame.select("partition", "offset", "key", "value", "headers").collect()
    return sorted(
        (
            row["partition"],
            row["offset"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            None if row["headers"] is None else [(h["key"], h["value"] and bytes(h["value"])) for h in row["headers"]],
        )
        for row in found
    )


def expected(records: list[tuple[int, Record]]) -> Rows:
    return sorted(
        (
            partition,
            record.offset,
            record.key,
            record.value,
            [(key.decode(), value) for key, value in record.headers] or None,
        )
        for partition, record in records
    )


def load(source: "SparkSession", url: str, **options: str) -> "DataFrame":
    return source.read.format("penstock").options(includeHeaders="true", **options).load(url)


async def fill(lake: MadeLake) -> None:
    lake.create("orders", 3)
    await lake.produce("orders", [500, 20, 0], objects=3)
    await lake.archive("orders")
    await lake.produce("orders", [40, 300, 3], objects=4)
    await lake.publish()


def test_a_batch_has_the_columns_and_the_rows_of_the_topic(source: "SparkSession", folder: LakeFolder) -> None:
    folder.bucket.run(fill(folder.lake))
    frame = load(source, folder.url, subscribe="orders")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    visible = folder.lake.visible("orders")
    assert rows_of(frame.where(TOPIC_AND_TIME)) == expected(visible)

    one = frame.where("partition = 1 and offset between 15 and 25 and topic = 'orders'")
    assert rows_of(one) == expected([row for row in visible if row[0] == 1 and 15 <= row[1].offset <= 25])
    late = frame.where("timestamp >= timestamp_millis(1700049900000) and key is null")
    assert rows_of(late) == expected([row for row in visible if row[1].timestamp >= 1700049900000 and not row[1].key])

    chosen = load(source, folder.url, subscribe="orders", columns="value,partition,offset").where("offset < 2")
    assert chosen.columns == ["value", "partition", "offset"]
    assert sorted((row["partition"], row["offset"]) for row in chosen.collect()) == [
        (partition, record.offset) for partition, record in visible if record.offset < 2
    ]


def test_a_frame_that_is_used_twice_keeps_no_filter_of_its_other_scans(
    source: "SparkSession", folder: LakeFolder
) -> None:
    """Also where somebody let Spark push filters down to sources."""
    lake, run = folder.lake, folder.bucket.run
    lake.create("people", 2)
    run(lake.produce("people", [10, 10]))
    run(lake.publish())
    with spark_setting(source, "spark.sql.python.filterPushdown.enabled", "true"):
        frame = load(source, folder.url, subscribe="people")
        first = frame.where("partition = 0")
        assert [frame.count(), first.count(), frame.count()] == [20, 10, 20]
        assert first.union(frame).count() == 30
        assert sorted(row["partition"] for row in frame.exceptAll(first).collect()) == [1] * 10
        frame.createOrReplaceTempView("people")
        assert source.sql("select * from people where offset < 3").count() == 6
        assert source.sql("select count(*) from people").first() == (20,)


def test_each_query_over_a_frame_reads_what_is_there_when_it_is_planned(
    source: "SparkSession", folder: LakeFolder
) -> None:
    from iceberg_export.spark.source import register

    lake, run = folder.lake, folder.bucket.run
    lake.create("people", 2)
    run(lake.produce("people", [10, 10]))
    run(lake.publish())
    frame = load(source, folder.url, subscribePattern="p.*")
    asked_once = frame.where("offset >= 0")
    assert [frame.count(), len(asked_once.collect())] == [20, 20]

    run(lake.produce("people", [5, 0]))
    lake.create("places", 1)
    run(lake.produce("places", [3]))
    run(lake.publish())
    register(source)  # a second time makes no difference
    # As with the Kafka source, a plan that was made stays as it is, and what is built on the frame is planned again.
    assert [frame.count(), len(asked_once.collect()), asked_once.count()] == [28, 20, 28]
    assert frame.where("partition = 1").union(frame).count() == 10 + 28

    with spark_setting(source, "spark.sql.adaptive.enabled", "false"):
        run(lake.archive("people"))
        run(lake.produce("people", [0, 2]))
        run(lake.publish())
        assert frame.exceptAll(frame.where("partition = 0")).count() == 12


def test_a_stream_joined_with_a_frame_sees_what_came_to_both(
    source: "SparkSession", folder: LakeFolder, tmp_path: Path
) -> None:
    lake, run = folder.lake, folder.bucket.run
    for topic in ("people", "orders"):
        lake.create(topic, 1)
        run(lake.produce(topic, [10]))
    run(lake.publish())
    people = load(source, folder.url, subscribe="people").select("offset", "topic")
    orders = source.readStream.format("penstock").options(subscribe="orders", startingOffsets="earliest")
    batches: list[int] = []
    query = (
        orders.load(folder.url)
        .select("offset", "key")
        .join(people, "offset", "left")
        .writeStream.foreachBatch(lambda batch, _: batches.append(batch.where("topic is not null").count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    for topic in ("people", "orders"):
        run(lake.produce(topic, [5]))
    run(lake.publish())
    query.processAllAvailable()
    query.stop()
    assert [count for count in batches if count] == [10, 5]


def test_options_that_cannot_be_meant_are_refused_with_their_names(source: "SparkSession", folder: LakeFolder) -> None:
    folder.bucket.run(fill(folder.lake))
    with pytest.raises(Exception, match="unknown option 'subscribed'; did you mean subscribe"):
        load(source, folder.url, subscribed="orders")
    with pytest.raises(Exception, match="unknown option 'startingofset'; did you mean startingOffsets"):
        load(source, folder.url, subscribe="orders", startingOfset="earliest")
    with pytest.raises(Exception, match="no topic payments"):
        load(source, folder.url, subscribe="payments").count()


@dataclass(slots=True)
class Collector:
    """A query that keeps what its batches bring."""

    source: "SparkSession"
    url: str
    checkpoint: Path
    options: dict[str, str]
    batches: list[Rows] = field(default_factory=list[Rows])

    def start(self) -> "StreamingQuery":
        frame = (
            self.source.readStream.format("penstock")
            .options(includeHeaders="true", startingOffsets="earliest", **self.options)
            .load(self.url)
        )
        return (
            frame.writeStream.foreachBatch(lambda batch, _: self.batches.append(rows_of(batch)))
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )

    def rows(self) -> Rows:
        """All that came, which has to be each row once."""
        return sorted(row for batch in self.batches for row in batch)


def test_a_stream_brings_every_row_once_over_passes_restarts_and_new_partitions(
    source: "SparkSession", folder: LakeFolder, tmp_path: Path
) -> None:
    lake, run = folder.lake, folder.bucket.run
    run(fill(lake))
    options = {"subscribePattern": "orders|new", "maxOffsetsPerTrigger": "300"}
    collector = Collector(source, folder.url, tmp_path / "checkpoint", options)
    query = collector.start()
    query.processAllAvailable()
    assert collector.rows() == expected(lake.visible("orders"))
    assert len([batch for batch in collector.batches if batch]) == 3
    assert all(len(batch) <= 300 + 3 for batch in collector.batches)

    # What the stream stands in is archived, and more comes, of a new partition too.
    run(lake.archive("orders"))
    run(lake.produce("orders", [10, 10, 10]))
    lake.topics["orders"].partitions.append(type(lake.topics["orders"].partitions[0])())
    run(lake.produce("orders", [0, 0, 0, 25]))
    run(lake.publish())
    query.processAllAvailable()
    query.stop()
    assert collector.rows() == expected(lake.visible("orders"))

    # It stops, and goes on where it was; the cap holds for the first batch, too.
    run(lake.produce("orders", [0, 700, 0, 1], objects=3))
    lake.create("new", 1)
    run(lake.produce("new", [4]))
    run(lake.publish())
    count = len(collector.batches)
    query = collector.start()
    query.processAllAvailable()
    query.stop()
    assert collector.rows() == expected(lake.visible("orders") + lake.visible("new"))
    assert len(collector.batches[count]) <= 300 + 5
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    position = json.loads(newest.read_text().splitlines()[-1])
    assert position["orders"] == {str(p): made.end for p, made in enumerate(lake.topics["orders"].partitions)}
    assert position["new"] == {"0": 4}


def test_a_stream_that_retention_overtook_fails_or_goes_on_as_it_was_told(
    source: "SparkSession", folder: LakeFolder, tmp_path: Path
) -> None:
    lake, run = folder.lake, folder.bucket.run
    run(fill(lake))
    collector = Collector(source, folder.url, tmp_path / "checkpoint", {"subscribe": "orders"})
    query = collector.start()
    query.processAllAvailable()
    query.stop()
    run(lake.produce("orders", [50, 0, 0]))
    lake.topics["orders"].partitions[0].log_start = 570
    run(lake.publish())
    query = collector.start()
    with pytest.raises(Exception, match="orders-0 now begins at offset 570"):
        query.awaitTermination(SECONDS_MAX)
    before = len(collector.rows())
    collector.options["failOnDataLoss"] = "false"
    query = collector.start()
    query.processAllAvailable()
    query.stop()
    assert len(collector.rows()) == before + 20
    assert {row[1] for row in collector.batches[-1]} == set(range(570, 590))


def consume_committed(bootstrap: str, topic: str, partitions: int) -> Rows:
    """What a read_committed consumer gets, up to the ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "comparison",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": "true",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    rows: Rows = []
    ended: set[int] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                ended.add(message.partition() or 0)
                continue
            headers = message.headers()
            rows.append(
                (
                    message.partition() or 0,
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    list(headers) if headers else None,
                )
            )
    finally:
        consumer.close()
    return sorted(rows)


def produce_transactions(bootstrap: str, topic: str, partitions: int, first: int) -> None:
    """Ten transactions, every third of which is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"spark-{first}", "linger.ms": 5})
    producer.init_transactions(30)
    for number in range(first, first + 10):
        producer.begin_transaction()
        for row in range(30):
            text = f"{number}-{row}".encode()
            producer.produce(topic, text * 5, text, row % partitions, headers=[("n", text)] if row % 2 else None)
        producer.flush(30)  # what an abort would drop unsent is to be in the log
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def test_a_batch_is_what_read_committed_sees_of_a_broker_also_when_that_is_gone(
    source: "SparkSession", penstock: PenstockFactory, minio: Minio
) -> None:
    url = f"s3://{minio.make_bucket('spark-source')}/cluster"
    broker = penstock(store=url, env=minio.settings, options=AT_ONCE)
    create_topic(broker.bootstrap, "tx", 2)
    produce_transactions(broker.bootstrap, "tx", 2, 0)
    archive_by_http(broker, "tx")
    produce_transactions(broker.bootstrap, "tx", 2, 10)
    committed = consume_committed(broker.bootstrap, "tx", 2)
    assert len(committed) == 13 * 30
    lake = SparkLake(open_bucket(url, minio.settings))

    def is_told() -> bool:
        """Whether the manifest knows what is archived, and all that came behind it."""
        topic = topic_in_manifest(lake, "tx")
        return (
            topic is not None
            and sum(partition.readable_end for partition in topic.partitions) == 20 * 30 + 2 * 20
            and all(partition.archived_end for partition in topic.partitions)
        )

    broker.process.wait_until(is_told, "the tail manifest", seconds_max=SECONDS_MAX)
    broker.process.kill()
    assert rows_of(load(source, url, subscribe="tx", **minio.settings)) == committed
