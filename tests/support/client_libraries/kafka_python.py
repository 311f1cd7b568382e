"""kafka-python."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence

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

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

APPEND_TIME = 1


class KafkaPythonClient:
    def can_send(self, row: Row) -> bool:
        is_null = row.key is None and row.value is None
        return not is_null and all(value is not None for _, value in row.headers)

    def produce(self, bootstrap: str, sends: Sequence[Send]) -> None:
        for codec in sorted({send.codec for send in sends}):
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                max_request_size=REQUEST_BYTES_MAX,
                linger_ms=5,
            )
            try:
                futures = [
                    producer.send(
                        send.place[0],
                        send.row.value,
                        send.row.key,
                        list(send.row.headers),
                        send.place[1],
                        send.row.timestamp_ms,
                    )
                    for send in sends
                    if send.codec == codec
                ]
                for future in futures:
                    future.get(timeout=SECONDS_MAX)
            finally:
                producer.close()

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
            consumer.assign([TopicPartition(*place) for place in ranges])
            for place, (first, _) in ranges.items():
                consumer.seek(TopicPartition(*place), first)
            is_told = False
            while waiting:
                polled = consumer.poll(timeout_ms=200, max_records=500)
                if not is_told:
                    is_told = True
                    assigned()
                for place, records in polled.items():
                    for record in records:
                        row = Row(
                            key=record.key,
                            value=shown(record.value),
                            headers=tuple(record.headers),
                            timestamp_ms=record.timestamp,
                            is_append_time=record.timestamp_type == APPEND_TIME,
                        )
                        waiting.add((place.topic, place.partition), record.offset, row)
                assert time.monotonic() < deadline, waiting.failure
        finally:
            consumer.close()
        return waiting.rows

    def offsets_at(self, bootstrap: str, times: Mapping[Place, int]) -> dict[Place, int | None]:
        consumer = _consumer(bootstrap)
        try:
            found = consumer.offsets_for_times({TopicPartition(*place): time_ms for place, time_ms in times.items()})
        finally:
            consumer.close()
        return {(place.topic, place.partition): None if at is None else at.offset for place, at in found.items()}

    def ends(self, bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        consumer = _consumer(bootstrap)
        try:
            asked = [TopicPartition(*place) for place in places]
            firsts, ends = consumer.beginning_offsets(asked), consumer.end_offsets(asked)
        finally:
            consumer.close()
        return {(place.topic, place.partition): (firsts[place], ends[place]) for place in asked}


def _consumer(bootstrap: str, *, wait_ms: int = 500) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=wait_ms,
        check_crcs=True,
    )
