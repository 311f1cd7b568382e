"""Derives the manifests of the next snapshot: those of the one before, without dropped files, with added files, merged.

A manifest is never changed. One that loses a file, or is merged, is written again under another key; its entries keep
their snapshot ids and sequence numbers. Only the snapshot that deletes a file lists it as deleted, no later one.

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
    """The table does not have the files to drop: plan again from the ledger's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextManifests:
    """The manifests of the next snapshot, and the files that it drops."""

    unchanged_manifests: tuple[ManifestFile, ...]
    new_manifests: tuple[tuple[ManifestEntry, ...], ...]
    """The entries of each manifest to write."""
    dropped_files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The content of one manifest: an existing, unchanged manifest, or entries that are not written yet."""

    manifest: ManifestFile | None
    entries: tuple[ManifestEntry, ...] = ()

    @property
    def live_files(self) -> int:
        if self.manifest is not None:
            return self.manifest.live_files
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
    """The manifests of the next snapshot.

    `manifests`: those of the current snapshot. `dropped`: keys of data files. `is_counted_again`: all manifests are
    written again, with counts of columns that are new to the table. Raises `StoreError`, among them `FilesNotInTable`.
    """
    # A manifest without live files only lists what an older snapshot deleted.
    parts = await _without(
        [manifest for manifest in manifests if manifest.live_files], dropped, snapshot_id=snapshot_id, reader=reader
    )
    dropped_files = tuple(entry.file for part in parts for entry in part.entries if not entry.is_live)
    if is_counted_again:
        parts = [
            part if part.manifest is None else _Part(manifest=None, entries=await _live(part, reader)) for part in parts
        ]
    if added:
        entries = tuple(
            ManifestEntry(status=Status.ADDED, snapshot_id=snapshot_id, sequence_number=sequence_number, file=file)
            for file in added
        )
        parts.append(_Part(manifest=None, entries=entries))
    unchanged: list[ManifestFile] = []
    new: list[tuple[ManifestEntry, ...]] = []
    for group in merge_groups(
        [part.live_files for part in parts],
        manifests_max=TABLE_MANIFESTS_PER_LEVEL_MAX,
        files_max=TABLE_MANIFEST_FILES_MAX,
    ):
        members = [parts[index] for index in group]
        if len(members) == 1 and members[0].manifest is not None:
            unchanged.append(members[0].manifest)
        else:
            new += _divided(await _entries(members, reader))
    return NextManifests(unchanged_manifests=tuple(unchanged), new_manifests=tuple(new), dropped_files=dropped_files)


async def _without(
    manifests: Sequence[ManifestFile], dropped: frozenset[str], *, snapshot_id: int, reader: TableReader
) -> list[_Part]:
    """The manifests as parts. One with a dropped file becomes its entries, with the file as deleted."""
    parts = [_Part(manifest=manifest) for manifest in manifests]
    missing = set(dropped)
    # The oldest manifests come first: files are dropped in about the order in which they were added, so few are read.
    for index in sorted(range(len(manifests)), key=lambda index: manifests[index].min_sequence_number):
        if not missing:
            break
        entries = [entry for entry in await reader.entries(manifests[index]) if entry.is_live]
        dropped_here = {entry.file.key for entry in entries} & missing
        if dropped_here:
            missing -= dropped_here
            parts[index] = _Part(
                manifest=None,
                entries=tuple(
                    replace(entry, status=Status.DELETED, snapshot_id=snapshot_id)
                    if entry.file.key in dropped_here
                    else replace(entry, status=Status.EXISTING)
                    for entry in entries
                ),
            )
    if missing:
        raise FilesNotInTable(
            f"{len(missing)} of {len(dropped)} files to drop are not in the table, for example {min(missing)!r}"
        )
    return parts


async def _live(part: _Part, reader: TableReader) -> tuple[ManifestEntry, ...]:
    """The entries of a manifest's live files, with the status that the next snapshot gives them."""
    return tuple(await _entries([part], reader))


async def _entries(members: Sequence[_Part], reader: TableReader) -> list[ManifestEntry]:
    """The entries of parts that become one manifest."""
    manifests = [part.manifest for part in members if part.manifest is not None]
    read = iter(await gather_bounded([partial(reader.entries, manifest) for manifest in manifests]))
    entries: list[ManifestEntry] = []
    for part in members:
        if part.manifest is None:
            entries += part.entries
        else:
            entries += (replace(entry, status=Status.EXISTING) for entry in next(read) if entry.is_live)
    return entries


def _divided(entries: Sequence[ManifestEntry]) -> Iterable[tuple[ManifestEntry, ...]]:
    """The entries of each manifest, at most `TABLE_MANIFEST_FILES_MAX` of them."""
    for first in range(0, len(entries), TABLE_MANIFEST_FILES_MAX):
        yield tuple(entries[first : first + TABLE_MANIFEST_FILES_MAX])
