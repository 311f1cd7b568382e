"""Writes the batches of a stream to a topic exactly once: each in a transaction that also says which batch it was.

Rule: what a group has committed is the number of the next batch, committed in the transaction that holds the records,
so both are there or neither is. Spark hands out a batch again after a failure; one that is known is passed over. A
driver that was given up is fenced by the next one's transactional id before the number is read.

Rule: a number that is missing is never taken for 0. Penstock keeps the group's offset (`protocol.kept_offsets`); Kafka
forgets it when the query was stopped for longer than offsets.retention.minutes. Spark may hand out again a batch that
is written by then, so the sink refuses it until it is told where to begin.

All rows go through the driver, one partition of the batch at a time: it is for results, not for floods. Spark's own
sink, `format("kafka")`, writes from the executors, at least once. Works with any Kafka that has transactions.

Source: Structured Streaming's foreachBatch (`batchId` and its guarantees), KIP-98, KIP-447.
"""

from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from protocol.kept_offsets import KEPT_OFFSET
from protocol.limits import SPARK_SINK_SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

COLUMNS: Final = ("key", "value", "partition", "headers")
"""What is written of a row, as Spark's Kafka sink names it; all but `value` may be missing."""
POLL_SECONDS: Final = 0.1


class NumberMissing(Exception):
    """The group has no number of the next batch, and a batch other than the first one came. It may be written already:
    look whether the topic has its records, and name the batch to begin with as `first_batch`."""


class TransactionalSink:
    """For `foreachBatch`: `stream.writeStream.foreachBatch(TransactionalSink("results", ...)).start()`."""

    def __init__(self, topic: str, *, query: str, first_batch: int = 0, **client: str) -> None:
        """`query`: a name that is this query's alone and stays its own when it is started again: it is the
        transactional id, and the group that holds the number. It belongs to the checkpoint: a query that begins with
        an empty one counts from 0 again, and needs another name. `first_batch`: the first one to be written where the
        group has no number: that of a checkpoint that another sink has brought so far. `client`: settings of
        librdkafka with `_` for dots, `bootstrap_servers` at least. A transaction must end within
        `transaction_timeout_ms` (a minute by default).

        Raises `KafkaException`.
        """
        settings = {name.replace("_", "."): value for name, value in client.items()}
        self._topic = topic
        # The partition only names the number: nobody reads the topic as this group.
        self._number = TopicPartition(topic, 0)
        self._consumer = Consumer({**settings, "group.id": query, "enable.auto.commit": False})
        self._producer = Producer({**settings, "transactional.id": query})
        self._producer.init_transactions(SPARK_SINK_SECONDS_MAX)
        (known,) = self._consumer.committed([self._number], SPARK_SINK_SECONDS_MAX)
        if known.error is not None:
            raise KafkaException(known.error)
        self._query = query
        self._is_known = known.offset >= 0
        self._next = known.offset if self._is_known else first_batch

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Write a batch, or pass it over where it is there already.

        Raises `ValueError` where the frame has other columns, `NumberMissing`, `KafkaException` where the transaction
        fails: then nothing of the batch is seen, and Spark's next attempt needs a new sink.
        """
        unknown = [name for name in batch.columns if name not in COLUMNS]
        if unknown or "value" not in batch.columns:
            raise ValueError(f"a batch has the columns {', '.join(COLUMNS)}, value at least: not {batch.columns}")
        if not self._is_known and batch_id > self._next:
            raise NumberMissing(
                f"group {self._query} has no offset of {self._topic}-0, which is the number of the next batch, and "
                f"batch {batch_id} came: the offset expired or was deleted, or another sink wrote the batches before. "
                f"Batch {batch_id} may be in the topic. If it is not, give first_batch={batch_id}; if it is, "
                f"first_batch={batch_id + 1}"
            )
        if batch_id < self._next:
            return
        self._producer.begin_transaction()
        try:
            for row in batch.toLocalIterator():
                self._produce(row)
            number = TopicPartition(self._topic, 0, batch_id + 1, KEPT_OFFSET)
            self._producer.send_offsets_to_transaction(
                [number], self._consumer.consumer_group_metadata(), SPARK_SINK_SECONDS_MAX
            )
            self._producer.commit_transaction(SPARK_SINK_SECONDS_MAX)
        except BaseException:
            self._producer.abort_transaction(SPARK_SINK_SECONDS_MAX)
            raise
        self._is_known, self._next = True, batch_id + 1

    def close(self) -> None:
        """Leave the cluster; what was written stays."""
        self._consumer.close()

    def _produce(self, row: "Row") -> None:
        columns = row.asDict()
        headers = [(header["key"], header["value"]) for header in columns.get("headers") or ()]
        partition = columns.get("partition")
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    columns["value"],
                    columns.get("key"),
                    -1 if partition is None else partition,
                    headers=headers,
                )
            except BufferError:
                self._producer.poll(POLL_SECONDS)
            else:
                self._producer.poll(0)
                return
