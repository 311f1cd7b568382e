"""Derives a table's next metadata: the snapshot that a commit adds, and the snapshots that expire. Pure.

Snapshots form a line: each one's parent is the one before it, and the last one is current. Where a snapshot expires
while older ones stay because of a tag or branch, the line has a gap: the parent of the next one is missing.

Specification: Iceberg's table specification, version 2, "Snapshots", "Optional Snapshot Summary Fields"; Iceberg's
`SnapshotSummary` and `DataOperations` (names and meaning).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import MAIN, Snapshot, SnapshotLogEntry, SnapshotRef, TableMetadata
from protocol.limits import TABLE_OFFSETS_BYTES_MAX, TABLE_SNAPSHOTS_EXPIRED_AT_ONCE, TABLE_SNAPSHOTS_MAX

BRANCH, TAG = "branch", "tag"
APPEND = "append"
REPLACE = "replace"
"""The operation of a commit that drops files. Spark's streaming reads skip `replace`, and fail at `overwrite`."""
DROPPED_FILES = "deleted-data-files"
"""The summary's count of dropped files; present only where a commit dropped some."""
OFFSETS = "penstock.offsets"
"""JSON with the offsets that the commit brought: `{"<partition>": [offset_first, offset_end]}`."""
OFFSETS_OMITTED = "penstock.offsets.omitted"
"""The count of partitions in that JSON, where it is omitted because it exceeds `TABLE_OFFSETS_BYTES_MAX`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """The counts of files, of their rows, and of their bytes."""

    files: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> "FileTotals":
        """The totals of the files."""
        return cls(
            files=len(files),
            rows=sum(file.record_count for file in files),
            bytes=sum(file.object_bytes for file in files),
        )


def snapshot_id_of(metadata_key: str) -> int:
    """The id of the snapshot that the metadata under that key adds: 63 bits, never 0. Keys are unique, so are ids."""
    return int.from_bytes(hashlib.sha256(metadata_key.encode()).digest()[:8], "big") >> 1 or 1


def summarize(
    parent: Snapshot | None,
    *,
    added: FileTotals,
    dropped: FileTotals,
    offsets: Mapping[int, tuple[int, int]],
) -> dict[str, str]:
    """A snapshot's summary: the changes, the table's totals, and the offsets that the commit brought.

    Specification: "Optional Snapshot Summary Fields".
    """
    summary = {"operation": REPLACE if dropped.files else APPEND}
    before = {} if parent is None else parent.summary
    for change, totals in (("added", added), ("deleted", dropped)):
        if totals.files:
            size = "added-files-size" if change == "added" else "removed-files-size"
            summary |= {
                f"{change}-data-files": str(totals.files),
                f"{change}-records": str(totals.rows),
                size: str(totals.bytes),
            }
    for name, difference in (
        ("total-records", added.rows - dropped.rows),
        ("total-files-size", added.bytes - dropped.bytes),
        ("total-data-files", added.files - dropped.files),
        ("total-delete-files", 0),
        ("total-position-deletes", 0),
        ("total-equality-deletes", 0),
    ):
        summary[name] = str(int(before.get(name, "0")) + difference)
    if offsets:
        named = msgspec.json.encode({str(partition): offsets[partition] for partition in sorted(offsets)}).decode()
        if len(named) <= TABLE_OFFSETS_BYTES_MAX:
            summary[OFFSETS] = named
        else:
            summary[OFFSETS_OMITTED] = str(len(offsets))
    return summary


def add_snapshot(
    before: TableMetadata, *, snapshot_id: int, manifest_list: str, summary: dict[str, str], now_ms: int
) -> TableMetadata:
    """The metadata with one more snapshot, which becomes the current one."""
    parent = before.current()
    # Times of snapshots must not go back, but the clock of the committing agent may be behind the one before.
    timestamp_ms = max(now_ms, before.last_updated_ms)
    assert all(snapshot.snapshot_id != snapshot_id for snapshot in before.snapshots), "keys are unique"
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=UNSET if parent is None else parent.snapshot_id,
        sequence_number=before.last_sequence_number + 1,
        timestamp_ms=timestamp_ms,
        summary=summary,
        manifest_list=manifest_list,
        schema_id=before.current_schema_id,
    )
    return replace(
        before,
        last_sequence_number=snapshot.sequence_number,
        last_updated_ms=timestamp_ms,
        current_snapshot_id=snapshot_id,
        refs={**before.refs, MAIN: SnapshotRef(snapshot_id=snapshot_id, type=BRANCH)},
        snapshots=(*before.snapshots, snapshot),
        snapshot_log=(*before.snapshot_log, SnapshotLogEntry(timestamp_ms=timestamp_ms, snapshot_id=snapshot_id)),
    )


def expiring(metadata: TableMetadata, before_ms: int | None = None) -> tuple[Snapshot, ...]:
    """The snapshots that expire, oldest first.

    Snapshots beyond `TABLE_SNAPSHOTS_MAX` expire, and those that another one followed before `before_ms`, so that they
    were not current since. The current snapshot, and those with a tag or branch, never expire.
    """
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    free = [snapshot for snapshot in metadata.snapshots[:-1] if snapshot.snapshot_id not in named]
    count = 0
    # Several expire together, because the commit reads the manifest lists of all of them.
    if len(free) + 1 >= TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE:
        count = len(free) + 1 - TABLE_SNAPSHOTS_MAX
    if before_ms is not None:
        superseded = {
            snapshot.snapshot_id
            for snapshot, following in pairwise(metadata.snapshots)
            if following.timestamp_ms < before_ms
        }
        count = max(count, sum(snapshot.snapshot_id in superseded for snapshot in free))
    return tuple(free[:count])


def without(metadata: TableMetadata, expired: Collection[Snapshot]) -> TableMetadata:
    """The metadata without these snapshots."""
    expired_ids = {snapshot.snapshot_id for snapshot in expired}
    # The snapshot log begins after the last expired one. With a gap, a reader that travels in time would get a snapshot
    # that was not current then (`TableMetadata.Builder.updateSnapshotLog` of Iceberg's Java library).
    first = max(
        (number for number, entry in enumerate(metadata.snapshot_log, 1) if entry.snapshot_id in expired_ids), default=0
    )
    return replace(
        metadata,
        snapshots=tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expired_ids),
        snapshot_log=metadata.snapshot_log[first:],
    )


def without_old_names(metadata: TableMetadata, now_ms: int) -> TableMetadata:
    """The metadata without the tags and branches whose snapshots are older than their `max_ref_age_ms`."""
    times_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    refs = {
        name: ref
        for name, ref in metadata.refs.items()
        if ref.max_ref_age_ms is UNSET or now_ms - times_ms[ref.snapshot_id] <= ref.max_ref_age_ms
    }
    return metadata if len(refs) == len(metadata.refs) else replace(metadata, refs=refs)
