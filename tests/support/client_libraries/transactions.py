"""Transactional producers of the clients that speak transactions V1, with one face: a whole transaction at a time.

Rule: as their users are told to, what may be repeated is repeated, and a transaction that has to be aborted is aborted
and begun again; what is fatal to a client is an error here.
"""

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaProducer
    from kafka.structs import OffsetAndMetadata, TopicPartition

SECONDS_MAX = 60.0
TRIES_MAX = 50
TIMEOUT_MS = 60_000

T = TypeVar("T")


class Transactions(Protocol):
    """A producer with a transactional id."""

    def run(self, topic: str, values: Sequence[bytes], group: str | None, offset: int) -> None:
        """One transaction that commits: the values, one to each partition in turn, and the offset of partition 0 of
        the group, if there is one. Raises the client's error where it cannot go on."""
        ...

    def close(self) -> None: ...


class ConfluentTransactions:
    """It does not bootstrap again (KIP-899) when it has lost its only broker: librdkafka 2.16 would never find its
    coordinator any more then, as that waits for the end of a broker that is gone."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        common = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
        common |= {"metadata.recovery.strategy": "none"}
        settings = {"transactional.id": transactional_id, "transaction.timeout.ms": TIMEOUT_MS, "linger.ms": 0}
        self._producer = Producer({**common, **settings, "log_level": 0})
        self._consumers: dict[str, Consumer] = {}
        self._common = common
        _again(lambda: self._producer.init_transactions(SECONDS_MAX))

    def run(self, topic: str, values: Sequence[bytes], group: str | None, offset: int) -> None:
        for _ in range(TRIES_MAX):
            try:
                self._try(topic, values, group, offset)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                _again(lambda: self._producer.abort_transaction(SECONDS_MAX))
            else:
                return
        raise AssertionError("every transaction had to be aborted")

    def _try(self, topic: str, values: Sequence[bytes], group: str | None, offset: int) -> None:
        self._producer.begin_transaction()
        for partition, value in enumerate(values):
            self._producer.produce(topic, value, partition=partition)
        self._producer.flush(SECONDS_MAX)
        if group is not None:
            self._send_offset(topic, group, offset)
        _again(lambda: self._producer.commit_transaction(SECONDS_MAX))

    def _send_offset(self, topic: str, group: str, offset: int) -> None:
        if group not in self._consumers:
            self._consumers[group] = Consumer({**self._common, "group.id": group})
        position = ConfluentPartition(topic, 0, offset)
        member = self._consumers[group].consumer_group_metadata()
        _again(lambda: self._producer.send_offsets_to_transaction([position], member, SECONDS_MAX))

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()


def _again(what: Callable[[], object]) -> None:
    """Until it is done, as long as librdkafka says that it may be repeated."""
    for _ in range(TRIES_MAX):
        try:
            what()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    raise AssertionError("it may be repeated for ever")


class KafkaPythonTransactions:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
        )
        self._producer.init_transactions()

    def run(self, topic: str, values: Sequence[bytes], group: str | None, offset: int) -> None:
        self._producer.begin_transaction()
        futures = [self._producer.send(topic, value, partition=partition) for partition, value in enumerate(values)]
        for future in futures:
            future.get(timeout=SECONDS_MAX)
        if group is not None:
            position = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
            self._producer.send_offsets_to_transaction(position, group)
        self._producer.commit_transaction()

    def close(self) -> None:
        self._producer.close(timeout=SECONDS_MAX)


class AioKafkaTransactions:
    """Its event loop runs in a thread of its own."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()
        self._producer: AIOKafkaProducer = self._call(self._made(bootstrap, transactional_id))

    def run(self, topic: str, values: Sequence[bytes], group: str | None, offset: int) -> None:
        self._call(self._run(topic, values, group, offset))

    def close(self) -> None:
        self._call(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _made(self, bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        await producer.start()
        return producer

    async def _run(self, topic: str, values: Sequence[bytes], group: str | None, offset: int) -> None:
        await self._producer.begin_transaction()
        sent = [await self._producer.send(topic, value, partition=n) for n, value in enumerate(values)]
        for future in sent:
            await future
        if group is not None:
            position = {AioPartition(topic, 0): AioOffset(offset, "")}
            await self._producer.send_offsets_to_transaction(position, group)
        await self._producer.commit_transaction()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * SECONDS_MAX)


CLIENTS: Mapping[str, Callable[[str, str], Transactions]] = {
    "confluent": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AioKafkaTransactions,
}
