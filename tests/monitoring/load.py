"""The clients of the monitoring run: producers with idempotence and with transactions, a consumer group, and mistakes.

Rule: clients are as patient as librdkafka is by default, and try again whatever a fault ends, so that an outage shows
what it does to people who do nothing special.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

TOPIC: Final = "orders"
PAYMENTS: Final = "payments"
READERS: Final = "readers"
ZONE: Final = "a"
PAUSE_S: Final = 0.1
RECORDS: Final = 5
MISTAKE_EVERY: Final = 60
"""One turn in so many sends a record that is too large, and connects with what is no request of Kafka."""
HELD_CLIENT: Final = "held"
"""The client id that has a quota."""
LOG_LEVEL: Final = 2
"""Critical errors of librdkafka alone: outages are what the run is about."""
TOO_LARGE: Final = bytes(3 << 20)
POLL_S: Final = 0.5
CALL_SECONDS_MAX: Final = 30.0


@dataclass(slots=True, kw_only=True)
class Counts:
    """What clients got, for the report."""

    acknowledged: int = 0
    rejected: int = 0
    committed: int = 0
    consumed: int = 0

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.rejected += 1


@dataclass(slots=True, kw_only=True)
class Load:
    """Use it in a `with` block: a thread for each client."""

    agents: Sequence[str]
    """Their addresses."""
    counts: Counts = field(default_factory=Counts)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def __enter__(self) -> Self:
        for work in (self._produce, self._make_mistakes, self._transact, self._consume):
            thread = threading.Thread(target=self._repeat, args=(work,))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._is_over.is_set():
            with suppress(KafkaException, BufferError):
                work()

    def _settings(self, **settings: str | int | bool) -> dict[str, str | int | float | bool]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": ",".join(self.agents), "log_level": LOG_LEVEL, **named}

    def _produce(self) -> None:
        producer = Producer(self._settings(enable_idempotence=True, client_rack=ZONE))
        while not self._is_over.wait(PAUSE_S):
            for number in range(RECORDS):
                producer.produce(TOPIC, b"value" * 20, str(number).encode(), on_delivery=self.counts.delivered)
            producer.poll(0)
        producer.flush(CALL_SECONDS_MAX)

    def _make_mistakes(self) -> None:
        producer = Producer(self._settings(message_max_bytes=2 * len(TOO_LARGE), client_id=HELD_CLIENT))
        host, _, port = self.agents[0].rpartition(":")
        while not self._is_over.wait(PAUSE_S * MISTAKE_EVERY):
            producer.produce(TOPIC, TOO_LARGE, on_delivery=self.counts.delivered)
            producer.flush(CALL_SECONDS_MAX)
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=CALL_SECONDS_MAX) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                stranger.recv(1)

    def _transact(self) -> None:
        producer = Producer(self._settings(transactional_id="payments"))
        producer.init_transactions(CALL_SECONDS_MAX)
        while not self._is_over.wait(PAUSE_S):
            producer.begin_transaction()
            producer.produce(PAYMENTS, b"value" * 20)
            producer.commit_transaction(CALL_SECONDS_MAX)
            self.counts.committed += 1

    def _consume(self) -> None:
        consumer = Consumer(
            self._settings(
                group_id=READERS, auto_offset_reset="earliest", auto_commit_interval_ms=1_000, client_rack=ZONE
            )
        )
        try:
            consumer.subscribe([TOPIC, PAYMENTS])
            while not self._is_over.is_set():
                message = consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    self.counts.consumed += 1
        finally:
            consumer.close()
