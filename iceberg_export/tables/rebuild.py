"""Rebuilds a topic's table from its data files: new metadata with one snapshot, and no history.

It works as `commit` does, but reads no existing metadata, so that may be damaged or missing. Sequence numbers begin at
1 again, and the schema is that of the newest file. A recovery makes tables in the same way.
"""

from collections.abc import Callable, Sequence

from coordinator.commands.commands import NewObject, TableCommit
from iceberg_export.rows.executor import RunInThread
from iceberg_export.tables.columns import ColumnsChange, with_columns
from iceberg_export.tables.commit import Change, MadeObject, TableBefore, empty_of, put_objects, with_snapshot
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import encode
from iceberg_export.tables.snapshots import snapshot_id_of
from iceberg_export.tables.table_reader import TableCache, TableReader
from iceberg_export.typed.columns import TypedColumns
from storage.object_store import ObjectStore
from storage.refs import METADATA_SUFFIX


async def rebuild(
    table: TableBefore,
    files: Sequence[DataFile],
    *,
    columns: TypedColumns | None,
    released: tuple[str, ...],
    store: ObjectStore,
    next_key: Callable[[str], str],
    now_ms: int,
    cache: TableCache,
    run_in_thread: RunInThread,
) -> TableCommit:
    """Put the metadata of a table with these files, and return the commit that the entry has to carry.

    `files`: data files to which the table refers in the ledger already. `columns`: the typed columns of the newest
    file. `released`: keys that the table does not need any more, among them that of its metadata. Raises `StoreError`.
    """
    reader = TableReader(root=table.root, store=store, cache=cache, run_in_thread=run_in_thread)
    metadata, metadata_key = empty_of(table), next_key(METADATA_SUFFIX)
    if columns is not None:
        metadata = with_columns(metadata, ColumnsChange(before=None, after=columns))
    objects: list[MadeObject] = []
    if files:
        metadata, objects = await with_snapshot(
            metadata,
            Change(added=tuple(files)),
            reader=reader,
            next_key=next_key,
            snapshot_id=snapshot_id_of(metadata_key),
            now_ms=now_ms,
        )
    metadata_json = encode(metadata, metadata_key)
    await put_objects([*objects, MadeObject(key=metadata_key, data=metadata_json, decoded=metadata)], reader)
    cache.forget(table.metadata_key)
    return TableCommit(
        replaces=table.metadata_key,
        metadata=NewObject(key=metadata_key, object_bytes=len(metadata_json)),
        added=tuple(NewObject(key=made.key, object_bytes=len(made.data)) for made in objects),
        data_files=(),
        released=released,
    )
