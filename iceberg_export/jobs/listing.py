"""What a table's metadata names, and whether that is whole and agrees with itself.

Rule: every object of the current snapshot is read anew. What is wrong is a finding; an object that is not there may
have been replaced meanwhile, so it is told apart.
"""

import struct
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

from iceberg_export.jobs.findings import METADATA_SECTION, NOT_THERE, TableFinding
from iceberg_export.spark.bucket import Bucket
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.manifests import (
    ManifestEntry,
    ManifestFile,
    Status,
    decode_manifest,
    decode_manifest_list,
    key_of_uri,
)
from iceberg_export.tables.metadata import Snapshot, TableUnreadable, decode
from iceberg_export.tables.snapshots import FileTotals
from iceberg_export.tail.manifest import NO_KEY
from protocol.limits import SPARK_FOOTERS_IN_FLIGHT_MAX
from storage.object_store import ObjectMissing

METADATA_FOLDER = "/metadata/"


@dataclass(slots=True, kw_only=True)
class TableListing:
    """`files`: those of the current snapshot. `named`: the keys of all that it needs, as far as they are known."""

    files: list[DataFile] = field(default_factory=list[DataFile])
    snapshots: tuple[Snapshot, ...] = ()
    named: set[str] = field(default_factory=set[str])
    missing: set[str] = field(default_factory=set[str])
    findings: list[TableFinding] = field(default_factory=list[TableFinding])

    def lacks(self, key: str) -> None:
        """An object of the table's metadata is not in the bucket."""
        self.missing.add(key)
        self.findings.append(TableFinding(file=key, what=NOT_THERE, do=METADATA_SECTION))


def list_table(bucket: Bucket, metadata_key: str) -> TableListing:
    """Of a table's metadata; empty for `NO_KEY`. Raises `StoreError` where the bucket does not answer."""
    listing = TableListing()
    if metadata_key == NO_KEY:
        return listing
    key = metadata_key
    try:
        listing.named.add(key)
        metadata = decode(bucket.get(key), key)
        # The agents may know the bucket by another URL than the one that was given here.
        root = metadata.location.removesuffix("/" + key.partition(METADATA_FOLDER)[0])
        listing.snapshots = metadata.snapshots
        current = metadata.current()
        if current is None:
            return listing
        key = key_of_uri(current.manifest_list, root)
        listing.named.add(key)
        manifests = decode_manifest_list(bucket.get(key), key=key, root=root)
    except ObjectMissing:
        listing.lacks(key)
    except TableUnreadable as error:
        listing.findings.append(TableFinding(file=key, what=str(error), do=METADATA_SECTION))
    else:
        _read_manifests(bucket, listing, manifests, root)
        if not listing.findings:
            _compare_totals(listing, current, key)
    return listing


def _read_manifests(bucket: Bucket, listing: TableListing, manifests: tuple[ManifestFile, ...], root: str) -> None:
    listing.named.update(manifest.key for manifest in manifests)
    waiting = iter(manifests)
    while some := list(islice(waiting, SPARK_FOOTERS_IN_FLIGHT_MAX)):
        under_way = [(manifest, bucket.begin(manifest.key)) for manifest in some]
        for manifest, future in under_way:
            try:
                data = future.result()
            except ObjectMissing:
                listing.lacks(manifest.key)
            else:
                _read_manifest(listing, manifest, data, root)
    keys = Counter(file.key for file in listing.files)
    listing.named.update(keys)
    for key, count in keys.items():
        if count > 1:
            listing.findings.append(
                TableFinding(file=key, what=f"the table names it {count} times: its rows are doubled")
            )
    listing.files = list({file.key: file for file in listing.files}.values())


def _read_manifest(listing: TableListing, manifest: ManifestFile, data: bytes, root: str) -> None:
    def found(what: str) -> None:
        listing.findings.append(TableFinding(file=manifest.key, what=what, do=METADATA_SECTION))

    if len(data) != manifest.object_bytes:
        found(f"it has {len(data):,} bytes, the manifest list says {manifest.object_bytes:,}")
    try:
        entries = decode_manifest(data, manifest, root=root)
    except (TableUnreadable, struct.error) as error:
        found(str(error))
        return
    said = {
        Status.ADDED: (manifest.added_files, manifest.added_rows),
        Status.EXISTING: (manifest.existing_files, manifest.existing_rows),
        Status.DELETED: (manifest.deleted_files, manifest.deleted_rows),
    }
    for status, numbers in said.items():
        held = _totals(entries, status)
        if held != numbers:
            found(
                f"it has {held[0]:,} files with {held[1]:,} rows that are {status.name}, the manifest list says "
                f"{numbers[0]:,} with {numbers[1]:,}"
            )
    listing.files += [entry.file for entry in entries if entry.is_live]


def _totals(entries: tuple[ManifestEntry, ...], status: Status) -> tuple[int, int]:
    counts = [entry.file.record_count for entry in entries if entry.status is status]
    return len(counts), sum(counts)


def _compare_totals(listing: TableListing, current: Snapshot, key: str) -> None:
    held = FileTotals.of(listing.files)
    for name, count in (
        ("total-data-files", held.files),
        ("total-records", held.rows),
        ("total-files-size", held.bytes),
    ):
        said = current.summary.get(name)
        if said != str(count):
            what = f"its manifests come to {name} {count}, and the snapshot's summary says {said}"
            listing.findings.append(TableFinding(file=key, what=what))
