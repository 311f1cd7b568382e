"""One commit to a topic's table: the metadata before it in, the next metadata in the bucket, and what the entry says.

Rule: what is put lies under new keys and counts once the ledger has the entry; nothing is deleted or written again. A
commit that fails, is cancelled, or loses a race leaves objects that no entry refers to (safety rule S6), and the table
as it was. The cost does not grow with the table: manifests are merged by level (`levels`), snapshots expire together.

Specification: Iceberg's table specification, version 2, "Snapshots", "Manifests"; `released` for what goes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from coordinator.commands.commands import NewObject, TableCommit
from iceberg_export.rows.executor import RunInThread
from iceberg_export.tables.columns import ColumnsChange, columns_of, with_columns
from iceberg_export.tables.count_filling import filled
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.edits import TableEdit, edited
from iceberg_export.tables.manifest_changes import NextManifests, next_manifests
from iceberg_export.tables.manifests import ManifestFile, describe_manifest, encode_manifest, encode_manifest_list
from iceberg_export.tables.metadata import (
    Snapshot,
    TableMetadata,
    TableUnreadable,
    empty_metadata,
    encode,
    table_location,
)
from iceberg_export.tables.released import dropped_files, held_now, released_by
from iceberg_export.tables.snapshots import (
    FileTotals,
    add_snapshot,
    expiring,
    snapshot_id_of,
    summarize,
    without,
    without_old_names,
)
from iceberg_export.tables.table_reader import TableCache, TableReader, gather_bounded
from iceberg_export.typed.union import TypedColumns
from protocol.limits import TABLE_FILES_PER_COMMIT_MAX, TABLE_RELEASED_PER_COMMIT_MAX
from protocol.types import TopicId
from storage.object_store import ObjectStore
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX, METADATA_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBefore:
    """The table that a commit is made of.

    `root`: the bucket's URI without a slash at its end, as in `s3://bucket/prefix` or `file:///path`.
    `metadata_key`: the key of its current metadata, "" before its first commit.
    """

    name: str
    topic_id: TopicId
    created_ms: int
    metadata_key: str
    root: str
    folder_name: str | None = None
    """What the topic is called in its table's folder, where that is not its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit does to its table.

    `added` and `dropped` (keys of data files) are `TABLE_FILES_PER_COMMIT_MAX` at most. `offsets`: for each partition
    that it brought, [first, end). With an edit alone, or where snapshots are only to expire, there is no new one.
    """

    added: tuple[DataFile, ...] = ()
    dropped: frozenset[str] = frozenset()
    offsets: Mapping[int, tuple[int, int]] | None = None
    edit: TableEdit | None = None
    columns: ColumnsChange | None = None
    """What the added files' typed columns make of the table's; None where they have none."""
    expires_before_ms: int | None = None
    """Snapshots that were followed by another one before this time expire, whatever their number."""
    left: tuple[str, ...] = ()
    """Keys of data files that no snapshot holds any more, and that no entry has released yet (`expire_snapshots`)."""

    @property
    def makes_snapshot(self) -> bool:
        """True where it changes files, or tells offsets."""
        return bool(self.added or self.dropped or self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A commit whose objects are durable. `table` is what its entry has to say; `metadata_json` is the new metadata."""

    table: TableCommit
    metadata: TableMetadata
    metadata_json: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeObject:
    """An object to put, and what it decodes to."""

    key: str
    data: bytes
    decoded: object


async def commit(
    table: TableBefore,
    change: Change,
    *,
    store: ObjectStore,
    next_key: Callable[[str], str],
    now_ms: int,
    cache: TableCache,
    run_in_thread: RunInThread,
) -> PreparedCommit:
    """Put the next metadata of a table, and return the entry that makes it hold.

    `next_key` gives a new key of the committing session for a suffix; it is called on the loop. Raises `StoreError`:
    `ObjectMissing` where the table moved on, `FilesNotInTable` and `ColumnsMovedOn` (all: plan again),
    `TableUnreadable` (people must look); `RequirementFailed` and `EditInvalid` of an edit.
    """
    is_expiring = change.expires_before_ms is not None
    assert change.makes_snapshot or change.edit or is_expiring, "a commit changes something"
    assert len({file.key for file in change.added}) == len(change.added), "a file is added once"
    assert len(change.added) + len(change.dropped) <= TABLE_FILES_PER_COMMIT_MAX, "the ledger's entry names every file"
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    before = await _metadata_before(table, reader)
    if change.columns is not None:
        before = with_columns(before, change.columns)
    if change.edit is not None:
        before = edited(before, change.edit, now_ms=now_ms)
    metadata, metadata_key = before, next_key(METADATA_SUFFIX)
    objects: list[MadeObject] = []
    released: tuple[str, ...] = ()
    if change.makes_snapshot:
        metadata, objects = await with_snapshot(
            before, change, reader=reader, next_key=next_key, snapshot_id=snapshot_id_of(metadata_key), now_ms=now_ms
        )
        for made in objects:
            cache.keep(made.key, len(made.data), made.decoded)  # what expires is compared with what there is now
    if change.makes_snapshot or is_expiring:
        metadata = without_old_names(metadata, now_ms)
        metadata, released = await _expire(metadata, reader, change.expires_before_ms)
    metadata_json = encode(metadata, metadata_key)
    await put_objects([*objects, MadeObject(key=metadata_key, data=metadata_json, decoded=metadata)], reader)
    cache.forget(table.metadata_key)
    return PreparedCommit(
        table=TableCommit(
            replaces=table.metadata_key,
            metadata=NewObject(key=metadata_key, object_bytes=len(metadata_json)),
            added=tuple(NewObject(key=made.key, object_bytes=len(made.data)) for made in objects),
            data_files=tuple(file.key for file in change.added),
            released=(*([table.metadata_key] if table.metadata_key else []), *released, *change.left),
        ),
        metadata=metadata,
        metadata_json=metadata_json,
    )


async def expire_snapshots(
    table: TableBefore,
    unneeded: Iterable[str],
    *,
    expires_before_ms: int,
    now_ms: int,
    store: ObjectStore,
    cache: TableCache,
    run_in_thread: RunInThread,
) -> Change | None:
    """The change that lets go of data files to which nothing but the table refers; None while there is none to make.

    A file that was dropped stays with the table until the last snapshot before its drop expires, which is when it was
    followed by another one before `expires_before_ms`, and has no name. Those that no snapshot holds are what one of
    them held when it expired, where one entry could not name them all. Raises `StoreError`.
    """
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    metadata = without_old_names(await _metadata_before(table, reader), now_ms)
    wanted = sorted(frozenset(unneeded) - await dropped_files(metadata, reader))[:TABLE_FILES_PER_COMMIT_MAX]
    if not wanted and not expiring(metadata, expires_before_ms):
        return None
    dropped = await held_now(metadata, frozenset(wanted), reader)
    left = tuple(key for key in wanted if key not in dropped)
    return Change(dropped=dropped, expires_before_ms=expires_before_ms, left=left)


async def typed_columns(
    table: TableBefore, *, store: ObjectStore, cache: TableCache, run_in_thread: RunInThread
) -> TypedColumns | None:
    """The table's typed columns; None where it has none. Raises `StoreError`."""
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    return columns_of(await _metadata_before(table, reader))


async def check_readable(
    table: TableBefore, *, store: ObjectStore, cache: TableCache, run_in_thread: RunInThread
) -> None:
    """Read what every commit begins with: the metadata and the current manifest list. Raises `StoreError`."""
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    metadata = await _metadata_before(table, reader)
    columns_of(metadata)
    current = metadata.current()
    if current is not None:
        await reader.manifests(current)


def empty_of(table: TableBefore) -> TableMetadata:
    """The table's metadata before its first commit."""
    return empty_metadata(
        name=table.name,
        topic_id=table.topic_id,
        location=table_location(table.root, table.folder_name or table.name, table.topic_id),
        created_ms=table.created_ms,
    )


async def _metadata_before(table: TableBefore, reader: TableReader) -> TableMetadata:
    """The current metadata. Raises `StoreError`, `TableUnreadable` where it is that of another table or bucket."""
    empty = empty_of(table)
    if not table.metadata_key:
        return empty
    metadata = await reader.metadata(table.metadata_key)
    if (metadata.table_uuid, metadata.location) != (empty.table_uuid, empty.location):
        raise TableUnreadable(
            f"{table.metadata_key!r} is of the table {metadata.table_uuid} at {metadata.location!r}, expected "
            f"{empty.table_uuid} at {empty.location!r}: was another agent given another --store for this bucket? "
            f'docs/operations/bucket.md, "A bucket or data folder was moved"'
        )
    return metadata


async def with_snapshot(
    before: TableMetadata,
    change: Change,
    *,
    reader: TableReader,
    next_key: Callable[[str], str],
    snapshot_id: int,
    now_ms: int,
) -> tuple[TableMetadata, list[MadeObject]]:
    """The metadata with the next snapshot, and its new manifests and manifest list; nothing is put yet."""
    parent = before.current()
    number = before.last_sequence_number + 1
    manifests = await next_manifests(
        () if parent is None else await reader.manifests(parent),
        added=change.added,
        dropped=change.dropped,
        snapshot_id=snapshot_id,
        sequence_number=number,
        # Of columns that are new to the table, files that are there have nulls: their counts say so from now on.
        is_counted_again=parent is not None and parent.schema_id != before.current_schema_id,
        reader=reader,
    )
    list_key = next_key(MANIFEST_LIST_SUFFIX)
    keys = [next_key(MANIFEST_SUFFIX) for _ in manifests.new]
    metadata = add_snapshot(
        before,
        snapshot_id=snapshot_id,
        manifest_list=f"{reader.root}/{list_key}",
        summary=summarize(
            parent,
            added=FileTotals.of(change.added),
            dropped=FileTotals.of(manifests.dropped),
            offsets=change.offsets or {},
        ),
        now_ms=now_ms,
    )
    objects = await reader.run_in_thread(
        _encode, manifests, metadata=metadata, keys=keys, list_key=list_key, root=reader.root
    )
    return metadata, objects


def _encode(
    manifests: NextManifests, *, metadata: TableMetadata, keys: list[str], list_key: str, root: str
) -> list[MadeObject]:
    """The new manifests and, at the end, the manifest list. CPU work for a thread."""
    snapshot = metadata.snapshots[-1]
    objects: list[MadeObject] = []
    rows: list[ManifestFile] = list(manifests.kept)
    columns = columns_of(metadata)
    for key, found in zip(keys, manifests.new, strict=True):
        entries = filled(found, columns)
        data = encode_manifest(
            entries, key=key, root=root, schema_id=metadata.current_schema_id, schema_json=bytes(metadata.schemas[-1])
        )
        objects.append(MadeObject(key=key, data=data, decoded=entries))
        rows.append(
            describe_manifest(
                key,
                len(data),
                entries,
                snapshot_id=snapshot.snapshot_id,
                sequence_number=snapshot.sequence_number,
            )
        )
    parent_id = snapshot.parent_snapshot_id
    list_data = encode_manifest_list(
        rows,
        key=list_key,
        root=root,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=parent_id if isinstance(parent_id, int) else None,
        sequence_number=snapshot.sequence_number,
    )
    return [*objects, MadeObject(key=list_key, data=list_data, decoded=tuple(rows))]


async def _expire(
    metadata: TableMetadata, reader: TableReader, before_ms: int | None
) -> tuple[TableMetadata, tuple[str, ...]]:
    """The metadata without the snapshots that are too many, or too old, and the keys that they release.

    Where an entry could not name them all, fewer expire, one at least: as many come as go then. What that one alone
    has too many of, after years with a name say, are data files: `expire_snapshots` releases the rest.
    """
    leaving = expiring(metadata, before_ms)
    if not leaving:
        return metadata, ()
    released: list[str] = []
    expired: list[Snapshot] = []
    for snapshot, keys in zip(leaving, await released_by(metadata.snapshots, leaving, reader), strict=True):
        if expired and len(released) + len(keys) > TABLE_RELEASED_PER_COMMIT_MAX:
            break
        released += keys[:TABLE_RELEASED_PER_COMMIT_MAX]
        expired.append(snapshot)
    return without(metadata, expired), tuple(released)


async def put_objects(objects: list[MadeObject], reader: TableReader) -> None:
    """Put the objects, and keep what they decode to."""
    await gather_bounded([partial(reader.store.put, made.key, (made.data,)) for made in objects])
    for made in objects:
        reader.cache.keep(made.key, len(made.data), made.decoded)
