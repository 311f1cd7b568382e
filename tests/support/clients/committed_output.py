"""A topic as one reads it who is shown committed records alone, from its beginning, value by value of each key.

Rule: nothing is dropped or put in order here: what was read twice is there twice.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

QUIET_SECONDS = 2.0
"""How long nothing must come until nothing more is expected."""


@dataclass(slots=True, kw_only=True)
class CommittedOutput:
    """What was read of a topic so far. Its keys and values are text."""

    bootstrap: str
    topic: str
    partitions: int
    by_key: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    _consumer: Consumer = field(init=False)

    def __post_init__(self) -> None:
        settings = {"group.id": "output", "isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.auto.commit": False, **settings})
        self._consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])

    def wait_for(self, count: int, *, seconds_max: float) -> None:
        """Returns when so many records were read in all."""
        deadline = time.monotonic() + seconds_max
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} records came in {seconds_max} s"
            self.read(0.1)

    def close(self) -> None:
        """Reads what there may be beyond what was waited for, and closes."""
        while self.read(QUIET_SECONDS):
            pass
        self._consumer.close()

    def read(self, seconds_max: float) -> int:
        """Reads what comes in so long, a few hundred records at most; returns how many."""
        messages = [message for message in self._consumer.consume(500, timeout=seconds_max) if not message.error()]
        for message in messages:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self.by_key[key.decode()].append(value.decode())
        self.count += len(messages)
        return len(messages)
