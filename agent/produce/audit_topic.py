"""The audit log in the topic `__penstock_audit`, which agents create and write, and which is a table as every topic is.

A record's value is a JSON object behind Confluent's frame (a zero byte and the schema's id), and the topic's configs
ask for typed columns: so SQL selects by `value_principal` and `value_decision`. The writer is an idempotent producer: a
batch whose outcome was unknown is sent again with its sequence, and is in the log once.
"""

import asyncio
import json
from collections.abc import Sequence

from agent.admin.topics import TopicAdmin, TopicError
from agent.context import AgentContext
from agent.ledger.producer_ids import AllocationRejected, ProducerIdBlock
from agent.produce.acknowledgement import Acknowledgement
from agent.produce.produce_path import ProducePath
from agent.security.audit.audit_events import AuditRecord
from agent.security.audit.audit_log import AuditSinkFailed
from coordinator.commands.registry import RegisterSchema, SchemaContent, SchemaRegistered, SchemaType
from coordinator.configs.topic_names import AUDIT_TOPIC
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.limits import AUDIT_LOG_TOPIC_SECONDS_MAX
from protocol.records.batch import encode_varint, pack_header, split_batches
from protocol.types import PartitionIndex, ProducerId
from storage.batcher import BatchGroup

SCHEMA_SUBJECT = f"{AUDIT_TOPIC}-value"
PARTITION = PartitionIndex(0)
CONFIGS = {"retention.ms": str(7 * 86_400_000), "cleanup.policy": "delete", "penstock.table.columns": "value"}
FIRST_EPOCH = 0
SEQUENCE_END = 1 << 31
REPEATABLE = (ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower)
"""The batch may be in the log: it is sent again as it was."""
_STRING = {"type": "string"}
_STRINGS = (
    "time", "cluster", "agent", "principal", "mechanism", "host", "listener", "client_id", "api", "operation",
    "resource", "pattern", "decision", "rule", "detail",
)  # fmt: skip
SCHEMA = SchemaContent(
    schema_type=SchemaType.JSON,
    text=json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "PenstockAuditEvent",
            "type": "object",
            "properties": {
                **dict.fromkeys(_STRINGS, _STRING),
                "groups": {"type": "array", "items": _STRING},
                "count": {"type": "integer"},
            },
        }
    ),
)
_DIGEST = SCHEMA.digest


class _AuditTicket:
    """Receives the acknowledgement of one batch of the audit log."""

    def __init__(self) -> None:
        self.settled: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()

    def settle(self, acknowledgement: Acknowledgement) -> None:
        if not self.settled.done():
            self.settled.set_result(acknowledgement)


class TopicSink:
    """Writes records to `__penstock_audit`, one batch at a time. A deleted topic is created again."""

    def __init__(self, context: AgentContext, *, topics: TopicAdmin, produce: ProducePath) -> None:
        self._ledger = context.ledger
        self._clock = context.clock
        self._topics = topics
        self._produce = produce
        self._producer_ids = ProducerIdBlock(ledger=context.ledger)
        self._producer_id: ProducerId | None = None
        self._sequence_next = 0

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Append a record for each. Raises `AuditSinkFailed`; the next call has to give the same records."""
        try:
            async with self._clock.timeout(AUDIT_LOG_TOPIC_SECONDS_MAX):
                await self._append(records)
        except (TimeoutError, LedgerUnavailable, OutcomeUnknown, AllocationRejected, TopicError) as error:
            reason = str(error) or f"no acknowledgement within {AUDIT_LOG_TOPIC_SECONDS_MAX:.0f} s"
            raise AuditSinkFailed(f"{AUDIT_TOPIC}: {reason}") from error

    async def _append(self, records: Sequence[AuditRecord]) -> None:
        error_code = await self._send(records)
        if error_code is not ErrorCode.none and error_code not in REPEATABLE:
            # Nothing of the batch is in the log, and its sequence is of no use: the topic is new, or forgot the
            # producer, as it does after a day without an event (producer.id.expiration.ms).
            self._producer_id = None
            error_code = await self._send(records)
        if error_code is not ErrorCode.none:
            raise AuditSinkFailed(f"{AUDIT_TOPIC}: {error_code.name}")
        self._sequence_next += len(records)

    async def _send(self, records: Sequence[AuditRecord]) -> ErrorCode:
        """The answer to one batch of the records."""
        topic = await self._topic()
        schema_id = await self._schema_id()
        if self._producer_id is None or self._sequence_next + len(records) >= SEQUENCE_END:
            self._producer_id, self._sequence_next = await self._producer_ids.take(), 0
        view = memoryview(encoded_batch(records, schema_id, self._producer_id, self._sequence_next))
        ticket = _AuditTicket()
        self._produce.add(BatchGroup(topic.topic_id, PARTITION, view, split_batches(view), ticket))
        return (await ticket.settled).error_code

    async def _topic(self) -> TopicState:
        topic = await self._topics.by_name(AUDIT_TOPIC)
        if topic is None:
            try:
                topic = await self._topics.create(AUDIT_TOPIC, partition_count=1, configs=CONFIGS)
            except TopicError as error:
                topic = self._topics.known(AUDIT_TOPIC)
                if error.error_code is not ErrorCode.topic_already_exists or topic is None:
                    raise
        return topic

    async def _schema_id(self) -> int:
        """The id of `SCHEMA`, which is registered where it is not."""
        known_id = self._ledger.state.registry.ids_by_digest.get(_DIGEST)
        if known_id is not None:
            return known_id
        await self._ledger.barrier()
        registry = self._ledger.state.registry
        outcome = await self._ledger.propose(
            RegisterSchema(
                subject=SCHEMA_SUBJECT,
                content=SCHEMA,
                checked_at=registry.changed_at(SCHEMA_SUBJECT),
                checked_as=registry.compatibility(SCHEMA_SUBJECT),
            )
        )
        if not isinstance(outcome, SchemaRegistered):
            raise AuditSinkFailed(f"the schema of {AUDIT_TOPIC} was not registered under {SCHEMA_SUBJECT}: {outcome}")
        return outcome.schema_id


def encoded_batch(records: Sequence[AuditRecord], schema_id: int, producer_id: ProducerId, base_sequence: int) -> bytes:
    """One uncompressed batch of format v2, base offset 0, of at least one record. Keys are null."""
    frame = b"\x00" + schema_id.to_bytes(4, "big")
    base_timestamp = records[0].time_ms
    encoded = bytearray()
    for delta, record in enumerate(records):
        value = frame + record.line
        body = b"".join(
            (
                b"\x00",
                encode_varint(record.time_ms - base_timestamp),
                encode_varint(delta),
                encode_varint(-1),
                encode_varint(len(value)),
                value,
                encode_varint(0),
            )
        )
        encoded += encode_varint(len(body)) + body
    header = pack_header(
        base_offset=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.time_ms for record in records),
        record_count=len(records),
        records=encoded,
        producer_id=producer_id,
        producer_epoch=FIRST_EPOCH,
        base_sequence=base_sequence,
    )
    return bytes(header + encoded)
