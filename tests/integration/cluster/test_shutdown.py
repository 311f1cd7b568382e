"""SIGTERM ends a broker in good time and with status 0, whatever its clients do, and loses nothing acknowledged."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.support.services.local_services import PenstockFactory

DRAIN_OPTIONS = {"drain-timeout-s": "6"}
STOP_SECONDS_MAX = 12.0


def connected(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def fetch_request(topic: str, max_wait_ms: int, offset: int = 0) -> bytes:
    """Fetch version 4 of partition 0."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 20, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, offset, 1 << 20)
    request = struct.pack(">hhih", 1, 4, 7, -1) + body
    return struct.pack(">i", len(request)) + request


@contextmanager
def consuming(bootstrap: str, topic: str) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    ending = threading.Event()

    def poll() -> None:
        while not ending.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        consumer.close()


def produce_one(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0


def test_a_long_poll_and_a_polling_consumer_do_not_keep_it(penstock: PenstockFactory) -> None:
    broker = penstock(options=DRAIN_OPTIONS)
    produce_one(broker.bootstrap, "t")
    produce_one(broker.bootstrap, "quiet")
    with connected(broker.bootstrap) as waiting, consuming(broker.bootstrap, "t"):
        waiting.sendall(fetch_request("quiet", 60_000, offset=1))
        began = time.monotonic()
        assert broker.process.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS_MAX
    assert "stopped seconds=" in broker.process.stderr.splitlines()[-1]


def test_a_peer_that_does_not_read_does_not_keep_it(penstock: PenstockFactory) -> None:
    broker = penstock(options=DRAIN_OPTIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(100):
        producer.produce("big", bytes(200_000))
    assert producer.flush(30) == 0
    with connected(broker.bootstrap) as deaf:
        for _ in range(30):
            deaf.sendall(fetch_request("big", 0))
        began = time.monotonic()
        assert broker.process.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS_MAX


def test_a_loaded_producer_is_answered_for_what_it_keeps(penstock: PenstockFactory) -> None:
    broker = penstock(options=DRAIN_OPTIONS)
    acknowledged: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "delivery.timeout.ms": 20_000})
    ending = threading.Event()

    def delivered(error: object, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            acknowledged.append(offset)

    def load() -> None:
        while not ending.is_set():
            producer.produce("t", b"x" * 100, on_delivery=delivered)
            producer.poll(0.001)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while len(acknowledged) < 100 and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert broker.process.stop() == 0
    finally:
        ending.set()
        thread.join()
    again = penstock(data=broker.data)
    consumer = Consumer({"bootstrap.servers": again.bootstrap, "group.id": "g", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=20)
    consumer.close()
    producer.purge()
    assert len(acknowledged) >= 100
    assert max(acknowledged) < end
