"""Which manifests the next snapshot has: those of the one before, less what is dropped, more what is added, merged.

Rule: a manifest is never changed; one that loses a file, or is merged, is written anew under another key, with the ids
and sequence numbers that its entries had. What was deleted is told by the snapshot that deletes it, by no later one.

Specification: Iceberg's table specification, version 2, "Manifest Entry Fields", "Sequence Number Inheritance".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.levels import merge_groups
from iceberg_export.tables.manifests import ManifestEntry, ManifestFile, Status
from iceberg_export.tables.table_reader import TableReader, gather_bounded
from protocol.limits import TABLE_MANIFEST_FILES_MAX, TABLE_MANIFESTS_PER_LEVEL_MAX
from storage.object_store import StoreError


class FilesNotInTable(StoreError):
    """Files were to be dropped that the table does not hold: plan again from the ledger's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextManifests:
    """The manifests of the next snapshot, and the files that it drops."""

    kept: tuple[ManifestFile, ...]
    new: tuple[tuple[ManifestEntry, ...], ...]
    """Entries of each manifest that is to be written."""
    dropped: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What goes into one manifest: one that is there as it is, or entries that no manifest holds yet."""

    kept: ManifestFile | None
    entries: tuple[ManifestEntry, ...] = ()

    @property
    def live_files(self) -> int:
        if self.kept is not None:
            return self.kept.live_files
        return sum(entry.is_live for entry in self.entries)


async def next_manifests(
    manifests: Sequence[ManifestFile],
    *,
    added: Sequence[DataFile],
    dropped: frozenset[str],
    snapshot_id: int,
    sequence_number: int,
    reader: TableReader,
    is_counted_again: bool = False,
) -> NextManifests:
    """What becomes of the current snapshot's `manifests`; with `is_counted_again` all of them are written again.

    Raises `StoreError`, `FilesNotInTable` among them.
    """
    parts = await _without(
        [manifest for manifest in manifests if manifest.live_files], dropped, snapshot_id=snapshot_id, reader=reader
    )
    gone = tuple(entry.file for part in parts for entry in part.entries if not entry.is_live)
    if is_counted_again:
        parts = [part if part.kept is None else _Part(kept=None, entries=await _live(part, reader)) for part in parts]
    if added:
        entries = tuple(
            ManifestEntry(status=Status.ADDED, snapshot_id=snapshot_id, sequence_number=sequence_number, file=file)
            for file in added
        )
        parts.append(_Part(kept=None, entries=entries))
    kept: list[ManifestFile] = []
    new: list[tuple[ManifestEntry, ...]] = []
    for group in merge_groups(
        [part.live_files for part in parts],
        manifests_max=TABLE_MANIFESTS_PER_LEVEL_MAX,
        files_max=TABLE_MANIFEST_FILES_MAX,
    ):
        members = [parts[index] for index in group]
        if len(members) == 1 and members[0].kept is not None:
            kept.append(members[0].kept)
        else:
            new += _divided(await _entries(members, reader))
    return NextManifests(kept=tuple(kept), new=tuple(new), dropped=gone)


async def _without(
    manifests: Sequence[ManifestFile], dropped: frozenset[str], *, snapshot_id: int, reader: TableReader
) -> list[_Part]:
    """The manifests as parts, those that hold a dropped file as entries, that one as deleted."""
    parts = [_Part(kept=manifest) for manifest in manifests]
    missing = set(dropped)
    # Files leave in about the order in which they came, so that few manifests are read.
    for index in sorted(range(len(manifests)), key=lambda index: manifests[index].min_sequence_number):
        if not missing:
            break
        entries = [entry for entry in await reader.entries(manifests[index]) if entry.is_live]
        found = {entry.file.key for entry in entries} & missing
        if found:
            missing -= found
            parts[index] = _Part(
                kept=None,
                entries=tuple(
                    replace(entry, status=Status.DELETED, snapshot_id=snapshot_id)
                    if entry.file.key in found
                    else replace(entry, status=Status.EXISTING)
                    for entry in entries
                ),
            )
    if missing:
        raise FilesNotInTable(
            f"{len(missing)} of {len(dropped)} files to drop are not in the table, {min(missing)!r} among them"
        )
    return parts


async def _live(part: _Part, reader: TableReader) -> tuple[ManifestEntry, ...]:
    """The entries of a manifest that are still part of the table, as the next snapshot has them."""
    return tuple(await _entries([part], reader))


async def _entries(members: Sequence[_Part], reader: TableReader) -> list[ManifestEntry]:
    """The entries of parts that become one manifest."""
    read = iter(await gather_bounded([partial(reader.entries, part.kept) for part in members if part.kept is not None]))
    entries: list[ManifestEntry] = []
    for part in members:
        if part.kept is None:
            entries += part.entries
        else:
            entries += (replace(entry, status=Status.EXISTING) for entry in next(read) if entry.is_live)
    return entries


def _divided(entries: Sequence[ManifestEntry]) -> Iterable[tuple[ManifestEntry, ...]]:
    """The entries in manifests that are not too large."""
    for first in range(0, len(entries), TABLE_MANIFEST_FILES_MAX):
        yield tuple(entries[first : first + TABLE_MANIFEST_FILES_MAX])
