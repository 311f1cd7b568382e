"""An idempotent producer that never stops: every partition gets the numbers 0, 1, 2, ... as keys.

Rule: one producer lives through every restart of the broker, so what it retries meets what the broker already has. Its
thread alone calls the client; the test reads counters.
"""

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

FLUSH_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 60.0
IN_FLIGHT_MAX = 2_000


@dataclass(slots=True, kw_only=True)
class Load:
    """Produces to `topic` while its `with` block lasts, then waits until everything is acknowledged."""

    bootstrap: str
    topic: str
    partitions: int
    value_bytes: int = 400
    sent: list[int] = field(default_factory=list)
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    """Numbers by (partition, offset)."""
    errors: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _grown: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _left: int = 0

    def __enter__(self) -> Self:
        self.sent = [0] * self.partitions
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._left = -1  # nothing is waited for any more
        self._stopping.set()
        assert self._thread is not None
        self._thread.join()
        if error is None:
            assert self._left == 0, f"{self._left} records are still unacknowledged; errors: {self.errors[:5]}"
            assert self.errors == []

    def wait_acknowledged(self, count: int) -> None:
        """Returns when `count` more records are acknowledged."""
        with self._grown:
            wanted = len(self.acknowledged) + count
            in_time = self._grown.wait_for(lambda: len(self.acknowledged) >= wanted, WAIT_SECONDS_MAX)
        assert in_time, f"{count} records are not acknowledged; errors: {self.errors[:5]}"

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        padding = b"." * self.value_bytes
        while not self._stopping.is_set():
            while len(producer) < IN_FLIGHT_MAX:
                for partition in range(self.partitions):
                    number = self.sent[partition]
                    producer.produce(
                        self.topic,
                        key=b"%d" % number,
                        value=b"%d %d %b" % (partition, number, padding),
                        partition=partition,
                        on_delivery=self._delivered,
                    )
                    self.sent[partition] += 1
            producer.poll(0.005)
        if self._left == 0:
            self._left = producer.flush(FLUSH_SECONDS_MAX)
        else:
            producer.purge()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, key = message.partition(), message.offset(), message.key()
        if error is not None or partition is None or offset is None or key is None:
            self.errors.append(str(error))
            return
        with self._grown:
            self.acknowledged[partition, offset] = int(key)
            self._grown.notify_all()


def consume_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes, bytes]]]:
    """(offset, key, value) of every record, by partition, from the log's start to its end, both as they are now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    records: dict[int, list[tuple[int, bytes, bytes]]] = {partition: [] for partition in range(partitions)}
    try:
        marks = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in records}
        ends = {partition: end for partition, (_, end) in marks.items()}
        consumer.assign([TopicPartition(topic, partition, start) for partition, (start, _) in marks.items()])
        waiting = {partition for partition, (start, end) in marks.items() if end > start}
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while waiting:
            batch = consumer.consume(1_000, timeout=0.2)
            assert time.monotonic() < deadline, f"partitions {sorted(waiting)} are not at their ends {ends}"
            for message in batch:
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                key, value = message.key(), message.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                records[partition].append((offset, key, value))
                if offset + 1 >= ends[partition]:
                    waiting.discard(partition)
    finally:
        consumer.close()
    return records
