"""Intake objects as the commits that their agents proposed, or would have.

In: the bytes of an object. Out: a `CommitChunks` of its undamaged chunks, and the damage in words. The functions below
list the rows of such a command with the partitions and the producers' sequences that they belong to.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.commands.commands import BatchColumns, ChunkColumns, CommitChunks
from protocol.errors import InvalidBatch
from protocol.records.batch import BatchHeader, split_batches
from protocol.records.crc import pack_crcs
from protocol.types import NO_PRODUCER_ID, Milliseconds, ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import ChunkFormatError, FooterChunk, check_chunk, describe_object

BatchKey = tuple[TopicId, PartitionIndex, int, int, int]
"""A batch as its producer identifies it: topic, partition, producer id, epoch, base sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """An intake object as a commit of it, and its damaged chunks in words."""

    key: str
    modified_ms: Milliseconds
    command: CommitChunks
    faults: tuple[str, ...]


def read_object(key: str, content: bytes, *, session: SessionId, number: ObjectNumber, modified_ms: int) -> FoundObject:
    """The content of an intake object, without damaged chunks. Raises `ChunkFormatError` if nothing can be read."""
    described = describe_object(content, len(content))
    if (described.session, described.number) != (session, number):
        raise ChunkFormatError(f"it says that it is object {described.number} of session {described.session}")
    chunks: list[tuple[FooterChunk, list[BatchHeader]]] = []
    faults: list[str] = []
    view = memoryview(content)
    for chunk in described.chunks:
        run = view[chunk.byte_first : chunk.byte_first + chunk.byte_count]
        try:
            check_chunk(run, chunk)
            chunks.append((chunk, split_batches(run)))
        except (ChunkFormatError, InvalidBatch) as error:
            faults.append(f"partition {chunk.partition} of topic {chunk.topic_id.hex()}: {error}")
    return FoundObject(
        key=key,
        modified_ms=Milliseconds(modified_ms),
        command=_commit(session, number, len(content), chunks),
        faults=tuple(faults),
    )


def _commit(
    session: SessionId, number: ObjectNumber, object_bytes: int, chunks: list[tuple[FooterChunk, list[BatchHeader]]]
) -> CommitChunks:
    """The command that the agent which wrote the object submitted, or would have."""
    topic_ids = tuple(dict.fromkeys(chunk.topic_id for chunk, _ in chunks))
    batches = [header for _, headers in chunks for header in headers]
    return CommitChunks(
        object_session=session,
        object_number=number,
        object_bytes=object_bytes,
        topic_ids=topic_ids,
        chunks=ChunkColumns(
            topic=[topic_ids.index(chunk.topic_id) for chunk, _ in chunks],
            partition=[chunk.partition for chunk, _ in chunks],
            byte_first=[chunk.byte_first for chunk, _ in chunks],
            batch_count=[len(headers) for _, headers in chunks],
        ),
        batches=BatchColumns(
            record_bytes=[header.batch_bytes for header in batches],
            record_count=[header.record_count for header in batches],
            max_timestamp=[header.max_timestamp for header in batches],
            producer_id=[header.producer_id for header in batches],
            producer_epoch=[header.producer_epoch for header in batches],
            base_sequence=[header.base_sequence for header in batches],
            is_transactional=[int(header.is_transactional) for header in batches],
        ),
        batch_crcs=pack_crcs([header.crc for header in batches]),
    )


def batch_rows(command: CommitChunks) -> Iterator[tuple[TopicId, PartitionIndex, int]]:
    """Topic and partition of each row of the batches."""
    row = 0
    chunks = command.chunks
    for topic_index, partition, count in zip(chunks.topic, chunks.partition, chunks.batch_count, strict=True):
        for _ in range(count):
            yield command.topic_ids[topic_index], PartitionIndex(partition), row
            row += 1


def sequenced_batches(command: CommitChunks) -> Iterator[tuple[BatchKey, int]]:
    """The batches of idempotent producers, and their rows."""
    batches = command.batches
    for topic_id, partition, row in batch_rows(command):
        producer_id = batches.producer_id[row]
        if producer_id != NO_PRODUCER_ID and not batches.is_transactional[row]:
            yield (topic_id, partition, producer_id, batches.producer_epoch[row], batches.base_sequence[row]), row
