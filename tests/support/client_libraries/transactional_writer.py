"""A topic that transactions write to, and the records that each isolation level shows of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import Message, Producer

from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import Penstock

SECONDS_MAX = 60.0
Level = Literal["read_committed", "read_uncommitted"]
COMMITTED: Level = "read_committed"
Found = list[tuple[int, str]]
"""Offsets and values, in the order in which they were read."""


@dataclass(slots=True)
class Log:
    """The records of a topic with one partition, and those that each isolation level shows."""

    topic: str
    committed: Found = field(default_factory=list[tuple[int, str]])
    aborted: Found = field(default_factory=list[tuple[int, str]])
    """As far as it is not archived."""
    end: int = 0

    def shown(self, level: Level, offset: int = 0) -> Found:
        rows = self.committed if level == COMMITTED else [*self.committed, *self.aborted]
        return sorted(row for row in rows if row[0] >= offset)


class Writer:
    """Two transactional producers and a plain one, which fill a topic step by step; `log` is what they wrote."""

    def __init__(self, broker: Penstock, topic: str) -> None:
        self._broker = broker
        self.log = Log(topic)
        self._plain = Producer({"bootstrap.servers": broker.bootstrap})
        self._producers = [
            Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{number}"})
            for number in range(2)
        ]
        for producer in self._producers:
            producer.init_transactions(SECONDS_MAX)
        self._open: dict[int, Found] = {}

    def plain(self, *values: str) -> None:
        self.log.committed += self._send(self._plain, values)

    def begin(self, number: int) -> None:
        self._producers[number].begin_transaction()
        self._open[number] = []

    def write(self, number: int, *values: str) -> None:
        self._open[number] += self._send(self._producers[number], values)

    def commit(self, number: int) -> None:
        self._producers[number].commit_transaction(SECONDS_MAX)
        self.log.committed += self._open.pop(number)

    def abort(self, number: int) -> None:
        self._producers[number].abort_transaction(SECONDS_MAX)
        self.log.aborted += self._open.pop(number)

    def archive(self) -> None:
        archive_by_http(self._broker, self.log.topic)
        self.log.aborted.clear()

    def _send(self, producer: Producer, values: Sequence[str]) -> Found:
        found: Found = []
        for value in values:
            producer.produce(
                self.log.topic,
                value,
                partition=0,
                on_delivery=lambda error, message: found.append(row_of(message)),
            )
        assert producer.flush(SECONDS_MAX) == 0
        assert len(found) == len(values)
        assert all(offset >= 0 for offset, _ in found)
        return found


def row_of(message: Message) -> tuple[int, str]:
    """The offset and the value of a message."""
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert value is not None
    return offset, value.decode()
