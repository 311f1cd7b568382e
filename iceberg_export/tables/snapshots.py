"""The next metadata of a table: the snapshot that a commit adds, and the snapshots that go.

Rule: pure. Snapshots are a line without branches: each has the one before it as its parent, and the last is the current
one.

Specification: Iceberg's table specification, version 2, "Snapshots", "Optional Snapshot Summary Fields"; Iceberg's
`SnapshotSummary` and `DataOperations` (names and meaning).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import MAIN, Snapshot, SnapshotLogEntry, SnapshotRef, TableMetadata
from protocol.limits import TABLE_OFFSETS_BYTES_MAX, TABLE_SNAPSHOTS_EXPIRED_AT_ONCE, TABLE_SNAPSHOTS_MAX

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
        refs={MAIN: SnapshotRef(snapshot_id=snapshot_id, type="branch")},
        snapshots=(*before.snapshots, snapshot),
        snapshot_log=(*before.snapshot_log, SnapshotLogEntry(timestamp_ms=timestamp_ms, snapshot_id=snapshot_id)),
    )


def superseded_count(metadata: TableMetadata, before_ms: int) -> int:
    """How many of the oldest snapshots were followed by another before `before_ms`: none of them was current since."""
    followers = metadata.snapshots[1:]
    return next(
        (count for count, follower in enumerate(followers) if follower.timestamp_ms >= before_ms), len(followers)
    )


def expired_count(metadata: TableMetadata) -> int:
    """How many of the oldest snapshots are too many; 0 until it is worth it."""
    if len(metadata.snapshots) < TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE:
        return 0
    return len(metadata.snapshots) - TABLE_SNAPSHOTS_MAX


def without_oldest(metadata: TableMetadata, count: int) -> TableMetadata:
    """The metadata without its `count` oldest snapshots."""
    return replace(metadata, snapshots=metadata.snapshots[count:], snapshot_log=metadata.snapshot_log[count:])


def set_properties(before: TableMetadata, properties: Mapping[str, str | None], *, now_ms: int) -> TableMetadata:
    """The metadata with properties set, and those removed that are None."""
    merged = {**before.properties, **properties}
    return replace(
        before,
        last_updated_ms=max(now_ms, before.last_updated_ms),
        properties={name: value for name, value in merged.items() if value is not None},
    )
