"""Selects the objects that a table releases when snapshots expire.

Snapshots form a line: a file that a snapshot drops never comes back, and a file of two snapshots is in all between
them. A snapshot that expires releases its manifest list. It also releases those of its manifests and data files that
neither its next snapshot has, nor the last retained one before it. So each object is released exactly once, whatever
the order in which snapshots expire.
"""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import chain, pairwise

from iceberg_export.tables.manifests import ManifestEntry, ManifestFile, key_of_uri
from iceberg_export.tables.metadata import Snapshot, TableMetadata
from iceberg_export.tables.snapshots import DROPPED_FILES
from iceberg_export.tables.table_reader import TableReader, gather_bounded

_Pair = tuple[Snapshot, Snapshot]
"""A snapshot, and the next one in the metadata."""


async def released_by(
    snapshots: Sequence[Snapshot], expiring: Collection[Snapshot], reader: TableReader
) -> list[tuple[str, ...]]:
    """The keys that each of `expiring` releases when they expire in this order, oldest first.

    `snapshots`: all of the metadata, in the order of their commits. The last one never expires. Raises `StoreError`.
    """
    expiring_ids = {snapshot.snapshot_id for snapshot in expiring}
    pairs = [pair for pair in pairwise(snapshots) if pair[0].snapshot_id in expiring_ids]
    retained = [_last_before(snapshot, snapshots, expiring_ids) for snapshot, _ in pairs]
    needed = {each.snapshot_id: each for each in (*chain.from_iterable(pairs), *retained) if each is not None}
    lists = dict(
        zip(needed, await gather_bounded([partial(reader.manifests, each) for each in needed.values()]), strict=True)
    )
    released: list[tuple[str, ...]] = []
    for (snapshot, following), older, dropped in zip(
        pairs, retained, await _dropped_between(pairs, reader), strict=True
    ):
        others = [*lists[following.snapshot_id], *(() if older is None else lists[older.snapshot_id])]
        # The older snapshot still has every file that was added up to its own commit.
        number = 0 if older is None else older.sequence_number
        released.append(
            (
                # Data files are last: where an entry cannot name all keys, `commit.expire_snapshots` finds the
                # remaining data files again. Metadata objects it would not find.
                key_of_uri(snapshot.manifest_list, reader.root),
                *(manifest.key for manifest in _without(lists[snapshot.snapshot_id], others)),
                *(entry.file.key for entry in dropped if entry.sequence_number > number),
            )
        )
    return released


async def dropped_files(metadata: TableMetadata, reader: TableReader) -> frozenset[str]:
    """The keys of data files that older snapshots have and the current one does not.

    The table still refers to them in the ledger; they cannot be dropped again. Raises `StoreError`.
    """
    pairs = [
        (before, snapshot)
        for before, snapshot in pairwise(metadata.snapshots)
        if DROPPED_FILES in snapshot.summary or not _is_parent(before, snapshot)
    ]
    return frozenset(entry.file.key for entry in chain.from_iterable(await _dropped_between(pairs, reader)))


async def current_files(metadata: TableMetadata, keys: frozenset[str], reader: TableReader) -> frozenset[str]:
    """The keys whose data files the current snapshot has. Raises `StoreError`."""
    current, missing = metadata.current(), set(keys)
    manifests = () if current is None else await reader.manifests(current)
    # The oldest manifests come first: files are dropped in about the order in which they were added, so few are read.
    for manifest in sorted(manifests, key=lambda manifest: manifest.min_sequence_number):
        if not missing:
            break
        if manifest.live_files:
            missing -= {entry.file.key for entry in await reader.entries(manifest) if entry.is_live}
    return keys - missing


def _last_before(snapshot: Snapshot, snapshots: Sequence[Snapshot], expiring_ids: Collection[int]) -> Snapshot | None:
    """The last snapshot before `snapshot` that does not expire."""
    older = [each for each in snapshots[: snapshots.index(snapshot)] if each.snapshot_id not in expiring_ids]
    return older[-1] if older else None


def _is_parent(before: Snapshot, snapshot: Snapshot) -> bool:
    return snapshot.parent_snapshot_id == before.snapshot_id


def _without(manifests: Sequence[ManifestFile], others: Sequence[ManifestFile]) -> list[ManifestFile]:
    needed = {manifest.key for manifest in others}
    return [manifest for manifest in manifests if manifest.key not in needed]


async def _dropped_between(pairs: Sequence[_Pair], reader: TableReader) -> list[list[ManifestEntry]]:
    """For each pair, the data files that the first snapshot has and the second does not."""
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
    """The files that each snapshot lists as deleted, by its id: those that it dropped from its parent."""
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
    """The files that `before` has and `following` does not, where the snapshots between them have expired."""
    lists = [await reader.manifests(before), await reader.manifests(following)]
    entries_before, entries_following = [
        [
            entry
            for entries in await gather_bounded(
                [partial(reader.entries, manifest) for manifest in _without(these, others) if manifest.live_files]
            )
            for entry in entries
            if entry.is_live
        ]
        for these, others in (lists, lists[::-1])
    ]
    keys = {entry.file.key for entry in entries_following}
    return [entry for entry in entries_before if entry.file.key not in keys]
