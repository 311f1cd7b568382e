"""What groups committed, as four client libraries commit and read it, and as agents tell it themselves."""

import asyncio
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.static.primitive import i64Timedelta

from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from tests.support.clients.kafka_requests import Entity, ask
from tests.support.cluster.conditions import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPartition
    from kafka.admin import KafkaAdminClient
    from kafka.structs import OffsetAndMetadata as KafkaOffset

__all__ = ["KafkaAdminClient", "KafkaPartition"]

SECONDS_MAX = 60.0
NUL = "\0"
"""Behind every note that confluent-kafka commits."""
ASK_AGAIN = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}


class Committed(NamedTuple):
    offset: int
    metadata: str = ""


Offsets = Mapping[int, Committed]
"""By partition."""


def without_notes(offsets: Offsets) -> Offsets:
    return {index: Committed(each.offset) for index, each in offsets.items()}


class OffsetClient(Protocol):
    """Commits without being a member, and reads what is committed; partitions without an offset are left out."""

    def commit(self, bootstrap: str, group: str, topic: str, offsets: Offsets) -> None: ...

    def committed(self, bootstrap: str, group: str, topic: str, partitions: int) -> Offsets: ...


class ConfluentOffsets:
    """Commits a NUL behind each note, and shows what it has in memory behind those that lack one: none are asked for.

    (confluent-kafka 2.16)
    """

    def commit(self, bootstrap: str, group: str, topic: str, offsets: Offsets) -> None:
        consumer = self._consumer(bootstrap, group)
        try:
            told = consumer.commit(
                offsets=[TopicPartition(topic, index, each.offset, each.metadata) for index, each in offsets.items()],
                asynchronous=False,
            )
            assert told is not None
            assert [each.error for each in told] == [None] * len(offsets)
        finally:
            consumer.close()

    def committed(self, bootstrap: str, group: str, topic: str, partitions: int) -> Offsets:
        consumer = self._consumer(bootstrap, group)
        try:
            told = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], SECONDS_MAX)
        finally:
            consumer.close()
        return {each.partition: Committed(each.offset) for each in told if each.offset >= 0}

    def _consumer(self, bootstrap: str, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})


class ConfluentAdmin:
    """As tools do it. Notes: as `ConfluentOffsets`."""

    def commit(self, bootstrap: str, group: str, topic: str, offsets: Offsets) -> None:
        rows = [TopicPartition(topic, index, each.offset, each.metadata) for index, each in offsets.items()]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, rows)]).values()
        assert [row.error for row in future.result(SECONDS_MAX).topic_partitions] == [None] * len(offsets)

    def committed(self, bootstrap: str, group: str, topic: str, partitions: int) -> Offsets:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        rows = [row for row in future.result(SECONDS_MAX).topic_partitions if row.topic == topic]
        return {row.partition: Committed(row.offset) for row in rows if row.offset >= 0}


class KafkaPythonOffsets:
    def commit(self, bootstrap: str, group: str, topic: str, offsets: Offsets) -> None:
        consumer = self._consumer(bootstrap, group)
        try:
            consumer.assign([KafkaPartition(topic, index) for index in offsets])
            rows = {index: KafkaOffset(each.offset, each.metadata, -1) for index, each in offsets.items()}
            consumer.commit({KafkaPartition(topic, index): row for index, row in rows.items()})
        finally:
            consumer.close(autocommit=False)

    def committed(self, bootstrap: str, group: str, topic: str, partitions: int) -> Offsets:
        consumer = self._consumer(bootstrap, group)
        try:
            found = {
                index: consumer.committed(KafkaPartition(topic, index), metadata=True) for index in range(partitions)
            }
        finally:
            consumer.close(autocommit=False)
        return {
            index: Committed(each.offset, (each.metadata or "").removesuffix(NUL))
            for index, each in found.items()
            if each is not None and each.offset >= 0
        }

    def _consumer(self, bootstrap: str, group: str) -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)


class AioKafkaOffsets:
    """Tells no notes."""

    def commit(self, bootstrap: str, group: str, topic: str, offsets: Offsets) -> None:
        asyncio.run(self._commit(bootstrap, group, topic, offsets))

    def committed(self, bootstrap: str, group: str, topic: str, partitions: int) -> Offsets:
        return asyncio.run(self._committed(bootstrap, group, topic, partitions))

    async def _commit(self, bootstrap: str, group: str, topic: str, offsets: Offsets) -> None:
        consumer = await self._consumer(bootstrap, group)
        try:
            consumer.assign([AioPartition(topic, index) for index in offsets])
            await consumer.commit(
                {AioPartition(topic, index): AioOffset(each.offset, each.metadata) for index, each in offsets.items()}
            )
        finally:
            await consumer.stop()

    async def _committed(self, bootstrap: str, group: str, topic: str, partitions: int) -> Offsets:
        consumer = await self._consumer(bootstrap, group)
        try:
            places = [AioPartition(topic, index) for index in range(partitions)]
            consumer.assign(places)
            found = {place.partition: await consumer.committed(place) for place in places}
        finally:
            await consumer.stop()
        return {index: Committed(offset) for index, offset in found.items() if offset is not None and offset >= 0}

    async def _consumer(self, bootstrap: str, group: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        return consumer


TELLING_NOTES = "kafka-python"
CLIENTS: Mapping[str, OffsetClient] = {
    "confluent": ConfluentOffsets(),
    "admin": ConfluentAdmin(),
    "kafka-python": KafkaPythonOffsets(),
    "aiokafka": AioKafkaOffsets(),
}


def coordinator(bootstrap: str, group: str) -> str:
    """The address of the agent that coordinates a group, as the agent that is asked says."""
    found: list[str] = []

    def is_found() -> bool:
        told = ask(bootstrap, ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]}).coordinators[0]
        if told.error_code is ErrorCode.none:
            found.append(f"{told.host}:{told.port}")
        return bool(found)

    wait_until(is_found, f"a coordinator of {group}")
    return found[0]


def commit_request(
    group: str,
    topic: str,
    offsets: Offsets,
    *,
    generation: int = -1,
    member: str = "",
    retention_ms: int | None = None,
) -> dict[str, Entity]:
    """OffsetCommit up to version 9."""
    rows = [
        {"partition_index": index, "committed_offset": each.offset, "committed_metadata": each.metadata}
        for index, each in offsets.items()
    ]
    values: dict[str, Entity] = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [{"name": topic, "partitions": rows}],
    }
    if retention_ms is not None:
        values["retention_time"] = milliseconds(retention_ms)
    return values


def errors_of(answer: Entity) -> dict[int, ErrorCode]:
    """By partition, of an answer about one topic."""
    (topic,) = answer.topics
    return {each.partition_index: each.error_code for each in topic.partitions}


def told_by(bootstrap: str, group: str) -> dict[str, dict[int, Committed]] | ErrorCode:
    """All that an agent says a group has committed, by topic; or why it does not say."""
    answer = ask(bootstrap, ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None, "require_stable": True})
    if answer.error_code is not ErrorCode.none:
        return ErrorCode(answer.error_code)
    return {
        topic.name: {each.partition_index: Committed(each.committed_offset, each.metadata) for each in topic.partitions}
        for topic in answer.topics
    }


def offsets_by_coordinator(bootstrap: str, group: str) -> dict[str, dict[int, Committed]] | ErrorCode:
    """The same of the group's coordinator, which is looked up again while the agent that is named does not answer for
    the group, as clients do."""
    answers: list[dict[str, dict[int, Committed]] | ErrorCode] = []

    def is_answered() -> bool:
        answers.append(told_by(coordinator(bootstrap, group), group))
        return not (isinstance(answers[-1], ErrorCode) and answers[-1] in ASK_AGAIN)

    wait_until(is_answered, f"an answer of the coordinator of {group}")
    return answers[-1]


def milliseconds(count: int) -> Entity:
    """As kio has times."""
    return i64Timedelta.parse(timedelta(milliseconds=count))
