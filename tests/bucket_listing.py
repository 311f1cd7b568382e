"""What a bucket holds, found out without the agent: which offsets stand where, and what else is there.

Rule: neither ledger nor index is looked at, nor anything that plans, archives or cleans. Parquet is read by pyarrow,
intake objects by their own format alone. An intake object does not say its offsets (the ledger gives them): those of a
partition follow on its archive, in the order of the objects' keys, which is that of the commits of one session.
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

from protocol.record_batch import check_crc, walk_batches
from storage.chunk_format import check_chunk, check_header, describe_object
from tests.flights import Headers, LogHash, PartitionHash
from tests.made_records import read_batches
from tests.services import Minio

NUMBER = r"[0-9a-f]{16}"
PARQUET = re.compile(rf"lake/(?P<name>.+)-(?P<topic>[0-9a-f]{{32}})/data/{NUMBER}-{NUMBER}\.parquet")
INTAKE = re.compile(rf"intake/{NUMBER}/{NUMBER}")
METADATA = re.compile(rf"cluster\.json|ledger/snapshots/{NUMBER}")

Offsets = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Listing:
    """The offsets of a topic's partitions, as often as they stand in the bucket, and the keys of what else is there."""

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


def local_bucket(folder: Path) -> fs.FileSystem:
    """The bucket of an embedded store, `store/` in the data folder."""
    return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())


def minio_bucket(minio: Minio, name: str) -> fs.FileSystem:
    """A bucket of a MinIO server, seen by Arrow's client."""
    client = fs.S3FileSystem(
        access_key=minio.access_key, secret_key=minio.secret_key, endpoint_override=minio.endpoint, region="us-east-1"
    )
    return fs.SubTreeFileSystem(name, client)


def keys_in(bucket: fs.FileSystem) -> set[str]:
    """The keys of all objects, whoever wrote them."""
    found = bucket.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    return {info.path for info in found if info.type == fs.FileType.File}


def list_bucket(bucket: fs.FileSystem, topic: str, *, with_records: bool = False) -> Listing:
    """All that the bucket holds of the only topic of its cluster. Raises where an object is damaged."""
    listing = Listing()
    topic_ids: set[str] = set()
    keys = sorted(keys_in(bucket))
    for key in keys:
        match = PARQUET.fullmatch(key)
        if match is not None and match["name"] == topic:
            topic_ids.add(match["topic"])
            with bucket.open_input_file(key) as file:
                _add_parquet(listing, file, with_records=with_records)
        elif not METADATA.fullmatch(key) and not INTAKE.fullmatch(key):
            listing.foreign.append(key)
    for key in filter(INTAKE.fullmatch, keys):
        with bucket.open_input_file(key) as file:
            topic_ids |= _add_intake(listing, file.read(), with_records=with_records)
    assert len(topic_ids) <= 1, f"several topics: {topic_ids}"
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


def _add_parquet(listing: Listing, file: pa.NativeFile, *, with_records: bool) -> None:
    table = pq.read_table(file, columns=None if with_records else ["partition", "offset"])
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


def _add_intake(listing: Listing, payload: bytes, *, with_records: bool) -> set[str]:
    """Adds an intake object's records; returns the ids of its topics."""
    check_header(payload)
    chunks = describe_object(payload, len(payload)).chunks
    for chunk in chunks:
        run = payload[chunk.byte_first : chunk.byte_first + chunk.byte_count]
        check_chunk(run, chunk)
        for header in walk_batches(run):
            check_crc(run, header)
            assert header.record_count == header.last_offset_delta + 1, "a producer's batch has no holes"
            first = listing.add_tail(chunk.partition, header.record_count)
            if with_records:
                log = listing.records.setdefault(chunk.partition, PartitionHash())
                batch = read_batches(run[header.position : header.end]).records
                for record in batch:
                    headers: Headers = [(key.decode(), value) for key, value in record.headers]
                    offset = first + record.offset - header.base_offset
                    log.add(offset, record.timestamp, record.key, record.value, headers)
    return {chunk.topic_id.hex() for chunk in chunks}
