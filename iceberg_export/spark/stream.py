"""A stream over topics: where it begins, how far it may go, and what a batch of it reads.

Rule: Spark keeps the position, in its checkpoint; nothing is kept here that could not be told again. It asks for the
latest offset without saying where the query stands. That it has told before: a query that goes on begins with
`partitions(position, position)`; one that is asked for the latest offset first has not begun yet.

Source: PythonMicroBatchStream.setLatestSeenOffset, MicroBatchExecution.populateStartOffsets (Spark 4.1);
org.apache.spark.sql.kafka010.KafkaMicroBatchStream for what is a loss.
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
from protocol.limits import SPARK_LOOKS_APART_SECONDS
from protocol.types import Offset, PartitionIndex, TopicId

log = logging.getLogger(__name__)


class _CachedAnswer(NamedTuple):
    """The answer to a question, for as long as it stays the same: by that manifest, and behind that batch."""

    manifest: TailManifest
    at: StreamPosition | None
    offset: dict[str, Any]


class SourceStream:
    """The source's side of one query. For one thread. All methods raise `StoreError`, `DataLoss` and `OptionError`."""

    def __init__(self, lake: SparkLake, options: ReadOptions, *, task_count: int) -> None:
        self._lake = lake
        self._options = options
        self._losses = LossReporter(is_fatal=options.is_loss_fatal)
        self._task_count = task_count
        self._has_warned = False
        self._at: StreamPosition | None = None
        """The end of the last batch that was planned; None before the first."""
        self._begun: StreamPosition | None = None
        """Where a query begins that has no batch yet."""
        self._cached: _CachedAnswer | None = None

    def initial_offset(self) -> dict[str, Any]:
        """Where the first batch begins: the same for as long as it is the first."""
        if self._at is not None and self._at.begun is not None:
            return self._at.beginning().to_json()
        return self._begin(self._lake.newest or self._lake.manifest()).to_json()

    def latest_offset(self) -> dict[str, Any]:
        """Where the next batch should end. While nothing is new Spark asks a hundred times a second."""
        manifest = self._lake.manifest(apart_s=SPARK_LOOKS_APART_SECONDS)
        cached = self._cached
        if cached is None or cached.manifest is not manifest or cached.at is not self._at:
            self._cached = cached = _CachedAnswer(manifest, self._at, self._end(manifest).to_json())
        return cached.offset

    def _end(self, manifest: TailManifest) -> StreamPosition:
        """Of the next batch; the same as that of the last one where nothing is new."""
        before = self._at or self._begin(manifest)
        found = extents(self._lake, manifest, self._options.subscription, may_be_missing=self._at is not None)
        begins = self._begins(before, manifest, found)
        ends = {key: extent.end for key, extent in found.items()}
        shares = share_out(begins, ends, self._options.offsets_per_trigger_max)
        if not self._has_warned and any(shares[key] < end for key, end in ends.items()):
            self._has_warned = True
            log.warning(
                "maxOffsetsPerTrigger leaves records to later batches; a query with Trigger.AvailableNow has one batch "
                "only: leave the option out there, or run it again until nothing comes"
            )
        end = StreamPosition(
            cluster_id=manifest.cluster_id,
            incarnation=manifest.incarnation,
            topic_ids={extent.topic.name: extent.topic.topic_id.hex() for extent in found.values()},
            offsets=shares,
            begun=None if self._at is not None else before.offsets,
        )
        # The same text where nothing is new, or Spark would run a batch of nothing.
        return before if self._at == end else end

    def plan(self, start_json: Mapping[str, Any], end_json: Mapping[str, Any]) -> list[Split]:
        """What the batch between two positions reads; nothing where they are the same, as Spark says where it is."""
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
        # What told the end knows where all up to it lies; what has gone since is planned again.
        manifest_before = (
            self._cached.manifest if self._cached is not None and self._cached.offset == end_json else None
        )
        pieces = plan_ranges(self._lake, ranges, self._losses, manifest=manifest_before)
        count = self._options.partitions_min
        return divide(pieces, count or self._task_count, is_count_wanted=count is not None)

    def _begin(self, manifest: TailManifest) -> StreamPosition:
        if self._begun is None:
            found = extents(self._lake, manifest, self._options.subscription)
            starts = resolve_starts(self._lake, found, self._options)
            for (topic, partition), start in starts.items():
                extent = found[topic, partition]
                if start > extent.end:
                    extent.check_whole()
                if not extent.first <= start <= extent.end:
                    held = f"holds offsets {extent.first} to {extent.end}"
                    self._losses.report(f"{topic}-{partition} {held}, and was to be read from {start}")
            self._begun = StreamPosition(
                cluster_id=manifest.cluster_id,
                incarnation=manifest.incarnation,
                topic_ids={extent.topic.name: extent.topic.topic_id.hex() for extent in found.values()},
                offsets={key: min(max(start, found[key].first), found[key].end) for key, start in starts.items()},
            )
        return self._begun

    def _begins(
        self, before: StreamPosition, manifest: TailManifest, found: Mapping[TopicPartition, Extent]
    ) -> dict[TopicPartition, int]:
        """From where each partition goes on that can be read now."""
        self._check_log(before, manifest)
        gone = [f"{topic}-{partition}" for topic, partition in before.offsets if (topic, partition) not in found]
        if gone:
            self._losses.report(f"{', '.join(gone)} are gone: what was not read of them is lost")
        begins: dict[TopicPartition, int] = {}
        for key, extent in found.items():
            name, known_id = f"{key[0]}-{key[1]}", before.topic_ids.get(key[0])
            start = before.offsets.get(key, 0)
            if known_id is not None and known_id != extent.topic.topic_id.hex():
                self._losses.report(f"topic {key[0]} was deleted and created anew: {name} begins anew, too")
                start = 0
            if start > extent.end:
                self._losses.report(f"{name} ends at offset {extent.end}, and had been read up to {start}")
            begins[key] = min(max(start, extent.first), extent.end)
        return begins

    def _check_log(self, position: StreamPosition, manifest: TailManifest) -> None:
        """Whether the position's offsets still mean the records that they meant."""
        if position.cluster_id != manifest.cluster_id:
            raise ForeignBucket(
                f"the query's checkpoint is of cluster {position.cluster_id}, and the bucket is of "
                f"{manifest.cluster_id}: give the URL of the other bucket, or begin with a new checkpoint"
            )
        if position.incarnation != manifest.incarnation:
            self._losses.report(
                f"the cluster was recovered from its bucket (incarnation {position.incarnation}, by now "
                f"{manifest.incarnation}): offsets behind its last snapshot may be other records than before"
            )


def _first(start: StreamPosition, end: StreamPosition, key: TopicPartition) -> int:
    """Where a partition of a batch begins: 0 for one that is new, or whose topic is."""
    if start.topic_ids.get(key[0]) != end.topic_ids[key[0]]:
        return 0
    return start.offsets.get(key, 0)
