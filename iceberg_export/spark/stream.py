"""A streaming query over topics: its first offsets, the end of its next batch, and the plan of a batch.

Spark stores the position in its checkpoint, and everything here can be derived again. Spark 4.1 asks for the latest
offset without the query's position, but passes the position before: a query that resumes begins with
`partitions(position, position)`. A query whose first call is for the latest offset has no batch yet. From 4.2 on Spark
passes the position and a limit, and says before all others where a query with Trigger.AvailableNow has to end.

Source: PythonMicroBatchStream.setLatestSeenOffset, MicroBatchExecution.populateStartOffsets (Spark 4.1);
pyspark.sql.streaming.datasource (Spark 4.2); org.apache.spark.sql.kafka010.KafkaMicroBatchStream (losses).
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from iceberg_export.spark.bounds import Extent, LossReporter, extents, plan_ranges, resolve_starts
from iceberg_export.spark.lake import ForeignBucket, SparkLake
from iceberg_export.spark.options import ReadOptions, TopicPartition
from iceberg_export.spark.planning import OffsetRange, Split, divide
from iceberg_export.spark.positions import StreamPosition, share_out
from iceberg_export.tail.manifest import TailManifest
from protocol.types import Offset, PartitionIndex, TopicId

log = logging.getLogger(__name__)


class _CachedAnswer(NamedTuple):
    """The latest offset for one manifest, one position of the query, and one limit."""

    manifest: TailManifest
    at: StreamPosition | None
    offsets_max: int | None
    offset: dict[str, Any]


class SourceStream:
    """The source of one streaming query. For one thread. All methods raise `StoreError`, `DataLoss`, `OptionError`."""

    def __init__(self, lake: SparkLake, options: ReadOptions, *, task_count: int) -> None:
        self._lake = lake
        self._options = options
        self._losses = LossReporter(is_fatal=options.is_loss_fatal)
        self._task_count = task_count
        self._has_warned = False
        self._start_json: Mapping[str, Any] | None = None
        """The start of the batch that Spark asked for last; None from Spark 4.1, which names none."""
        self._target: Mapping[TopicPartition, Extent] | None = None
        """The partitions that a query with Trigger.AvailableNow may read, with their ends; else None."""
        self._at: StreamPosition | None = None
        """The end of the last planned batch; None before the first."""
        self._begun: StreamPosition | None = None
        """The first position of a query that has no batch yet."""
        self._cached: _CachedAnswer | None = None

    def initial_offset(self) -> dict[str, Any]:
        """The position at which the first batch begins. It stays the same until that batch is planned."""
        if self._at is not None and self._at.first_batch_begin is not None:
            return self._at.beginning().to_json()
        return self._begin(self._lake.newest or self._lake.manifest()).to_json()

    def latest_offset(self) -> dict[str, Any]:
        """The position at which the next batch should end, as Spark 4.1 asks for it: 100 times a second without new
        records."""
        return self._latest(self._options.offsets_per_trigger_max)

    def latest_offset_after(self, start: Mapping[str, Any], offsets_max: int | None) -> dict[str, Any]:
        """The same of a batch that begins at `start` and has about `offsets_max` offsets: None for no limit."""
        if start != self._start_json:
            self._start_json = dict(start)
            is_first = self._begun is not None and start == self._begun.to_json()
            self._at = None if is_first else StreamPosition.from_json(start)
        return self._latest(offsets_max)

    def end_at_what_is_there(self) -> None:
        """From now on behave as if no record came any more, and no partition: the query ends once it has all."""
        self._target = extents(self._lake, self._lake.manifest(), self._options.subscription, may_be_missing=True)
        self._cached = None

    def newest_offset(self) -> dict[str, Any] | None:
        """The position behind all records that are known, for Spark's report of progress; None before any is known."""
        manifest = self._lake.newest
        if manifest is None:
            return None
        partitions = extents(self._lake, manifest, self._options.subscription, may_be_missing=True)
        return _position(manifest, partitions, {key: extent.end for key, extent in partitions.items()}).to_json()

    def _latest(self, offsets_max: int | None) -> dict[str, Any]:
        manifest = self._lake.manifest(apart_s=self._lake.manifests.apart_s)
        cached = self._cached
        is_same = cached is not None and cached.manifest is manifest and cached.at is self._at
        if cached is None or not is_same or cached.offsets_max != offsets_max:
            end = self._end(manifest, offsets_max).to_json()
            self._cached = cached = _CachedAnswer(manifest, self._at, offsets_max, end)
        return cached.offset

    def _end(self, manifest: TailManifest, offsets_max: int | None) -> StreamPosition:
        """The end of the next batch; the same as that of the last one where there are no new records."""
        before = self._at or self._begin(manifest)
        partitions = extents(self._lake, manifest, self._options.subscription, may_be_missing=self._at is not None)
        if self._target is not None:
            partitions = {
                key: extent for key, extent in partitions.items() if key in self._target or key in before.offsets
            }
        begins = self._begins(before, manifest, partitions)
        if self._target is not None:
            # What retention deletes behind the end of this query is for the next one to see.
            begins |= {
                key: offset
                for key, offset in before.offsets.items()
                if key in partitions and self._is_complete(partitions[key], offset)
            }
        ends = {key: self._reachable_end(extent, begins[key]) for key, extent in partitions.items()}
        shares = share_out(begins, ends, offsets_max)
        if self._start_json is None and not self._has_warned and any(shares[key] < end for key, end in ends.items()):
            self._has_warned = True
            log.warning(
                "maxOffsetsPerTrigger leaves records for later batches, but a query with Trigger.AvailableNow has only "
                "one batch: omit the option there, or run the query again until it reads nothing"
            )
        first_batch_begin = None if self._at is not None else before.offsets
        end = _position(manifest, partitions, shares, first_batch_begin=first_batch_begin)
        # Spark compares the JSON: without new records it must be the same, or Spark runs an empty batch.
        return before if self._at == end else end

    def plan(self, start_json: Mapping[str, Any], end_json: Mapping[str, Any]) -> list[Split]:
        """The splits of the batch between two positions; none where they are equal: Spark passes its position then."""
        start, end = StreamPosition.from_json(start_json), StreamPosition.from_json(end_json)
        self._at = end
        if start_json == end_json:
            return []
        manifest = self._lake.newest or self._lake.manifest()
        self._check_log(end, manifest)
        ranges = [
            OffsetRange(
                topic=topic,
                topic_id=TopicId(bytes.fromhex(end.topic_ids[topic])),
                partition=PartitionIndex(partition),
                first=Offset(first),
                end=Offset(offset),
            )
            for (topic, partition), offset in end.offsets.items()
            if (first := _first(start, end, (topic, partition))) < offset
        ]
        # The manifest that gave the end has all chunks up to it. Objects that were deleted since are planned again.
        manifest_of_end = (
            self._cached.manifest if self._cached is not None and self._cached.offset == end_json else None
        )
        pieces = plan_ranges(self._lake, ranges, self._losses, manifest=manifest_of_end)
        count = self._options.partitions_min
        return divide(pieces, count or self._task_count, is_count_exact=count is not None)

    def _begin(self, manifest: TailManifest) -> StreamPosition:
        if self._begun is None:
            partitions = extents(self._lake, manifest, self._options.subscription)
            starts = resolve_starts(self._lake, partitions, self._options)
            for (topic, partition), start in starts.items():
                extent = partitions[topic, partition]
                if start > extent.end:
                    extent.check_whole()
                if not extent.first <= start <= extent.end:
                    self._losses.report(
                        f"{topic}-{partition} has offsets {extent.first} to {extent.end}, but the query reads from "
                        f"{start}"
                    )
            begins = {key: min(max(start, partitions[key].first), partitions[key].end) for key, start in starts.items()}
            self._begun = _position(manifest, partitions, begins)
        return self._begun

    def _begins(
        self, before: StreamPosition, manifest: TailManifest, partitions: Mapping[TopicPartition, Extent]
    ) -> dict[TopicPartition, int]:
        """The next offset of each partition that can be read now."""
        self._check_log(before, manifest)
        deleted = [
            f"{topic}-{partition}" for topic, partition in before.offsets if (topic, partition) not in partitions
        ]
        if deleted:
            self._losses.report(f"{', '.join(deleted)} do not exist any more: their unread records are lost")
        begins: dict[TopicPartition, int] = {}
        for key, extent in partitions.items():
            name, known_id = f"{key[0]}-{key[1]}", before.topic_ids.get(key[0])
            start = before.offsets.get(key, 0)
            if known_id is not None and known_id != extent.topic.topic_id.hex():
                self._losses.report(f"topic {key[0]} was deleted and created again: {name} is read from its beginning")
                start = 0
            if start > extent.end:
                self._losses.report(f"{name} ends at offset {extent.end}, but was read up to {start} before")
            begins[key] = min(max(start, extent.first), extent.end)
        return begins

    def _is_complete(self, extent: Extent, offset: int) -> bool:
        """Whether a query that has an end is at it in a partition."""
        target = self._target_of(extent)
        return target is not None and offset >= target.end

    def _reachable_end(self, extent: Extent, begin: int) -> int:
        """Where a partition ends for this query: nowhere behind what was there where the query has an end."""
        if self._target is None:
            return extent.end
        target = self._target_of(extent)
        return begin if target is None else min(extent.end, target.end)

    def _target_of(self, extent: Extent) -> Extent | None:
        """The partition as it was when the end was set; None where it is a new one, or of another topic."""
        target = None if self._target is None else self._target.get(extent.key)
        return target if target is not None and target.topic.topic_id == extent.topic.topic_id else None

    def _check_log(self, position: StreamPosition, manifest: TailManifest) -> None:
        """Check that the position's offsets are of the same log. Raises `ForeignBucket`, `DataLoss`."""
        if position.cluster_id != manifest.cluster_id:
            raise ForeignBucket(
                f"the query's checkpoint is of cluster {position.cluster_id}, but "
                f"{self._lake.manifests.name} is of {manifest.cluster_id}: give the other address, or begin with a new "
                "checkpoint"
            )
        # A recovery may assign offsets after its snapshot to other records.
        if position.incarnation != manifest.incarnation:
            self._losses.report(
                f"the cluster was recovered from its bucket (incarnation {position.incarnation}, now "
                f"{manifest.incarnation}): offsets after its last snapshot may be other records than before"
            )


def _position(
    manifest: TailManifest,
    partitions: Mapping[TopicPartition, Extent],
    offsets: Mapping[TopicPartition, int],
    *,
    first_batch_begin: Mapping[TopicPartition, int] | None = None,
) -> StreamPosition:
    """The position with these offsets of these partitions."""
    return StreamPosition(
        cluster_id=manifest.cluster_id,
        incarnation=manifest.incarnation,
        topic_ids={extent.topic.name: extent.topic.topic_id.hex() for extent in partitions.values()},
        offsets=offsets,
        first_batch_begin=first_batch_begin,
    )


def _first(start: StreamPosition, end: StreamPosition, key: TopicPartition) -> int:
    """The first offset of a partition in a batch: 0 for a new partition, or one of a new topic."""
    if start.topic_ids.get(key[0]) != end.topic_ids[key[0]]:
        return 0
    return start.offsets.get(key, 0)
