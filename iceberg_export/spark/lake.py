"""What a bucket holds of its topics, as its newest tail manifest says.

Rule: one manifest at a time. It names a position of every topic, its table's metadata among it; what is planned from
the two is consistent. A reader never goes back: the manifest's object is overwritten in place, and an agent that stood
still may put an older one there.
"""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.rows.footer_text import read_footer_text
from iceberg_export.rows.schema import FILE_METADATA_KEY
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.coverage import FileSpan, span_of_rows
from iceberg_export.spark.options import OptionError
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
    TailUnreadable,
    decode_manifest,
)
from protocol.limits import (
    FOOTER_READ_BYTES,
    SPARK_FILES_CACHED_MAX,
    SPARK_FOOTERS_IN_FLIGHT_MAX,
    SPARK_MANIFEST_READS_MAX,
    SPARK_SPANS_CACHED_MAX,
)
from protocol.types import Offset, TopicId
from storage.object_store import ObjectMissing, StoreError
from storage.refs import TAIL_KEY, name_in_folder, topic_folder


class TableMissing(StoreError):
    """Archived records of a topic are in no table: they can be read from a broker alone."""


class ForeignBucket(StoreError):
    """The bucket is another cluster's than it was: give the right URL, or begin with a new checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableRange:
    """The offsets `[first, end)` of a partition that may be read now, of those up to `committed_end`."""

    first: Offset
    end: Offset
    committed_end: Offset


class SparkLake:
    """Reads manifests and tables of one bucket. For one thread."""

    def __init__(self, bucket: Bucket, *, is_archive_only: bool = False) -> None:
        self.bucket = bucket
        self.is_archive_only = is_archive_only
        self._newest: TailManifest | None = None
        self._decoded: tuple[bytes, TailManifest] | None = None
        """What the bucket had last, the newest one or not: while it has the same, it is not decoded again."""
        self._looked_s = -math.inf
        self._tables = TableCache()
        self._files: dict[TopicId, tuple[str, tuple[DataFile, ...]]] = {}
        """Of each topic's table, as the metadata under that key has it."""
        self._files_kept = 0
        self._spans: dict[str, tuple[FileSpan, ...]] = {}

    def manifest(self, *, apart_s: float = 0.0) -> TailManifest:
        """The newest one that was ever seen here, after another look, which is so long after the last one at least.

        Raises `StoreError`; `OptionError` where there is none.
        """
        self.bucket.pause(max(0.0, self._looked_s + apart_s - self.bucket.monotonic_s()))
        self._looked_s = self.bucket.monotonic_s()
        found = self._read()
        newest = self._newest
        if newest is not None and found.cluster_id != newest.cluster_id:
            raise ForeignBucket(f"the bucket was cluster {newest.cluster_id}'s, and is now {found.cluster_id}'s")
        if newest is None or found.is_newer_than(newest):
            self._newest = newest = found
        return newest

    @property
    def newest(self) -> TailManifest | None:
        """What `manifest` returned last."""
        return self._newest

    def readable(self, partition: TailPartition) -> ReadableRange:
        """What may be read of a partition."""
        end = partition.readable_end
        if self.is_archive_only:
            end = Offset(max(partition.log_start, min(end, partition.archived_end)))
            return ReadableRange(first=partition.log_start, end=end, committed_end=end)
        return ReadableRange(first=partition.log_start, end=end, committed_end=max(end, partition.last_stable))

    def files(self, topics: Sequence[TailTopic]) -> list[tuple[DataFile, ...]]:
        """Of each topic the data files of its table that have rows; asked for where records of it are archived. What is
        not known of several is read at a time.

        Raises `ObjectMissing` where a table moved on meanwhile, `TableMissing` where there is none.
        """
        for topic in topics:
            if topic.metadata_key == NO_KEY:
                raise TableMissing(
                    f"records of {topic.name} are archived, and its table has no commit: they were archived by a "
                    "broker without tables; the next archive pass of a newer one commits them"
                )
        unknown = [topic for topic in topics if self._known_files(topic) is None]
        read = self.bucket.run(gather_bounded([partial(self._read_files, topic) for topic in unknown]))
        new = {topic.metadata_key: files for topic, files in zip(unknown, read, strict=True)}
        found = [new.get(topic.metadata_key) or self._known_files(topic) or () for topic in topics]
        for topic in unknown:
            self._keep_files(topic, new[topic.metadata_key])
        return found

    def _known_files(self, topic: TailTopic) -> tuple[DataFile, ...] | None:
        if topic.metadata_key == NO_ROWS:
            return ()
        kept = self._files.get(topic.topic_id)
        return kept[1] if kept is not None and kept[0] == topic.metadata_key else None

    def _keep_files(self, topic: TailTopic, files: tuple[DataFile, ...]) -> None:
        """In the place of those of its table before; others go where there would be too many."""
        self._forget_files(topic.topic_id)
        self._files[topic.topic_id] = (topic.metadata_key, files)
        self._files_kept += len(files)
        while self._files_kept > SPARK_FILES_CACHED_MAX and len(self._files) > 1:
            self._forget_files(next(iter(self._files)))

    def _forget_files(self, topic_id: TopicId) -> None:
        if (gone := self._files.pop(topic_id, None)) is not None:
            self._files_kept -= len(gone[1])

    def spans(self, files: Sequence[DataFile]) -> list[tuple[FileSpan, ...]]:
        """Of each file, all with rows, which offsets it answers for. No other file of its table answers for them.

        Bounds tell it of a file of one partition; of several they are the hull of all, so the footer is asked.
        Raises `StoreError`: `ObjectMissing` where the table moved on meanwhile.
        """
        of_rows = [span_of_rows(file) for file in files]
        asked = iter(self._asked([file for file, span in zip(files, of_rows, strict=True) if span is None]))
        return [next(asked) if span is None else (span,) for span in of_rows]

    def footer_spans(self, topic: TailTopic, files: Sequence[DataFile]) -> list[tuple[FileSpan, ...]]:
        """The same as footers say it, which may reach beyond a file's rows.

        Raises `StoreError`, `TableUnreadable` where they contradict what the table says of a file.
        """
        asked = self._asked(files)
        for file, spans in zip(files, asked, strict=True):
            if (span := span_of_rows(file)) is not None and not any(
                each.partition == span.partition and each.first <= span.first and span.end <= each.end for each in spans
            ):
                raise TableUnreadable(
                    f"the table of {topic.name} is damaged: {self.manifests_of(topic, [file])} says that {file.key} "
                    f"has rows of offsets {span.first} to {span.end - 1} of partition {span.partition}, the file "
                    f"itself that it answers for {[tuple(each) for each in spans]}"
                )
        return asked

    def manifests_of(self, topic: TailTopic, files: Sequence[DataFile]) -> str:
        """Which manifests of the topic's table name the files, else its metadata; for people. Raises `StoreError`."""
        found = () if topic.metadata_key in {NO_KEY, NO_ROWS} else self.bucket.run(self._read_manifests(topic))
        keys = {file.key for file in files}
        named = sorted(key for key, files_of in found if keys & files_of)
        return ", ".join([topic.metadata_key, *named])

    def _asked(self, files: Sequence[DataFile]) -> list[tuple[FileSpan, ...]]:
        unknown = [file for file in files if file.key not in self._spans]
        if len(self._spans) + len(unknown) > SPARK_SPANS_CACHED_MAX:
            self._spans.clear()
            unknown = list(files)
        for first in range(0, len(unknown), SPARK_FOOTERS_IN_FLIGHT_MAX):
            self._learn_spans(unknown[first : first + SPARK_FOOTERS_IN_FLIGHT_MAX])
        return [self._spans[file.key] for file in files]

    def _learn_spans(self, files: Sequence[DataFile]) -> None:
        under_way: list[tuple[DataFile, Future[bytes]]] = []
        for file in files:
            count = min(FOOTER_READ_BYTES, file.object_bytes)
            under_way.append((file, self.bucket.begin_range(file.key, file.object_bytes - count, count)))
        for file, future in under_way:
            self._spans[file.key] = self._read_spans(file, future.result())

    def _read_spans(self, file: DataFile, tail: bytes) -> tuple[FileSpan, ...]:
        text = footer_of(self.bucket, file.key, file.object_bytes, tail).metadata.get(FILE_METADATA_KEY)
        if text is None:
            raise FileUnreadable(
                f"{file.key} does not say which offsets it answers for: it was not written by Penstock"
            )
        return tuple(FileSpan(*span) for span in read_footer_text(text).partitions)

    def _read(self) -> TailManifest:
        tries = 0
        while True:
            try:
                content = self.bucket.get(TAIL_KEY)
                if self._decoded is not None and content == self._decoded[0]:
                    return self._decoded[1]
                found = decode_manifest(content)
            except ObjectMissing as error:
                raise OptionError(
                    "the bucket has no tail manifest: check its URL, and that a broker has run on it; the agents write "
                    "one within seconds"
                ) from error
            except TailUnreadable:
                tries += 1
                if tries == SPARK_MANIFEST_READS_MAX:
                    raise
            else:
                self._decoded = content, found
                return found
            self.bucket.pause(0.1)

    async def _read_files(self, topic: TailTopic) -> tuple[DataFile, ...]:
        reader, metadata = await self._read_metadata(topic)
        files = await reader.live_files(metadata)
        return tuple(live.file for live in files if live.file.record_count)

    async def _read_manifests(self, topic: TailTopic) -> list[tuple[str, set[str]]]:
        """The key of each manifest of the table, and the files that it names."""
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
        # The agents may know the bucket by another URL than the one that was given here.
        folder = topic_folder(name_in_folder(topic.metadata_key), topic.topic_id)
        return self._reader(metadata.location.removesuffix(f"/{folder[:-1]}")), metadata

    def _reader(self, root: str) -> TableReader:
        return TableReader(root=root, store=self.bucket.store, cache=self._tables, run_in_thread=asyncio.to_thread)
