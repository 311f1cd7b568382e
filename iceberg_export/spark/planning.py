"""Which bytes hold the offsets that are wanted, and how they are shared out among tasks.

Rule: pure, given a manifest and the files of tables. A row is in exactly one piece: what lies below a partition's
`archived_end` is read from its table, the rest from the intake.
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
    """What is known of topics' tables: `iceberg_export.spark.lake.SparkLake`."""

    def files(self, topics: Sequence[TailTopic]) -> Sequence[Sequence[DataFile]]:
        """Of each topic the data files that have rows."""
        ...

    def spans(self, files: Sequence[DataFile]) -> Sequence[Sequence[AnsweredSpan]]:
        """For which offsets each of them answers, and no other does: of files of one partition, from their first row
        to the last."""
        ...

    def footer_spans(self, topic: TailTopic, files: Sequence[DataFile]) -> Sequence[Sequence[AnsweredSpan]]:
        """The same as their footers say it. Raises `TableUnreadable` where that is not what the table says."""
        ...

    def manifests_of(self, topic: TailTopic, files: Sequence[DataFile]) -> str:
        """Which objects of the topic's table name the files, for people."""
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
    """Rows of one data file: those of `ranges`, all of one topic, in order of partitions."""

    key: str
    object_bytes: int
    ranges: tuple[OffsetRange, ...]
    byte_count: int
    """About what has to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPart:
    """Consecutive chunks of a partition in the intake; the first and the last may reach beyond `range`."""

    range: OffsetRange
    chunks: tuple[TailChunk, ...]
    aborted: tuple[AbortedExtent, ...]

    @property
    def byte_count(self) -> int:
        return sum(chunk.byte_count for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPiece:
    """Chunks of the intake. Those of several partitions are read together: they mostly share objects."""

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
    """What one task reads, piece after piece."""

    pieces: tuple[Piece, ...]


def plan_pieces(
    wanted: Sequence[tuple[TailTopic, Sequence[OffsetRange]]], *, tables: Tables, since_us: int
) -> list[Piece]:
    """Where the rows of topics' ranges lie: files, and one piece for all that waits, whose topics share objects.

    `tables` are asked at once for all topics of which something is archived. No range may reach beyond what its topic's
    manifest names. Files in which every record is earlier than `since_us` are left out. Raises `StoreError`,
    `TableUnreadable` where the files do not answer for all that is archived.
    """
    archived: list[tuple[TailTopic, list[OffsetRange]]] = []
    parts: list[TailPart] = []
    for topic, ranges in wanted:
        below: list[OffsetRange] = []
        for each in sorted(ranges, key=lambda one: (one.partition, one.first)):
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


def divide(pieces: Sequence[Piece], task_count: int, *, is_count_wanted: bool = False) -> list[Split]:
    """The pieces as splits of about equal bytes, in their order: `task_count` of them if there is enough to read.

    `is_count_wanted`: tasks may be as small as it takes.
    """
    total = sum(piece.byte_count for piece in pieces)
    share = -(-total // task_count)
    target = max(min(share, SPARK_SPLIT_BYTES_MAX), 1 if is_count_wanted else SPARK_SPLIT_BYTES_MIN)
    splits: list[Split] = []
    filling: list[Piece] = []
    room = target
    for piece in pieces:
        left: Piece | None = piece
        while left is not None:
            # A little more than there is room for goes along: a sliver by itself is not worth a task.
            if left.byte_count <= room + target // 8:
                filling.append(left)
                room -= left.byte_count
                left = None
            else:
                head, left = _cut(left, max(room, 1))
                if head is not None:
                    filling.append(head)
                room = 0
            if room <= target // 8 and filling:
                splits.append(Split(pieces=tuple(filling)))
                filling, room = [], target
    if filling:
        splits.append(Split(pieces=tuple(filling)))
    return splits


def _tail_parts(partition: TailPartition, wanted: OffsetRange) -> Iterator[TailPart]:
    chunks = partition.chunks.between(wanted.first, wanted.end)
    if not chunks:
        return
    aborted = tuple(
        extent
        for extent in partition.aborted
        if extent.offset_first < chunks[-1].offset_end and extent.marker >= chunks[0].offset_first
    )
    yield TailPart(range=wanted, chunks=chunks, aborted=aborted)


def _file_pieces(
    tables: Tables, archived: Sequence[tuple[TailTopic, Sequence[OffsetRange]]], since_us: int
) -> Iterator[FilePiece]:
    """The files that may hold wanted rows, topic by topic in order of offsets. No offset is in two of them: what a task
    does not find any more is planned again by its offsets alone."""
    all_files = tables.files([topic for topic, _ in archived])
    found: list[DataFile] = []
    earlier: list[list[DataFile]] = []
    ends: list[int] = []
    for (_, wanted), files in zip(archived, all_files, strict=True):
        held = [file for file in files if _may_hold(file, wanted)]
        found.extend(file for file in held if not _is_earlier(file, since_us))
        earlier.append([file for file in held if _is_earlier(file, since_us)])
        ends.append(len(found))
    spans = tables.spans(found)
    first = 0
    for (topic, wanted), files, left_out, end in zip(archived, all_files, earlier, ends, strict=True):
        held_spans = list(zip(found[first:end], spans[first:end], strict=True))
        first = end
        answers = _all_answers(topic, wanted, files, held_spans, left_out, tables)
        by_partition = _by_partition(wanted)
        pieces = [piece for file, of_file in answers if (piece := _file_piece(file, of_file, by_partition)) is not None]
        yield from sorted(pieces, key=lambda piece: (piece.ranges[0].partition, piece.ranges[0].first))


def _all_answers(
    topic: TailTopic,
    wanted: Sequence[OffsetRange],
    files: Sequence[DataFile],
    answers: Sequence[tuple[DataFile, Sequence[AnsweredSpan]]],
    left_out: Sequence[DataFile],
    tables: Tables,
) -> Sequence[tuple[DataFile, Sequence[AnsweredSpan]]]:
    """The files with what they answer for, which is all that is archived of `wanted`: a damaged bound leaves no row out
    (safety rule S20).

    Where there are gaps, the files beside them answer for what their footers say: rows may be in it, or not.
    `files`: all of the topic's; of those in `left_out` no row is late enough. Raises `StoreError`.
    """
    twice = doubled((file.key, span) for file, spans in answers for span in spans)
    if twice is not None:
        both, *keys = twice
        named = tables.manifests_of(topic, [file for file, _ in answers if file.key in keys])
        raise TableUnreadable(
            f"the table of {topic.name} is damaged: {keys[0]} and {keys[1]} both answer for offsets {both.first} to "
            f"{both.end - 1} of partition {both.partition}, say {named}; {_REMEDY}"
        )
    for file, spans in answers:
        for span in spans:
            held = topic.partition(PartitionIndex(span.partition))
            archived_end = 0 if held is None else held.archived_end
            if span.end > archived_end:
                raise TableUnreadable(
                    f"the table of {topic.name} is damaged: {file.key} answers for offsets up to {span.end - 1} of "
                    f"partition {span.partition}, which is archived up to {archived_end}, says "
                    f"{tables.manifests_of(topic, [file])}; {_REMEDY}"
                )
    numbers = {each.partition for each in wanted}
    without_rows = [
        FileSpan(number, *extent) for number in numbers for extent in topic.partitions[number].without_rows or ()
    ]
    gaps = uncovered(
        wanted, chain((span for _, spans in answers for span in spans), _hulls(left_out, numbers), without_rows)
    )
    if not gaps:
        return answers
    neighbours = beside(files, gaps)
    by_footers = dict(zip([file.key for file in neighbours], tables.footer_spans(topic, neighbours), strict=True))
    gaps = uncovered(gaps, chain.from_iterable(by_footers.values()))
    for gap in gaps:
        if topic.partitions[gap.partition].without_rows is not None:  # else offsets without rows cannot be told
            raise TableUnreadable(
                f"the table of {topic.name} is damaged: no file answers for offsets {gap.first} to {gap.end - 1} of "
                f"partition {gap.partition}, which are archived, say {tables.manifests_of(topic, neighbours)}; "
                f"{_REMEDY}"
            )
    passed_over = {file.key for file in left_out}
    all_spans = {file.key: spans for file, spans in answers} | by_footers
    return [(file, all_spans[file.key]) for file in files if file.key in all_spans and file.key not in passed_over]


def _hulls(files: Iterable[DataFile], partitions: Iterable[int]) -> Iterator[FileSpan]:
    """The widest spans for which files may answer in partitions, by their bounds."""
    for file in files:
        for partition in partitions:
            if file.bounds is not None and file.bounds.partition_min <= partition <= file.bounds.partition_max:
                yield FileSpan(partition, file.bounds.offset_min, file.bounds.offset_max + 1)


def _file_piece(
    file: DataFile, spans: Sequence[AnsweredSpan], wanted: Mapping[int, Sequence[OffsetRange]]
) -> FilePiece | None:
    """What of a file is wanted, None where nothing is."""
    held = [
        replace(each, first=Offset(max(each.first, span.first)), end=Offset(min(each.end, span.end)))
        for span in spans
        for each in wanted.get(span.partition, ())
        if max(each.first, span.first) < min(each.end, span.end)
    ]
    if not held:
        return None
    held.sort(key=lambda each: (each.partition, each.first))
    share = min(1.0, sum(each.end - each.first for each in held) / file.record_count)
    byte_count = max(1, int(file.object_bytes * share))
    return FilePiece(key=file.key, object_bytes=file.object_bytes, ranges=tuple(held), byte_count=byte_count)


def _by_partition(ranges: Iterable[OffsetRange]) -> dict[int, list[OffsetRange]]:
    by_partition: dict[int, list[OffsetRange]] = {}
    for each in ranges:
        by_partition.setdefault(each.partition, []).append(each)
    return by_partition


def _is_earlier(file: DataFile, since_us: int) -> bool:
    return file.bounds is not None and file.bounds.timestamp_us_max < since_us


def _may_hold(file: DataFile, wanted: Sequence[OffsetRange]) -> bool:
    """Whether its bounds leave room for wanted offsets."""
    bounds = file.bounds
    return bounds is not None and any(
        bounds.partition_min <= each.partition <= bounds.partition_max
        and max(each.first, bounds.offset_min) < min(each.end, bounds.offset_max + 1)
        for each in wanted
    )


def _cut(piece: Piece, byte_count: int) -> tuple[Piece | None, Piece | None]:
    """The piece's first part, of about so many bytes, and the rest; None for one that would be empty."""
    if isinstance(piece, TailPiece):
        return _cut_tail(piece, byte_count)
    offsets = sum(each.end - each.first for each in piece.ranges)
    taken = min(offsets, max(1, offsets * byte_count // piece.byte_count))
    head, tail = _cut_ranges(piece.ranges, taken)
    head_bytes = max(1, piece.byte_count * taken // offsets)
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
    """Between chunks: after the one with which it is enough."""
    head: list[TailPart] = []
    taken = 0
    for row, part in enumerate(piece.parts):
        for number, chunk in enumerate(part.chunks, 1):
            taken += chunk.byte_count
            if taken < byte_count:
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
    """What of a part lies in `[first, end)`, where both are bounds of its range or of its chunks."""
    return replace(
        part,
        range=replace(part.range, first=Offset(first), end=Offset(end)),
        chunks=tuple(chunk for chunk in part.chunks if chunk.offset_first < end and chunk.offset_end > first),
    )


def rest_of(part: TailPart, first: int) -> TailPart | None:
    """The part from an offset on; None where nothing is left."""
    return _part(part, first, part.range.end) if first < part.range.end else None
