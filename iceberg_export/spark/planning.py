"""Plans the objects and bytes to read for ranges of offsets, and divides them among tasks.

Pure, given a manifest and the files of tables. Each row is in exactly one piece: offsets below a partition's
`archived_end` are read from its table, the others from the intake.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Protocol, TypeAlias

from iceberg_export.spark.coverage import AnsweredSpan, FileSpan, beside, doubled, uncovered
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import TableUnreadable
from iceberg_export.tail.manifest import TailChunk, TailPartition, TailTopic
from protocol.limits import SPARK_SPLIT_BYTES_MAX, SPARK_SPLIT_BYTES_MIN
from protocol.types import Offset, PartitionIndex, TopicId
from txn.isolation import AbortedExtent


class Tables(Protocol):
    """The port to the tables of topics; `iceberg_export.spark.lake.SparkLake` implements it."""

    def files(self, topics: Sequence[TailTopic]) -> Sequence[Sequence[DataFile]]:
        """The data files with rows, for each topic."""
        ...

    def spans(self, files: Sequence[DataFile]) -> Sequence[Sequence[AnsweredSpan]]:
        """The offsets that each file answers for, and no other does. For a file of one partition: those of its rows."""
        ...

    def footer_spans(self, topic: TailTopic, files: Sequence[DataFile]) -> Sequence[Sequence[AnsweredSpan]]:
        """The offsets that each file answers for by its footer. Raises `TableUnreadable` where the table differs."""
        ...

    def manifests_of(self, topic: TailTopic, files: Sequence[DataFile]) -> str:
        """The keys of the table's objects that list the files, for messages."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets `[first, end)` of a partition."""

    topic: str
    topic_id: TopicId
    partition: PartitionIndex
    first: Offset
    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """The rows of one data file in `ranges`, which are all of one topic, in the order of partitions."""

    key: str
    object_bytes: int
    ranges: tuple[OffsetRange, ...]
    byte_count: int
    """An estimate of the bytes to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPart:
    """Contiguous chunks of a partition in the intake. The first and the last may reach beyond `range`."""

    range: OffsetRange
    chunks: tuple[TailChunk, ...]
    aborted: tuple[AbortedExtent, ...]

    @property
    def byte_count(self) -> int:
        return sum(chunk.byte_count for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPiece:
    """Chunks of the intake. Chunks of several partitions are read together, because they mostly share objects."""

    parts: tuple[TailPart, ...]

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(part.range for part in self.parts)

    @property
    def byte_count(self) -> int:
        return sum(part.byte_count for part in self.parts)


Piece: TypeAlias = FilePiece | TailPiece
_REMEDY = 'docs/operations/damage.md, "A table\'s metadata is damaged"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The pieces that one task reads, one after the other."""

    pieces: tuple[Piece, ...]


def plan_pieces(
    requested: Sequence[tuple[TailTopic, Sequence[OffsetRange]]], *, tables: Tables, since_us: int
) -> list[Piece]:
    """The pieces with the rows of the topics' ranges: data files, and one piece for the tails of all topics.

    `requested`: ranges that the manifest has in full. `tables`: called once for all topics with archived offsets in
    their ranges. `since_us`: files whose records are all earlier are left out. Raises `StoreError`, and
    `TableUnreadable` where the files do not answer for all archived offsets.
    """
    archived: list[tuple[TailTopic, list[OffsetRange]]] = []
    parts: list[TailPart] = []
    for topic, ranges in requested:
        below: list[OffsetRange] = []
        for each in sorted(ranges, key=lambda range_: (range_.partition, range_.first)):
            partition = topic.partitions[each.partition]
            archived_end = partition.archived_end
            if each.first < archived_end:
                below.append(replace(each, end=min(each.end, archived_end)))
            if each.end > archived_end:
                parts.extend(_tail_parts(partition, replace(each, first=max(each.first, archived_end))))
        if below:
            archived.append((topic, below))
    pieces: list[Piece] = [*_file_pieces(tables, archived, since_us)] if archived else []
    if parts:
        pieces.append(TailPiece(parts=tuple(parts)))
    return pieces


def divide(pieces: Sequence[Piece], task_count: int, *, is_count_exact: bool = False) -> list[Split]:
    """The pieces as splits of about equal bytes, in the same order: `task_count` splits if there are enough bytes.

    `is_count_exact`: splits may be smaller than `SPARK_SPLIT_BYTES_MIN` to reach the count.
    """
    total = sum(piece.byte_count for piece in pieces)
    share = -(-total // task_count)
    target = max(min(share, SPARK_SPLIT_BYTES_MAX), 1 if is_count_exact else SPARK_SPLIT_BYTES_MIN)
    splits: list[Split] = []
    filling: list[Piece] = []
    missing_bytes = target
    for piece in pieces:
        rest: Piece | None = piece
        while rest is not None:
            # A piece may exceed the target by an eighth, and a split may end an eighth before it: the small remainder
            # would not be worth a task.
            if rest.byte_count <= missing_bytes + target // 8:
                filling.append(rest)
                missing_bytes -= rest.byte_count
                rest = None
            else:
                head, rest = _cut(rest, max(missing_bytes, 1))
                if head is not None:
                    filling.append(head)
                missing_bytes = 0
            if missing_bytes <= target // 8 and filling:
                splits.append(Split(pieces=tuple(filling)))
                filling, missing_bytes = [], target
    if filling:
        splits.append(Split(pieces=tuple(filling)))
    return splits


def _tail_parts(partition: TailPartition, range_: OffsetRange) -> Iterator[TailPart]:
    chunks = partition.chunks.between(range_.first, range_.end)
    if not chunks:
        return
    aborted = tuple(
        extent
        for extent in partition.aborted
        if extent.offset_first < chunks[-1].offset_end and extent.marker >= chunks[0].offset_first
    )
    yield TailPart(range=range_, chunks=chunks, aborted=aborted)


def _file_pieces(
    tables: Tables, archived: Sequence[tuple[TailTopic, Sequence[OffsetRange]]], since_us: int
) -> Iterator[FilePiece]:
    """The pieces of files that may have rows of the ranges, topic by topic, in the order of offsets.

    No offset is in two of them, because a task plans again by offsets alone, where a file was deleted meanwhile.
    """
    all_files = tables.files([topic for topic, _ in archived])
    candidates: list[DataFile] = []
    earlier: list[list[DataFile]] = []
    ends: list[int] = []
    for (_, ranges), files in zip(archived, all_files, strict=True):
        overlapping = [file for file in files if _may_have_rows(file, ranges)]
        candidates.extend(file for file in overlapping if not _is_earlier(file, since_us))
        earlier.append([file for file in overlapping if _is_earlier(file, since_us)])
        ends.append(len(candidates))
    spans = tables.spans(candidates)
    first = 0
    for (topic, ranges), files, left_out, end in zip(archived, all_files, earlier, ends, strict=True):
        topic_spans = list(zip(candidates[first:end], spans[first:end], strict=True))
        first = end
        answers = _all_answers(topic, ranges, files, topic_spans, left_out, tables)
        by_partition = _by_partition(ranges)
        pieces = [piece for file, of_file in answers if (piece := _file_piece(file, of_file, by_partition)) is not None]
        yield from sorted(pieces, key=lambda piece: (piece.ranges[0].partition, piece.ranges[0].first))


def _all_answers(
    topic: TailTopic,
    ranges: Sequence[OffsetRange],
    files: Sequence[DataFile],
    answers: Sequence[tuple[DataFile, Sequence[AnsweredSpan]]],
    left_out: Sequence[DataFile],
    tables: Tables,
) -> Sequence[tuple[DataFile, Sequence[AnsweredSpan]]]:
    """The files with the offsets that they answer for: together all of `ranges`, or an error (safety rule S20).

    Without this check a damaged bound would silently leave rows out. Where the rows of `answers` have gaps, the footers
    of the files next to a gap show whether these files answer for it.

    `files`: all files of the topic. `left_out`: those whose rows are all too early. Raises `StoreError`, and
    `TableUnreadable` for a gap or an overlap.
    """
    # Two files for one offset: its rows would come twice.
    twice = doubled((file.key, span) for file, spans in answers for span in spans)
    if twice is not None:
        both, *keys = twice
        manifests = tables.manifests_of(topic, [file for file, _ in answers if file.key in keys])
        raise TableUnreadable(
            f"the table of {topic.name} is damaged: {keys[0]} and {keys[1]} both answer for offsets {both.first} to "
            f"{both.end - 1} of partition {both.partition}, say {manifests}; {_REMEDY}"
        )
    # Offsets that are not archived yet are read from the intake, so these rows would come twice, too.
    for file, spans in answers:
        for span in spans:
            partition = topic.partition(PartitionIndex(span.partition))
            archived_end = 0 if partition is None else partition.archived_end
            if span.end > archived_end:
                raise TableUnreadable(
                    f"the table of {topic.name} is damaged: {file.key} answers for offsets up to {span.end - 1} of "
                    f"partition {span.partition}, which is archived up to {archived_end}, says "
                    f"{tables.manifests_of(topic, [file])}; {_REMEDY}"
                )
    numbers = {each.partition for each in ranges}
    without_rows = [
        FileSpan(number, *extent) for number in numbers for extent in topic.partitions[number].without_rows or ()
    ]
    gaps = uncovered(
        ranges, chain((span for _, spans in answers for span in spans), _hulls(left_out, numbers), without_rows)
    )
    if not gaps:
        return answers
    neighbours = beside(files, gaps)
    by_footers = dict(zip([file.key for file in neighbours], tables.footer_spans(topic, neighbours), strict=True))
    gaps = uncovered(gaps, chain.from_iterable(by_footers.values()))
    for gap in gaps:
        # A manifest from before the field `without_rows` cannot show whether the gap has rows: it is no error then.
        if topic.partitions[gap.partition].without_rows is not None:
            raise TableUnreadable(
                f"the table of {topic.name} is damaged: no file answers for offsets {gap.first} to {gap.end - 1} of "
                f"partition {gap.partition}, which are archived, say {tables.manifests_of(topic, neighbours)}; "
                f"{_REMEDY}"
            )
    left_out_keys = {file.key for file in left_out}
    all_spans = {file.key: spans for file, spans in answers} | by_footers
    return [(file, all_spans[file.key]) for file in files if file.key in all_spans and file.key not in left_out_keys]


def _hulls(files: Iterable[DataFile], partitions: Iterable[int]) -> Iterator[FileSpan]:
    """The widest spans in partitions that the files may answer for, by their bounds."""
    for file in files:
        for partition in partitions:
            if file.bounds is not None and file.bounds.partition_min <= partition <= file.bounds.partition_max:
                yield FileSpan(partition, file.bounds.offset_min, file.bounds.offset_max + 1)


def _file_piece(
    file: DataFile, spans: Sequence[AnsweredSpan], by_partition: Mapping[int, Sequence[OffsetRange]]
) -> FilePiece | None:
    """The piece of a file with rows of the ranges in `by_partition`; None where the file has none."""
    ranges = [
        replace(each, first=Offset(max(each.first, span.first)), end=Offset(min(each.end, span.end)))
        for span in spans
        for each in by_partition.get(span.partition, ())
        if max(each.first, span.first) < min(each.end, span.end)
    ]
    if not ranges:
        return None
    ranges.sort(key=lambda each: (each.partition, each.first))
    share = min(1.0, sum(each.end - each.first for each in ranges) / file.record_count)
    byte_count = max(1, int(file.object_bytes * share))
    return FilePiece(key=file.key, object_bytes=file.object_bytes, ranges=tuple(ranges), byte_count=byte_count)


def _by_partition(ranges: Iterable[OffsetRange]) -> dict[int, list[OffsetRange]]:
    by_partition: dict[int, list[OffsetRange]] = {}
    for each in ranges:
        by_partition.setdefault(each.partition, []).append(each)
    return by_partition


def _is_earlier(file: DataFile, since_us: int) -> bool:
    return file.bounds is not None and file.bounds.timestamp_us_max < since_us


def _may_have_rows(file: DataFile, ranges: Sequence[OffsetRange]) -> bool:
    """True where the file's bounds overlap one of the ranges."""
    bounds = file.bounds
    return bounds is not None and any(
        bounds.partition_min <= each.partition <= bounds.partition_max
        and max(each.first, bounds.offset_min) < min(each.end, bounds.offset_max + 1)
        for each in ranges
    )


def _cut(piece: Piece, byte_count: int) -> tuple[Piece | None, Piece | None]:
    """The first part of the piece, of about `byte_count` bytes, and the rest; None for an empty one."""
    if isinstance(piece, TailPiece):
        return _cut_tail(piece, byte_count)
    offsets = sum(each.end - each.first for each in piece.ranges)
    head_offsets = min(offsets, max(1, offsets * byte_count // piece.byte_count))
    head, tail = _cut_ranges(piece.ranges, head_offsets)
    head_bytes = max(1, piece.byte_count * head_offsets // offsets)
    return (
        replace(piece, ranges=head, byte_count=head_bytes),
        replace(piece, ranges=tail, byte_count=max(1, piece.byte_count - head_bytes)) if tail else None,
    )


def _cut_ranges(
    ranges: Sequence[OffsetRange], offset_count: int
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """The first `offset_count` offsets of the ranges, and the others."""
    ends = list(accumulate(each.end - each.first for each in ranges))
    row = bisect_left(ends, offset_count)
    within = ranges[row]
    cut = Offset(within.end - (ends[row] - offset_count))
    head = (*ranges[:row], replace(within, end=cut))
    tail = (replace(within, first=cut), *ranges[row + 1 :]) if cut < within.end else tuple(ranges[row + 1 :])
    return head, tail


def _cut_tail(piece: TailPiece, byte_count: int) -> tuple[Piece | None, Piece | None]:
    """The piece, cut after the chunk with which the first part has `byte_count` bytes."""
    head: list[TailPart] = []
    head_bytes = 0
    for row, part in enumerate(piece.parts):
        for number, chunk in enumerate(part.chunks, 1):
            head_bytes += chunk.byte_count
            if head_bytes < byte_count:
                continue
            rest: list[TailPart] = list(piece.parts[row + 1 :])
            if number < len(part.chunks):
                head.append(_part(part, part.range.first, chunk.offset_end))
                rest.insert(0, _part(part, chunk.offset_end, part.range.end))
            else:
                head.append(part)
            return TailPiece(parts=tuple(head)), TailPiece(parts=tuple(rest)) if rest else None
        head.append(part)
    return piece, None


def _part(part: TailPart, first: int, end: int) -> TailPart:
    """The part's offsets in `[first, end)`, where both are limits of its range or of its chunks."""
    return replace(
        part,
        range=replace(part.range, first=Offset(first), end=Offset(end)),
        chunks=tuple(chunk for chunk in part.chunks if chunk.offset_first < end and chunk.offset_end > first),
    )


def rest_of(part: TailPart, first: int) -> TailPart | None:
    """The part from an offset on; None where it ends before."""
    return _part(part, first, part.range.end) if first < part.range.end else None
