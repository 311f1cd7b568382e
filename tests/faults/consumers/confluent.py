"""Consumers of librdkafka, a thread each: `told` says what they do.

Records that were polled before a partition was taken away, and were not processed yet, are dropped with it.
"""

import sys
import threading
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

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
from tests.support.cluster.rolling_restart_load import NOTICES

Settings = dict[str, str | int | float | bool | object]
CLASSIC: Settings = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
ASSIGNMENTS: dict[Protocol, Settings] = {
    Protocol.RANGE: {**CLASSIC, "partition.assignment.strategy": "range"},
    Protocol.STATIC: {**CLASSIC, "partition.assignment.strategy": "range"},
    Protocol.COOPERATIVE: {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    Protocol.NEXT: {"group.protocol": "consumer"},
}
METADATA_MARK = b"CGMDv2:"
"""With which librdkafka's serialized group metadata begins; the generation follows, in the machine's byte order."""


@dataclass(slots=True)
class GroupConsumer:
    job: Job
    member: Member
    diary: Diary
    _gathered: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(partition, offset) of what was polled and is not processed."""
    _consumer: Consumer | None = None

    def run(self) -> None:
        while not self.job.is_over:
            self._live()

    def _live(self) -> None:
        consumer = self._consumer = Consumer(
            {
                "bootstrap.servers": self.job.bootstrap,
                "client.id": self.member.name,
                "group.id": self.member.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "max.poll.interval.ms": POLL_INTERVAL_MS,
                "socket.timeout.ms": REQUEST_MS,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 1_000,
                "topic.metadata.refresh.interval.ms": 5_000,
                "queued.min.messages": 2_000,
                "fetch.wait.max.ms": 200,
                "log_level": 0,
                "error_cb": self._told,
                **({"group.instance.id": self.member.name} if self.member.protocol is Protocol.STATIC else {}),
                **ASSIGNMENTS[self.member.protocol],
            }
        )
        consumer.subscribe([self.job.topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._lost)
        never, commits_count = threading.Event(), 0
        while not self.job.is_at_an_end(self.member, commits_count):
            self._gather(consumer)
            self.diary.generation(self._generation())
            ranges, self._gathered = ranges_of(self._gathered), []
            if ranges:
                self.diary.processed(ranges)
                never.wait(self.job.pause_now_s)
            if self.diary.uncommitted:
                self._commit(consumer)
                commits_count += 1
        consumer.close()
        self.diary.left()

    def _gather(self, consumer: Consumer) -> None:
        wait_s = POLL_SECONDS
        while len(self._gathered) < BATCH and (message := consumer.poll(wait_s)) is not None:
            wait_s = 0.0
            self._take(message)

    def _take(self, message: Message) -> None:
        error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
        if error is not None:
            self._told(error)
            return
        assert partition is not None
        assert offset is not None
        assert not isinstance(value, str)
        self.diary.check_value(partition, offset, value)
        self._gathered.append((partition, offset))

    def _commit(self, consumer: Consumer) -> None:
        number, ends = self.diary.committing()
        offsets = [TopicPartition(self.job.topic, partition, end) for partition, end in ends.items()]
        try:
            answered = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            self.diary.failed(number, ends, error.name() if isinstance(error, KafkaError) else str(error))
            return
        for place in answered or []:
            if place.error is None:
                self.diary.committed(number, [place.partition])
            else:
                self.diary.failed(number, [place.partition], place.error.name())

    def _generation(self) -> int:
        assert self._consumer is not None
        metadata = self._consumer.consumer_group_metadata()
        assert metadata.startswith(METADATA_MARK), metadata
        return int.from_bytes(metadata[len(METADATA_MARK) :][:4], sys.byteorder, signed=True)

    def _given(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.diary.given(self._generation(), (place.partition for place in places))

    def _taken(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._drop("V", places)

    def _lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._drop("L", places)

    def _drop(self, kind: str, places: list[TopicPartition]) -> None:
        gone = {place.partition for place in places}
        self._gathered = [row for row in self._gathered if row[0] not in gone]
        self.diary.gone(kind, self._generation(), gone)

    def _told(self, error: KafkaError) -> None:
        if error.code() not in NOTICES:
            self.diary.say("X", error.name())


def main() -> None:
    job = Job.of(sys.argv[1:])
    threads = [
        threading.Thread(target=GroupConsumer(job, member, Diary(member.name)).run, name=member.name)
        for member in job.members
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
