"""What is broken on purpose, and the alert that says so."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.monitoring.load import TOPIC
from tests.monitoring.world import ANSWER_SECONDS_MAX, World

HELD: Final = "held"
"""The topic of the transaction that hangs."""
LOST: Final = "lost"
"""The topic whose files are deleted."""
SLOW: Final = "slow"
"""The group that does not consume."""
OPEN_MS_MAX: Final = 900_000
"""The longest time-out of a transaction that is allowed by default."""
LOST_RECORDS: Final = 400
LOST_RECORD_BYTES: Final = 20_000
"""Together more than the agents' read caches."""


class Break(Protocol):
    """Breaks something of the world while the context lasts."""

    def __call__(self, world: World, /) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, and what has to say so."""

    name: str
    alert: str
    breaks: Break
    hold_s: int
    """For how long it lasts at least: long enough for what it might raise besides."""


@contextmanager
def bucket_refuses(world: World) -> Iterator[None]:
    world.kill_store()
    try:
        yield
    finally:
        world.start_store()


@contextmanager
def bucket_hangs(world: World) -> Iterator[None]:
    world.pause_store()
    try:
        yield
    finally:
        world.resume_store()


@contextmanager
def ledger_hangs(world: World) -> Iterator[None]:
    world.pause_ledger()
    try:
        yield
    finally:
        world.resume_ledger()


@contextmanager
def transaction_hangs(world: World) -> Iterator[None]:
    world.create_topic(HELD)
    producer = Producer(
        {
            "bootstrap.servers": world.bootstrap,
            "transactional.id": "hangs",
            "transaction.timeout.ms": OPEN_MS_MAX,
        }
    )
    producer.init_transactions(ANSWER_SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(HELD, b"value")
    producer.flush(ANSWER_SECONDS_MAX)
    try:
        yield
    finally:
        producer.abort_transaction(ANSWER_SECONDS_MAX)


@contextmanager
def group_lags(world: World) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": SLOW})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    consumer.close()
    try:
        yield
    finally:
        for future in world.admin.delete_consumer_groups([SLOW]).values():
            future.result(ANSWER_SECONDS_MAX)


@contextmanager
def object_is_lost(world: World) -> Iterator[None]:
    world.create_topic(LOST)
    producer = Producer({"bootstrap.servers": world.bootstrap})
    for _ in range(LOST_RECORDS):
        producer.produce(LOST, os.urandom(LOST_RECORD_BYTES))
    assert producer.flush(ANSWER_SECONDS_MAX) == 0
    world.archive(LOST)
    assert world.lose_files(LOST), "the topic has no files"
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": "unlucky", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([LOST])
        consumer.poll(5.0)
        yield
    finally:
        consumer.close()
        world.delete_topic(LOST)


FAULTS: Final[Sequence[Fault]] = (
    Fault(name="the bucket refuses connections", alert="StoreOutage", breaks=bucket_refuses, hold_s=30),
    Fault(name="the bucket does not answer", alert="StoreOutage", breaks=bucket_hangs, hold_s=140),
    Fault(name="etcd does not answer", alert="LedgerOutage", breaks=ledger_hangs, hold_s=140),
    Fault(name="a transaction hangs", alert="TransactionHangs", breaks=transaction_hangs, hold_s=0),
    Fault(name="a group lags", alert="GroupLag", breaks=group_lags, hold_s=0),
    Fault(name="an object is lost", alert="ObjectsMissing", breaks=object_is_lost, hold_s=30),
)
