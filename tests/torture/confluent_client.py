"""Workload of the torture run by librdkafka; Java and Go have the same program (`java/`, `go/`).

    python -m tests.torture.confluent_client produce BOOTSTRAP TOPIC PARTITIONS STOP_FILE NAME PAUSE_MS
    python -m tests.torture.confluent_client consume BOOTSTRAP TOPIC PARTITIONS ENDS_FILE

A producer is idempotent and writes `NAME:PARTITION:COUNTER:padding` to every partition in turn, until STOP_FILE exists;
then it waits for what is unacknowledged. A consumer reads all partitions from offset 0, until ENDS_FILE exists and it
has read up to the log ends that stand in it, one for each partition. Offsets that are out of range are an error.

Lines on stdout begin with a letter and the time in milliseconds: `S ms partition counter` before a record is handed to
the client, `A ms partition offset counter` acknowledged, `E ms partition counter error` given up, `R ms partition
offset name:partition:counter` read, `X ms error` any other error.
"""

import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.torture.history import UNKNOWN_OFFSET

UNACKED_MAX = 2_000
DELIVERY_MS = 300_000
PADDING = b"." * 400
COMMON = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 1_000,
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 4,
}


def say(kind: str, *fields: object) -> None:
    print(kind, time.time_ns() // 1_000_000, *fields, flush=True)


def on_error(error: KafkaError) -> None:
    say("X", error.name())


def produce(bootstrap: str, topic: str, partitions: int, stop_file: Path, name: str, pause_s: float) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": DELIVERY_MS,
        "request.timeout.ms": 5_000,
        "error_cb": on_error,
        **COMMON,
    }
    producer, never = Producer(settings), threading.Event()
    counter = 0
    while not stop_file.exists():
        for partition in range(partitions):
            _send(producer, topic, name, partition, counter)
        counter += 1
        producer.poll(0)
        never.wait(pause_s)
        while len(producer) > UNACKED_MAX:
            producer.poll(0.1)
    producer.flush(DELIVERY_MS / 1000 + 10)


def _send(producer: Producer, topic: str, name: str, partition: int, counter: int) -> None:
    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            say("A", partition, UNKNOWN_OFFSET if offset is None else offset, counter)
        else:
            say("E", partition, counter, error.name())

    say("S", partition, counter)
    value = b"%b:%d:%d:%b" % (name.encode(), partition, counter, PADDING[: counter * 37 % 400])
    producer.produce(topic, value, partition=partition, on_delivery=delivered)


def consume(bootstrap: str, topic: str, partitions: int, ends_file: Path) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 500,
        "fetch.error.backoff.ms": 100,
        "error_cb": on_error,
        **COMMON,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    reached = [0] * partitions
    while not _is_over(ends_file, reached):
        for message in consumer.consume(500, timeout=0.5):
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                say("X", error.name(), partition)
                continue
            assert partition is not None
            assert offset is not None
            value = message.value()
            assert isinstance(value, bytes)
            say("R", partition, offset, value.rstrip(b".").rstrip(b":").decode())
            reached[partition] = offset + 1
    consumer.close()


def _is_over(ends_file: Path, reached: list[int]) -> bool:
    if not ends_file.exists():
        return False
    ends = map(int, ends_file.read_text(encoding="ascii").split())
    return all(position >= end for position, end in zip(reached, ends, strict=True))


if __name__ == "__main__":
    mode, bootstrap, topic, partitions, file, *rest = sys.argv[1:]
    if mode == "produce":
        produce(bootstrap, topic, int(partitions), Path(file), rest[0], int(rest[1]) / 1000)
    else:
        consume(bootstrap, topic, int(partitions), Path(file))
