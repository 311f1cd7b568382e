"""Buckets with topics, made without a broker: intake objects, archived files with their tables, and the tail manifest.

Rule: bytes are written by the code that writes them in an agent; what the ledger would decide is decided here, in the
simplest way that is right.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.tables.commit import Change, TableBefore, commit
from iceberg_export.tables.table_reader import TableCache
from iceberg_export.tail.manifest import (
    NO_KEY,
    NO_ROWS,
    TailChunk,
    TailChunks,
    TailManifest,
    TailPartition,
    TailTopic,
    encode_manifest,
)
from protocol.types import (
    NO_TIMESTAMP,
    Milliseconds,
    ObjectNumber,
    Offset,
    PartitionIndex,
    Position,
    ProducerId,
    SessionId,
    TopicId,
)
from storage.object_store import ObjectStore
from storage.refs import TAIL_KEY, intake_key, parquet_key, table_metadata_key
from tests.support.records.plain_records import Record, make_batch
from txn.isolation import AbortedBatches, AbortedExtent

SESSION = SessionId(7)
NOON = 1_700_049_600_000


@dataclass(slots=True, kw_only=True)
class MadePartition:
    log_start: int = 0
    archived_end: int = 0
    end: int = 0
    last_stable: int | None = None
    """The end where None."""
    chunks: list[TailChunk] = field(default_factory=list[TailChunk])
    aborted: list[AbortedExtent] = field(default_factory=list[AbortedExtent])
    without_rows: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Offsets that are archived, and no row with them."""
    rows: dict[int, Record] = field(default_factory=dict[int, Record])
    """What readers should see, by offset, but for what lies below the start or beyond the last stable offset."""

    def visible(self) -> list[Record]:
        last_stable = self.end if self.last_stable is None else self.last_stable
        return [record for offset, record in sorted(self.rows.items()) if self.log_start <= offset < last_stable]


@dataclass(slots=True, kw_only=True)
class MadeTopic:
    name: str
    topic_id: TopicId
    partitions: list[MadePartition]
    metadata_key: str = NO_KEY
    data_keys: set[str] = field(default_factory=set[str])


class MadeLake:
    """A bucket in `store` that grows by its methods; readers see what was there at the last `publish`."""

    def __init__(self, store: ObjectStore, *, root: str = "file:///made", cluster_id: str = "made-cluster") -> None:
        self.store = store
        self.root = root
        self.cluster_id = cluster_id
        self.incarnation = 1
        self.position = 0
        self.topics: dict[str, MadeTopic] = {}
        self._numbers = 0
        self._topics_made = 0

    def create(self, name: str, partitions: int = 1) -> MadeTopic:
        self._topics_made += 1
        made = [MadePartition() for _ in range(partitions)]
        topic = MadeTopic(name=name, topic_id=TopicId(self._topics_made.to_bytes(16, "big")), partitions=made)
        self.topics[name] = topic
        return topic

    def record(self, partition: int, offset: int) -> Record:
        """The record that `produce` writes there: some without key or value, some with headers."""
        return Record(
            offset=offset,
            timestamp=NOON + 1000 * offset + partition,
            key=None if offset % 5 == 0 else f"key-{offset % 3}".encode(),
            value=None if offset % 7 == 0 else f"{partition}/{offset}".encode() * 3,
            headers=((b"trace", str(offset).encode()), (b"empty", None)) if offset % 4 == 0 else (),
        )

    async def produce(self, name: str, counts: Sequence[int], *, objects: int = 1) -> None:
        """Appends so many records to each partition, in `objects` intake objects that all of them share."""
        await self.produce_together([name], counts, objects=objects)

    async def produce_together(self, names: Sequence[str], counts: Sequence[int], *, objects: int = 1) -> None:
        """The same to several topics, in the same objects."""
        partitions = [pair for name in names for pair in enumerate(self.topics[name].partitions)]
        for number in range(objects):
            key = intake_key(SESSION, self._next())
            payload = bytearray()
            for index, partition in partitions:
                count = counts[index] // objects + (number < counts[index] % objects)
                if not count:
                    continue
                records = [self.record(index, partition.end + row) for row in range(count)]
                batch = make_batch(records)
                partition.chunks.append(_chunk(partition.end, partition.end + count, key, len(payload), len(batch)))
                partition.rows.update({record.offset: record for record in records})
                partition.end += count
                payload += batch
            if payload:
                await self.store.put(key, [bytes(payload)])

    def mark(self, name: str, partition: int) -> None:
        """A transaction's marker: one offset without a row."""
        made = self.topics[name].partitions[partition]
        made.chunks.append(_chunk(made.end, made.end + 1, NO_KEY, 0, 0))
        made.end += 1

    async def produce_aborted(self, name: str, partition: int, count: int, *, producer_id: int = 9) -> None:
        """Records of a transaction that is aborted, and its marker."""
        made = self.topics[name].partitions[partition]
        records = [self.record(partition, made.end + row) for row in range(count)]
        batch = make_batch(records, transactional_producer=producer_id)
        key = intake_key(SESSION, self._next())
        await self.store.put(key, [batch])
        first = made.end
        made.chunks.append(_chunk(first, first + count, key, 0, len(batch)))
        made.end += count
        made.aborted.append(AbortedExtent(ProducerId(producer_id), Offset(first), Offset(made.end)))
        self.mark(name, partition)

    async def archive(self, name: str, *, deletes_intake: bool = True, row_group_bytes: int = 4096) -> str:
        """Moves everything that waits into one data file, and commits it to the topic's table, unless it has no rows.
        Returns its key."""
        topic = self.topics[name]
        key = parquet_key(name, topic.topic_id, SESSION, self._next())
        gone: set[str] = set()
        offsets: dict[int, tuple[int, int]] = {}
        with ArchiveWriter(topic_id=topic.topic_id, row_group_bytes_target=row_group_bytes) as writer:
            for index, partition in enumerate(topic.partitions):
                for chunk in partition.chunks:
                    number = PartitionIndex(index)
                    if chunk.is_marker:
                        writer.leave_out(number, chunk.offset_first, chunk.offset_end)
                        continue
                    gone.add(chunk.object_key)
                    data = await self.store.get_range(chunk.object_key, chunk.byte_first, chunk.byte_count)
                    writer.add(
                        SourceChunk(
                            partition=number,
                            offset_first=chunk.offset_first,
                            offset_end=chunk.offset_end,
                            append_time_ms=chunk.append_time_ms,
                            records=data,
                            aborted=AbortedBatches(partition.aborted),
                        )
                    )
                if partition.chunks:
                    offsets[index] = (partition.archived_end, partition.end)
                    partition.archived_end = partition.end
                    partition.chunks, partition.aborted = [], []
            file = writer.finish()
        for number, chunks in file.partitions:
            topic.partitions[number].without_rows += [
                (chunk.offset_first, chunk.offset_end) for chunk in chunks if not chunk.row_count
            ]
        if file.data_file(key).record_count:
            await self._commit(topic, key, file, dropped=frozenset(), offsets=offsets)
        if deletes_intake:
            await self.store.delete(sorted(gone))
        return key

    async def rewrite(self, name: str) -> None:
        """Puts all archived rows into one new file, in the place of those that the table has."""
        topic = self.topics[name]
        key = parquet_key(name, topic.topic_id, SESSION, self._next())
        with ArchiveWriter(topic_id=topic.topic_id, row_group_bytes_target=4096) as writer:
            for index, partition in enumerate(topic.partitions):
                records = [row for offset, row in sorted(partition.rows.items()) if offset < partition.archived_end]
                if records:
                    if records[0].offset:
                        writer.leave_out(PartitionIndex(index), Offset(0), Offset(records[0].offset))
                    writer.add(
                        SourceChunk(
                            partition=PartitionIndex(index),
                            offset_first=Offset(records[0].offset),
                            offset_end=Offset(partition.archived_end),
                            append_time_ms=NO_TIMESTAMP,
                            records=make_batch(records, last=partition.archived_end - 1),
                        )
                    )
            file = writer.finish()
        gone = frozenset(topic.data_keys)
        await self._commit(topic, key, file, dropped=gone, offsets={})
        await self.store.delete(sorted(gone))

    async def _commit(
        self,
        topic: MadeTopic,
        key: str,
        file: ArchiveFile,
        *,
        dropped: frozenset[str],
        offsets: dict[int, tuple[int, int]],
    ) -> None:
        await self.store.put(key, file.parts)
        prepared = await commit(
            TableBefore(
                name=topic.name,
                topic_id=topic.topic_id,
                created_ms=NOON,
                metadata_key=topic.metadata_key,
                root=self.root,
            ),
            Change(added=(file.data_file(key),), dropped=dropped, offsets=offsets),
            store=self.store,
            next_key=lambda suffix: self._metadata_key(topic, suffix),
            now_ms=NOON,
            cache=TableCache(),
            run_in_thread=asyncio.to_thread,
        )
        topic.metadata_key = prepared.table.metadata.key
        topic.data_keys = (topic.data_keys - dropped) | {key}

    def manifest(self) -> TailManifest:
        return TailManifest(
            cluster_id=self.cluster_id,
            incarnation=self.incarnation,
            position=Position(self.position),
            written_ms=Milliseconds(NOON),
            topics=tuple(_tail_topic(topic) for topic in self.topics.values()),
        )

    async def publish(self) -> None:
        """Lets readers see what there is."""
        self.position += 1
        await self.store.put(TAIL_KEY, [encode_manifest(self.manifest())])

    def visible(self, name: str) -> list[tuple[int, Record]]:
        """What readers should see, in order of partitions and offsets."""
        partitions = self.topics[name].partitions
        return [(index, record) for index, partition in enumerate(partitions) for record in partition.visible()]

    def _next(self) -> ObjectNumber:
        self._numbers += 1
        return ObjectNumber(self._numbers)

    def _metadata_key(self, topic: MadeTopic, suffix: str) -> str:
        return table_metadata_key(topic.name, topic.topic_id, SESSION, self._next(), suffix)


def _chunk(first: int, end: int, key: str, byte_first: int, byte_count: int) -> TailChunk:
    return TailChunk(
        offset_first=Offset(first),
        offset_end=Offset(end),
        object_key=key,
        byte_first=byte_first,
        byte_count=byte_count,
        append_time_ms=NO_TIMESTAMP,
    )


def _tail_topic(topic: MadeTopic) -> TailTopic:
    is_archived = any(partition.archived_end for partition in topic.partitions)
    return TailTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        metadata_key=topic.metadata_key or (NO_ROWS if is_archived else NO_KEY),
        partitions=tuple(_tail_partitions(topic.partitions)),
    )


def _tail_partitions(partitions: Iterable[MadePartition]) -> Iterable[TailPartition]:
    for made in partitions:
        yield TailPartition(
            log_start=Offset(made.log_start),
            archived_end=Offset(made.archived_end),
            last_stable=Offset(made.end if made.last_stable is None else made.last_stable),
            chunks=TailChunks.of(made.chunks) if made.chunks else TailChunks(offset_first=Offset(made.archived_end)),
            aborted=tuple(made.aborted),
            without_rows=tuple(made.without_rows),
        )
