"""A topic's table begun anew from its data files: one snapshot, nothing of what was before.

Rule: as `commit`, but that nothing of the metadata before is read, so it does not matter what became of that. Sequence
numbers begin at 1 again, and the schema is that of the newest file: as of a table that a recovery begins anew.
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
from iceberg_export.typed.union import TypedColumns
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
    """Put metadata of a table that holds these files, and return the entry that makes it hold.

    `files`: all of them are the table's already. `columns`: those of the newest file. `released`: keys that the table
    needs no more then, that of its metadata among them. Raises `StoreError`.
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
