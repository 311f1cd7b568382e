"""A small Kafka client for the commands: one connection, one request at a time.

It is for Penstock only, where any agent serves any partition: it has no routing and no groups, and uses one fixed
version of each API. Messages: kio; batches: `protocol.records.batch`.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from typing import Self, TypeVar

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
from kio.schema.sasl_authenticate.v2 import request as sasl_authenticate
from kio.schema.sasl_authenticate.v2 import response as sasl_authenticate_response
from kio.schema.sasl_handshake.v1 import request as sasl_handshake
from kio.schema.sasl_handshake.v1 import response as sasl_handshake_response
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64
from kio.static.protocol import RequestPayload, ResponsePayload

from agent.cli.clients.http_client import KafkaAddress
from agent.cli.clients.security import PLAIN, ClientLogin, untrusted
from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.config.addresses import HostPort
from agent.runtime.ids import SystemIds
from protocol.auth.scram_client import ScramClient, ServerRejected
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import salt_password
from protocol.errors import ErrorCode
from protocol.limits import CLIENT_ANSWER_BYTES_MAX, CLIENT_ANSWER_SECONDS_MAX, CLIENT_CONNECT_SECONDS_MAX
from protocol.records.batch import encode_varint, pack_header, walk_batches

EARLIEST = -2
LATEST = -1
"""Kafka's special timestamps of ListOffsets."""
TOPIC_RESOURCE = i8(2)
"""org.apache.kafka.common.config.ConfigResource.Type."""
SET_CONFIG, DELETE_CONFIG = i8(0), i8(1)
"""org.apache.kafka.clients.admin.AlterConfigOp.OpType."""
CLIENT_ID = "penstock-cli"
ERRORS_OF_AN_OUTAGE = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
    ErrorCode.leader_not_available,
    ErrorCode.request_timed_out,
)
HINTS = {
    ErrorCode.kafka_storage_error: (
        "its records are damaged, or the store rejects the read: see the agent's log, and docs/operations/damage.md, "
        '"A damaged file"; docs/operations/bucket.md, "Faults of the bucket"'
    ),
    ErrorCode.request_timed_out: "the ledger or the store does not answer: see the agent's log",
}
"""Explanations of error codes, for the user of the command."""
FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """One record to produce."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """The answer of one partition: whole batches from its log, and the end of the log."""

    partition: int
    batches: bytes
    log_end: int


Answer = TypeVar("Answer", bound=ResponsePayload)


class OffsetOutOfRange(CommandFailed):
    """The fetched offset is before the log start or behind the log end of `partition`."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"{topic}-{partition} has no such offset")
        self.partition = partition


class KafkaClient:
    """`async with await KafkaClient.connect(address) as client`. Raises `CommandFailed`."""

    def __init__(self, address: HostPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, kafka: KafkaAddress) -> Self:
        address = kafka.address
        context = None if kafka.security is None else kafka.security.context()
        try:
            async with asyncio.timeout(CLIENT_CONNECT_SECONDS_MAX):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        except ssl.SSLError as error:
            raise Unavailable(untrusted(str(address), error)) from error
        except OSError as error:  # TimeoutError is one
            raise Unavailable(f"no Kafka listener answers at {address}: is the agent running?") from error
        client = cls(address, reader, writer)
        if kafka.login is not None:
            try:
                await client._log_in(kafka.login)
            except BaseException:
                client.close()
                raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()

    async def partition_count(self, topic: str, *, may_create: bool = False) -> int:
        """The number of the topic's partitions."""
        answer = await self._ask(
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
        _check(row.error_code, f"topic {topic}")
        return len(row.partitions)

    async def produce(self, topic: str, partition: int, records: Sequence[OutgoingRecord]) -> int:
        """Append the records as one batch with acks=all; returns the offset of the first."""
        data = produce.PartitionProduceData(index=i32(partition), records=Records(encode_batch(records)))
        answer = await self._ask(
            produce.ProduceRequest(
                acks=i16(-1),
                timeout=_milliseconds(30_000),
                topic_data=(produce.TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
            ),
            produce_response.ProduceResponse,
        )
        result = answer.responses[0].partition_responses[0]
        _check(result.error_code, f"{topic}-{partition}", result.error_message)
        return int(result.base_offset)

    async def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """The first offset of each partition at or after the timestamp (ms, or EARLIEST or LATEST); -1 without one."""
        rows = tuple(
            list_offsets.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp))
            for partition in partitions
        )
        answer = await self._ask(
            list_offsets.ListOffsetsRequest(
                replica_id=BrokerId(-1),
                isolation_level=i8(1),
                topics=(list_offsets.ListOffsetsTopic(name=TopicName(topic), partitions=rows),),
            ),
            list_offsets_response.ListOffsetsResponse,
        )
        for row in answer.topics[0].partitions:
            _check(row.error_code, f"{topic}-{row.partition_index}")
        return {int(row.partition_index): int(row.offset) for row in answer.topics[0].partitions}

    async def fetch(self, topic: str, positions: Mapping[int, int], *, wait_ms: int) -> list[FetchedPartition]:
        """Batches from these offsets on; waits up to `wait_ms` for the first one. Raises `OffsetOutOfRange`, too."""
        rows = tuple(
            fetch.FetchPartition(
                partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(FETCH_BYTES)
            )
            for partition, offset in positions.items()
        )
        answer = await self._ask(
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
        _check(answer.error_code, f"topic {topic}")
        fetched = []
        for row in answer.responses[0].partitions if answer.responses else ():
            if row.error_code is ErrorCode.offset_out_of_range:
                raise OffsetOutOfRange(topic, int(row.partition_index))
            _check(row.error_code, f"{topic}-{row.partition_index}")
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
        answer = await self._ask(
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
        _check(result.error_code, f"topic {topic}", result.error_message)

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
        answer = await self._ask(
            alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False),
            alter_configs_response.IncrementalAlterConfigsResponse,
        )
        result = answer.responses[0]
        if result.error_code is ErrorCode.unknown_topic_or_partition:
            raise _no_topic(topic)
        _check(result.error_code, f"topic {topic}", result.error_message)

    async def delete_topic(self, topic: str) -> None:
        answer = await self._ask(
            delete_topics.DeleteTopicsRequest(
                topics=(delete_topics.DeleteTopicState(name=TopicName(topic), topic_id=None),),
                timeout=_milliseconds(30_000),
            ),
            delete_topics_response.DeleteTopicsResponse,
        )
        result = answer.responses[0]
        _check(result.error_code, f"topic {topic}", result.error_message)

    async def users(self) -> list[tuple[str, int, int]]:
        """The users of the cluster: name, code of a mechanism, iterations."""
        answer = await self._ask(
            describe_scram.DescribeUserScramCredentialsRequest(users=None),
            describe_scram_response.DescribeUserScramCredentialsResponse,
        )
        _check(answer.error_code, "the users", answer.error_message)
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
        answer = await self._ask(
            alter_scram.AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions)),
            alter_scram_response.AlterUserScramCredentialsResponse,
        )
        for result in answer.results:
            _check(result.error_code, f"user {result.user}", result.error_message)

    async def _log_in(self, login: ClientLogin) -> None:
        """Authenticate by SASL. Raises `CommandFailed`."""
        handshake = sasl_handshake.SaslHandshakeRequest(mechanism=login.mechanism)
        listed = await self._ask(handshake, sasl_handshake_response.SaslHandshakeResponse)
        if listed.error_code is not ErrorCode.none:
            raise CommandFailed(
                f"the agent does not take sasl.mechanism={login.mechanism}; it takes {', '.join(listed.mechanisms)}",
                exit_code=EXIT_USAGE,
            )
        if login.mechanism == PLAIN:
            await self._send_token(f"\0{login.user}\0{login.password}".encode())
            return
        (mechanism,) = (each for each in ScramMechanism if each.sasl_name == login.mechanism)
        scram = ScramClient(mechanism, user=login.user, password=login.password, nonce=SystemIds().new_uuid().hex())
        try:
            challenge = await self._send_token(scram.first())
            scram.check(await self._send_token(scram.final(challenge)))
        except ServerRejected as error:
            raise CommandFailed(f"{self._address} cannot be trusted: {error}") from error

    async def _send_token(self, token: bytes) -> bytes:
        request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
        answer = await self._ask(request, sasl_authenticate_response.SaslAuthenticateResponse)
        if answer.error_code is not ErrorCode.none:
            raise CommandFailed(f"the agent rejects the user of --command-config: {answer.error_message}")
        return answer.auth_bytes

    async def _ask(self, request: RequestPayload, answer_type: type[Answer]) -> Answer:
        """Send a request and return its answer. After an error the connection must not be used again."""
        self._correlation_id += 1
        try:
            async with asyncio.timeout(CLIENT_ANSWER_SECONDS_MAX):
                self._writer.write(_frame(request, self._correlation_id))
                await self._writer.drain()
                answer = await self._receive()
        except asyncio.IncompleteReadError as error:
            raise Unavailable("the agent closed the connection: see its log") from error
        except TimeoutError as error:
            raise Unavailable(f"no answer within {CLIENT_ANSWER_SECONDS_MAX:.0f} s: see the agent's log") from error
        except OSError as error:
            raise Unavailable(f"the connection broke: {error}") from error
        header_type = answer_type.__header_schema__
        header, header_bytes = entity_reader(header_type)(answer, 0)
        if header.correlation_id != self._correlation_id:
            raise CommandFailed("the answer belongs to another request: is the address that of a Kafka broker?")
        return entity_reader(answer_type)(answer, header_bytes)[0]

    async def _receive(self) -> bytes:
        size = await self._reader.readexactly(4)
        answer_bytes = int.from_bytes(size, "big")
        if answer_bytes > CLIENT_ANSWER_BYTES_MAX:
            protocol = "HTTP" if size == b"HTTP" else "another protocol"
            raise CommandFailed(
                f"{self._address} speaks {protocol}: --bootstrap takes the address of a Kafka listener (--listen, port "
                "9092 by default), --server the HTTP address (--http, port 9644 by default)",
                exit_code=EXIT_USAGE,
            )
        return await self._reader.readexactly(answer_bytes)


def _frame(request: RequestPayload, correlation_id: int) -> bytes:
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id=CLIENT_ID,
    )
    buffer = BytesIO()
    entity_writer(header_type)(buffer, header)
    try:
        entity_writer(type(request))(buffer, request)
    except UnicodeEncodeError as error:
        raise CommandFailed(f"{error.object!r} is not UTF-8", exit_code=EXIT_USAGE) from error
    return len(buffer.getbuffer()).to_bytes(4, "big") + buffer.getvalue()


def encode_batch(records: Sequence[OutgoingRecord]) -> bytes:
    """One uncompressed batch of at least one record, base offset 0."""
    base_timestamp = records[0].timestamp_ms
    encoded = bytearray()
    for delta, record in enumerate(records):
        body = b"".join(
            (
                b"\x00",
                encode_varint(record.timestamp_ms - base_timestamp),
                encode_varint(delta),
                _nullable(record.key),
                _nullable(record.value),
                encode_varint(len(record.headers)),
                *(_nullable(name.encode()) + _nullable(value) for name, value in record.headers),
            )
        )
        encoded += encode_varint(len(body)) + body
    header = pack_header(
        base_offset=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        record_count=len(records),
        records=encoded,
    )
    return bytes(header + encoded)


def next_offset(fetched: FetchedPartition, position: int) -> int:
    """The offset behind these batches; `position` where there are none."""
    for header in walk_batches(fetched.batches):
        position = max(position, header.base_offset + header.last_offset_delta + 1)
    return position


def _no_topic(topic: str) -> CommandFailed:
    return CommandFailed(f"there is no topic {topic!r}; list topics with penstock topics list")


def _nullable(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))


def _check(error_code: ErrorCode, what: str, message: str | None = None) -> None:
    """Raise `CommandFailed` for an error code. `message` is the broker's, which names the object of the error."""
    if error_code is ErrorCode.none:
        return
    failure = Unavailable if error_code in ERRORS_OF_AN_OUTAGE else CommandFailed
    if message:
        raise failure(f"{message.removesuffix('.')} ({error_code.name.upper()})")
    hint = HINTS.get(error_code)
    raise failure(f"the cluster answered {error_code.name.upper()} for {what}{f' ({hint})' if hint else ''}")
