"""A small Kafka client for the commands: one connection, one request at a time.

It is for Penstock only, where any agent serves any partition: it has no routing and no groups, and uses one fixed
version of each API. Messages: kio; batches: `protocol.records.batch`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from kio.schema.alter_user_scram_credentials.v0 import request as alter_scram
from kio.schema.alter_user_scram_credentials.v0 import response as alter_scram_response
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.create_topics.v7 import response as create_topics_response
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.delete_topics.v6 import response as delete_topics_response
from kio.schema.describe_user_scram_credentials.v0 import request as describe_scram
from kio.schema.describe_user_scram_credentials.v0 import response as describe_scram_response
from kio.schema.fetch.v12 import request as fetch
from kio.schema.fetch.v12 import response as fetch_response
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.incremental_alter_configs.v1 import response as alter_configs_response
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.list_offsets.v7 import response as list_offsets_response
from kio.schema.metadata.v12 import request as metadata
from kio.schema.metadata.v12 import response as metadata_response
from kio.schema.produce.v9 import request as produce
from kio.schema.produce.v9 import response as produce_response
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from agent.cli.clients.kafka_connection import KafkaConnection, check
from agent.cli.clients.outgoing_batch import OutgoingRecord, encode_batch
from agent.cli.failure import CommandFailed
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import salt_password
from protocol.errors import ErrorCode
from protocol.records.batch import walk_batches

EARLIEST = -2
LATEST = -1
"""Kafka's special timestamps of ListOffsets."""
TOPIC_RESOURCE = i8(2)
"""org.apache.kafka.common.config.ConfigResource.Type."""
SET_CONFIG, DELETE_CONFIG = i8(0), i8(1)
"""org.apache.kafka.clients.admin.AlterConfigOp.OpType."""
FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """The answer of one partition: whole batches from its log, and the end of the log."""

    partition: int
    batches: bytes
    log_end: int


class OffsetOutOfRange(CommandFailed):
    """The fetched offset is before the log start or behind the log end of `partition`."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"{topic}-{partition} has no such offset")
        self.partition = partition


class KafkaClient(KafkaConnection):
    """`async with await KafkaClient.connect(address) as client`. Raises `CommandFailed`."""

    async def partition_count(self, topic: str, *, may_create: bool = False) -> int:
        """The number of the topic's partitions."""
        answer = await self.ask(
            metadata.MetadataRequest(
                topics=(metadata.MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
                allow_auto_topic_creation=may_create,
                include_topic_authorized_operations=False,
            ),
            metadata_response.MetadataResponse,
        )
        row = answer.topics[0]
        if row.error_code is ErrorCode.unknown_topic_or_partition:
            raise _no_topic(topic)
        check(row.error_code, f"topic {topic}")
        return len(row.partitions)

    async def produce(self, topic: str, partition: int, records: Sequence[OutgoingRecord]) -> int:
        """Append the records as one batch with acks=all; returns the offset of the first."""
        data = produce.PartitionProduceData(index=i32(partition), records=Records(encode_batch(records)))
        answer = await self.ask(
            produce.ProduceRequest(
                acks=i16(-1),
                timeout=_milliseconds(30_000),
                topic_data=(produce.TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
            ),
            produce_response.ProduceResponse,
        )
        result = answer.responses[0].partition_responses[0]
        check(result.error_code, f"{topic}-{partition}", result.error_message)
        return int(result.base_offset)

    async def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """The first offset of each partition at or after the timestamp (ms, or EARLIEST or LATEST); -1 without one."""
        rows = tuple(
            list_offsets.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp))
            for partition in partitions
        )
        answer = await self.ask(
            list_offsets.ListOffsetsRequest(
                replica_id=BrokerId(-1),
                isolation_level=i8(1),
                topics=(list_offsets.ListOffsetsTopic(name=TopicName(topic), partitions=rows),),
            ),
            list_offsets_response.ListOffsetsResponse,
        )
        for row in answer.topics[0].partitions:
            check(row.error_code, f"{topic}-{row.partition_index}")
        return {int(row.partition_index): int(row.offset) for row in answer.topics[0].partitions}

    async def fetch(self, topic: str, positions: Mapping[int, int], *, wait_ms: int) -> list[FetchedPartition]:
        """Batches from these offsets on; waits up to `wait_ms` for the first one. Raises `OffsetOutOfRange`, too."""
        rows = tuple(
            fetch.FetchPartition(
                partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(FETCH_BYTES)
            )
            for partition, offset in positions.items()
        )
        answer = await self.ask(
            fetch.FetchRequest(
                max_wait=_milliseconds(wait_ms),
                min_bytes=i32(1),
                max_bytes=i32(FETCH_BYTES),
                isolation_level=i8(1),
                topics=(fetch.FetchTopic(topic=TopicName(topic), partitions=rows),),
                forgotten_topics_data=(),
            ),
            fetch_response.FetchResponse,
        )
        check(answer.error_code, f"topic {topic}")
        fetched = []
        for row in answer.responses[0].partitions if answer.responses else ():
            if row.error_code is ErrorCode.offset_out_of_range:
                raise OffsetOutOfRange(topic, int(row.partition_index))
            check(row.error_code, f"{topic}-{row.partition_index}")
            fetched.append(
                FetchedPartition(
                    partition=int(row.partition_index),
                    batches=bytes(row.records or b""),
                    log_end=int(row.last_stable_offset),
                )
            )
        return fetched

    async def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Create a topic; -1 partitions takes the cluster's default."""
        answer = await self.ask(
            create_topics.CreateTopicsRequest(
                topics=(
                    create_topics.CreatableTopic(
                        name=TopicName(topic),
                        num_partitions=i32(partition_count),
                        replication_factor=i16(-1),
                        assignments=(),
                        configs=tuple(
                            create_topics.CreatableTopicConfig(name=name, value=value)
                            for name, value in configs.items()
                        ),
                    ),
                ),
            ),
            create_topics_response.CreateTopicsResponse,
        )
        result = answer.topics[0]
        check(result.error_code, f"topic {topic}", result.error_message)

    async def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set configs of a topic, and reset those that are None; other configs stay as they are."""
        operations = tuple(
            alter_configs.AlterableConfig(
                name=name, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value
            )
            for name, value in configs.items()
        )
        resource = alter_configs.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=operations
        )
        answer = await self.ask(
            alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False),
            alter_configs_response.IncrementalAlterConfigsResponse,
        )
        result = answer.responses[0]
        if result.error_code is ErrorCode.unknown_topic_or_partition:
            raise _no_topic(topic)
        check(result.error_code, f"topic {topic}", result.error_message)

    async def delete_topic(self, topic: str) -> None:
        answer = await self.ask(
            delete_topics.DeleteTopicsRequest(
                topics=(delete_topics.DeleteTopicState(name=TopicName(topic), topic_id=None),),
                timeout=_milliseconds(30_000),
            ),
            delete_topics_response.DeleteTopicsResponse,
        )
        result = answer.responses[0]
        check(result.error_code, f"topic {topic}", result.error_message)

    async def users(self) -> list[tuple[str, int, int]]:
        """The users of the cluster: name, code of a mechanism, iterations."""
        answer = await self.ask(
            describe_scram.DescribeUserScramCredentialsRequest(users=None),
            describe_scram_response.DescribeUserScramCredentialsResponse,
        )
        check(answer.error_code, "the users", answer.error_message)
        return [
            (row.user, int(info.mechanism), int(info.iterations))
            for row in answer.results
            for info in row.credential_infos
        ]

    async def set_password(
        self, user: str, mechanism: ScramMechanism, *, salt: bytes, iterations: int, password: str
    ) -> None:
        """Create a user's credential, or replace it."""
        salted = salt_password(password, salt=salt, iterations=iterations, mechanism=mechanism)
        upsertion = alter_scram.ScramCredentialUpsertion(
            name=user, mechanism=i8(mechanism), iterations=i32(iterations), salt=salt, salted_password=salted
        )
        await self._alter_users((), (upsertion,))

    async def delete_password(self, user: str, mechanism: ScramMechanism) -> None:
        """Delete a user's credential."""
        deletion = alter_scram.ScramCredentialDeletion(name=user, mechanism=i8(mechanism))
        await self._alter_users((deletion,), ())

    async def _alter_users(
        self,
        deletions: Sequence[alter_scram.ScramCredentialDeletion],
        upsertions: Sequence[alter_scram.ScramCredentialUpsertion],
    ) -> None:
        answer = await self.ask(
            alter_scram.AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions)),
            alter_scram_response.AlterUserScramCredentialsResponse,
        )
        for result in answer.results:
            check(result.error_code, f"user {result.user}", result.error_message)


def next_offset(fetched: FetchedPartition, position: int) -> int:
    """The offset behind these batches; `position` where there are none."""
    for header in walk_batches(fetched.batches):
        position = max(position, header.base_offset + header.last_offset_delta + 1)
    return position


def _no_topic(topic: str) -> CommandFailed:
    return CommandFailed(f"there is no topic {topic!r}; list topics with penstock topics list")


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
