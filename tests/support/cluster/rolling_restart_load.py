"""Clients that live through a rolling restart, and what they were told meanwhile.

Rule: the clients have their defaults where those concern errors and retries: what a user of them would see is what is
kept. A lost connection is a notice, not an error: the client comes back by itself. Nothing here asserts; a benchmark
may use it too.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

NOTICES = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
"""What librdkafka's error callback is told of connections; it goes on by itself."""
FLUSH_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Milliseconds from handing a record to the client until it told of its acknowledgement."""

    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        ordered = sorted(seconds) or [0.0]

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000

        return cls(records=len(seconds), p50_ms=at(0.5), p99_ms=at(0.99), max_ms=ordered[-1] * 1000)

    def __str__(self) -> str:
        return f"{self.records} records, p50 {self.p50_ms:.0f} ms, p99 {self.p99_ms:.0f} ms, max {self.max_ms:.0f} ms"


@dataclass(slots=True, kw_only=True)
class SteadyProducer:
    """Sends the numbers 0, 1, 2, ... to each partition in turn, `rate` records a second, while its block lasts."""

    bootstrap: str
    topic: str
    partitions: int
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    rate: int = 200
    errors: list[str] = field(default_factory=list)
    """What a user of the client would have been told."""
    latencies_s: list[float] = field(default_factory=list)
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """(offset, number) by partition, in the order of their acknowledgements."""
    without_offset: list[tuple[int, int]] = field(default_factory=list)
    """(partition, number) of acknowledged records without an offset: old repeats (DUPLICATE_SEQUENCE_NUMBER)."""
    sent: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="steady producer")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join()

    @property
    def acknowledged_count(self) -> int:
        return len(self.latencies_s)

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0, **self.settings},
            error_cb=self._told,
        )
        began_s = time.monotonic()
        while not self._stopping.is_set():
            while self.sent < (time.monotonic() - began_s) * self.rate:
                partition, number = self.sent % self.partitions, self.sent // self.partitions
                text = b"%d" % number
                delivered = self._on_delivery(partition, number)
                producer.produce(self.topic, text, key=text, partition=partition, on_delivery=delivered)
                self.sent += 1
            producer.poll(0.002)
        left = producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self.errors.append(f"{left} records were not delivered")
            producer.purge()
            producer.flush(1)

    def _told(self, error: KafkaError) -> None:
        if error.code() not in NOTICES:
            self.errors.append(str(error))

    def _on_delivery(self, partition: int, number: int) -> "_Delivery":
        return _Delivery(self, partition, number)


class _Delivery:
    """One record's callback."""

    __slots__ = ("_began_s", "_number", "_partition", "_producer")

    def __init__(self, producer: SteadyProducer, partition: int, number: int) -> None:
        self._producer = producer
        self._partition = partition
        self._number = number
        self._began_s = time.monotonic()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            self._producer.errors.append(f"record {self._number} of partition {self._partition}: {error}")
            return
        self._producer.latencies_s.append(time.monotonic() - self._began_s)
        if offset is None:
            self._producer.without_offset.append((self._partition, self._number))
        else:
            self._producer.acknowledged[self._partition].append((offset, self._number))


@dataclass(slots=True, kw_only=True)
class SteadyConsumer:
    """Reads all partitions from their beginning, while its block lasts."""

    bootstrap: str
    topic: str
    partitions: int
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    read: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """(offset, number) by partition, in the order in which they came."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="steady consumer")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join()

    @property
    def read_count(self) -> int:
        return sum(len(records) for records in self.read.values())

    def wait_for(self, count: int, seconds_max: float) -> bool:
        """Whether so many records were read in time."""
        end_s = time.monotonic() + seconds_max
        while self.read_count < count and time.monotonic() < end_s:
            self._stopping.wait(0.05)
        return self.read_count >= count

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "steady",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
                **self.settings,
            },
            error_cb=self._told,
        )
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
        while not self._stopping.is_set():
            for message in consumer.consume(500, timeout=0.1):
                self._take(message)
        consumer.close()

    def _take(self, message: Message) -> None:
        error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
        if error is not None:
            self._told(error)
        elif partition is None or offset is None or value is None:
            self.errors.append("a record without its place")
        else:
            self.read[partition].append((offset, int(value)))

    def _told(self, error: KafkaError) -> None:
        if error.code() not in NOTICES:
            self.errors.append(str(error))
