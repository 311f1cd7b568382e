"""A topic with a few hundred records for tests of its table: produced, archived, and consumed."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import Penstock

PARTITIONS = 3
COPY = re.compile(r"/metadata/(v\d+\.metadata\.json|version-hint\.text)$")
Row = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key, value."""


@dataclass(slots=True, kw_only=True)
class LakeTopic:
    """`rows` are all records that were produced."""

    broker: Penstock
    name: str
    rows: list[Row]
    token: str = ""
    """A bearer token of the broker; "" where it needs none."""

    @classmethod
    def create(cls, broker: Penstock, name: str, token: str = "") -> "LakeTopic":
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result(30)
        return cls(broker=broker, name=name, rows=[], token=token)

    def produce(self, count: int) -> None:
        """So many records to each partition, some without key or value."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        first = len(self.rows) // PARTITIONS
        for partition in range(PARTITIONS):
            for number in range(first, first + count):
                key = None if number % 10 == 0 else f"k{number % 7}".encode()
                value = None if number % 25 == 1 else json.dumps({"n": number}).encode()
                producer.produce(self.name, value, key, partition, headers=[("trace", str(number))])
                self.rows.append((partition, number, key, value))
        assert producer.flush(30) == 0
        self.rows.sort(key=lambda row: row[:2])

    def archive(self) -> None:
        """Everything so far: then the table has it too."""
        archive_by_http(self.broker, self.name, self.token)

    def consumed(self) -> list[Row]:
        """All records as a Kafka consumer gets them."""
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": "g", "enable.partition.eof": False}
        )
        try:
            consumer.assign([TopicPartition(self.name, partition, 0) for partition in range(PARTITIONS)])
            found: list[Row] = []
            while len(found) < len(self.rows):
                messages = consumer.consume(len(self.rows) - len(found), 30)
                assert messages, f"{len(found)} of {len(self.rows)} records"
                for message in messages:
                    assert message.error() is None
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    found.append((partition, offset, message.key(), message.value()))
        finally:
            consumer.close()
        return sorted(found, key=lambda row: row[:2])

    @property
    def catalog(self) -> str:
        """The catalog's URI."""
        return f"http://{self.broker.http}/iceberg"

    def files(self) -> set[str]:
        """Names of the lake's files, where the bucket is a folder; but for copies of metadata, which come later."""
        lake = Path(self.broker.data) / "store" / "lake"
        names = {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}
        return {name for name in names if not COPY.search(name)}


def as_rows(columns: Iterable[Iterable[object]]) -> list[Row]:
    """Rows of partition, offset, key and value out of these columns, in order."""
    rows = [(int(str(p)), int(str(o)), _bytes(k), _bytes(v)) for p, o, k, v in zip(*columns, strict=True)]
    return sorted(rows, key=lambda row: row[:2])


def _bytes(value: object) -> bytes | None:
    assert value is None or isinstance(value, (bytes, bytearray))
    return None if value is None else bytes(value)
