"""Consumers of kafka-python, a thread each: `told` says what they do. Partitions are taken away within `poll` alone."""

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

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


class GroupConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """One life of a member."""

    def __init__(self, job: Job, member: Member, diary: Diary) -> None:
        self._job = job
        self._member = member
        self._diary = diary
        self._consumer = KafkaConsumer(
            bootstrap_servers=job.bootstrap.split(","),
            client_id=member.name,
            group_id=member.group,
            group_instance_id=member.name if member.protocol is Protocol.STATIC else None,
            partition_assignment_strategy=[RangePartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            max_poll_records=BATCH,
            request_timeout_ms=REQUEST_MS,
            reconnect_backoff_max_ms=1_000,
            metadata_max_age_ms=5_000,
            fetch_max_wait_ms=200,
        )

    def run(self) -> None:
        consumer, never, commits_count = self._consumer, threading.Event(), 0
        consumer.subscribe([self._job.topic], listener=self)
        while not self._job.is_at_an_end(self._member, commits_count):
            try:
                found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
            except KafkaError as error:
                self._diary.say("X", type(error).__name__)
                continue
            self._diary.generation(self._generation)
            if ranges := self._checked(found):
                self._diary.processed(ranges)
                never.wait(self._job.pause_now_s)
            if self._diary.uncommitted:
                self._commit()
                commits_count += 1
        consumer.close()
        self._diary.left()

    def _checked(self, found: Mapping[TopicPartition, Sequence]) -> dict[int, tuple[int, int]]:  # type: ignore[type-arg]
        for place, records in found.items():
            for record in records:
                self._diary.check_value(place.partition, record.offset, record.value)
        return ranges_of((place.partition, record.offset) for place, records in found.items() for record in records)

    def _commit(self) -> None:
        number, ends = self._diary.committing()
        offsets = {
            TopicPartition(self._job.topic, partition): OffsetAndMetadata(end, "", -1)
            for partition, end in ends.items()
        }
        try:
            self._consumer.commit(offsets)
        except KafkaError as error:
            self._diary.failed(number, ends, type(error).__name__)
        else:
            self._diary.committed(number, ends)

    @property
    def _generation(self) -> int:
        return int(self._consumer.group_metadata().generation_id)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._gone("V", revoked)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._gone("L", lost)

    def _gone(self, kind: str, places: Iterable[TopicPartition]) -> None:
        if gone := [place.partition for place in places]:
            self._diary.gone(kind, self._generation, gone)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._diary.given(self._generation, [place.partition for place in assigned])


def live(job: Job, member: Member) -> None:
    diary = Diary(member.name)
    while not job.is_over:
        GroupConsumer(job, member, diary).run()


def main() -> None:
    job = Job.of(sys.argv[1:])
    threads = [threading.Thread(target=live, args=(job, member), name=member.name) for member in job.members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
