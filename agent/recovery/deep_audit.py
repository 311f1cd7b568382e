"""Reads every stored byte, and reports damaged objects with the records that they hold.

It changes nothing. Damage is a finding, never an exception. Objects are read one after the other, in pieces: memory is
bounded by an intake object, a row group, or the manifests of one table. Missing objects are no damage here;
`agent.recovery.audit` reports them. Archive files of older versions have no checksums: their rows are decoded and
compared with the index. Table metadata of older versions is decoded. Manifests are compared with the footers of the
files, and with the log's index.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

from agent.recovery.table_entries import Contradiction, TableEntries
from agent.runtime.threads import run_in_thread
from coordinator.ledger.port import LedgerCorrupt
from coordinator.snapshot import decode_snapshot
from coordinator.state.chunk_index import NO_CHECKSUM, ChunkRef
from coordinator.state.state import ClusterState, ObjectState, PartitionState, TopicState
from coordinator.state.table_folders import folder_name
from coordinator.state.unplaced_batches import UnplacedBatch
from iceberg_export.parquet.reader import check_place, check_rows, decode_row_group, parse_footer
from iceberg_export.rows.checksums import FileChecksums, check_key, checked_footer, tail_bytes
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, Footer, damage_contained
from iceberg_export.tables.avro_files import decode_rows
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import TableUnreadable, decode, decode_copy
from iceberg_export.tail.manifest import TailUnreadable, decode_manifest
from protocol.decoding import Undecodable, decode_json_object, decode_number
from protocol.errors import InvalidBatch
from protocol.limits import AUDIT_AFFECTED_LISTED_MAX, AUDIT_PROGRESS_OBJECTS, AUDIT_READ_BYTES
from protocol.records.batch import check_crcs
from protocol.types import ObjectId
from storage.chunk_format import (
    FORMAT_VERSION,
    HEADER_BYTES,
    TAIL_BYTES_HINT,
    ChunkFormatError,
    ObjectDescription,
    TailTooShort,
    check_chunk,
    check_header,
    describe_object,
)
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectRejected, ObjectStore
from storage.refs import (
    METADATA_SUFFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    TAIL_KEY,
    VERSION_HINT,
    ObjectKind,
    intake_key,
    position_of_key,
    table_metadata_folder,
    topic_of_copy,
    topic_of_parquet_key,
    version_of_copy,
)

_DAMAGE = (ObjectDamaged, ChunkFormatError, InvalidBatch, TableUnreadable, Undecodable, LedgerCorrupt, TailUnreadable)


class AuditProgress(Protocol):
    """A callback after every `AUDIT_PROGRESS_OBJECTS` objects."""

    def __call__(self, objects: int, objects_total: int, byte_count: int, /) -> None: ...


class DamageFound(NamedTuple):
    key: str
    detail: str


class _Row(NamedTuple):
    """A row of the index."""

    topic: str
    partition: int
    chunk: ChunkRef


@dataclass(slots=True, kw_only=True)
class DeepAudit:
    """One deep audit; call `run` once."""

    state: ClusterState
    """Must not change during the audit: threads read it."""
    store: ObjectStore
    progress: AuditProgress | None = None
    objects: int = 0
    byte_count: int = 0
    found: list[DamageFound] = field(default_factory=list[DamageFound])
    _tables: TableEntries = field(init=False)

    def __post_init__(self) -> None:
        self._tables = TableEntries(self.state, self.store)

    async def run(self) -> None:
        """Read everything. Raises `StoreUnavailable`: try again; `StoreMisconfigured`: it rejects every request."""
        snapshots, marks = await self._positions(SNAPSHOT_PREFIX), await self._positions(REACHED_PREFIX)
        copies = [(topic, key) for topic in list(self.state.topics.values()) for key in await self._copies_of(topic)]
        total = len(self.state.objects) + len(snapshots) + len(marks) + len(copies) + 1
        for object_id, stored in sorted(self.state.objects.items(), key=_topic_by_topic):
            await self._look(stored.key, partial(self._read, object_id, stored), total, object_id)
        for key in snapshots:
            await self._look(key, partial(self._decoded, key, decode_snapshot), total)
        for key in marks:
            await self._look(key, partial(self._decoded, key, partial(_check_mark, key)), total)
        for topic, key in copies:
            await self._look(key, partial(self._read_copy, topic, key), total)
        await self._look(TAIL_KEY, partial(self._decoded, TAIL_KEY, decode_manifest), total)
        self._report_progress(total)

    async def _look(
        self, key: str, read: Callable[[], Awaitable[None]], total: int, object_id: ObjectId | None = None
    ) -> None:
        self.objects += 1
        if self.objects % AUDIT_PROGRESS_OBJECTS == 0:
            self._report_progress(total)
        try:
            await read()
        except ObjectMissing:
            pass  # replaced meanwhile, or missing: `agent.recovery.audit` reports missing objects
        except (*_DAMAGE, ObjectRejected) as error:
            affected = "" if object_id is None else f"; {await run_in_thread(self._affected, object_id)}"
            self.found.append(DamageFound(key, f"{error}{affected}"))

    def _report_progress(self, total: int) -> None:
        if self.progress is not None:
            self.progress(self.objects, total, self.byte_count)

    async def _get(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self.byte_count += byte_count
        return await self.store.get_range(key, byte_first, byte_count)

    async def _decoded(self, key: str, decode_it: Callable[[bytes], object]) -> None:
        data = await self.store.get(key)
        self.byte_count += len(data)
        await run_in_thread(decode_it, data)

    async def _positions(self, prefix: str) -> list[str]:
        """Keys of snapshots or marks. `agent.recovery.audit` reports other and unreadable names below their prefix."""
        metas = [meta async for meta in self.store.list(prefix)]
        return [meta.key for meta in metas if position_of_key(meta.key) is not None and not meta.fault]

    async def _copies_of(self, topic: TopicState) -> list[str]:
        """Keys of the Hadoop copies of a table's metadata, and of the version hint."""
        if topic.table is None:
            return []
        folder = table_metadata_folder(folder_name(self.state, topic), topic.topic_id)
        # Other names begin with a session, so they sort before "v" and are not listed.
        keys = [meta.key async for meta in self.store.list(folder, after=f"{folder}v")]
        return [key for key in keys if topic_of_copy(key) is not None]

    async def _read_copy(self, topic: TopicState, key: str) -> None:
        """Check a copy or the version hint. Raises `TableUnreadable` and `Undecodable` where readers without a catalog
        would not find the table.
        """
        data = await self.store.get(key)
        self.byte_count += len(data)
        version = version_of_copy(key)
        if version is None:
            copy = key.removesuffix(VERSION_HINT) + f"v{decode_number(data)}{METADATA_SUFFIX}"
            try:
                await self.store.head(copy)
            except ObjectMissing as error:
                raise TableUnreadable(f"it names {copy}, which does not exist") from error
            return
        if topic.table is not None and version == topic.table.version:
            await run_in_thread(decode, data, topic.table.metadata_key)
            original = await self.store.get(topic.table.metadata_key)
            if data != original:
                raise TableUnreadable(f"it is not an exact copy of {topic.table.metadata_key}")
        else:
            # The originals of older versions are deleted, so these copies can only be decoded.
            folder = key.rpartition("/")[0]
            before = b"" if version == 1 else await self._get_if_readable(f"{folder}/v{version - 1}{METADATA_SUFFIX}")
            await run_in_thread(decode_copy, data, before)

    async def _get_if_readable(self, key: str) -> bytes | None:
        """The bytes of an object; None where it is missing or damaged."""
        try:
            return await self.store.get(key)
        except (ObjectMissing, ObjectDamaged):
            return None

    async def _read(self, object_id: ObjectId, stored: ObjectState) -> None:
        match stored.kind:
            case ObjectKind.INTAKE:
                data = await self.store.get(stored.key)
                self.byte_count += len(data)
                await run_in_thread(self._check_intake, object_id, stored.key, data)
            case ObjectKind.PARQUET:
                await self._read_file(object_id, stored)
            case ObjectKind.TABLE_METADATA:
                is_json = stored.key.endswith(METADATA_SUFFIX)
                await self._decoded(stored.key, partial(decode if is_json else decode_rows, key=stored.key))

    def _check_intake(self, object_id: ObjectId, key: str, data: bytes) -> None:
        """Check an intake object against the index. Raises `ChunkFormatError` and `InvalidBatch`.

        CPU work for a thread: it scans the unarchived rows of each partition in the object.
        """
        description = _checked_description(key, data)
        for topic_id, number in dict.fromkeys((chunk.topic_id, chunk.partition) for chunk in description.chunks):
            partition = self.state.partition(topic_id, number)
            if partition is not None:
                index = partition.index
                rows = [index.row(row) for row in index.rows_of_object(object_id, index.intake_row)]
                _check_chunks(memoryview(data), [*rows, *_unplaced_batches(partition, object_id)])

    async def _read_file(self, object_id: ObjectId, stored: ObjectState) -> None:
        size = stored.object_bytes
        object_bytes = (await self.store.head(stored.key)).size_bytes
        if object_bytes != size:
            raise FileUnreadable(f"it has {object_bytes} bytes, in the state {size}")
        if size < FOOTER_TAIL_BYTES:
            raise FileUnreadable(f"it has {size} bytes: too short for a Parquet file")
        tail = await self._get(stored.key, size - FOOTER_TAIL_BYTES, FOOTER_TAIL_BYTES)
        while (needed := tail_bytes(tail, size)) > len(tail):
            tail = await self._get(stored.key, size - needed, needed)
        with damage_contained("the footer"):
            _, checksums = checked_footer(tail, size)
        footer = await run_in_thread(parse_footer, tail, key=stored.key, file_bytes=size)
        for contradiction in await self._tables.enter(topic_of_parquet_key(stored.key)):
            self._contradicts(contradiction)
        if checksums is None:
            await self._read_rows(object_id, stored, footer)
        else:
            check_key(checksums, stored.key)
            for byte_first, byte_end in _steps(checksums):
                data = await self._get(stored.key, byte_first, byte_end - byte_first)
                await run_in_thread(checksums.check, byte_first, data)
        # If the two differ, the manifest is wrong: the checksums of the file matched.
        described = await run_in_thread(_described, stored.key, size, footer)
        if (differs := self._tables.compared(stored.key, described)) is not None:
            self._contradicts(differs)

    def _contradicts(self, contradiction: Contradiction) -> None:
        """Report a contradiction, unless the object is already reported as damaged."""
        if contradiction.key not in {damage.key for damage in self.found}:
            self.found.append(DamageFound(*contradiction))

    async def _read_rows(self, object_id: ObjectId, stored: ObjectState, footer: Footer) -> None:
        """Check a file of an older version, without checksums, by decoding its rows."""
        by_group: dict[int, list[_Row]] = {}
        topic_id = topic_of_parquet_key(stored.key)
        topic = None if topic_id is None else self.state.topics.get(topic_id)
        for row in await run_in_thread(self._rows, object_id, () if topic is None else (topic,)):
            if row.chunk.row_count:
                check_place(footer, row.chunk)
                by_group.setdefault(row.chunk.row_group, []).append(row)
        for number, place in enumerate(footer.row_groups):
            data = await self._get(stored.key, place.byte_first, place.byte_count)
            rows = await run_in_thread(decode_row_group, footer, number, data)
            for partition, chunk in ((row.partition, row.chunk) for row in by_group.get(number, ())):
                part = check_rows(rows, chunk)
                newest_ms = int(part.timestamp_ms.max())
                if (int(part.partition[0]), newest_ms) != (partition, chunk.max_timestamp):
                    raise FileUnreadable(
                        f"its rows of partition {partition} for offsets {chunk.offset_first} to {chunk.offset_end} "
                        "differ from the index"
                    )

    def _rows(self, object_id: ObjectId, topics: Iterable[TopicState]) -> list[_Row]:
        """The index rows of `topics` that refer to an object. CPU work for a thread.

        A data file belongs to one topic, so the caller passes only that one.
        """
        return [
            _Row(topic.name, number, partition.index.row(row))
            for topic in topics
            for number, partition in enumerate(topic.partitions)
            for row in partition.index.rows_of_object(object_id)
        ]

    def _affected(self, object_id: ObjectId) -> str:
        """The records in an object, as text. CPU work for a thread: it scans the indexes of all topics."""
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        topics = self.state.topics.values()
        for topic, partition, chunk in self._rows(object_id, topics):
            first, end = spans.get((topic, partition), (chunk.offset_first, chunk.offset_end))
            spans[topic, partition] = min(first, chunk.offset_first), max(end, chunk.offset_end)
        uncommitted = [
            f"{topic.name}-{number} records of open transactions"
            for topic in topics
            for number, partition in enumerate(topic.partitions)
            if _unplaced_batches(partition, object_id)
        ]
        if not spans and not uncommitted:
            tables = [topic.name for topic in topics if topic.table and object_id in topic.table.objects]
            return "it holds no records of the log" + "".join(f"; it belongs to the table of {name}" for name in tables)
        listed = [
            f"{topic}-{partition} offsets {first} to {end - 1}" for (topic, partition), (first, end) in spans.items()
        ]
        listed += uncommitted
        more = len(listed) - AUDIT_AFFECTED_LISTED_MAX
        return ", ".join(listed[:AUDIT_AFFECTED_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _described(key: str, object_bytes: int, footer: Footer) -> DataFile:
    from iceberg_export.parquet.arrow_footer import describe_file  # imports pyarrow

    return describe_file(key, object_bytes, footer)


def _topic_by_topic(item: tuple[ObjectId, ObjectState]) -> tuple[bool, str, ObjectId]:
    """Sort key: data files after the metadata that names them, and grouped by topic."""
    object_id, stored = item
    is_file = stored.kind is ObjectKind.PARQUET
    return is_file, stored.key.rpartition("/")[0] if is_file else "", object_id


def _check_mark(key: str, data: bytes) -> None:
    """Raise `Undecodable` where the position in a progress mark differs from its key."""
    position = decode_json_object(data).get("position")
    if position != position_of_key(key):
        raise Undecodable(f"its position is {position}, which differs from its key")


def _unplaced_batches(partition: PartitionState, object_id: ObjectId) -> list[UnplacedBatch]:
    """The batches of an object that wait for their transaction's commit: the index has no rows for them yet."""
    return [run for runs in partition.unplaced_batches.values() for run in runs if run.object_id == object_id]


def _checked_description(key: str, data: bytes) -> ObjectDescription:
    """The description of an intake object, with its header and chunks checked. Raises `ChunkFormatError`."""
    try:
        description = describe_object(data[-TAIL_BYTES_HINT:], len(data))
    except TailTooShort as error:
        description = describe_object(data[-error.bytes_needed :], len(data))
    view = memoryview(data)
    version = check_header(view[:HEADER_BYTES])
    if version > FORMAT_VERSION:
        raise ChunkFormatError(f"its header has version {version}, which this program does not know")
    written_key = intake_key(description.session, description.number)
    if written_key != key:
        raise ChunkFormatError(f"it was written with the key {written_key}")
    for chunk in description.chunks:
        check_chunk(view[chunk.byte_first : chunk.byte_first + chunk.byte_count], chunk)
    return description


def _check_chunks(data: memoryview, chunks: Iterable[ChunkRef | UnplacedBatch]) -> None:
    """Check chunks by the checksums of their rows. Raises `InvalidBatch` and `ChunkFormatError`."""
    for chunk in chunks:
        checksum = check_crcs(data[chunk.byte_first : chunk.byte_first + chunk.byte_count])
        if chunk.checksum not in (NO_CHECKSUM, checksum):
            raise ChunkFormatError(
                f"the chunk at byte {chunk.byte_first} has the checksum {checksum:#010x}, in the ledger it is "
                f"{chunk.checksum:#010x}"
            )


def _steps(checksums: FileChecksums) -> Iterator[tuple[int, int]]:
    """Byte ranges that end where a checksum ends, of about `AUDIT_READ_BYTES` each."""
    begun = 0
    ends = checksums.ends.tolist()
    for end, following in pairwise([*ends, ends[-1] + AUDIT_READ_BYTES + 1]):
        if end > begun and following - begun > AUDIT_READ_BYTES:
            yield begun, end
            begun = end
