"""Reads the topics of a bucket: its newest tail manifest, and the tables that the manifest names.

A plan uses one manifest. Each topic in it, with its table metadata, is of one ledger position, so the plan is
consistent.
"""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from iceberg_export.rows.footer import FileUnreadable, tail_bytes_first
from iceberg_export.rows.footer_text import read_footer_text
from iceberg_export.rows.schema import FILE_METADATA_KEY
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.coverage import FileSpan, span_of_rows
from iceberg_export.spark.manifests import BucketManifests, ManifestSource
from iceberg_export.spark.row_groups import footer_of
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable
from iceberg_export.tables.table_reader import TableCache, TableReader, gather_bounded
from iceberg_export.tail.manifest import (
    NO_KEY,
    NO_ROWS,
    TailManifest,
    TailPartition,
    TailTopic,
)
from protocol.limits import (
    SPARK_FILES_CACHED_MAX,
    SPARK_FOOTERS_IN_FLIGHT_MAX,
    SPARK_SPANS_CACHED_MAX,
)
from protocol.types import Offset, TopicId
from storage.object_store import StoreError
from storage.refs import name_in_folder, topic_folder


class TableMissing(StoreError):
    """The archived records of a topic are in no table: only a broker can read them."""


class ForeignBucket(StoreError):
    """The bucket belongs to another cluster than before: give the right URL, or begin with a new checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableRange:
    """The offsets `[first, end)` of a partition that may be read now. `committed_end`: the end of committed records."""

    first: Offset
    end: Offset
    committed_end: Offset


class SparkLake:
    """Reads manifests and tables of one bucket. For one thread."""

    def __init__(
        self, bucket: Bucket, *, is_archive_only: bool = False, manifests: ManifestSource | None = None
    ) -> None:
        """`manifests`: where manifests come from; None for the bucket."""
        self.bucket = bucket
        self.is_archive_only = is_archive_only
        self.manifests: ManifestSource = manifests or BucketManifests(bucket)
        self._newest: TailManifest | None = None
        self._read_s = -math.inf
        """The time of the last read."""
        self._tables = TableCache()
        self._files: dict[TopicId, tuple[str, tuple[DataFile, ...]]] = {}
        """The metadata key and the data files of each topic's table."""
        self._files_count = 0
        self._spans: dict[str, tuple[FileSpan, ...]] = {}

    def manifest(self, *, apart_s: float = 0.0) -> TailManifest:
        """The newest manifest that this object has ever read, after another read.

        `apart_s`: the least time between two reads; the call blocks until it is over. Raises `StoreError`;
        `OptionError` where there is no manifest.
        """
        self.bucket.pause(max(0.0, self._read_s + apart_s - self.bucket.monotonic_s()))
        self._read_s = self.bucket.monotonic_s()
        current = self.manifests.read()
        newest = self._newest
        if newest is not None and current.cluster_id != newest.cluster_id:
            raise ForeignBucket(
                f"{self.manifests.name} belonged to cluster {newest.cluster_id}, and now belongs to "
                f"{current.cluster_id}: give the right URL, or begin with a new checkpoint"
            )
        if newest is None or current.is_newer_than(newest):
            self._newest = newest = current
        return newest

    @property
    def newest(self) -> TailManifest | None:
        """The result of the last call of `manifest`; None before."""
        return self._newest

    def readable(self, partition: TailPartition) -> ReadableRange:
        """The offsets of a partition that may be read."""
        end = partition.readable_end
        if self.is_archive_only:
            end = Offset(max(partition.log_start, min(end, partition.archived_end)))
            return ReadableRange(first=partition.log_start, end=end, committed_end=end)
        return ReadableRange(first=partition.log_start, end=end, committed_end=max(end, partition.last_stable))

    def files(self, topics: Sequence[TailTopic]) -> list[tuple[DataFile, ...]]:
        """For each topic, the data files of its table that have rows. Tables that are not cached are read together.

        `topics`: those with archived records. Raises `ObjectMissing` where a table's metadata was replaced and deleted,
        `TableMissing` where a topic has no table.
        """
        for topic in topics:
            if topic.metadata_key == NO_KEY:
                raise TableMissing(
                    f"records of {topic.name} are archived, but its table has no commit: a broker without tables "
                    "archived them; the next archive pass of a newer broker commits them"
                )
        unknown = [topic for topic in topics if self._cached_files(topic) is None]
        read = self.bucket.run(gather_bounded([partial(self._read_files, topic) for topic in unknown]))
        new = {topic.metadata_key: files for topic, files in zip(unknown, read, strict=True)}
        all_files = [new.get(topic.metadata_key) or self._cached_files(topic) or () for topic in topics]
        for topic in unknown:
            self._cache_files(topic, new[topic.metadata_key])
        return all_files

    def _cached_files(self, topic: TailTopic) -> tuple[DataFile, ...] | None:
        if topic.metadata_key == NO_ROWS:
            return ()
        cached = self._files.get(topic.topic_id)
        return cached[1] if cached is not None and cached[0] == topic.metadata_key else None

    def _cache_files(self, topic: TailTopic, files: tuple[DataFile, ...]) -> None:
        """Replace the cached files of the topic; the oldest topics are evicted where there are too many files."""
        self._forget_files(topic.topic_id)
        self._files[topic.topic_id] = (topic.metadata_key, files)
        self._files_count += len(files)
        while self._files_count > SPARK_FILES_CACHED_MAX and len(self._files) > 1:
            self._forget_files(next(iter(self._files)))

    def _forget_files(self, topic_id: TopicId) -> None:
        if (removed := self._files.pop(topic_id, None)) is not None:
            self._files_count -= len(removed[1])

    def spans(self, files: Sequence[DataFile]) -> list[tuple[FileSpan, ...]]:
        """For each file, which has rows, the offsets that it answers for, and no other file of its table does.

        The bounds of a file of one partition give them. Those of several partitions are a hull, so the footer is read.
        Raises `StoreError`: `ObjectMissing` where the file was replaced and deleted.
        """
        of_rows = [span_of_rows(file) for file in files]
        from_footers = iter(
            self._footer_spans([file for file, span in zip(files, of_rows, strict=True) if span is None])
        )
        return [next(from_footers) if span is None else (span,) for span in of_rows]

    def footer_spans(self, topic: TailTopic, files: Sequence[DataFile]) -> list[tuple[FileSpan, ...]]:
        """For each file, the offsets that it answers for by its footer. They may reach beyond its rows.

        Raises `StoreError`, `TableUnreadable` where a footer contradicts the table's bounds of the file.
        """
        all_spans = self._footer_spans(files)
        for file, spans in zip(files, all_spans, strict=True):
            # Rows outside the footer's offsets: the bounds in the manifest are damaged (safety rule S20).
            if (span := span_of_rows(file)) is not None and not any(
                each.partition == span.partition and each.first <= span.first and span.end <= each.end for each in spans
            ):
                raise TableUnreadable(
                    f"the table of {topic.name} is damaged: {self.manifests_of(topic, [file])} says that {file.key} "
                    f"has rows of offsets {span.first} to {span.end - 1} of partition {span.partition}, but the file's "
                    f"footer that it answers for {[tuple(each) for each in spans]}"
                )
        return all_spans

    def manifests_of(self, topic: TailTopic, files: Sequence[DataFile]) -> str:
        """The keys of the table's metadata and its manifests that list the files, for messages. Raises `StoreError`."""
        manifests = () if topic.metadata_key in {NO_KEY, NO_ROWS} else self.bucket.run(self._read_manifests(topic))
        keys = {file.key for file in files}
        listing = sorted(key for key, files_of in manifests if keys & files_of)
        return ", ".join([topic.metadata_key, *listing])

    def _footer_spans(self, files: Sequence[DataFile]) -> list[tuple[FileSpan, ...]]:
        unknown = [file for file in files if file.key not in self._spans]
        if len(self._spans) + len(unknown) > SPARK_SPANS_CACHED_MAX:
            self._spans.clear()
            unknown = list(files)
        for first in range(0, len(unknown), SPARK_FOOTERS_IN_FLIGHT_MAX):
            self._cache_spans(unknown[first : first + SPARK_FOOTERS_IN_FLIGHT_MAX])
        return [self._spans[file.key] for file in files]

    def _cache_spans(self, files: Sequence[DataFile]) -> None:
        in_flight: list[tuple[DataFile, Future[bytes]]] = []
        for file in files:
            count = tail_bytes_first(file.object_bytes)
            in_flight.append((file, self.bucket.begin_range(file.key, file.object_bytes - count, count)))
        for file, future in in_flight:
            self._spans[file.key] = self._read_spans(file, future.result())

    def _read_spans(self, file: DataFile, tail: bytes) -> tuple[FileSpan, ...]:
        text = footer_of(self.bucket, file.key, file.object_bytes, tail).metadata.get(FILE_METADATA_KEY)
        if text is None:
            raise FileUnreadable(
                f"the footer of {file.key} does not say which offsets it answers for: Penstock did not write the file"
            )
        return tuple(FileSpan(*span) for span in read_footer_text(text).partitions)

    async def _read_files(self, topic: TailTopic) -> tuple[DataFile, ...]:
        reader, metadata = await self._read_metadata(topic)
        files = await reader.live_files(metadata)
        return tuple(live.file for live in files if live.file.record_count)

    async def _read_manifests(self, topic: TailTopic) -> list[tuple[str, set[str]]]:
        """The key of each manifest of the table, and the keys of the files that it lists."""
        reader, metadata = await self._read_metadata(topic)
        current = metadata.current()
        manifests = () if current is None else await reader.manifests(current)
        read = await gather_bounded([partial(reader.entries, manifest) for manifest in manifests])
        return [
            (manifest.key, {entry.file.key for entry in entries})
            for manifest, entries in zip(manifests, read, strict=True)
        ]

    async def _read_metadata(self, topic: TailTopic) -> tuple[TableReader, TableMetadata]:
        metadata = await self._reader("").metadata(topic.metadata_key)
        # The agents may have another URL of the bucket than this job.
        folder = topic_folder(name_in_folder(topic.metadata_key), topic.topic_id)
        return self._reader(metadata.location.removesuffix(f"/{folder[:-1]}")), metadata

    def _reader(self, root: str) -> TableReader:
        return TableReader(root=root, store=self.bucket.store, cache=self._tables, run_in_thread=asyncio.to_thread)
