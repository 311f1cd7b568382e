"""What a table needs no more when its oldest snapshots expire.

Rule: `snapshots` tells why the oldest retained snapshot is all that is compared with: what it does not hold, no later
one does. Everything is released once: a snapshot expires once, and what was dropped in the oldest retained snapshot is
released now, so that it is not looked at when that one expires itself.
"""

from collections.abc import Sequence
from functools import partial

from iceberg_export.tables.manifests import Entry, ManifestFile, key_of_uri
from iceberg_export.tables.metadata import Snapshot
from iceberg_export.tables.table_reader import TableReader, gather_bounded


async def released_by(expired: Sequence[Snapshot], oldest: Snapshot, reader: TableReader) -> tuple[str, ...]:
    """Keys of manifest lists, manifests and data files that `oldest`, the oldest snapshot retained, does not need.

    `expired`: all that were retained before it, oldest first. Raises `StoreError`.
    """
    lists = await gather_bounded([partial(reader.manifests, snapshot) for snapshot in (*expired, oldest)])
    needed = {manifest.key for manifest in lists[-1]}
    # A dict, not a set: the order is the same each time.
    manifests = dict.fromkeys(
        manifest.key for manifests in lists[:-1] for manifest in manifests if manifest.key not in needed
    )
    return (
        *(key_of_uri(snapshot.manifest_list, reader.root) for snapshot in expired),
        *manifests,
        *await _dropped_by([*expired[1:], oldest], lists[1:], reader),
    )


async def _dropped_by(
    snapshots: Sequence[Snapshot], lists: Sequence[tuple[ManifestFile, ...]], reader: TableReader
) -> list[str]:
    """Keys of the data files that the snapshots dropped."""
    tell = [
        manifest
        for snapshot, manifests in zip(snapshots, lists, strict=True)
        for manifest in manifests
        if manifest.deleted_files and manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    read: list[tuple[Entry, ...]] = await gather_bounded([partial(reader.entries, manifest) for manifest in tell])
    return [entry.file.key for entries in read for entry in entries if not entry.is_live]
