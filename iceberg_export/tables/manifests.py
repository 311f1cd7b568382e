"""Encodes and decodes manifests, which list a table's data files, and manifest lists, which list the manifests.

Both are Avro files. The same values give the same bytes. A file of another writer is an error, never interpreted. An
entry's statistics are those of `data_file.DataFile`, in Iceberg's single-value serialization, little-endian.

Specification: Iceberg's table specification, version 2, "Manifests", "Manifest Lists", "Appendix D: Single-value
serialization"; Apache Avro's specification, "Object Container Files".
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from iceberg_export.rows.schema import FieldId
from iceberg_export.tables.avro_files import decode_rows, encode_rows
from iceberg_export.tables.avro_schemas import ENTRY_SCHEMA, MANIFEST_FILE_SCHEMA
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from iceberg_export.tables.metadata import (
    FORMAT_VERSION,
    SCHEMA_ID,
    SCHEMA_JSON,
    SORT_ORDER_ID,
    SPEC_ID,
    TableUnreadable,
)
from protocol.decoding import DAMAGE, Undecodable

_CONTENT_DATA = 0
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_MANIFEST_HEADER = {
    "partition-spec": "[]",
    "partition-spec-id": str(SPEC_ID),
    "format-version": str(FORMAT_VERSION),
    "content": "data",
}


class Status(IntEnum):
    """The action of a manifest's snapshot on a file. Specification: "Manifest Entry Fields", `status`."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file in a manifest.

    `snapshot_id`: the snapshot that added the file, or that deleted it. `sequence_number`: that of the commit that
    added the file.
    """

    status: Status
    snapshot_id: int
    sequence_number: int
    file: DataFile

    @property
    def is_live(self) -> bool:
        """True where the file is part of the table."""
        return self.status is not Status.DELETED


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A row of a manifest list: a manifest's key, size and counts, so that a reader may skip the manifest itself."""

    key: str
    object_bytes: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files: int
    existing_files: int
    deleted_files: int
    added_rows: int
    existing_rows: int
    deleted_rows: int

    @property
    def live_files(self) -> int:
        """The count of its files that are part of the table."""
        return self.added_files + self.existing_files


def describe_manifest(
    key: str, object_bytes: int, entries: Sequence[ManifestEntry], *, snapshot_id: int, sequence_number: int
) -> ManifestFile:
    """The row of a manifest that a snapshot adds."""
    files = dict.fromkeys(Status, 0)
    rows = dict.fromkeys(Status, 0)
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.file.record_count
    return ManifestFile(
        key=key,
        object_bytes=object_bytes,
        sequence_number=sequence_number,
        min_sequence_number=min((entry.sequence_number for entry in entries if entry.is_live), default=sequence_number),
        added_snapshot_id=snapshot_id,
        added_files=files[Status.ADDED],
        existing_files=files[Status.EXISTING],
        deleted_files=files[Status.DELETED],
        added_rows=rows[Status.ADDED],
        existing_rows=rows[Status.EXISTING],
        deleted_rows=rows[Status.DELETED],
    )


def with_object(manifest: ManifestFile, *, key: str, object_bytes: int) -> ManifestFile:
    """The row of the same manifest under another key."""
    return replace(manifest, key=key, object_bytes=object_bytes)


def encode_manifest(
    entries: Iterable[ManifestEntry],
    *,
    key: str,
    root: str,
    schema_id: int = SCHEMA_ID,
    schema_json: bytes = SCHEMA_JSON,
) -> bytes:
    """A manifest of the entries. ADDED entries inherit the sequence number of the snapshot that lists the manifest.

    `key`: where it will be put. `root`: the bucket's URI, for absolute paths. `schema_id`, `schema_json`: the table's
    schema at that snapshot.
    """
    header = {**_MANIFEST_HEADER, "schema": schema_json.decode(), "schema-id": str(schema_id)}
    return encode_rows(ENTRY_SCHEMA, [_entry_row(entry, root) for entry in entries], key, header)


def decode_manifest(data: bytes, manifest: ManifestFile, *, root: str) -> tuple[ManifestEntry, ...]:
    """The entries of the manifest in a list's row `manifest`. Raises `TableUnreadable` where the two do not match."""
    _, rows = _decode(data, manifest.key)
    try:
        entries = tuple(_entry(row, manifest, root) for row in rows)
    except DAMAGE as error:
        raise TableUnreadable(f"the manifest {manifest.key!r} is not one that Penstock writes: {error!r}") from error
    # Missing entries would silently leave records out of the table (safety rule S20).
    if len(entries) != manifest.live_files + manifest.deleted_files:
        raise TableUnreadable(
            f"the manifest {manifest.key!r} lists {len(entries)} files, but the manifest list says "
            f"{manifest.live_files + manifest.deleted_files}"
        )
    # A copy of another manifest: its checksum covers its key, but a manifest from before checksums has only this.
    if any(entry.snapshot_id != manifest.added_snapshot_id for entry in entries if entry.status is not Status.EXISTING):
        raise TableUnreadable(
            f"the manifest {manifest.key!r} is of another snapshot than the one that the manifest list says"
        )
    counted, listed = _rows_by_liveness(entries), (manifest.added_rows + manifest.existing_rows, manifest.deleted_rows)
    # A manifest from before checksums may have a damaged number, which reads as another number (safety rule S20).
    if counted != listed:
        raise TableUnreadable(
            f"the manifest {manifest.key!r} lists files of {counted} live and deleted rows, but the manifest list says "
            f"{listed}: one of the two is damaged"
        )
    return entries


def _rows_by_liveness(entries: Sequence[ManifestEntry]) -> tuple[int, int]:
    """The count of rows in live files, and in deleted ones."""
    live = sum(entry.file.record_count for entry in entries if entry.is_live)
    return live, sum(entry.file.record_count for entry in entries) - live


def encode_manifest_list(
    manifests: Iterable[ManifestFile],
    *,
    key: str,
    root: str,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
) -> bytes:
    """The manifest list of a snapshot. `key`: where it will be put. `root`: the bucket's URI, for absolute paths."""
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(sequence_number),
        "format-version": str(FORMAT_VERSION),
    }
    return encode_rows(MANIFEST_FILE_SCHEMA, [_manifest_row(manifest, root) for manifest in manifests], key, header)


def decode_manifest_list(
    data: bytes, *, key: str, root: str, snapshot_id: int | None = None
) -> tuple[ManifestFile, ...]:
    """The manifests of a manifest list. `snapshot_id`: the snapshot that it should be of; None: any.

    Raises `TableUnreadable`.
    """
    header, rows = _decode(data, key)
    # A list without a checksum may be a copy of another snapshot's.
    if snapshot_id is not None and header.get("snapshot-id") != str(snapshot_id):
        raise TableUnreadable(
            f"the manifest list {key!r} is of the snapshot {header.get('snapshot-id')!r}, expected {snapshot_id}"
        )
    try:
        return tuple(_manifest(row, root) for row in rows)
    except DAMAGE as error:
        raise TableUnreadable(f"the manifest list {key!r} is not one that Penstock writes: {error!r}") from error


def key_of_uri(uri: str, root: str) -> str:
    """The key of an object in the bucket `root`, by its URI. Raises `TableUnreadable` where it is elsewhere."""
    if not uri.startswith(f"{root}/"):
        raise TableUnreadable(
            f"the table names {uri!r}, which is not below {root!r}: give the bucket's URL as it was when the table was "
            f"written"
        )
    return uri[len(root) + 1 :]


def _decode(data: bytes, key: str) -> tuple[Mapping[str, str], list[Any]]:
    try:
        return decode_rows(data, key)
    except Undecodable as error:
        raise TableUnreadable(f"the object {key!r}: {error}") from error


def _entry_row(entry: ManifestEntry, root: str) -> dict[str, Any]:
    file = entry.file
    # An added file inherits the number of its snapshot ("Sequence Number Inheritance").
    number = None if entry.status is Status.ADDED else entry.sequence_number
    lower, upper = _bounds_rows(file.bounds)
    return {
        "status": int(entry.status),
        "snapshot_id": entry.snapshot_id,
        "sequence_number": number,
        "file_sequence_number": number,
        "data_file": {
            "content": _CONTENT_DATA,
            "file_path": f"{root}/{file.key}",
            "file_format": "PARQUET",
            "partition": {},
            "record_count": file.record_count,
            "file_size_in_bytes": file.object_bytes,
            **_counts_rows(file.counts),
            "lower_bounds": lower,
            "upper_bounds": upper,
            "split_offsets": list(file.split_offsets) or None,
            "sort_order_id": SORT_ORDER_ID,
        },
    }


def _counts_rows(counts: ColumnCounts) -> dict[str, list[dict[str, int]]]:
    return {
        "value_counts": [{"key": each.field_id, "value": each.values} for each in counts],
        "null_value_counts": [{"key": each.field_id, "value": each.nulls} for each in counts],
        "nan_value_counts": [{"key": each.field_id, "value": each.nans} for each in counts if each.nans != NOT_COUNTED],
    }


def _counts(file: Mapping[str, Any]) -> ColumnCounts:
    """The counts of an entry. Raises `ValueError` where they are impossible."""
    nulls, nans = _pairs(file["null_value_counts"]), _pairs(file.get("nan_value_counts"))
    return ColumnCounts.of(
        ColumnCount(field_id, count, nulls[field_id], nans.get(field_id, NOT_COUNTED))
        for field_id, count in _pairs(file["value_counts"]).items()
        if field_id in nulls  # manifests from before all columns were counted have some values without nulls
    )


def _pairs(pairs: Iterable[Mapping[str, int]] | None) -> dict[int, int]:
    return {pair["key"]: pair["value"] for pair in pairs or ()}


def _bounds_rows(bounds: RowBounds | None) -> tuple[list[dict[str, Any]] | None, list[dict[str, Any]] | None]:
    if bounds is None:
        return None, None
    return (
        _bound_row(bounds.partition_min, bounds.offset_min, bounds.timestamp_us_min),
        _bound_row(bounds.partition_max, bounds.offset_max, bounds.timestamp_us_max),
    )


def _bound_row(partition: int, offset: int, timestamp_us: int) -> list[dict[str, Any]]:
    return [
        {"key": int(FieldId.PARTITION), "value": _INT.pack(partition)},
        {"key": int(FieldId.OFFSET), "value": _LONG.pack(offset)},
        {"key": int(FieldId.TIMESTAMP), "value": _LONG.pack(timestamp_us)},
    ]


def _entry(row: Mapping[str, Any], manifest: ManifestFile, root: str) -> ManifestEntry:
    file = row["data_file"]
    number = row["sequence_number"]
    return ManifestEntry(
        status=Status(row["status"]),
        snapshot_id=row["snapshot_id"],
        sequence_number=manifest.sequence_number if number is None else number,
        file=DataFile(
            key=key_of_uri(file["file_path"], root),
            object_bytes=file["file_size_in_bytes"],
            record_count=file["record_count"],
            bounds=_bounds(file["lower_bounds"], file["upper_bounds"]),
            counts=_counts(file),
            split_offsets=tuple(file["split_offsets"] or ()),
        ),
    )


def _bounds(lower: list[Mapping[str, Any]] | None, upper: list[Mapping[str, Any]] | None) -> RowBounds | None:
    if lower is None or upper is None:
        return None
    lowest = {pair["key"]: pair["value"] for pair in lower}
    highest = {pair["key"]: pair["value"] for pair in upper}
    return RowBounds(
        partition_min=_INT.unpack(lowest[FieldId.PARTITION])[0],
        partition_max=_INT.unpack(highest[FieldId.PARTITION])[0],
        offset_min=_LONG.unpack(lowest[FieldId.OFFSET])[0],
        offset_max=_LONG.unpack(highest[FieldId.OFFSET])[0],
        timestamp_us_min=_LONG.unpack(lowest[FieldId.TIMESTAMP])[0],
        timestamp_us_max=_LONG.unpack(highest[FieldId.TIMESTAMP])[0],
    )


def _manifest_row(manifest: ManifestFile, root: str) -> dict[str, Any]:
    return {
        "manifest_path": f"{root}/{manifest.key}",
        "manifest_length": manifest.object_bytes,
        "partition_spec_id": SPEC_ID,
        "content": _CONTENT_DATA,
        "sequence_number": manifest.sequence_number,
        "min_sequence_number": manifest.min_sequence_number,
        "added_snapshot_id": manifest.added_snapshot_id,
        "added_files_count": manifest.added_files,
        "existing_files_count": manifest.existing_files,
        "deleted_files_count": manifest.deleted_files,
        "added_rows_count": manifest.added_rows,
        "existing_rows_count": manifest.existing_rows,
        "deleted_rows_count": manifest.deleted_rows,
        "partitions": [],
    }


def _manifest(row: Mapping[str, Any], root: str) -> ManifestFile:
    return ManifestFile(
        key=key_of_uri(row["manifest_path"], root),
        object_bytes=row["manifest_length"],
        sequence_number=row["sequence_number"],
        min_sequence_number=row["min_sequence_number"],
        added_snapshot_id=row["added_snapshot_id"],
        added_files=row["added_files_count"],
        existing_files=row["existing_files_count"],
        deleted_files=row["deleted_files_count"],
        added_rows=row["added_rows_count"],
        existing_rows=row["existing_rows_count"],
        deleted_rows=row["deleted_rows_count"],
    )
