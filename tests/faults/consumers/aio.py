"""Consumers of aiokafka, all on one loop: `told` says what they do.

aiokafka takes partitions away while the program does something else; as its documentation asks, a lock keeps that out
between the processing of records and their commit. What was read before and not processed is dropped.
"""

import asyncio
import sys
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError

from tests.faults.consumers.line_protocol import (
    BATCH,
    HEARTBEAT_MS,
    POLL_INTERVAL_MS,
    POLL_SECONDS,
    REQUEST_MS,
    SESSION_MS,
    Diary,
    Job,
    Member,
    Protocol,
    ranges_of,
)


class GroupConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """One life of a member."""

    def __init__(self, job: Job, member: Member, diary: Diary) -> None:
        self._job = job
        self._member = member
        self._diary = diary
        self._lock = asyncio.Lock()
        self._assignments_count = 0
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap,
            client_id=member.name,
            group_id=member.group,
            group_instance_id=member.name if member.protocol is Protocol.STATIC else None,
            partition_assignment_strategy=(RangePartitionAssignor,),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            # It waits no longer for an answer to JoinGroup either, which comes when all members have joined.
            request_timeout_ms=2 * REQUEST_MS,
            metadata_max_age_ms=5_000,
            fetch_max_wait_ms=200,
        )

    async def run(self) -> None:
        consumer, commits_count = self._consumer, 0
        await consumer.start()
        consumer.subscribe([self._job.topic], listener=self)
        while not self._job.is_at_an_end(self._member, commits_count):
            try:
                found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=BATCH)
            except KafkaError as error:
                self._diary.say("X", type(error).__name__)
                continue
            count = self._assignments_count
            async with self._lock:
                if count == self._assignments_count:
                    commits_count += await self._process(found)
        await consumer.stop()
        self._diary.left()

    async def _process(self, found: dict[TopicPartition, list]) -> bool:  # type: ignore[type-arg]
        """Whether there was something to commit."""
        self._diary.generation(self._generation)
        for place, records in found.items():
            for record in records:
                self._diary.check_value(place.partition, record.offset, record.value)
        ranges = ranges_of((place.partition, record.offset) for place, records in found.items() for record in records)
        if ranges:
            self._diary.processed(ranges)
            await pause(self._job.pause_now_s)
        if not self._diary.uncommitted:
            return False
        number, ends = self._diary.committing()
        offsets = {TopicPartition(self._job.topic, partition): end for partition, end in ends.items()}
        try:
            await self._consumer.commit(offsets)
        except (KafkaError, IllegalStateError) as error:
            self._diary.failed(number, ends, type(error).__name__)
        else:
            self._diary.committed(number, ends)
        return True

    @property
    def _generation(self) -> int:
        return int(self._consumer._coordinator.generation)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self._lock:
            self._assignments_count += 1
            if gone := [place.partition for place in revoked]:
                self._diary.gone("V", self._generation, gone)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        async with self._lock:
            self._assignments_count += 1
            self._diary.given(self._generation, [place.partition for place in assigned])


async def pause(seconds: float) -> None:
    if seconds:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


async def live(job: Job, member: Member) -> None:
    diary = Diary(member.name)
    while not job.is_over:
        await GroupConsumer(job, member, diary).run()


async def run(job: Job) -> None:
    async with asyncio.TaskGroup() as tasks:
        for member in job.members:
            tasks.create_task(live(job, member))


if __name__ == "__main__":
    asyncio.run(run(Job.of(sys.argv[1:])))
