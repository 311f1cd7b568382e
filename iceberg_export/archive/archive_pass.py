"""One archive pass: reads chunks of the intake, puts one Parquet file, and makes the entry that replaces the chunks.

The file is durable before its entry is appended. Nothing is deleted here: the entry releases the intake objects, and
the garbage collector deletes them. The file leaves out transaction markers and aborted records, but the entry replaces
their chunks too. A pass that fails or is cancelled leaves at most one object, which no entry refers to; its key names
the session (safety rule S6). The caller adds the commit of the topic's table to the same entry (architecture, "The
lake").
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from coordinator.commands.commands import PartitionReplacement, ReplaceChunks, ReplacedChunk
from iceberg_export.archive.plan import ArchivePass, IntakeChunk
from iceberg_export.parquet.source_chunks import ChunkMismatch
from iceberg_export.rows.executor import ReserveMemory, RunInThread, no_reservation
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.table_reader import gather_bounded
from protocol.errors import InvalidBatch
from protocol.limits import ARCHIVE_READS_IN_FLIGHT_MAX
from protocol.types import ObjectNumber, SessionId
from storage.object_store import Buffer, ObjectDamaged, ObjectMissing, ObjectStore, StoreError
from storage.read_plan import PlannedRead, plan_reads, slice_read
from storage.refs import ByteRange, parquet_key
from txn.isolation import NOTHING_ABORTED

if TYPE_CHECKING:
    from iceberg_export.parquet.archive_file import ArchiveFile
    from iceberg_export.parquet.source_chunks import SourceChunk
    from iceberg_export.rows.columns import RecordRows
    from iceberg_export.rows.kafka_rows import BatchRows
    from iceberg_export.typed.file_columns import FileColumns


UNREADABLE = (ObjectMissing, ObjectDamaged, InvalidBatch, ChunkMismatch)
"""The errors of an intake chunk that is missing or damaged. A table may raise them too."""
UnreadableChunk = tuple[IntakeChunk, Exception]
"""A chunk that cannot be archived, and the reason: one of `UNREADABLE`."""
InMemory = Mapping[int, Buffer]
"""The bytes of chunks that need not be read, by their index in `ArchivePass.chunks`."""
NOTHING_IN_MEMORY: Final = MappingProxyType[int, Buffer]({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPass:
    """The result of a pass: the durable file, and the command to append under the session that is in its key."""

    command: ReplaceChunks
    file: DataFile
    """The file as the table's manifest lists it."""
    source_bytes: int
    """The bytes of the intake that the pass read."""
    columns: "FileColumns | None" = None
    """The typed columns of the file; None where it has none."""


class ColumnsOf(Protocol):
    """Returns the typed columns of a file; None where it has none.

    It may call `parts` more than once, in a thread. Each call iterates over the records that go into the file.
    """

    async def __call__(self, parts: "Callable[[], Iterable[BatchRows | RecordRows]]", /) -> "FileColumns | None": ...


async def archive(
    archive_pass: ArchivePass,
    *,
    store: ObjectStore,
    session: SessionId,
    number: ObjectNumber,
    run_in_thread: RunInThread,
    columns_of: ColumnsOf | None = None,
    reserve: ReserveMemory = no_reservation,
    in_memory: InMemory = NOTHING_IN_MEMORY,
) -> ArchivedPass:
    """Write the pass's chunks as the session's object `number`, and return the command that replaces them with it.

    `columns_of`: returns the typed columns; called once the chunks are read. None: the file has no typed columns.
    `reserve`: memory for batches that unpack to much. `in_memory`: its bytes are checked like those
    from the store.

    Raises `StoreError` (`ObjectMissing`: the index has changed, plan again), `InvalidBatch` or `ChunkMismatch` (an
    intake object is damaged: `unreadable_chunks` finds it). A cancellation leaves at most an unreferenced object.
    """
    records = await _read_intake(archive_pass.chunks, store, in_memory)
    columns = None if columns_of is None else await columns_of(partial(_batches, archive_pass, records, reserve))
    key = parquet_key(archive_pass.folder_name or archive_pass.name, archive_pass.topic_id, session, number)
    file = await run_in_thread(write_file, archive_pass, records, columns, key, reserve)
    # The put comes before the append of the command: an entry must never name an object that may not be there.
    await store.put(key, file.parts)
    return ArchivedPass(
        command=_command(archive_pass, file, session, key),
        file=file.data_file(key),
        source_bytes=sum(chunk.byte_count for chunk in archive_pass.chunks if not chunk.is_marker),
        columns=columns,
    )


async def _read_intake(chunks: Sequence[IntakeChunk], store: ObjectStore, in_memory: InMemory) -> list[memoryview]:
    """The bytes of each chunk, in the order of `chunks`; empty for a marker. One request reads neighbours together."""
    chunk_bytes: list[memoryview] = [memoryview(b"")] * len(chunks)
    stored: list[int] = []
    for index, chunk in enumerate(chunks):
        if chunk.is_marker:
            continue
        if index in in_memory:
            chunk_bytes[index] = memoryview(in_memory[index])
        else:
            stored.append(index)
    ranges = [_range(chunks[index]) for index in stored]
    in_flight = asyncio.Semaphore(ARCHIVE_READS_IN_FLIGHT_MAX)

    # Store errors are collected instead of raised in the tasks: before Python 3.13 a TaskGroup whose task fails while
    # the group is cancelled loses the cancellation.
    failures: list[StoreError] = []

    async def read(planned: PlannedRead) -> None:
        async with in_flight:
            if failures:
                return
            try:
                payload = await store.get_range(planned.read.key, planned.read.byte_first, planned.read.byte_count)
            except StoreError as error:
                failures.append(error)
                return
        for index, records in slice_read(planned, payload):
            chunk_bytes[stored[index]] = records

    try:
        async with asyncio.TaskGroup() as tasks:
            for planned in plan_reads(ranges):
                tasks.create_task(read(planned))
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    if failures:
        # The first failure ends the pass; later ones mostly have the same reason.
        raise failures[0]
    return chunk_bytes


async def sound_in_memory(
    archive_pass: ArchivePass,
    in_memory: InMemory,
    *,
    run_in_thread: RunInThread,
    reserve: ReserveMemory = no_reservation,
) -> InMemory:
    """The chunks in memory whose bytes can be archived. Decodes each chunk alone."""
    sound: dict[int, Buffer] = {}
    for index, buffer in in_memory.items():
        source = _source_chunk(archive_pass, archive_pass.chunks[index], memoryview(buffer), reserve)
        with contextlib.suppress(*UNREADABLE):
            await run_in_thread(_decode, source)
            sound[index] = buffer
    return sound


async def unreadable_chunks(
    archive_pass: ArchivePass,
    *,
    store: ObjectStore,
    run_in_thread: RunInThread,
    reserve: ReserveMemory = no_reservation,
    in_memory: InMemory = NOTHING_IN_MEMORY,
) -> list[UnreadableChunk]:
    """The chunks of a pass that cannot be archived, in the order of (partition, offset). Decodes each chunk alone.

    Those `in_memory` can be, whatever the store has: `sound_in_memory` has looked at them.

    Raises every `StoreError` that does not mean that a chunk is missing or damaged, such as an unreachable store.
    """
    stored = [
        chunk for index, chunk in enumerate(archive_pass.chunks) if not chunk.is_marker and index not in in_memory
    ]

    async def check(planned: PlannedRead) -> list[UnreadableChunk]:
        chunks = [(stored[piece.range_index], piece) for piece in planned.pieces]
        payload: bytes | None = None
        if len(chunks) > 1:
            # A failure of the joint read does not say which chunk is damaged: each one is read alone then.
            with contextlib.suppress(ObjectMissing, ObjectDamaged):
                payload = await store.get_range(planned.read.key, planned.read.byte_first, planned.read.byte_count)
        unreadable: list[UnreadableChunk] = []
        for chunk, piece in chunks:
            try:
                if payload is None:
                    data = memoryview(await store.get_range(chunk.object_key, chunk.byte_first, chunk.byte_count))
                else:
                    data = memoryview(payload)[piece.byte_first : piece.byte_first + piece.byte_count]
                await run_in_thread(_decode, _source_chunk(archive_pass, chunk, data, reserve))
            except UNREADABLE as error:
                unreadable.append((chunk, error))
        return unreadable

    by_read = await gather_bounded(
        [partial(check, planned) for planned in plan_reads([_range(chunk) for chunk in stored])]
    )
    return sorted(chain.from_iterable(by_read), key=lambda each: (each[0].partition, each[0].offset_first))


def write_file(
    archive_pass: ArchivePass,
    records: Sequence[memoryview],
    columns: "FileColumns | None" = None,
    key: str | None = None,
    reserve: ReserveMemory = no_reservation,
) -> "ArchiveFile":
    """The data file of the pass. CPU work for a thread.

    `records`: the bytes of each chunk, in the order of the pass's chunks. `key`: where the file will be put; it is part
    of the file's checksum. Raises `InvalidBatch` or `ChunkMismatch`.
    """
    from iceberg_export.parquet.archive_file import write_whole_file  # imports pyarrow

    return write_whole_file(partial(_write_file, archive_pass, records, columns, key, reserve))


def _write_file(
    archive_pass: ArchivePass,
    records: Sequence[memoryview],
    columns: "FileColumns | None",
    key: str | None,
    reserve: ReserveMemory,
    *,
    has_header_keys: bool,
) -> "ArchiveFile":
    from iceberg_export.parquet.writer import ArchiveWriter

    with ArchiveWriter(
        topic_id=archive_pass.topic_id, typed=columns, has_header_keys=has_header_keys, key=key
    ) as writer:
        for chunk, data in zip(archive_pass.chunks, records, strict=True):
            if chunk.is_marker:
                # A marker has an offset but no row: the file's footer still has to answer for the offset.
                writer.leave_out(chunk.partition, chunk.offset_first, chunk.offset_end)
                continue
            writer.add(_source_chunk(archive_pass, chunk, data, reserve))
        return writer.finish()


def _batches(archive_pass: ArchivePass, records: Sequence[memoryview], reserve: ReserveMemory) -> "Iterator[BatchRows]":
    """The pass's records, batch by batch."""
    from iceberg_export.parquet.source_chunks import decode_chunk

    for chunk, data in zip(archive_pass.chunks, records, strict=True):
        if not chunk.is_marker:
            yield from decode_chunk(_source_chunk(archive_pass, chunk, data, reserve))


def _range(chunk: IntakeChunk) -> ByteRange:
    return ByteRange(key=chunk.object_key, byte_first=chunk.byte_first, byte_count=chunk.byte_count)


def _decode(chunk: "SourceChunk") -> None:
    """Decode every record of a chunk. Raises `InvalidBatch` or `ChunkMismatch`."""
    from iceberg_export.parquet.source_chunks import decode_chunk

    for batch in decode_chunk(chunk):
        del batch  # before the next one is unpacked


def _source_chunk(
    archive_pass: ArchivePass, chunk: IntakeChunk, data: memoryview, reserve: ReserveMemory
) -> "SourceChunk":
    from iceberg_export.parquet.source_chunks import SourceChunk

    return SourceChunk(
        partition=chunk.partition,
        offset_first=chunk.offset_first,
        offset_end=chunk.offset_end,
        append_time_ms=chunk.append_time_ms,
        records=data,
        checksum=chunk.checksum,
        aborted=archive_pass.aborted.get(chunk.partition, NOTHING_ABORTED),
        reserve=reserve,
    )


def _command(archive_pass: ArchivePass, file: "ArchiveFile", session: SessionId, key: str) -> ReplaceChunks:
    archived = dict(file.partitions)
    return ReplaceChunks(
        topic_id=archive_pass.topic_id,
        object_session=session,
        object_key=key,
        object_bytes=file.object_bytes,
        partitions=tuple(
            PartitionReplacement(
                partition=partition,
                replaced=tuple(
                    ReplacedChunk(
                        offset_first=chunk.offset_first,
                        offset_end=chunk.offset_end,
                        object_key=chunk.object_key,
                        byte_first=chunk.byte_first,
                    )
                    for chunk in chunks
                ),
                archived=archived[partition],
            )
            for partition, chunks in archive_pass.by_partition()
        ),
    )
