"""Rewrites the metadata of a table whose bucket was moved or renamed: the same table, with the bucket's new URIs.

Iceberg's metadata names every object by an absolute URI, so a table that was copied still names the old bucket.
Metadata, manifest lists and manifests are written again under new keys, and one entry replaces all of them. Snapshots
keep their ids, sequence numbers, tags and properties. Data files have no URIs and do not change.

Specification: Iceberg's table specification, version 2, "Table Metadata Fields", "Manifests", "Manifest Lists".
"""

from collections.abc import Callable
from functools import partial
from itertools import chain

from msgspec.structs import replace

from coordinator.commands.commands import NewObject, TableCommit
from iceberg_export.rows.executor import RunInThread
from iceberg_export.tables.commit import MadeObject, TableBefore, empty_of, made_manifest_list, put_objects
from iceberg_export.tables.manifests import (
    ManifestFile,
    encode_manifest,
    key_of_uri,
    with_object,
)
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable, encode, schema_json_of
from iceberg_export.tables.table_reader import TableCache, TableReader, gather_bounded
from protocol.limits import TABLE_RELEASED_PER_COMMIT_MAX
from storage.object_store import ObjectStore
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX, METADATA_SUFFIX


async def root_before(
    table: TableBefore, *, store: ObjectStore, cache: TableCache, run_in_thread: RunInThread
) -> str | None:
    """The URI of the bucket that the table's metadata was written for; None where that is still the bucket's URI.

    Raises `StoreError`, `TableUnreadable` where it is the metadata of another table.
    """
    if not table.metadata_key:
        return None
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    metadata, expected = await reader.metadata(table.metadata_key), empty_of(table)
    if metadata.location == expected.location:
        return None
    folder = expected.location.removeprefix(table.root)
    if metadata.table_uuid != expected.table_uuid or not metadata.location.endswith(folder):
        raise TableUnreadable(
            f"{table.metadata_key!r} is of the table {metadata.table_uuid} at {metadata.location!r}, expected "
            f"{expected.table_uuid} at {expected.location!r}"
        )
    return metadata.location.removesuffix(folder)


async def relocate(
    table: TableBefore,
    old_root: str,
    *,
    store: ObjectStore,
    next_key: Callable[[str], str],
    cache: TableCache,
    run_in_thread: RunInThread,
) -> TableCommit:
    """Put the table's metadata with the URIs of `table.root`, and return the commit that the entry has to carry.

    `old_root`: the URI of the bucket in the current metadata. Raises `StoreError`, and `TableUnreadable` also where the
    table has more objects than one entry may name.
    """
    reader = TableReader(root=old_root, store=store, cache=cache, run_in_thread=run_in_thread)
    metadata = await reader.metadata(table.metadata_key)
    lists = await gather_bounded([partial(reader.manifests, snapshot) for snapshot in metadata.snapshots])
    manifests = {manifest.key: manifest for manifest in chain.from_iterable(lists)}
    list_keys = [key_of_uri(snapshot.manifest_list, old_root) for snapshot in metadata.snapshots]
    # A table with URIs of both buckets would be unreadable, so there is no second entry.
    if len(manifests) + len(list_keys) + 1 > TABLE_RELEASED_PER_COMMIT_MAX:
        raise TableUnreadable(
            f"the table of {table.name} has {len(manifests) + len(list_keys)} objects of metadata, more than one entry "
            f"can move to {table.root}: remove tags and branches, or rebuild it: penstock lake rebuild {table.name}"
        )
    made = await gather_bounded(
        [partial(_moved, manifest, metadata, reader, table.root, next_key) for manifest in manifests.values()]
    )
    moved = {
        key: with_object(manifest, key=new.key, object_bytes=len(new.data))
        for (key, manifest), new in zip(manifests.items(), made, strict=True)
    }
    made_lists = [
        await run_in_thread(
            partial(
                made_manifest_list,
                [moved[manifest.key] for manifest in rows],
                snapshot,
                key=next_key(MANIFEST_LIST_SUFFIX),
                root=table.root,
            )
        )
        for snapshot, rows in zip(metadata.snapshots, lists, strict=True)
    ]
    after = replace(
        metadata,
        location=empty_of(table).location,
        snapshots=tuple(
            replace(snapshot, manifest_list=f"{table.root}/{new.key}")
            for snapshot, new in zip(metadata.snapshots, made_lists, strict=True)
        ),
    )
    metadata_key = next_key(METADATA_SUFFIX)
    metadata_json = encode(after, metadata_key)
    objects = [*made, *made_lists]
    await put_objects([*objects, MadeObject(key=metadata_key, data=metadata_json, decoded=after)], reader)
    return TableCommit(
        replaces=table.metadata_key,
        metadata=NewObject(key=metadata_key, object_bytes=len(metadata_json)),
        added=tuple(NewObject(key=new.key, object_bytes=len(new.data)) for new in objects),
        data_files=(),
        released=(table.metadata_key, *list_keys, *manifests),
    )


async def _moved(
    manifest: ManifestFile, metadata: TableMetadata, reader: TableReader, root: str, next_key: Callable[[str], str]
) -> MadeObject:
    """The manifest with the URIs of its files below another root."""
    entries, key = await reader.entries(manifest), next_key(MANIFEST_SUFFIX)
    schema_ids = {snapshot.snapshot_id: snapshot.schema_id for snapshot in metadata.snapshots}
    # The schema of an expired snapshot may be gone. The current schema has all its columns, as columns are never
    # removed.
    schema_id = schema_ids.get(manifest.added_snapshot_id, metadata.current_schema_id)
    data = await reader.run_in_thread(
        partial(
            encode_manifest,
            entries,
            key=key,
            root=root,
            schema_id=schema_id,
            schema_json=schema_json_of(metadata, schema_id),
        )
    )
    return MadeObject(key=key, data=data, decoded=entries)
