"""Clients that take as much as a quota lets them, and count what they got and for how long they were told to wait."""

import socket
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.clients.kafka_requests import framed, read_answer, read_frame
from tests.support.cluster.conditions import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonPartition
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as PythonTopic
    from kafka.errors import NodeNotReadyError, ThrottlingQuotaExceededError

SECONDS_MAX = 60.0
WAIT_SECONDS_MIN = 0.1
"""A step that takes longer has waited for the end of a throttle."""
METADATA, METADATA_VERSION = 3, 7


@dataclass
class Load:
    """One client. `step` takes what it can once, and returns the amount."""

    step: Callable[[], float]
    close: Callable[[], None] = lambda: None
    throttles: list[float] = field(default_factory=list[float])
    """Seconds that the client was told to wait, of each answer that said so."""
    amount: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """What the client got a second."""
        return self.amount / self.seconds

    def run(self, seconds: float) -> None:
        began_s = time.monotonic()
        while (elapsed_s := time.monotonic() - began_s) < seconds:
            self.amount += self.step()
        self.seconds = elapsed_s
        self.close()


def run_together(loads: Sequence[Load], seconds: float) -> None:
    """Run all of them at once for so long."""
    threads = [threading.Thread(target=load.run, args=(seconds,)) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def librdkafka_producer(
    bootstrap: str, client_id: str, topic: str, *, partition: int = 0, value_bytes: int = 10_000
) -> Load:
    throttles: list[float] = []

    def told(event: ThrottleEvent) -> None:
        throttles.append(event.throttle_time)

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 0, "throttle_cb": told})

    def produce() -> float:
        producer.produce(topic, bytes(value_bytes), partition=partition)
        assert producer.flush(SECONDS_MAX) == 0
        return value_bytes

    return Load(produce, throttles=throttles)


def kafka_python_producer(bootstrap: str, client_id: str, topic: str, *, value_bytes: int = 10_000) -> Load:
    producer: Any = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, linger_ms=0)
    load = Load(lambda: 0.0)

    def produce() -> float:
        producer.send(topic, bytes(value_bytes), partition=0).get(SECONDS_MAX)
        return value_bytes

    def close() -> None:
        load.throttles.append(producer.metrics()["producer-metrics"]["throttle-time-max"] / 1000)
        producer.close()

    load.step, load.close = produce, close
    return load


def librdkafka_consumer(bootstrap: str, client_id: str, topic: str) -> Load:
    throttles: list[float] = []

    def told(event: ThrottleEvent) -> None:
        throttles.append(event.throttle_time)

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": "unused",
            "enable.auto.commit": False,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 10,
            "fetch.message.max.bytes": 20_000,
            "throttle_cb": told,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])

    def poll() -> float:
        message = consumer.poll(0.1)
        return 0 if message is None or message.error() is not None else len(message.value() or b"")

    return Load(poll, consumer.close, throttles)


def kafka_python_consumer(bootstrap: str, client_id: str, topic: str, *, fetch_bytes: int = 20_000) -> Load:
    """`fetch_bytes`: of a partition at once; a batch that is larger comes alone."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=fetch_bytes,
    )
    consumer.assign([PythonPartition(topic, 0)])
    load = Load(lambda: sum(len(record.value) for records in consumer.poll(100).values() for record in records))

    def close() -> None:
        load.throttles.append(consumer.metrics()["consumer-metrics"]["throttle-time-max"] / 1000)
        consumer.close()

    load.close = close
    return load


def librdkafka_creator(bootstrap: str, client_id: str, *, prefix: str, partitions: int = 5) -> Load:
    """Creates topics by a version that knows no error of quotas (4): the answer leaves, and the next one waits."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": client_id})
    load = Load(lambda: 0.0)
    numbers = count()

    def create() -> float:
        name, began_s = f"{prefix}-{next(numbers)}", time.monotonic()
        admin.create_topics([NewTopic(name, partitions)])[name].result(SECONDS_MAX)
        if (waited_s := time.monotonic() - began_s) > WAIT_SECONDS_MIN:
            load.throttles.append(waited_s)
        return partitions

    load.step = create
    return load


def kafka_python_creator(bootstrap: str, client_id: str, *, prefix: str, partitions: int = 5) -> Load:
    """Creates topics by a version that knows THROTTLING_QUOTA_EXCEEDED (7)."""
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap, client_id=client_id)
    load = Load(lambda: 0.0, admin.close)
    numbers = count()

    def create() -> float:
        began_s, name, is_throttled = time.monotonic(), f"{prefix}-{next(numbers)}", False

        def is_created() -> bool:
            nonlocal is_throttled
            try:
                admin.create_topics([PythonTopic(name, partitions, 1)])
            except ThrottlingQuotaExceededError:
                is_throttled = True
                return False
            except NodeNotReadyError:  # the client waits for as long as it was told to
                return False
            return True

        wait_until(is_created, "the end of the throttle")
        if is_throttled:
            load.throttles.append(time.monotonic() - began_s)
        return partitions

    load.step = create
    return load


def metadata_reader(bootstrap: str, client_id: str) -> Load:
    """Asks for all topics; the amount is in answers."""
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
    values = {"topics": None, "allow_auto_topic_creation": False}
    request = framed(METADATA, METADATA_VERSION, values, client_id=client_id)
    load = Load(lambda: 0.0, connection.close)

    def read() -> float:
        connection.sendall(request)
        throttle: timedelta = read_answer(read_frame(connection), METADATA, METADATA_VERSION).throttle_time
        if throttle:
            load.throttles.append(throttle.total_seconds())
        return 1

    load.step = read
    return load
