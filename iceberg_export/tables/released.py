"""What a table needs no more when snapshots expire.

Rule: snapshots are a line, so what one left out of the one before it never comes back, and what two have all between
them had. So a snapshot that expires releases its manifest list; and the manifests that it has, and the data files that
it holds, but neither the next one of those that there are, nor the last one before it that stays. So everything is
released once, in whatever order they expire.
"""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import chain, pairwise

from iceberg_export.tables.manifests import ManifestEntry, ManifestFile, key_of_uri
from iceberg_export.tables.metadata import Snapshot, TableMetadata
from iceberg_export.tables.snapshots import DROPPED_FILES
from iceberg_export.tables.table_reader import TableReader, gather_bounded

_Pair = tuple[Snapshot, Snapshot]
"""A snapshot, and the next one of those that there are."""


async def released_by(
    snapshots: Sequence[Snapshot], expiring: Collection[Snapshot], reader: TableReader
) -> list[tuple[str, ...]]:
    """Keys that each of `expiring`, oldest first, releases when it expires after those before it.

    `snapshots`: all that there are, in the order of their commits; the last of them stays. Raises `StoreError`.
    """
    gone = {snapshot.snapshot_id for snapshot in expiring}
    pairs = [pair for pair in pairwise(snapshots) if pair[0].snapshot_id in gone]
    staying = [_last_before(snapshot, snapshots, gone) for snapshot, _ in pairs]
    needed = {one.snapshot_id: one for one in (*chain.from_iterable(pairs), *staying) if one is not None}
    lists = dict(
        zip(needed, await gather_bounded([partial(reader.manifests, one) for one in needed.values()]), strict=True)
    )
    released: list[tuple[str, ...]] = []
    for (snapshot, following), stays, dropped in zip(
        pairs, staying, await _dropped_between(pairs, reader), strict=True
    ):
        others = [*lists[following.snapshot_id], *(() if stays is None else lists[stays.snapshot_id])]
        # What the one that stays holds came with it, or before.
        number = 0 if stays is None else stays.sequence_number
        released.append(
            (
                # Data files last: what does not fit into an entry is found again among them
                # (`commit.expire_snapshots`).
                key_of_uri(snapshot.manifest_list, reader.root),
                *(manifest.key for manifest in _without(lists[snapshot.snapshot_id], others)),
                *(entry.file.key for entry in dropped if entry.sequence_number > number),
            )
        )
    return released


async def dropped_files(metadata: TableMetadata, reader: TableReader) -> frozenset[str]:
    """Keys of the data files that retained snapshots hold, and the current one does not.

    The ledger has the table refer to them; they cannot be dropped once more. Raises `StoreError`.
    """
    pairs = [
        (before, snapshot)
        for before, snapshot in pairwise(metadata.snapshots)
        if DROPPED_FILES in snapshot.summary or not _is_parent(before, snapshot)
    ]
    return frozenset(entry.file.key for entry in chain.from_iterable(await _dropped_between(pairs, reader)))


async def held_now(metadata: TableMetadata, keys: frozenset[str], reader: TableReader) -> frozenset[str]:
    """Those of the keys that the current snapshot holds. Raises `StoreError`."""
    current, missing = metadata.current(), set(keys)
    manifests = () if current is None else await reader.manifests(current)
    # Files leave in about the order in which they came, so that few manifests are read.
    for manifest in sorted(manifests, key=lambda manifest: manifest.min_sequence_number):
        if not missing:
            break
        if manifest.live_files:
            missing -= {entry.file.key for entry in await reader.entries(manifest) if entry.is_live}
    return keys - missing


def _last_before(snapshot: Snapshot, snapshots: Sequence[Snapshot], gone: Collection[int]) -> Snapshot | None:
    older = [one for one in snapshots[: snapshots.index(snapshot)] if one.snapshot_id not in gone]
    return older[-1] if older else None


def _is_parent(before: Snapshot, snapshot: Snapshot) -> bool:
    return snapshot.parent_snapshot_id == before.snapshot_id


def _without(manifests: Sequence[ManifestFile], others: Sequence[ManifestFile]) -> list[ManifestFile]:
    needed = {manifest.key for manifest in others}
    return [manifest for manifest in manifests if manifest.key not in needed]


async def _dropped_between(pairs: Sequence[_Pair], reader: TableReader) -> list[list[ManifestEntry]]:
    """Of each pair the data files that the first one holds and the second does not."""
    from_manifests = await _changes_in_manifests(
        [following for before, following in pairs if _is_parent(before, following)], reader
    )
    return [
        from_manifests[following.snapshot_id]
        if _is_parent(before, following)
        else await _compared(before, following, reader)
        for before, following in pairs
    ]


async def _changes_in_manifests(snapshots: Sequence[Snapshot], reader: TableReader) -> dict[int, list[ManifestEntry]]:
    """What snapshots say that they dropped of their parents, by their ids."""
    lists = await gather_bounded([partial(reader.manifests, snapshot) for snapshot in snapshots])
    dropping_manifests = [
        manifest
        for snapshot, manifests in zip(snapshots, lists, strict=True)
        for manifest in manifests
        if manifest.deleted_files and manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    read: list[tuple[ManifestEntry, ...]] = await gather_bounded(
        [partial(reader.entries, manifest) for manifest in dropping_manifests]
    )
    dropped: dict[int, list[ManifestEntry]] = {snapshot.snapshot_id: [] for snapshot in snapshots}
    for manifest, entries in zip(dropping_manifests, read, strict=True):
        dropped[manifest.added_snapshot_id] += (entry for entry in entries if not entry.is_live)
    return dropped


async def _compared(before: Snapshot, following: Snapshot, reader: TableReader) -> list[ManifestEntry]:
    """The same where the snapshots in between, which would say so, are gone."""
    lists = [await reader.manifests(before), await reader.manifests(following)]
    held, kept = [
        [
            entry
            for entries in await gather_bounded(
                [partial(reader.entries, manifest) for manifest in _without(one, other) if manifest.live_files]
            )
            for entry in entries
            if entry.is_live
        ]
        for one, other in (lists, lists[::-1])
    ]
    keys = {entry.file.key for entry in kept}
    return [entry for entry in held if entry.file.key not in keys]
