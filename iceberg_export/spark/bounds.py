"""From options to offsets: which partitions are read, from where to where.

Rule: all of a query, or of a batch of a stream, is resolved against one manifest. What cannot be read as asked is a
loss, and told (`LossReporter`): an error, or, with failOnDataLoss=false, a warning and the rest of the data.

Source: org.apache.spark.sql.kafka010.{KafkaOffsetReaderAdmin,KafkaBatch} (Spark 4.1).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from iceberg_export.spark.rows import Wanted, read_split
from iceberg_export.tail.manifest import TailManifest, TailTopic
from protocol.limits import SPARK_PAUSES_MAX, SPARK_PLAN_ATTEMPTS_MAX
from protocol.types import Offset, PartitionIndex
from storage.object_store import ObjectMissing

log = logging.getLogger(__name__)


class TailIncomplete(Exception):
    """More records wait to be archived than the tail manifest names: what lies behind them is committed, and cannot be
    read from the bucket yet. Nothing is lost."""


class DataLoss(Exception):
    """Records that were asked for cannot be read any more, or again. The message says which; with
    failOnDataLoss=false the query passes over them."""


@dataclass(slots=True, kw_only=True)
class LossReporter:
    """Where records that cannot be read are told of."""

    is_fatal: bool
    messages: list[str] = field(default_factory=list[str])

    def report(self, message: str) -> None:
        """Raises `DataLoss` unless the query is to go on."""
        if self.is_fatal:
            raise DataLoss(f"{message}. If the query may go on without them, set the option failOnDataLoss to false.")
        log.warning("records are passed over: %s", message)
        self.messages.append(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What may be read of a partition that is asked for: offsets `[first, end)`."""

    topic: TailTopic
    partition: PartitionIndex
    first: Offset
    end: Offset
    committed_end: Offset
    """Not before `end`; behind it where the manifest had no room for all that waits."""

    def check_whole(self) -> None:
        """Raises `TailIncomplete` where not all that is committed may be read."""
        if self.committed_end > self.end:
            raise TailIncomplete(
                f"{self.topic.name}-{self.partition} is committed up to offset {self.committed_end}, and the tail "
                f"manifest names what waits to be archived only up to {self.end}. Have it archived (`penstock archive "
                f"{self.topic.name} --wait`), or wait for the next pass (the agents' archive-interval-s, 30 s by "
                "default), and ask again; or name endingOffsets, or read what is archived alone by read=archive"
            )

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.partition

    def range(self, first: int, end: int) -> OffsetRange:
        """A part of it."""
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
    """What is asked for, in order of topics and partitions.

    Raises `OptionError` for a topic or partition that is named and does not exist, unless it may be missing.
    """
    wanted = sorted((topic for topic in manifest.topics if subscription.matches(topic.name)), key=lambda one: one.name)
    missing = set(subscription.names) - {topic.name for topic in wanted}
    if missing and not may_be_missing:
        raise OptionError(
            f"the bucket knows no topic {', '.join(sorted(missing))} (at position {manifest.position} of cluster "
            f"{manifest.cluster_id}); a new one appears within seconds"
        )
    found: dict[TopicPartition, Extent] = {}
    for topic in wanted:
        for number in subscription.partitions_of(topic.name, len(topic.partitions)):
            partition = topic.partition(PartitionIndex(number))
            if partition is None:
                if may_be_missing:
                    continue
                raise OptionError(f"topic {topic.name} has {len(topic.partitions)} partitions, so no number {number}")
            readable = lake.readable(partition)
            extent = Extent(
                topic=topic,
                partition=PartitionIndex(number),
                first=readable.first,
                end=readable.end,
                committed_end=readable.committed_end,
            )
            found[extent.key] = extent
    return found


def resolve_starts(
    lake: SparkLake, found: Mapping[TopicPartition, Extent], options: ReadOptions
) -> dict[TopicPartition, int]:
    """Where each partition begins. Raises `OptionError` or `StoreError`."""
    starts = _resolve(lake, found, options.starting, "starting", is_missing_error=not options.is_missing_time_latest)
    return {key: starts[key] for key in found}


def resolve_batch(lake: SparkLake, options: ReadOptions, losses: LossReporter) -> list[OffsetRange]:
    """What a batch query reads. Raises `OptionError`, `DataLoss` or `StoreError`."""
    found = extents(lake, lake.manifest(), options.subscription)
    starts = resolve_starts(lake, found, options)
    ends = _resolve(lake, found, options.ending, "ending", is_missing_error=False)
    ranges: list[OffsetRange] = []
    for key, extent in found.items():
        start, end = starts[key], ends[key]
        name = f"{key[0]}-{key[1]}"
        if start > end and _is_given(options.starting, extent) and _is_given(options.ending, extent):
            # KafkaSourceProvider.checkStartOffsetNotGreaterThanEndOffset leaves out what is the earliest or the latest.
            raise OptionError(f"the ending offset of {name} is {end}, which is before its starting offset, {start}")
        if max(start, end) > extent.end:
            extent.check_whole()
        if start < extent.first < end:
            losses.report(f"{name} begins at offset {extent.first}, and was to be read from {start}")
        if max(start, end) > extent.end:
            losses.report(f"{name} ends at offset {extent.end}, and was to be read from {start} to {end}")
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
    """Where the rows lie that are at least as late as `since_us`, by `manifest`, else by the newest one.

    Raises `DataLoss` or `StoreError`.
    """
    tries = 0
    while True:
        if manifest is None:
            manifest = _manifest_of(lake, ranges)
        try:
            return _plan(lake, manifest, ranges, losses, since_us)
        except ObjectMissing:
            tries += 1
            if tries == SPARK_PLAN_ATTEMPTS_MAX:
                raise
        manifest = None
        lake.bucket.pause(0.2 * tries)


def _manifest_of(lake: SparkLake, ranges: Sequence[OffsetRange]) -> TailManifest:
    """A manifest that knows of all the ranges, which were readable once; after a while one that does not.

    A manifest from before may stand in the bucket for as long as its writer stood still.
    """
    pauses = 0
    while True:
        manifest = lake.manifest()
        topics = {topic.name: topic for topic in manifest.topics}
        if pauses == SPARK_PAUSES_MAX or not any(_is_beyond(lake, topics.get(each.topic), each) for each in ranges):
            return manifest
        pauses += 1
        lake.bucket.pause(1.0)


def _is_beyond(lake: SparkLake, topic: TailTopic | None, wanted: OffsetRange) -> bool:
    partition = None if topic is None else topic.partition(wanted.partition)
    return partition is None or wanted.end > lake.readable(partition).end


def _plan(
    lake: SparkLake, manifest: TailManifest, ranges: Sequence[OffsetRange], losses: LossReporter, since_us: int
) -> list[Piece]:
    topics = {topic.name: topic for topic in manifest.topics}
    by_topic: dict[str, list[OffsetRange]] = {}
    for each in ranges:
        held = _held(lake, topics.get(each.topic), each, losses)
        if held is not None:
            by_topic.setdefault(each.topic, []).append(held)
    wanted = [(topics[name], held_ranges) for name, held_ranges in by_topic.items()]
    return plan_pieces(wanted, tables=lake, since_us=since_us)


def _held(lake: SparkLake, topic: TailTopic | None, wanted: OffsetRange, losses: LossReporter) -> OffsetRange | None:
    """What of a range that was readable once can be read now."""
    name = f"{wanted.topic}-{wanted.partition}"
    partition = None if topic is None else topic.partition(wanted.partition)
    if topic is None or partition is None or topic.topic_id != wanted.topic_id:
        losses.report(f"topic {wanted.topic} was deleted: offsets {wanted.first} to {wanted.end} of {name} are gone")
        return None
    readable = lake.readable(partition)
    first, end = max(wanted.first, readable.first), min(wanted.end, readable.end)
    if first > wanted.first:
        losses.report(f"{name} begins at offset {readable.first} by now, and {wanted.first} was to be read")
    if end < wanted.end:
        losses.report(f"{name} ends at offset {readable.end}, where it had reached {wanted.end} before")
    return (
        OffsetRange(
            topic=wanted.topic,
            topic_id=wanted.topic_id,
            partition=wanted.partition,
            first=Offset(first),
            end=Offset(end),
        )
        if first < end
        else None
    )


def _resolve(
    lake: SparkLake, found: Mapping[TopicPartition, Extent], bound: Bound, which: str, *, is_missing_error: bool
) -> dict[TopicPartition, int]:
    match bound:
        case Edge.EARLIEST:
            return {key: extent.first for key, extent in found.items()}
        case Edge.LATEST:
            for extent in found.values():
                extent.check_whole()
            return {key: extent.end for key, extent in found.items()}
        case Offsets(by_partition=offsets):
            _check_all(found, offsets, f"{which}Offsets")
            for key, offset in offsets.items():
                if offset == LATEST_OFFSET:
                    found[key].check_whole()
            edges = {key: {EARLIEST_OFFSET: extent.first, LATEST_OFFSET: extent.end} for key, extent in found.items()}
            return {key: edges[key].get(offset, offset) for key, offset in offsets.items()}
        case Timestamps(by_partition=times, for_all=for_all):
            if times:
                _check_all(found, times, f"{which}OffsetsByTimestamp")
            return {
                key: _offset_at(lake, extent, times.get(key, for_all), which, is_missing_error=is_missing_error)
                for key, extent in found.items()
            }
        case _:
            assert_never(bound)


def _is_given(bound: Bound, extent: Extent) -> bool:
    """Whether a partition's bound is an offset that was named, or that a time led to, which is the log's end where
    no record is as late. What is called the earliest or the latest is not compared."""
    match bound:
        case Edge():
            return False
        case Offsets(by_partition=offsets):
            return offsets[extent.topic.name, extent.partition] >= 0
        case Timestamps():
            return True
        case _:
            assert_never(bound)


def _check_all(found: Mapping[TopicPartition, Extent], given: Mapping[TopicPartition, int], option: str) -> None:
    if found.keys() != given.keys():
        raise OptionError(
            f"option {option} must name exactly the partitions that are read: use -1 for latest, -2 for earliest. "
            f"Named: {_names(given)}. Read: {_names(found)}"
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
            "startingOffsetsByTimestampStrategy=latest the query begins at the end then"
        )
    return extent.end


def first_offset_at(lake: SparkLake, extent: Extent, time_ms: int) -> int | None:
    """The offset of the first record that is as late, None where there is none. Raises `StoreError`."""
    since_us = time_ms * MICROSECONDS_PER_MILLISECOND
    if since_us > TIME_US_LAST:
        return None
    wanted = Wanted(columns=("offset",), since_us=since_us)
    best = extent.end
    losses = LossReporter(is_fatal=True)
    if extent.first >= extent.end:
        return None
    everything = [extent.range(extent.first, extent.end)]
    for piece in plan_ranges(lake, everything, losses, manifest=lake.newest, since_us=since_us):
        if piece.ranges[0].first >= best:
            continue

        def plan_again(ranges: Sequence[OffsetRange]) -> list[Piece]:
            return plan_ranges(lake, ranges, losses, since_us=since_us)

        for batch in read_split(lake.bucket, Split(pieces=(piece,)), wanted, plan_again):
            best = min(best, Offset(batch.column("offset")[0].as_py()))
            break
    return best if best < extent.end else None
