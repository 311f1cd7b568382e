"""aiokafka."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

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

APPEND_TIME = 1


class AioKafkaClient:
    def can_send(self, row: Row) -> bool:
        # An empty header key, or a null one among values, has words here; both absent key and value do not.
        return row.key is not None or row.value is not None

    def produce(self, bootstrap: str, sends: Sequence[Send]) -> None:
        asyncio.run(_produce(bootstrap, sends))

    def consume(
        self,
        bootstrap: str,
        ranges: Mapping[Place, tuple[int, int]],
        *,
        assigned: Callable[[], None] = lambda: None,
        wait_ms: int = 500,
    ) -> Rows:
        return asyncio.run(_consume(bootstrap, ranges, assigned, wait_ms))

    def offsets_at(self, bootstrap: str, times: Mapping[Place, int]) -> dict[Place, int | None]:
        return asyncio.run(_offsets_at(bootstrap, times))

    def ends(self, bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        return asyncio.run(_ends(bootstrap, places))


@asynccontextmanager
async def _consumer(bootstrap: str, wait_ms: int = 500) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=wait_ms,
        check_crcs=True,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _produce(bootstrap: str, sends: Sequence[Send]) -> None:
    for codec in sorted({send.codec for send in sends}):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    send.place[0],
                    send.row.value,
                    send.row.key,
                    send.place[1],
                    send.row.timestamp_ms,
                    list(send.row.headers),
                )
                for send in sends
                if send.codec == codec
            ]
            await asyncio.wait_for(asyncio.gather(*futures), SECONDS_MAX)
        finally:
            await producer.stop()


async def _consume(
    bootstrap: str, ranges: Mapping[Place, tuple[int, int]], assigned: Callable[[], None], wait_ms: int
) -> Rows:
    waiting, deadline = Waiting(ranges), time.monotonic() + SECONDS_MAX
    async with _consumer(bootstrap, wait_ms) as consumer:
        consumer.assign([TopicPartition(*place) for place in ranges])
        for place, (first, _) in ranges.items():
            consumer.seek(TopicPartition(*place), first)
        is_told = False
        while waiting:
            polled = await consumer.getmany(timeout_ms=200, max_records=500)
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
    return waiting.rows


async def _offsets_at(bootstrap: str, times: Mapping[Place, int]) -> dict[Place, int | None]:
    async with _consumer(bootstrap) as consumer:
        found = await consumer.offsets_for_times({TopicPartition(*place): time_ms for place, time_ms in times.items()})
    return {(place.topic, place.partition): None if at is None else at.offset for place, at in found.items()}


async def _ends(bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
    asked = [TopicPartition(*place) for place in places]
    async with _consumer(bootstrap) as consumer:
        firsts, ends = await consumer.beginning_offsets(asked), await consumer.end_offsets(asked)
    return {(place.topic, place.partition): (firsts[place], ends[place]) for place in asked}
