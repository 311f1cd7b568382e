"""One commit to a topic's table: reads the current metadata, puts the next one, and makes the part of the entry.

All objects are put under new keys, and are part of the table once the ledger has the entry. Nothing is deleted or
overwritten. A commit that fails, is cancelled, or loses a race does not change the table. It leaves objects that no
entry refers to (safety rule S6). Its cost does not grow with the table: manifests are merged by level (`levels`), and
snapshots expire in groups.

Specification: Iceberg's table specification, version 2, "Snapshots", "Manifests". `released` selects the objects that a
commit releases.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from iceberg_export.tables.released import current_files, dropped_files, released_by
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
from iceberg_export.typed.columns import TypedColumns
from protocol.limits import TABLE_FILES_PER_COMMIT_MAX, TABLE_RELEASED_PER_COMMIT_MAX
from protocol.types import TopicId
from storage.object_store import ObjectStore
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX, METADATA_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBefore:
    """The table before a commit.

    `root`: the bucket's URI without a trailing slash, such as `s3://bucket/prefix` or `file:///path`.
    `metadata_key`: the key of the table's current metadata, "" before its first commit.
    """

    name: str
    topic_id: TopicId
    created_ms: int
    metadata_key: str
    root: str
    folder_name: str | None = None
    """The topic's name in the path of its table's folder; None: the same as `name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of one commit.

    `added`: new data files. `dropped`: keys of data files. Both together have at most `TABLE_FILES_PER_COMMIT_MAX`.
    `offsets`: `[first, end)` of each partition that the added files bring. A commit with an edit alone, or one that
    only expires snapshots, makes no snapshot.
    """

    added: tuple[DataFile, ...] = ()
    dropped: frozenset[str] = frozenset()
    offsets: Mapping[int, tuple[int, int]] | None = None
    edit: TableEdit | None = None
    columns: ColumnsChange | None = None
    """The change of the table's typed columns that the added files need; None where they have none."""
    expires_before_ms: int | None = None
    """Snapshots that another one followed before this time expire, even where there are few."""
    unreleased_files: tuple[str, ...] = ()
    """Keys of data files that no snapshot has any more, and no entry has released yet (`expire_snapshots`)."""

    @property
    def makes_snapshot(self) -> bool:
        """True where it changes files or adds offsets."""
        return bool(self.added or self.dropped or self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A commit whose objects are durable. `table`: its part of the entry; `metadata_json`: the new metadata."""

    table: TableCommit
    metadata: TableMetadata
    metadata_json: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeObject:
    """An object to put, with its bytes and its decoded form."""

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
    """Put the next metadata of a table, and return the commit that the entry has to carry.

    `next_key`: returns a new key of the committing session for a suffix; called on the event loop. `now_ms`: the time
    of the new snapshot. Raises `StoreError`: `ObjectMissing` (the table has changed), `FilesNotInTable` and
    `ColumnsMovedOn` (plan again after all three), `TableUnreadable` (an operator has to act). An edit raises
    `RequirementFailed` and `EditInvalid`.
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
        # `_expire` compares the expiring snapshots with the new one, whose objects are not in the bucket yet.
        for made in objects:
            cache.keep(made.key, len(made.data), made.decoded)
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
            released=(*([table.metadata_key] if table.metadata_key else []), *released, *change.unreleased_files),
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
    """The change that drops data files to which only the table refers, and expires snapshots; None without any.

    `unneeded`: keys of the table's files that the chunk index does not refer to. A dropped file stays in the table
    until the last snapshot before the drop expires. A snapshot expires where another one followed it before
    `expires_before_ms` and no tag or branch names it. A file of no snapshot is left over from an expired one that had
    too many files for one entry. Raises `StoreError`.
    """
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    metadata = without_old_names(await _metadata_before(table, reader), now_ms)
    # A file that an older snapshot still has was dropped before, and cannot be dropped again.
    keys = sorted(frozenset(unneeded) - await dropped_files(metadata, reader))[:TABLE_FILES_PER_COMMIT_MAX]
    if not keys and not expiring(metadata, expires_before_ms):
        return None
    dropped = await current_files(metadata, frozenset(keys), reader)
    unreleased = tuple(key for key in keys if key not in dropped)
    return Change(dropped=dropped, expires_before_ms=expires_before_ms, unreleased_files=unreleased)


async def typed_columns(
    table: TableBefore, *, store: ObjectStore, cache: TableCache, run_in_thread: RunInThread
) -> TypedColumns | None:
    """The table's typed columns; None where it has none. Raises `StoreError`."""
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    return columns_of(await _metadata_before(table, reader))


async def check_readable(
    table: TableBefore, *, store: ObjectStore, cache: TableCache, run_in_thread: RunInThread
) -> None:
    """Read the objects that every commit needs: the metadata and the current manifest list. Raises `StoreError`."""
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
    """The current metadata. Raises `StoreError`, `TableUnreadable` where it is of another table or bucket."""
    empty = empty_of(table)
    if not table.metadata_key:
        return empty
    metadata = await reader.metadata(table.metadata_key)
    # URIs of another bucket would get into the new manifests, and engines would read the old bucket.
    if (metadata.table_uuid, metadata.location) != (empty.table_uuid, empty.location):
        raise TableUnreadable(
            f"{table.metadata_key!r} is of the table {metadata.table_uuid} at {metadata.location!r}, expected "
            f"{empty.table_uuid} at {empty.location!r}: does another agent have another --store for this bucket? "
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
    """The metadata with the next snapshot, and its new manifests and manifest list, which are not put yet."""
    parent = before.current()
    number = before.last_sequence_number + 1
    manifests = await next_manifests(
        () if parent is None else await reader.manifests(parent),
        added=change.added,
        dropped=change.dropped,
        snapshot_id=snapshot_id,
        sequence_number=number,
        # The table has new columns, which are null in all existing files. Their counts have to say so: engines may skip
        # a file with an uncounted column (`column_counts`).
        has_new_columns=parent is not None and parent.schema_id != before.current_schema_id,
        reader=reader,
    )
    list_key = next_key(MANIFEST_LIST_SUFFIX)
    keys = [next_key(MANIFEST_SUFFIX) for _ in manifests.new_manifests]
    metadata = add_snapshot(
        before,
        snapshot_id=snapshot_id,
        manifest_list=f"{reader.root}/{list_key}",
        summary=summarize(
            parent,
            added=FileTotals.of(change.added),
            dropped=FileTotals.of(manifests.dropped_files),
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
    """The new manifests and, as the last object, the manifest list. CPU work for a thread."""
    snapshot = metadata.snapshots[-1]
    objects: list[MadeObject] = []
    rows: list[ManifestFile] = list(manifests.unchanged_manifests)
    columns = columns_of(metadata)
    for key, new_entries in zip(keys, manifests.new_manifests, strict=True):
        entries = filled(new_entries, columns)
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
    return [*objects, made_manifest_list(rows, snapshot, key=list_key, root=root)]


def made_manifest_list(rows: Sequence[ManifestFile], snapshot: Snapshot, *, key: str, root: str) -> MadeObject:
    """The manifest list of a snapshot."""
    parent_id = snapshot.parent_snapshot_id
    data = encode_manifest_list(
        rows,
        key=key,
        root=root,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=parent_id if isinstance(parent_id, int) else None,
        sequence_number=snapshot.sequence_number,
    )
    return MadeObject(key=key, data=data, decoded=tuple(rows))


async def _expire(
    metadata: TableMetadata, reader: TableReader, before_ms: int | None
) -> tuple[TableMetadata, tuple[str, ...]]:
    """The metadata without the snapshots that are too many or too old, and the keys that they release.

    Fewer snapshots expire where one entry could not name all their keys, but at least one. So a commit removes at least
    as many snapshots as it adds.
    """
    leaving = expiring(metadata, before_ms)
    if not leaving:
        return metadata, ()
    released: list[str] = []
    expired: list[Snapshot] = []
    for snapshot, keys in zip(leaving, await released_by(metadata.snapshots, leaving, reader), strict=True):
        if expired and len(released) + len(keys) > TABLE_RELEASED_PER_COMMIT_MAX:
            break
        # One snapshot may have more keys than an entry may name, for example after years with a tag. The keys beyond
        # the limit are data files, which `expire_snapshots` releases later.
        released += keys[:TABLE_RELEASED_PER_COMMIT_MAX]
        expired.append(snapshot)
    return without(metadata, expired), tuple(released)


async def put_objects(objects: list[MadeObject], reader: TableReader) -> None:
    """Put the objects, and cache their decoded forms."""
    await gather_bounded([partial(reader.store.put, made.key, (made.data,)) for made in objects])
    for made in objects:
        reader.cache.keep(made.key, len(made.data), made.decoded)
