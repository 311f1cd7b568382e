"""Lists the data files of a table's metadata, and checks that the metadata is complete and consistent.

Every object of the current snapshot is read again, without a cache. Errors are findings. Missing objects are listed
separately, because a newer commit may have replaced them meanwhile.
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
    """The listing of a table.

    `files`: those of the current snapshot. `named`: the keys of all objects that it needs, as far as they could be
    read. `missing`: the keys of its metadata objects that are not in the bucket.
    """

    files: list[DataFile] = field(default_factory=list[DataFile])
    snapshots: tuple[Snapshot, ...] = ()
    named: set[str] = field(default_factory=set[str])
    missing: set[str] = field(default_factory=set[str])
    findings: list[TableFinding] = field(default_factory=list[TableFinding])

    def lacks(self, key: str) -> None:
        """Add an object of the table's metadata that is not in the bucket."""
        self.missing.add(key)
        self.findings.append(TableFinding(file=key, what=NOT_THERE, do=METADATA_SECTION))


def list_table(bucket: Bucket, metadata_key: str) -> TableListing:
    """The listing of the table with that metadata; empty for `NO_KEY`. Raises `StoreError`."""
    listing = TableListing()
    if metadata_key == NO_KEY:
        return listing
    key = metadata_key
    try:
        listing.named.add(key)
        metadata = decode(bucket.get(key), key)
        # The agents may have another URL of the bucket than this job.
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
    pending = iter(manifests)
    while group := list(islice(pending, SPARK_FOOTERS_IN_FLIGHT_MAX)):
        in_flight = [(manifest, bucket.begin(manifest.key)) for manifest in group]
        for manifest, future in in_flight:
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
    def add_finding(what: str) -> None:
        listing.findings.append(TableFinding(file=manifest.key, what=what, do=METADATA_SECTION))

    if len(data) != manifest.object_bytes:
        add_finding(f"it has {len(data):,} bytes, the manifest list says {manifest.object_bytes:,}")
    try:
        entries = decode_manifest(data, manifest, root=root)
    except (TableUnreadable, struct.error) as error:
        add_finding(str(error))
        return
    listed_totals = {
        Status.ADDED: (manifest.added_files, manifest.added_rows),
        Status.EXISTING: (manifest.existing_files, manifest.existing_rows),
        Status.DELETED: (manifest.deleted_files, manifest.deleted_rows),
    }
    for status, listed in listed_totals.items():
        totals = _totals(entries, status)
        if totals != listed:
            add_finding(
                f"it has {totals[0]:,} files with {totals[1]:,} rows that are {status.name}, the manifest list says "
                f"{listed[0]:,} with {listed[1]:,}"
            )
    listing.files += [entry.file for entry in entries if entry.is_live]


def _totals(entries: tuple[ManifestEntry, ...], status: Status) -> tuple[int, int]:
    counts = [entry.file.record_count for entry in entries if entry.status is status]
    return len(counts), sum(counts)


def _compare_totals(listing: TableListing, current: Snapshot, key: str) -> None:
    totals = FileTotals.of(listing.files)
    for name, count in (
        ("total-data-files", totals.files),
        ("total-records", totals.rows),
        ("total-files-size", totals.bytes),
    ):
        summary_count = current.summary.get(name)
        if summary_count != str(count):
            what = f"its manifests have {name} {count}, but the snapshot's summary says {summary_count}"
            listing.findings.append(TableFinding(file=key, what=what))
