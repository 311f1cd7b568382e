"""Resolves a query's options to the partitions and offsets that it reads.

A query, or a batch of a stream, is resolved against one tail manifest. Offsets that cannot be read any more are a loss,
which `LossReporter` reports: as an error, or with failOnDataLoss=false as a warning, and the query reads the others.

Source: org.apache.spark.sql.kafka010.{KafkaOffsetReaderAdmin,KafkaBatch} (Spark 4.1).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from iceberg_export.rows.schema import MICROSECONDS_PER_MILLISECOND
from iceberg_export.spark.columns import TIME_US_FIRST, TIME_US_LAST
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Bound,
    Edge,
    Offsets,
    OptionError,
    ReadOptions,
    Timestamps,
    TopicPartition,
    TopicSubscription,
)
from iceberg_export.spark.planning import OffsetRange, Piece, Split, plan_pieces
from iceberg_export.spark.rows import Selection, read_split
from iceberg_export.tail.manifest import TailManifest, TailTopic
from protocol.limits import SPARK_PAUSES_MAX, SPARK_PLAN_ATTEMPTS_MAX
from protocol.types import Offset, PartitionIndex
from storage.object_store import ObjectMissing

log = logging.getLogger(__name__)


class TailIncomplete(Exception):
    """More chunks wait to be archived than the tail manifest can list.

    The records after them are committed, but cannot be read from the bucket yet. Nothing is lost.
    """


class DataLoss(Exception):
    """Some offsets of the query cannot be read, or not any more. The message says which ones.

    With failOnDataLoss=false the query skips them.
    """


@dataclass(slots=True, kw_only=True)
class LossReporter:
    """Reports offsets that cannot be read: as an error, or as a warning in the log and in `messages`."""

    is_fatal: bool
    messages: list[str] = field(default_factory=list[str])

    def report(self, message: str) -> None:
        """Report a loss. Raises `DataLoss` where it is fatal."""
        if self.is_fatal:
            raise DataLoss(
                f"{message}. If the query may continue without these records, set the option failOnDataLoss to false."
            )
        log.warning("records are skipped: %s", message)
        self.messages.append(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The offsets `[first, end)` of a partition that may be read."""

    topic: TailTopic
    partition: PartitionIndex
    first: Offset
    end: Offset
    committed_end: Offset
    """The end of the committed records: `end`, or more where the manifest cannot list all chunks."""

    def check_whole(self) -> None:
        """Raises `TailIncomplete` where some committed records cannot be read yet."""
        if self.committed_end > self.end:
            raise TailIncomplete(
                f"{self.topic.name}-{self.partition} is committed up to offset {self.committed_end}, but the tail "
                f"manifest lists its chunks only up to {self.end}. Archive it (`penstock archive {self.topic.name} "
                "--wait`), or wait for the next archive pass (the agents' archive-interval-s, 30 s by default), and "
                "run the query again; or set endingOffsets, or read only archived records with read=archive"
            )

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.partition

    def range(self, first: int, end: int) -> OffsetRange:
        """The part `[first, end)` of it."""
        return OffsetRange(
            topic=self.topic.name,
            topic_id=self.topic.topic_id,
            partition=self.partition,
            first=Offset(first),
            end=Offset(end),
        )


def extents(
    lake: SparkLake, manifest: TailManifest, subscription: TopicSubscription, *, may_be_missing: bool = False
) -> dict[TopicPartition, Extent]:
    """The extents of the subscription's partitions, in the order of topics and partitions.

    Raises `OptionError` for a named topic or partition that does not exist, unless it may be missing.
    """
    topics = sorted(
        (topic for topic in manifest.topics if subscription.matches(topic.name)), key=lambda topic: topic.name
    )
    missing = set(subscription.names) - {topic.name for topic in topics}
    if missing and not may_be_missing:
        raise OptionError(
            f"{lake.manifests.name} has no topic {', '.join(sorted(missing))} (at position {manifest.position} of "
            f"cluster {manifest.cluster_id}); {lake.manifests.missing_hint}"
        )
    by_partition: dict[TopicPartition, Extent] = {}
    for topic in topics:
        for number in subscription.partitions_of(topic.name, len(topic.partitions)):
            partition = topic.partition(PartitionIndex(number))
            if partition is None:
                if may_be_missing:
                    continue
                raise OptionError(f"topic {topic.name} has {len(topic.partitions)} partitions, but no number {number}")
            readable = lake.readable(partition)
            extent = Extent(
                topic=topic,
                partition=PartitionIndex(number),
                first=readable.first,
                end=readable.end,
                committed_end=readable.committed_end,
            )
            by_partition[extent.key] = extent
    return by_partition


def resolve_starts(
    lake: SparkLake, partitions: Mapping[TopicPartition, Extent], options: ReadOptions
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition. Raises `OptionError` or `StoreError`."""
    is_missing_error = not options.is_missing_time_latest
    starts = _resolve(lake, partitions, options.starting, "starting", is_missing_error=is_missing_error)
    return {key: starts[key] for key in partitions}


def resolve_batch(lake: SparkLake, options: ReadOptions, losses: LossReporter) -> list[OffsetRange]:
    """The ranges of offsets that a batch query reads. Raises `OptionError`, `DataLoss` or `StoreError`."""
    partitions = extents(lake, lake.manifest(), options.subscription)
    starts = resolve_starts(lake, partitions, options)
    ends = _resolve(lake, partitions, options.ending, "ending", is_missing_error=False)
    ranges: list[OffsetRange] = []
    for key, extent in partitions.items():
        start, end = starts[key], ends[key]
        name = f"{key[0]}-{key[1]}"
        if start > end and _is_given(options.starting, extent) and _is_given(options.ending, extent):
            # KafkaSourceProvider.checkStartOffsetNotGreaterThanEndOffset compares neither earliest nor latest.
            raise OptionError(f"the ending offset of {name} is {end}, which is before its starting offset, {start}")
        if max(start, end) > extent.end:
            extent.check_whole()
        if start < extent.first < end:
            losses.report(f"{name} begins at offset {extent.first}, but the query reads from {start}")
        if max(start, end) > extent.end:
            losses.report(f"{name} ends at offset {extent.end}, but the query reads from {start} to {end}")
        first, end = max(start, extent.first), min(end, extent.end)
        if first < end:
            ranges.append(extent.range(first, end))
    return ranges


def plan_ranges(
    lake: SparkLake,
    ranges: Sequence[OffsetRange],
    losses: LossReporter,
    *,
    manifest: TailManifest | None = None,
    since_us: int = TIME_US_FIRST,
) -> list[Piece]:
    """The pieces with the rows of `ranges` that are not earlier than `since_us`.

    `manifest`: the one to plan with; None: the newest. Raises `DataLoss` or `StoreError`.
    """
    attempts = 0
    while True:
        if manifest is None:
            manifest = _manifest_of(lake, ranges)
        try:
            return _plan(lake, manifest, ranges, losses, since_us)
        # A commit replaced the table's metadata, and it was deleted: plan again with a newer manifest.
        except ObjectMissing:
            attempts += 1
            if attempts == SPARK_PLAN_ATTEMPTS_MAX:
                raise
        manifest = None
        lake.bucket.pause(0.2 * attempts)


def _manifest_of(lake: SparkLake, ranges: Sequence[OffsetRange]) -> TailManifest:
    """A manifest with all of the ranges, which were readable before; after `SPARK_PAUSES_MAX` pauses any manifest.

    An agent that was suspended may put a manifest that is older than the one before.
    """
    pauses = 0
    while True:
        manifest = lake.manifest()
        topics = {topic.name: topic for topic in manifest.topics}
        if pauses == SPARK_PAUSES_MAX or not any(_is_beyond(lake, topics.get(each.topic), each) for each in ranges):
            return manifest
        pauses += 1
        lake.bucket.pause(1.0)


def _is_beyond(lake: SparkLake, topic: TailTopic | None, range_: OffsetRange) -> bool:
    partition = None if topic is None else topic.partition(range_.partition)
    return partition is None or range_.end > lake.readable(partition).end


def _plan(
    lake: SparkLake, manifest: TailManifest, ranges: Sequence[OffsetRange], losses: LossReporter, since_us: int
) -> list[Piece]:
    topics = {topic.name: topic for topic in manifest.topics}
    by_topic: dict[str, list[OffsetRange]] = {}
    for each in ranges:
        readable = _readable_part(lake, topics.get(each.topic), each, losses)
        if readable is not None:
            by_topic.setdefault(each.topic, []).append(readable)
    return plan_pieces([(topics[name], parts) for name, parts in by_topic.items()], tables=lake, since_us=since_us)


def _readable_part(
    lake: SparkLake, topic: TailTopic | None, range_: OffsetRange, losses: LossReporter
) -> OffsetRange | None:
    """The part of a range that can be read now; the range was readable before. Raises `DataLoss`."""
    name = f"{range_.topic}-{range_.partition}"
    partition = None if topic is None else topic.partition(range_.partition)
    if topic is None or partition is None or topic.topic_id != range_.topic_id:
        losses.report(f"topic {range_.topic} was deleted: offsets {range_.first} to {range_.end} of {name} are lost")
        return None
    readable = lake.readable(partition)
    first, end = max(range_.first, readable.first), min(range_.end, readable.end)
    if first > range_.first:
        losses.report(f"{name} now begins at offset {readable.first}, but the query reads from {range_.first}")
    if end < range_.end:
        losses.report(f"{name} ends at offset {readable.end}, but its end was {range_.end} before")
    return replace(range_, first=Offset(first), end=Offset(end)) if first < end else None


def _resolve(
    lake: SparkLake, partitions: Mapping[TopicPartition, Extent], bound: Bound, which: str, *, is_missing_error: bool
) -> dict[TopicPartition, int]:
    match bound:
        case Edge.EARLIEST:
            return {key: extent.first for key, extent in partitions.items()}
        case Edge.LATEST:
            for extent in partitions.values():
                extent.check_whole()
            return {key: extent.end for key, extent in partitions.items()}
        case Offsets(by_partition=offsets):
            _check_all(partitions, offsets, f"{which}Offsets")
            for key, offset in offsets.items():
                if offset == LATEST_OFFSET:
                    partitions[key].check_whole()
            edges = {
                key: {EARLIEST_OFFSET: extent.first, LATEST_OFFSET: extent.end} for key, extent in partitions.items()
            }
            return {key: edges[key].get(offset, offset) for key, offset in offsets.items()}
        case Timestamps(by_partition=times, for_all=for_all):
            if times:
                _check_all(partitions, times, f"{which}OffsetsByTimestamp")
            return {
                key: _offset_at(lake, extent, times.get(key, for_all), which, is_missing_error=is_missing_error)
                for key, extent in partitions.items()
            }
        case _:
            assert_never(bound)


def _is_given(bound: Bound, extent: Extent) -> bool:
    """True where the options set a partition's bound to an offset or a time, and not to earliest or latest.

    A time always counts, also where no record is as late and the bound is the log's end.
    """
    match bound:
        case Edge():
            return False
        case Offsets(by_partition=offsets):
            return offsets[extent.topic.name, extent.partition] >= 0
        case Timestamps():
            return True
        case _:
            assert_never(bound)


def _check_all(partitions: Mapping[TopicPartition, Extent], given: Mapping[TopicPartition, int], option: str) -> None:
    if partitions.keys() != given.keys():
        raise OptionError(
            f"option {option} must name exactly the partitions that are read: use -1 for latest, -2 for earliest. "
            f"Named: {_names(given)}. Read: {_names(partitions)}"
        )


def _names(keys: Mapping[TopicPartition, object]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys)) or "none"


def _offset_at(lake: SparkLake, extent: Extent, time_ms: int, which: str, *, is_missing_error: bool) -> int:
    offset = first_offset_at(lake, extent, time_ms)
    if offset is not None:
        return offset
    extent.check_whole()
    if is_missing_error:
        raise OptionError(
            f"no record of {extent.topic.name}-{extent.partition} is as late as {which} timestamp {time_ms}; with "
            "startingOffsetsByTimestampStrategy=latest the query would begin at the end"
        )
    return extent.end


def first_offset_at(lake: SparkLake, extent: Extent, time_ms: int) -> int | None:
    """The offset of the first record at or after `time_ms`; None where there is none. Raises `StoreError`."""
    since_us = time_ms * MICROSECONDS_PER_MILLISECOND
    if since_us > TIME_US_LAST:
        return None
    offset_column = Selection(columns=("offset",), since_us=since_us)
    best = extent.end
    losses = LossReporter(is_fatal=True)
    if extent.first >= extent.end:
        return None
    everything = [extent.range(extent.first, extent.end)]
    for piece in plan_ranges(lake, everything, losses, manifest=lake.newest, since_us=since_us):
        # Timestamps need not ascend with offsets, so every piece before the best offset is read.
        if piece.ranges[0].first >= best:
            continue

        def plan_again(ranges: Sequence[OffsetRange]) -> list[Piece]:
            return plan_ranges(lake, ranges, losses, since_us=since_us)

        for batch in read_split(lake.bucket, Split(pieces=(piece,)), offset_column, plan_again):
            best = min(best, Offset(batch.column("offset")[0].as_py()))
            break
    return best if best < extent.end else None
