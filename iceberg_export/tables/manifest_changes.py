"""Derives the manifests of the next snapshot from those of the current one: drops files, adds files, merges manifests.

A manifest is never changed. One that loses a file, or is merged, is written again under another key; its entries keep
their snapshot ids and sequence numbers. Only the snapshot that deletes a file lists it as deleted, no later one.
Manifests are read here and none is written: the caller puts `NextManifests.new_manifests`.

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
    """The current snapshot's manifests that the next one lists, too."""
    new_manifests: tuple[tuple[ManifestEntry, ...], ...]
    """The entries of each manifest to write."""
    dropped_files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of the next snapshot's files: a manifest of the current snapshot, or entries to write."""

    manifest: ManifestFile | None = None
    entries: tuple[ManifestEntry, ...] = ()
    """Empty where there is a `manifest`."""

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
    has_new_columns: bool = False,
) -> NextManifests:
    """The manifests of the next snapshot.

    `manifests`: those of the current snapshot. `dropped`: keys of data files. `has_new_columns`: the table has columns
    that the manifests have no counts for, so all are written again. Raises `StoreError`; `FilesNotInTable` where the
    table has not all of `dropped`.
    """
    # A manifest without live files only lists what an older snapshot deleted.
    live_manifests = [manifest for manifest in manifests if manifest.live_files]
    parts = await _drop_files(live_manifests, dropped, snapshot_id=snapshot_id, reader=reader)
    dropped_files = tuple(entry.file for part in parts for entry in part.entries if not entry.is_live)
    if has_new_columns:
        parts = [_Part(entries=tuple(await _entries([part], reader))) for part in parts]
    if added:
        entries = tuple(
            ManifestEntry(status=Status.ADDED, snapshot_id=snapshot_id, sequence_number=sequence_number, file=file)
            for file in added
        )
        parts.append(_Part(entries=entries))
    merged = await _merge(parts, reader)
    return NextManifests(
        unchanged_manifests=tuple(part.manifest for part in merged if part.manifest is not None),
        new_manifests=tuple(part.entries for part in merged if part.manifest is None),
        dropped_files=dropped_files,
    )


async def _drop_files(
    manifests: Sequence[ManifestFile], dropped: frozenset[str], *, snapshot_id: int, reader: TableReader
) -> list[_Part]:
    """The manifests as parts. One with a dropped file becomes its entries, with the file as deleted."""
    parts = [_Part(manifest=manifest) for manifest in manifests]
    missing = set(dropped)
    # The oldest manifest first: files are dropped in about the order in which they were added, so few are read.
    for index in sorted(range(len(manifests)), key=lambda index: manifests[index].min_sequence_number):
        if not missing:
            break
        entries = [entry for entry in await reader.entries(manifests[index]) if entry.is_live]
        dropped_here = {entry.file.key for entry in entries} & missing
        if dropped_here:
            missing -= dropped_here
            parts[index] = _Part(
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


async def _merge(parts: Sequence[_Part], reader: TableReader) -> list[_Part]:
    """The parts after merging, each of which is one manifest of the next snapshot."""
    merged: list[_Part] = []
    for group in merge_groups(
        [part.live_files for part in parts],
        manifests_max=TABLE_MANIFESTS_PER_LEVEL_MAX,
        files_max=TABLE_MANIFEST_FILES_MAX,
    ):
        members = [parts[index] for index in group]
        if len(members) == 1 and members[0].manifest is not None:
            merged += members
        else:
            merged += (_Part(entries=entries) for entries in _split(await _entries(members, reader)))
    return merged


async def _entries(members: Sequence[_Part], reader: TableReader) -> list[ManifestEntry]:
    """The entries of parts as those of new manifests. Entries to write are as they are, with the deleted ones."""
    manifests = [part.manifest for part in members if part.manifest is not None]
    read = iter(await gather_bounded([partial(reader.entries, manifest) for manifest in manifests]))
    entries: list[ManifestEntry] = []
    for part in members:
        if part.manifest is None:
            entries += part.entries
        else:
            entries += (replace(entry, status=Status.EXISTING) for entry in next(read) if entry.is_live)
    return entries


def _split(entries: Sequence[ManifestEntry]) -> Iterable[tuple[ManifestEntry, ...]]:
    """The entries of one manifest after the other, at most TABLE_MANIFEST_FILES_MAX each."""
    for first in range(0, len(entries), TABLE_MANIFEST_FILES_MAX):
        yield tuple(entries[first : first + TABLE_MANIFEST_FILES_MAX])
