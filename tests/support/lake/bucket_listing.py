"""What a bucket holds, found out without the agent: which offsets stand where, and what else is there.

Rule: neither ledger nor index is looked at, nor anything that stores, plans, archives or cleans. Parquet is read by
pyarrow, packs and intake objects by their own format alone, a journal as its next start would read it. An intake object
does not say its offsets (the ledger gives them): those of a partition follow on its archive, in the order of the
objects' keys, which is that of the commits of one agent. A batch that was refused, being a repeat, would count as a
second copy: tests see to it that nothing is sent twice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from protocol.records.batch import check_crc, walk_batches
from storage.chunk_format import check_chunk, check_header, describe_object
from storage.embedded.journal.records import RecordLocation
from tests.support.journal.journal_keys import journal_objects, read_from_journal
from tests.support.lake.flight_events import Headers, LogHash, PartitionHash
from tests.support.packs.pack_files import PACK_FILE, PackedObject, live_objects, read_packed
from tests.support.records.plain_records import read_batches
from tests.support.services.local_services import Minio

NUMBER = r"[0-9a-f]{16}"
PARQUET = re.compile(rf"lake/(?P<name>.+)-(?P<topic>[0-9a-f]{{32}})/data/{NUMBER}-{NUMBER}\.parquet")
INTAKE = re.compile(rf"intake/{NUMBER}/{NUMBER}")
METADATA = re.compile(
    rf"cluster\.json|ledger/(?:snapshots|reached)/{NUMBER}|ledger/tail/current"
    rf"|lake/.+-[0-9a-f]{{32}}/metadata/(?:{NUMBER}-{NUMBER}\.(?:metadata\.json|snap\.avro|manifest\.avro)"
    r"|v[0-9]+\.metadata\.json|version-hint\.text)"
)

Offsets = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Listing:
    """The offsets of a topic's partitions, as often as they stand in the bucket, and the keys of what else is there."""

    names: set[str] = field(default_factory=set)
    """What the topic is called in the keys of its files."""
    archived: dict[int, list[Offsets]] = field(default_factory=dict)
    tail_counts: dict[int, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    records: LogHash = field(default_factory=dict)
    """The records themselves, where they were asked for."""

    def add_archived(self, partition: int, offsets: Offsets) -> None:
        self.archived.setdefault(partition, []).append(offsets)

    def add_tail(self, partition: int, count: int) -> int:
        """Adds `count` offsets to the tail; returns the first of them."""
        before = self.tail_counts.get(partition, 0)
        self.tail_counts[partition] = before + count
        return self.archived_end(partition) + before

    def archived_end(self, partition: int) -> int:
        return max((int(offsets.max()) + 1 for offsets in self.archived.get(partition, [])), default=0)

    def offsets(self, partition: int) -> Offsets:
        """Every offset that stands in the bucket, those of second copies again."""
        end = self.archived_end(partition)
        tail = np.arange(end, end + self.tail_counts.get(partition, 0), dtype=np.int64)
        return np.concatenate([*self.archived.get(partition, []), tail])


@dataclass(frozen=True, slots=True)
class ListedBucket:
    """Objects of all writers: files, and those in packs and in a journal."""

    files: fs.FileSystem
    journal: Path | None = None
    """The folder of a journal that has the intake, if it is there."""

    def keys(self) -> set[str]:
        return set(self.objects())

    def objects(self) -> dict[str, PackedObject | RecordLocation | None]:
        """By key where an object lies; None: in a file of its own."""
        found = self.files.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
        files = {info.path for info in found if info.type == fs.FileType.File}
        own = {key: None for key in files if not PACK_FILE.fullmatch(key)}
        in_journal = {} if self.journal is None else journal_objects(self.journal)
        return {**own, **live_objects(self.files, files), **in_journal}

    def read(self, key: str, place: PackedObject | RecordLocation | None) -> bytes:
        """The bytes of an object of `objects`. Raises `PackDamaged`, and `ObjectDamaged` for one in the journal."""
        if isinstance(place, RecordLocation):
            assert self.journal is not None
            return read_from_journal(self.journal, key, place)
        if place is not None:
            return read_packed(self.files, place)
        with self.files.open_input_file(key) as file:
            content: bytes = file.read()
        return content


def local_bucket(folder: Path) -> ListedBucket:
    """The bucket of an embedded store, `store/` in the data folder, and the journal beside it."""
    return ListedBucket(fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), folder.parent / "journal")


def minio_bucket(minio: Minio, name: str) -> ListedBucket:
    """A bucket of a MinIO server, seen by Arrow's client."""
    client = fs.S3FileSystem(
        access_key=minio.access_key, secret_key=minio.secret_key, endpoint_override=minio.endpoint, region="us-east-1"
    )
    return ListedBucket(fs.SubTreeFileSystem(name, client))


def list_topics(bucket: ListedBucket, *, with_records: bool = False) -> dict[str, Listing]:
    """All that the bucket holds, by topic id in hex. Raises where an object is damaged."""
    topics: dict[str, Listing] = {}
    objects = bucket.objects()
    keys = sorted(objects)
    foreign = [key for key in keys if not any(known.fullmatch(key) for known in (PARQUET, INTAKE, METADATA))]
    for match in filter(None, map(PARQUET.fullmatch, keys)):
        listing = topics.setdefault(match["topic"], Listing(foreign=foreign))
        listing.names.add(match["name"])
        _add_parquet(listing, bucket.read(match.string, None), with_records=with_records)
    for key in filter(INTAKE.fullmatch, keys):
        payload = bucket.read(key, objects[key])
        check_header(payload)
        for chunk in describe_object(payload, len(payload)).chunks:
            run = payload[chunk.byte_first : chunk.byte_first + chunk.byte_count]
            check_chunk(run, chunk)
            listing = topics.setdefault(chunk.topic_id.hex(), Listing(foreign=foreign))
            _add_intake(listing, chunk.partition, run, with_records=with_records)
    return topics


def list_bucket(bucket: ListedBucket, *, with_records: bool = False) -> Listing:
    """All that the bucket of a cluster with one topic holds."""
    (listing,) = list_topics(bucket, with_records=with_records).values()
    return listing


def faults(listing: Listing, ends: Mapping[int, int]) -> list[str]:
    """In words what is not exactly once, given each partition's end as clients see it; empty where all is well."""
    found = [f"{key}: neither data nor the cluster's own" for key in listing.foreign]
    for partition in sorted(ends.keys() | listing.archived.keys() | listing.tail_counts.keys()):
        end = ends.get(partition, 0)
        counts = np.bincount(listing.offsets(partition), minlength=end)
        for what, wrong in (
            ("missing", np.flatnonzero(counts[:end] == 0)),
            ("more than once", np.flatnonzero(counts[:end] > 1)),
            ("beyond the log's end", end + np.flatnonzero(counts[end:])),
        ):
            found += [f"partition {partition}: offsets [{first}, {last}) {what}" for first, last in _runs(wrong)]
    return found


def _runs(numbers: Offsets) -> list[tuple[int, int]]:
    """Ascending numbers as half-open ranges."""
    if not len(numbers):
        return []
    bounds = [0, *(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), len(numbers)]
    return [(int(numbers[first]), int(numbers[end - 1]) + 1) for first, end in pairwise(bounds)]


def _add_parquet(listing: Listing, file: bytes, *, with_records: bool) -> None:
    table = pq.read_table(pa.BufferReader(file), columns=None if with_records else ["partition", "offset"])
    partitions, offsets = table["partition"].to_numpy(), table["offset"].to_numpy()
    for partition in np.unique(partitions):
        listing.add_archived(int(partition), offsets[partitions == partition])
    if not with_records:
        return
    milliseconds = table["timestamp"].cast(pa.int64()).to_numpy() // 1000
    for row, timestamp in zip(table.drop_columns("timestamp").to_pylist(), milliseconds.tolist(), strict=True):
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        log = listing.records.setdefault(row["partition"], PartitionHash())
        log.add(row["offset"], timestamp, row["key"], row["value"], headers)


def _add_intake(listing: Listing, partition: int, run: bytes, *, with_records: bool) -> None:
    for header in walk_batches(run):
        check_crc(run, header)
        assert header.record_count == header.last_offset_delta + 1, "a producer's batch has no holes"
        first = listing.add_tail(partition, header.record_count)
        if not with_records:
            continue
        log = listing.records.setdefault(partition, PartitionHash())
        for record in read_batches(run[header.position : header.end]).records:
            headers: Headers = [(key.decode(), value) for key, value in record.headers]
            offset = first + record.offset - header.base_offset
            log.add(offset, record.timestamp, record.key, record.value, headers)
