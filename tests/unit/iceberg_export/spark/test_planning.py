"""Plans: each offset in exactly one split, splits of about equal bytes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.spark.planning import FilePiece, OffsetRange, Piece, TailPart, TailPiece, divide, rest_of
from iceberg_export.tail.manifest import TailChunk
from protocol.limits import SPARK_SPLIT_BYTES_MIN
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId

TOPIC = TopicId(b"t" * 16)


def offset_range(partition: int, first: int, end: int) -> OffsetRange:
    return OffsetRange(
        topic="t", topic_id=TOPIC, partition=PartitionIndex(partition), first=Offset(first), end=Offset(end)
    )


def tail_part(partition: int, ends: list[int], byte_count: int, *, within: tuple[int, int] | None = None) -> TailPart:
    firsts = [0, *ends[:-1]]
    chunks = tuple(
        TailChunk(
            offset_first=Offset(first),
            offset_end=Offset(end),
            object_key="intake/1/1",
            byte_first=0,
            byte_count=byte_count,
            append_time_ms=NO_TIMESTAMP,
        )
        for first, end in zip(firsts, ends, strict=True)
    )
    first, end = within or (0, ends[-1])
    return TailPart(range=offset_range(partition, first, end), chunks=chunks, aborted=())


def offsets(pieces: list[Piece]) -> Counter[tuple[int, int]]:
    return Counter(
        (each.partition, offset) for piece in pieces for each in piece.ranges for offset in range(each.first, each.end)
    )


files = st.builds(
    lambda counts, size: FilePiece(
        key="lake/f",
        object_bytes=size,
        ranges=tuple(offset_range(number, 5, 5 + count) for number, count in enumerate(counts)),
        byte_count=size,
    ),
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(1, 5000),
)
tails = st.builds(
    lambda lengths, size: TailPiece(
        parts=tuple(
            tail_part(number, [sum(each[: row + 1]) for row in range(len(each))], size)
            for number, each in enumerate(lengths)
        )
    ),
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(0, 900),
)


@given(st.lists(files | tails, max_size=5), st.integers(1, 9))
def test_splits_hold_every_offset_of_the_pieces_once(pieces: list[Piece], task_count: int) -> None:
    splits = divide(pieces, task_count, is_count_exact=True)
    assert offsets([piece for split in splits for piece in split.pieces]) == offsets(pieces)
    assert all(split.pieces for split in splits)
    assert len(splits) <= 2 * task_count + 2
    for split in splits:
        for piece in split.pieces:
            if isinstance(piece, TailPiece):
                for part in piece.parts:
                    assert part.chunks[0].offset_first <= part.range.first
                    assert part.range.end <= part.chunks[-1].offset_end


def test_a_large_file_is_shared_out_evenly() -> None:
    piece = FilePiece(key="lake/f", object_bytes=1000, ranges=(offset_range(0, 0, 1000),), byte_count=1000)
    splits = divide([piece], 4, is_count_exact=True)
    assert [split.pieces[0].ranges[0].end - split.pieces[0].ranges[0].first for split in splits] == [250] * 4


def test_little_is_one_task_unless_more_are_asked_for() -> None:
    pieces: list[Piece] = [TailPiece(parts=(tail_part(0, [5, 9], SPARK_SPLIT_BYTES_MIN // 4),))]
    assert len(divide(pieces, 8)) == 1
    assert len(divide(pieces, 2, is_count_exact=True)) == 2
    assert divide([], 3) == []


def test_the_rest_of_a_part_has_the_chunks_that_are_left() -> None:
    part = tail_part(0, [10, 20, 30], 7, within=(3, 27))
    rest = rest_of(part, 10)
    assert rest is not None
    assert (rest.range.first, rest.range.end, len(rest.chunks)) == (10, 27, 2)
    assert rest_of(part, 30) is None
