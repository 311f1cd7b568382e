"""What a table needs no more when its oldest snapshots expire.

Rule: snapshots are a line without branches, so what a snapshot left out of the one before it never comes back: when all
that is older expires with it, a snapshot releases its manifest list, the manifests that the next one does not have, and
the data files that the next one dropped. So everything is released once.
"""

from collections.abc import Sequence
from functools import partial

from iceberg_export.tables.manifests import Entry, ManifestFile, key_of_uri
from iceberg_export.tables.metadata import Snapshot, TableMetadata
from iceberg_export.tables.snapshots import DROPPED_FILES
from iceberg_export.tables.table_reader import TableReader, gather_bounded


async def released_by(snapshots: Sequence[Snapshot], reader: TableReader) -> list[tuple[str, ...]]:
    """Keys that each snapshot but the last, oldest first, releases when it expires after those before it.

    `snapshots`: the oldest that are retained, in the order of their commits. Raises `StoreError`.
    """
    lists = await gather_bounded([partial(reader.manifests, snapshot) for snapshot in snapshots])
    dropped = await _dropped_by(snapshots[1:], lists[1:], reader)
    return [
        (
            key_of_uri(snapshot.manifest_list, reader.root),
            *_keys_without(manifests, next_manifests),
            *dropped.get(next_snapshot.snapshot_id, ()),
        )
        for snapshot, manifests, next_snapshot, next_manifests in zip(
            snapshots[:-1], lists[:-1], snapshots[1:], lists[1:], strict=True
        )
    ]


async def dropped_files(metadata: TableMetadata, reader: TableReader) -> frozenset[str]:
    """Keys of the data files that retained snapshots dropped, and that ones before them still need.

    The ledger has the table refer to them; they cannot be dropped once more. Raises `StoreError`.
    """
    replacing = [snapshot for snapshot in metadata.snapshots[1:] if DROPPED_FILES in snapshot.summary]
    lists = await gather_bounded([partial(reader.manifests, snapshot) for snapshot in replacing])
    dropped = await _dropped_by(replacing, lists, reader)
    return frozenset(key for keys in dropped.values() for key in keys)


def _keys_without(manifests: Sequence[ManifestFile], others: Sequence[ManifestFile]) -> list[str]:
    needed = {manifest.key for manifest in others}
    return [manifest.key for manifest in manifests if manifest.key not in needed]


async def _dropped_by(
    snapshots: Sequence[Snapshot], lists: Sequence[tuple[ManifestFile, ...]], reader: TableReader
) -> dict[int, list[str]]:
    """Keys of the data files that snapshots dropped, by their ids."""
    tell = [
        manifest
        for snapshot, manifests in zip(snapshots, lists, strict=True)
        for manifest in manifests
        if manifest.deleted_files and manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    read: list[tuple[Entry, ...]] = await gather_bounded([partial(reader.entries, manifest) for manifest in tell])
    dropped: dict[int, list[str]] = {}
    for manifest, entries in zip(tell, read, strict=True):
        keys = dropped.setdefault(manifest.added_snapshot_id, [])
        keys += (entry.file.key for entry in entries if not entry.is_live)
    return dropped
