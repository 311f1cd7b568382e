"""Writes the batches of a streaming query to a topic exactly once, each in a transaction with its batch number.

A group's committed offset is the number of the next batch. The transaction of the records commits it, so both are
visible or neither is. Spark repeats a batch after a failure; the sink skips a batch that is written already. A new
driver fences an abandoned one by the transactional id before it reads the number.

A missing number is never taken for 0. Penstock does not expire the group's offset (`protocol.kept_offsets`). Kafka
expires it when the query was stopped for longer than offsets.retention.minutes. Spark may then repeat a batch that is
written already, so the sink rejects it until the job passes `first_batch`.

All rows go through the driver, one partition of the batch at a time: the sink is for small results. Spark's own sink,
`format("kafka")`, writes from the executors, at least once. Works with any Kafka that has transactions.

Source: Structured Streaming's foreachBatch (`batchId` and its guarantees), KIP-98, KIP-447.
"""

from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from protocol.kept_offsets import KEPT_OFFSET
from protocol.limits import SPARK_SINK_SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

COLUMNS: Final = ("key", "value", "partition", "headers")
"""The columns that are written, by the names of Spark's Kafka sink; only `value` is required."""
POLL_SECONDS: Final = 0.1


class NumberMissing(Exception):
    """The group has no number of the next batch, and the batch is not the first one, so it may be written already.

    Check whether the topic has its records, and pass the next batch to write as `first_batch`.
    """


class TransactionalSink:
    """For `foreachBatch`: `stream.writeStream.foreachBatch(TransactionalSink("results", ...)).start()`."""

    def __init__(self, topic: str, *, query: str, first_batch: int = 0, **client: str) -> None:
        """`query`: a unique name that stays the same when the query is started again. It is the transactional id, and
        the group with the number. It belongs to the checkpoint: a query with an empty checkpoint counts from 0, and
        needs another name. `first_batch`: the first batch to write where the group has no number, for a checkpoint that
        another sink has written for. `client`: settings of librdkafka with `_` for dots, at least `bootstrap_servers`.
        A transaction must end within `transaction_timeout_ms`, by default a minute.

        Raises `KafkaException`.
        """
        settings = {name.replace("_", "."): value for name, value in client.items()}
        self._topic = topic
        # The partition is only a key for the number: no consumer reads the topic in this group.
        self._number = TopicPartition(topic, 0)
        self._consumer = Consumer({**settings, "group.id": query, "enable.auto.commit": False})
        self._producer = Producer({**settings, "transactional.id": query})
        self._producer.init_transactions(SPARK_SINK_SECONDS_MAX)
        # `init_transactions` fenced an earlier driver, so the number cannot change after this read.
        (committed,) = self._consumer.committed([self._number], SPARK_SINK_SECONDS_MAX)
        if committed.error is not None:
            raise KafkaException(committed.error)
        self._query = query
        self._is_known = committed.offset >= 0
        self._next = committed.offset if self._is_known else first_batch

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Write a batch; does nothing where it is written already.

        Raises `ValueError` for a frame with other columns, `NumberMissing`, and `KafkaException` where the transaction
        fails: then no record of the batch is visible, and Spark's next attempt needs a new sink.
        """
        unknown = [name for name in batch.columns if name not in COLUMNS]
        if unknown or "value" not in batch.columns:
            raise ValueError(
                f"a batch may have the columns {', '.join(COLUMNS)}, and must have value: it has {batch.columns}"
            )
        if not self._is_known and batch_id > self._next:
            raise NumberMissing(
                f"group {self._query} has no offset of {self._topic}-0, which is the number of the next batch, but the "
                f"query is at batch {batch_id}: the offset expired or was deleted, or another sink wrote the batches "
                f"before. Batch {batch_id} may be in the topic. If it is not, give first_batch={batch_id}; if it is, "
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
        """Close the client; written batches stay."""
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
