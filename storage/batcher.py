"""The open intake: what producers sent and no object holds yet, gathered by partition.

Rule: nothing here reads a clock; callers pass monotonic nanoseconds. Per partition, batches keep the order in which
they arrived, and one sealed object holds one chunk per partition. Nothing is copied: records stay as they came in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from protocol.limits import (
    BATCHES_PER_COMMIT_MAX,
    INTAKE_OBJECT_BYTES_TARGET,
    LEDGER_ENTRY_BYTES_MAX,
    QUOTA_USES_PER_COMMIT_MAX,
)
from protocol.records.crc import pack_crcs
from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.object_store import Buffer
from storage.refs import intake_key

# What a row costs in a ledger entry at most: its columns as eight-byte numbers, before any compression.
ENTRY_BYTES = 256 + QUOTA_USES_PER_COMMIT_MAX * 3 * 8
ENTRY_BYTES_PER_TOPIC = 24
ENTRY_BYTES_PER_CHUNK = 4 * 8
ENTRY_BYTES_PER_BATCH = 8 * 8

NANOSECONDS_PER_MS = 1_000_000


class BatchRow(Protocol):
    """The fields of a record batch for the intake; `protocol.records.batch.BatchHeader` is one."""

    @property
    def batch_bytes(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...


class SealReason(StrEnum):
    """Why the open intake should become an object now."""

    BYTES = "bytes"
    AGE = "age"
    BATCHES = "batches"
    ENTRY = "entry"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When to seal. Each holds on its own; the defaults are those of `protocol.limits`."""

    age_ns_max: int
    object_bytes_target: int = INTAKE_OBJECT_BYTES_TARGET
    batches_max: int = BATCHES_PER_COMMIT_MAX
    entry_bytes_max: int = LEDGER_ENTRY_BYTES_MAX


class BatchGroup(NamedTuple):
    """The batches of one Produce request for one partition.

    `records`: concatenated v2 batches, big-endian, which do not change any more; `headers`: one per batch, in order;
    `ticket`: whatever the caller needs to find the request again; `max_timestamps`: per batch, which replace those of
    the headers.
    """

    topic_id: TopicId
    partition: PartitionIndex
    records: memoryview
    headers: Sequence[BatchRow]
    ticket: object
    max_timestamps: Sequence[int] | None = None
    transaction_version: int = 1
    """`txn.transaction.TransactionVersion`: which protocol its transactional batches follow. Others have none."""


class TicketRows(NamedTuple):
    """Where a group went: rows `[batch_first, batch_first + batch_count)` of the batches, in chunk `chunk`."""

    ticket: object
    chunk: int
    batch_first: int
    batch_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedIntake:
    """An object to be put under `key`, and the columns of the command that commits it.

    Chunk and batch columns are those of `coordinator.commands.commands.ChunkColumns` and `BatchColumns`: `chunk_topics`
    holds indexes into `topic_ids`; batches stand in the order of their bytes. `batch_crcs` is that of `CommitChunks`.
    `tickets` stand in the order of the batches.
    """

    session: SessionId
    number: ObjectNumber
    key: str
    parts: list[Buffer]
    object_bytes: int
    topic_ids: tuple[TopicId, ...]
    chunk_topics: list[int]
    chunk_partitions: list[int]
    chunk_byte_firsts: list[int]
    chunk_batch_counts: list[int]
    batch_record_bytes: list[int]
    batch_record_counts: list[int]
    batch_max_timestamps: list[int]
    batch_producer_ids: list[int]
    batch_producer_epochs: list[int]
    batch_base_sequences: list[int]
    batch_is_transactional: list[int]
    batch_crcs: bytes
    tickets: list[TicketRows]


class Batcher:
    """Gathers groups until they are sealed. One owner; not for use by several threads."""

    __slots__ = ("_batch_count", "_chunks", "_entry_bytes_max", "_limits", "_opened_ns", "_record_bytes", "_topics")

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._chunks: dict[tuple[TopicId, PartitionIndex], list[BatchGroup]] = {}
        self._topics: set[TopicId] = set()
        self._batch_count = 0
        self._entry_bytes_max = ENTRY_BYTES
        self._record_bytes = 0
        self._opened_ns = 0

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    @property
    def record_bytes(self) -> int:
        """Bytes of record batches that wait here."""
        return self._record_bytes

    @property
    def batch_count(self) -> int:
        return self._batch_count

    @property
    def entry_bytes_max(self) -> int:
        """An upper bound of the ledger entry that would commit what is here."""
        return self._entry_bytes_max

    @property
    def deadline_ns(self) -> int | None:
        """When what is here becomes due by age, on the caller's monotonic clock; None while nothing is."""
        return self._opened_ns + self._limits.age_ns_max if self._chunks else None

    def fits(self, group: BatchGroup) -> bool:
        """Whether `group` can join without breaking a limit of the ledger: if not, seal first.

        A group always fits into an empty intake; what one request may bring is the caller's to reject.
        """
        if not self._chunks:
            return True
        batches = len(group.headers)
        more_bytes = batches * ENTRY_BYTES_PER_BATCH + ENTRY_BYTES_PER_CHUNK + ENTRY_BYTES_PER_TOPIC
        return (
            self._batch_count + batches <= self._limits.batches_max
            and self._entry_bytes_max + more_bytes <= self._limits.entry_bytes_max
        )

    def add(self, group: BatchGroup, now_ns: int) -> None:
        """Take `group` behind what its partition has here already. The first one starts the age at `now_ns`."""
        chunks = self._chunks
        if not chunks:
            self._opened_ns = now_ns
        topic_id = group.topic_id
        key = (topic_id, group.partition)
        groups = chunks.get(key)
        if groups is None:
            chunks[key] = [group]
            self._entry_bytes_max += ENTRY_BYTES_PER_CHUNK
            if topic_id not in self._topics:
                self._topics.add(topic_id)
                self._entry_bytes_max += ENTRY_BYTES_PER_TOPIC
        else:
            groups.append(group)
        self._batch_count += len(group.headers)
        self._entry_bytes_max += len(group.headers) * ENTRY_BYTES_PER_BATCH
        self._record_bytes += len(group.records)

    def should_seal(self, now_ns: int) -> SealReason | None:
        """Why the intake should be sealed at `now_ns`, or None while it may go on gathering."""
        if not self._chunks:
            return None
        limits = self._limits
        if self._record_bytes >= limits.object_bytes_target:
            return SealReason.BYTES
        if now_ns - self._opened_ns >= limits.age_ns_max:
            return SealReason.AGE
        if self._batch_count >= limits.batches_max:
            return SealReason.BATCHES
        if self._entry_bytes_max >= limits.entry_bytes_max:
            return SealReason.ENTRY
        return None

    def seal(self, *, session: SessionId, number: ObjectNumber) -> SealedIntake:
        """All that is here as the session's object `number`; the batcher is empty afterwards.

        Chunks stand in the order in which their partitions first came. The caller makes sure that something is here.
        """
        assert self._chunks, "an empty intake is never sealed"
        chunks = self._chunks
        self._chunks = {}
        self._topics = set()
        self._batch_count = 0
        self._entry_bytes_max = ENTRY_BYTES
        self._record_bytes = 0
        return _lay_out(session, number, chunks)


def _lay_out(
    session: SessionId, number: ObjectNumber, chunks: dict[tuple[TopicId, PartitionIndex], list[BatchGroup]]
) -> SealedIntake:
    topic_rows: dict[TopicId, int] = {}
    chunk_topics: list[int] = []
    chunk_parts: list[ChunkParts] = []
    chunk_batch_counts: list[int] = []
    headers: list[BatchRow] = []
    overrides: list[tuple[int, Sequence[int]]] = []
    transactional: list[int] = []
    tickets: list[TicketRows] = []
    for (topic_id, partition), groups in chunks.items():
        chunk_first = len(headers)
        for group in groups:
            tickets.append(TicketRows(group.ticket, len(chunk_parts), len(headers), len(group.headers)))
            if group.max_timestamps is not None:
                assert len(group.max_timestamps) == len(group.headers), "one maximum timestamp per batch"
                overrides.append((len(headers), group.max_timestamps))
            headers.extend(group.headers)
            version = group.transaction_version
            transactional.extend(version if row.is_transactional else 0 for row in group.headers)
        chunk_topics.append(topic_rows.setdefault(topic_id, len(topic_rows)))
        chunk_batch_counts.append(len(headers) - chunk_first)
        chunk_parts.append(ChunkParts(topic_id, partition, [group.records for group in groups]))
    max_timestamps = [row.max_timestamp for row in headers]
    for first, instead in overrides:
        max_timestamps[first : first + len(instead)] = instead
    encoded = encode_object(session, number, chunk_parts)
    return SealedIntake(
        session=session,
        number=number,
        key=intake_key(session, number),
        parts=encoded.parts,
        object_bytes=encoded.object_bytes,
        topic_ids=tuple(topic_rows),
        chunk_topics=chunk_topics,
        chunk_partitions=[partition for _, partition in chunks],
        chunk_byte_firsts=encoded.byte_firsts,
        chunk_batch_counts=chunk_batch_counts,
        batch_record_bytes=[row.batch_bytes for row in headers],
        batch_record_counts=[row.record_count for row in headers],
        batch_max_timestamps=max_timestamps,
        batch_producer_ids=[row.producer_id for row in headers],
        batch_producer_epochs=[row.producer_epoch for row in headers],
        batch_base_sequences=[row.base_sequence for row in headers],
        batch_is_transactional=transactional,
        batch_crcs=pack_crcs([row.crc for row in headers]),
        tickets=tickets,
    )
