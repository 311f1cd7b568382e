"""The next metadata of a table: the snapshot that a commit adds, and the snapshots that go.

Rule: pure. Snapshots are a line: each was made of the one before it, which is its parent, and the last is the current
one. Where some of the line have expired, and older ones stay since they are named, there is a gap, which a parent tells
that is not there.

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
"""What a commit that drops files is called: Spark's streaming reads pass over it, and stop at `overwrite`."""
DROPPED_FILES = "deleted-data-files"
"""How many files a commit dropped; only of one that did."""
OFFSETS = "penstock.offsets"
"""`{"<partition>": [offset_first, offset_end]}` of the partitions that the commit brought, as JSON."""
OFFSETS_OMITTED = "penstock.offsets.omitted"
"""How many partitions that would have named, where it would be longer than `TABLE_OFFSETS_BYTES_MAX`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """Files, their rows and their bytes."""

    files: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> "FileTotals":
        """What the files come to."""
        return cls(
            files=len(files),
            rows=sum(file.record_count for file in files),
            bytes=sum(file.object_bytes for file in files),
        )


def snapshot_id_of(metadata_key: str) -> int:
    """The id of the snapshot that comes with the metadata under a key: 63 bits, never 0. Keys never come twice."""
    return int.from_bytes(hashlib.sha256(metadata_key.encode()).digest()[:8], "big") >> 1 or 1


def summarize(
    parent: Snapshot | None,
    *,
    added: FileTotals,
    dropped: FileTotals,
    offsets: Mapping[int, tuple[int, int]],
) -> dict[str, str]:
    """A snapshot's summary: what it did, what there is, and the offsets that came with it."""
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
    # Time in a table does not run back, though the clock of whoever commits next may be behind.
    timestamp_ms = max(now_ms, before.last_updated_ms)
    assert all(snapshot.snapshot_id != snapshot_id for snapshot in before.snapshots), "a key comes once"
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
    """The snapshots that are too many, none until it is worth it, or that were followed by another one before
    `before_ms`, so that they were not current since; oldest first. Those that are named stay."""
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    free = [snapshot for snapshot in metadata.snapshots[:-1] if snapshot.snapshot_id not in named]
    count = 0
    if len(free) + 1 >= TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE:
        count = len(free) + 1 - TABLE_SNAPSHOTS_MAX
    if before_ms is not None:
        superseded = {
            snapshot.snapshot_id
            for snapshot, follower in pairwise(metadata.snapshots)
            if follower.timestamp_ms < before_ms
        }
        count = max(count, sum(snapshot.snapshot_id in superseded for snapshot in free))
    return tuple(free[:count])


def without(metadata: TableMetadata, expired: Collection[Snapshot]) -> TableMetadata:
    """The metadata without these snapshots.

    The log of what was current when begins behind the last of them: with a gap it would give readers that go back in
    time a snapshot that was not current then (`TableMetadata.Builder.updateSnapshotLog` of Iceberg's Java library).
    """
    gone = {snapshot.snapshot_id for snapshot in expired}
    first = max((place for place, entry in enumerate(metadata.snapshot_log, 1) if entry.snapshot_id in gone), default=0)
    return replace(
        metadata,
        snapshots=tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in gone),
        snapshot_log=metadata.snapshot_log[first:],
    )


def without_old_names(metadata: TableMetadata, now_ms: int) -> TableMetadata:
    """The metadata without the names whose snapshots are older than they may get."""
    taken_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    refs = {
        name: ref
        for name, ref in metadata.refs.items()
        if ref.max_ref_age_ms is UNSET or now_ms - taken_ms[ref.snapshot_id] <= ref.max_ref_age_ms
    }
    return metadata if len(refs) == len(metadata.refs) else replace(metadata, refs=refs)
