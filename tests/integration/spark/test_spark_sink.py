"""Spark writes into topics: by its own sink, at least once, and by transactions, exactly once."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from iceberg_export.spark.sink import NumberMissing, TransactionalSink
from protocol.kept_offsets import KEPT_OFFSET
from tests.support.lake.flight_events import create_topic
from tests.support.services.local_services import Penstock, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "results"
SECONDS_MAX = 60
Values = list[tuple[bytes | None, bytes | None]]


@pytest.fixture
def broker(penstock: PenstockFactory) -> Penstock:
    broker = penstock()
    create_topic(broker.bootstrap, TOPIC, 1)
    return broker


def sink_of(broker: Penstock, *, first_batch: int = 0) -> TransactionalSink:
    return TransactionalSink(TOPIC, query="daily", first_batch=first_batch, bootstrap_servers=broker.bootstrap)


def written(broker: Penstock) -> Values:
    """Keys and values that a consumer of committed records gets."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    found: Values = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while (message := consumer.poll(SECONDS_MAX)) is not None and message.error() is None:
            found.append((message.key(), message.value()))
    return found


def test_a_frame_is_written_by_sparks_own_sink(spark: "SparkSession", broker: Penstock) -> None:
    frame = spark.range(100).selectExpr("cast(id as string) as key", "to_json(struct(id)) as value")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": TOPIC}
    frame.coalesce(1).write.format("kafka").options(**options).save()
    assert written(broker) == [(b"%d" % number, b'{"id":%d}' % number) for number in range(100)]


def test_a_batch_that_comes_again_is_written_once(spark: "SparkSession", broker: Penstock) -> None:
    """As when the driver ended after the commit and before it wrote its checkpoint."""
    batches = [spark.createDataFrame([(f"{number}",)], "value string") for number in range(3)]
    with closing(sink_of(broker)) as before:
        before(batches[0], 0)
        before(batches[1], 1)
        with closing(sink_of(broker)) as sink:
            sink(batches[1], 1)
            with pytest.raises(KafkaException, match=r"[Ff]enced"):
                before(batches[2], 2)
            sink(batches[2], 2)
    assert written(broker) == [(None, b"0"), (None, b"1"), (None, b"2")]


def test_a_batch_is_refused_where_it_is_not_known_whether_it_is_written(
    spark: "SparkSession", broker: Penstock
) -> None:
    """As when a Kafka forgot the group's offset while the query was stopped. Penstock is asked to keep it."""
    batches = [spark.createDataFrame([(f"{number}",)], "value string") for number in range(3)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with closing(sink_of(broker)) as before:
        before(batches[0], 0)
        before(batches[1], 1)
    ask = [ConsumerGroupTopicPartitions("daily")]
    (number,) = admin.list_consumer_group_offsets(ask)["daily"].result(SECONDS_MAX).topic_partitions
    assert (number.offset, number.metadata) == (2, KEPT_OFFSET)

    admin.delete_consumer_groups(["daily"])["daily"].result(SECONDS_MAX)
    with closing(sink_of(broker)) as sink, pytest.raises(NumberMissing, match=r"is at batch 1.*give first_batch=1"):
        sink(batches[1], 1)
    with closing(sink_of(broker, first_batch=2)) as sink:
        sink(batches[1], 1)
        sink(batches[2], 2)
    assert written(broker) == [(None, b"0"), (None, b"1"), (None, b"2")]


def test_nothing_of_a_batch_that_fails_is_seen(spark: "SparkSession", broker: Penstock) -> None:
    rows = spark.range(10, numPartitions=1)
    good = rows.selectExpr("cast(id as string) as value")
    bad = rows.selectExpr("if(id = 7, raise_error('no seven'), cast(id as string)) as value")
    with closing(sink_of(broker)) as sink, pytest.raises(Exception, match="no seven"):
        sink(bad, 0)
    with closing(sink_of(broker)) as sink:
        with pytest.raises(ValueError, match="must have value"):
            sink(rows, 0)
        sink(good, 0)
    assert [value for _, value in written(broker)] == [b"%d" % number for number in range(10)]


@pytest.mark.slow
def test_a_stream_that_is_started_again_goes_on_where_it_was(
    spark: "SparkSession", broker: Penstock, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for number in range(4):
        spark.range(number * 5, number * 5 + 5, numPartitions=1).write.parquet(str(source / f"part={number}"))
        frame = spark.readStream.schema("id long").parquet(str(source)).selectExpr("cast(id as string) as value")
        with closing(sink_of(broker)) as sink:
            query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
            assert query.trigger(availableNow=True).start().awaitTermination(SECONDS_MAX)
        # Spark has not written down that the batch is done: it hands it out again.
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        if number % 2 == 0:
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink()
    assert sorted(int(value or b"") for _, value in written(broker)) == list(range(20))
