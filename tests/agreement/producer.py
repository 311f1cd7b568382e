"""Transactional producers of the agreement run, several threads of one process, by librdkafka.

    python -m tests.agreement.producer '{"bootstrap": ..., "stop_file": ..., ...}'     (the fields of `Load`, as JSON)

Each producer does one transaction after the other until the stop file exists. A transaction goes to a few partitions
of a few topics; about one in five is aborted. Lines of JSON on stdout: `begin` with what will be sent, before the first
record is handed over, and `end` with the outcome.

Rule: a transaction whose commit was never asked for is aborted, whatever became of it; one whose commit was asked for
is committed when that was acknowledged, and unknown otherwise. A producer that may not go on is made again, under the
same transactional id.
"""

import json
import random
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.agreement.records import ABORTED, COMMITTED, UNKNOWN, Sent, topic_name

API_SECONDS, GIVEN_UP_SECONDS = 10.0, 60.0
ABORT_SHARE, UNFLUSHED_SHARE = 0.2, 0.25
TOPICS_EACH, PARTITIONS_EACH = 4, 3
"""A transaction touches so many topics at most, and in each so many partitions."""
RECORDS_BETWEEN_POLLS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a process of producers is told."""

    bootstrap: str
    stop_file: str
    topics: int
    partitions: int
    producer_first: int
    """Its producers have this number and those behind it, which no other process has."""
    producers: int
    records: int
    """Of a transaction, on the average."""
    pause_ms: int
    """Between two transactions of a producer."""
    seed: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class TransactionalProducer:
    """One transactional id, and its transactions one after the other."""

    load: Load
    number: int
    chance: random.Random
    _client: Producer | None = None
    _done: int = 0
    _never: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        stop_file = Path(self.load.stop_file)
        while not stop_file.exists():
            try:
                client = self._open()
            except KafkaException as error:
                self._give_up(error)
            else:
                self._transact(client)
            self._never.wait(self.load.pause_ms / 1000)
        self._close()

    def _open(self) -> Producer:
        """The client, whose last transaction is over. Raises `KafkaException`."""
        if self._client is None:
            client = Producer(
                {
                    "bootstrap.servers": self.load.bootstrap,
                    "transactional.id": f"agreement-{self.number}",
                    "transaction.timeout.ms": 30_000,
                    "message.timeout.ms": 30_000,
                    "socket.timeout.ms": 6_000,
                    "socket.connection.setup.timeout.ms": 3_000,
                    "reconnect.backoff.ms": 50,
                    "reconnect.backoff.max.ms": 1_000,
                    "retry.backoff.ms": 50,
                    "retry.backoff.max.ms": 1_000,
                    "linger.ms": 5,
                    "compression.type": ("none", "lz4", "zstd", "snappy", "gzip")[self.number % 5],
                    "delivery.report.only.error": True,
                    "log_level": 3,
                }
            )
            client.init_transactions(API_SECONDS)
            self._client = client
        return self._client

    def _transact(self, client: Producer) -> None:
        records = self._plan()
        transaction, is_commit = records[0].transaction, self.chance.random() >= ABORT_SHARE
        began_ms = _now_ms()
        _say(what="begin", producer=self.number, transaction=transaction, count=len(records), began_ms=began_ms)
        is_commit_asked = False
        outcome = ABORTED
        try:
            client.begin_transaction()
            self._send(client, records)
            if is_commit or self.chance.random() >= UNFLUSHED_SHARE:
                client.flush(API_SECONDS)  # what an abort would drop unsent is to be in the log
            is_commit_asked = is_commit
            _end(client, is_commit=is_commit)
            outcome = COMMITTED if is_commit else ABORTED
        except KafkaException as error:
            outcome = UNKNOWN if is_commit_asked else ABORTED
            self._give_up(error)
        _say(what="end", producer=self.number, transaction=transaction, outcome=outcome, ended_ms=_now_ms())

    def _plan(self) -> list[Sent]:
        """The next transaction's records, each timed when it is handed over."""
        count = self.chance.randint(1, 2 * self.load.records)
        places = [
            (topic, partition)
            for topic in self.chance.sample(range(self.load.topics), min(TOPICS_EACH, self.load.topics))
            for partition in self.chance.sample(range(self.load.partitions), min(PARTITIONS_EACH, self.load.partitions))
        ]
        transaction, self._done = self._done, self._done + 1
        return [
            Sent(
                producer=self.number,
                transaction=transaction,
                number=number,
                topic=topic,
                partition=partition,
                milliseconds=0,
            )
            for number in range(count)
            for topic, partition in [places[self.chance.randrange(len(places))]]
        ]

    def _send(self, client: Producer, records: list[Sent]) -> None:
        for sent in records:
            timed = Sent(**{**asdict(sent), "milliseconds": _now_ms()})
            while True:
                try:
                    client.produce(
                        topic_name(timed.topic),
                        timed.value(),
                        timed.key(),
                        timed.partition,
                        timestamp=timed.milliseconds,
                        headers=timed.headers(),
                    )
                    break
                except BufferError:
                    client.poll(0.1)
            if sent.number % RECORDS_BETWEEN_POLLS == 0:
                client.poll(0)

    def _give_up(self, error: KafkaException) -> None:
        """The next transaction has a new client, which ends what the old one left open."""
        cause = error.args[0]
        name = cause.name() if isinstance(cause, KafkaError) else str(cause)
        print(f"producer {self.number}: {name}: {error}", file=sys.stderr, flush=True)
        if self._client is not None:
            self._client.purge()
            self._client = None

    def _close(self) -> None:
        """Nothing stays open: a client that was given up is followed by one that ends its transaction."""
        deadline_s = time.monotonic() + GIVEN_UP_SECONDS
        while time.monotonic() < deadline_s:
            try:
                self._open()
                return
            except KafkaException as error:
                self._give_up(error)


def _end(client: Producer, *, is_commit: bool) -> None:
    """Commit or abort, again where the answer says so. Raises `KafkaException`."""
    deadline_s = time.monotonic() + GIVEN_UP_SECONDS
    while True:
        try:
            if is_commit:
                client.commit_transaction(API_SECONDS)
            else:
                client.abort_transaction(API_SECONDS)
            return
        except KafkaException as error:
            cause = error.args[0]
            if not (isinstance(cause, KafkaError) and cause.retriable()) or time.monotonic() > deadline_s:
                raise


def _say(**fields: object) -> None:
    """One line, whole, though several threads write."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    load = Load(**json.loads(sys.argv[1]))
    numbers = range(load.producer_first, load.producer_first + load.producers)
    producers = [TransactionalProducer(load, number, random.Random(f"{load.seed}-{number}")) for number in numbers]
    threads = [threading.Thread(target=producer.run, name=f"producer-{producer.number}") for producer in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
