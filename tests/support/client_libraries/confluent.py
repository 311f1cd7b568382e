"""confluent-kafka, that is librdkafka."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.client_libraries.interface import (
    REQUEST_BYTES_MAX,
    SECONDS_MAX,
    Place,
    Row,
    Rows,
    Send,
    Waiting,
    shown,
)


class ConfluentClient:
    def can_send(self, row: Row) -> bool:
        return row.timestamp_ms != 0  # which means "now" to it

    def produce(self, bootstrap: str, sends: Sequence[Send]) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        for codec in sorted({send.codec for send in sends}):
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "linger.ms": 5,
                    "batch.num.messages": 7,
                    "message.max.bytes": REQUEST_BYTES_MAX,
                }
            )
            for send in sends:
                if send.codec == codec:
                    topic, partition = send.place
                    producer.produce(
                        topic,
                        send.row.value,
                        send.row.key,
                        partition,
                        on_delivery=delivered,
                        timestamp=send.row.timestamp_ms,
                        headers=list(send.row.headers),
                    )
            assert producer.flush(SECONDS_MAX) == 0
        assert errors == []

    def consume(
        self,
        bootstrap: str,
        ranges: Mapping[Place, tuple[int, int]],
        *,
        assigned: Callable[[], None] = lambda: None,
        wait_ms: int = 500,
    ) -> Rows:
        waiting, deadline = Waiting(ranges), time.monotonic() + SECONDS_MAX
        consumer = _consumer(bootstrap, wait_ms=wait_ms)
        try:
            consumer.assign([TopicPartition(*place, first) for place, (first, _) in ranges.items()])
            is_told = False
            while waiting:
                messages = consumer.consume(500, timeout=0.2)
                if not is_told:
                    is_told = True
                    assigned()
                for message in messages:
                    assert message.error() is None, message.error()
                    _add(waiting, message)
                assert time.monotonic() < deadline, waiting.failure
        finally:
            consumer.close()
        return waiting.rows

    def offsets_at(self, bootstrap: str, times: Mapping[Place, int]) -> dict[Place, int | None]:
        consumer = _consumer(bootstrap)
        try:
            asked = [TopicPartition(*place, time_ms) for place, time_ms in times.items()]
            found = consumer.offsets_for_times(asked, timeout=SECONDS_MAX)
        finally:
            consumer.close()
        assert all(place.error is None for place in found)
        # The end of the partition (-1) stands for "no such record".
        return {(place.topic, place.partition): None if place.offset < 0 else place.offset for place in found}

    def ends(self, bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        consumer = _consumer(bootstrap)
        try:
            return {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=30) for place in places}
        finally:
            consumer.close()


def _consumer(bootstrap: str, *, wait_ms: int = 500) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": wait_ms,
            "check.crcs": True,
        }
    )


def _add(waiting: Waiting, message: Message) -> None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    kind, timestamp_ms = message.timestamp()
    headers: Any = (
        message.headers() or []
    )  # the stub allows more than this client gives: pairs of str, and bytes or None
    row = Row(
        key=key,
        value=shown(value),
        headers=tuple(headers),
        timestamp_ms=timestamp_ms,
        is_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
    )
    waiting.add((topic, partition), offset, row)
