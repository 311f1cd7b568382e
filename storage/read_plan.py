"""Plans the requests that read byte ranges: neighbours in one object share a request.

Rule: nothing is read here. A request costs about as much as half a mebibyte of transfer, so bytes between two
ranges are read along and thrown away up to that; a request stays bounded, so that one slow answer does not hold up
much.
"""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.limits import READ_BYTES_MAX, READ_GAP_BYTES_MAX
from storage.refs import ByteRange


class Piece(NamedTuple):
    """Where a requested range lies in what was read. `byte_first` counts from the read's start."""

    range_index: int
    """The range's index in the request."""
    byte_first: int
    byte_count: int


class PlannedRead(NamedTuple):
    """One ranged request, and the ranges that it answers."""

    read: ByteRange
    pieces: tuple[Piece, ...]


def plan_reads(
    ranges: Sequence[ByteRange], *, gap_bytes_max: int = READ_GAP_BYTES_MAX, read_bytes_max: int = READ_BYTES_MAX
) -> list[PlannedRead]:
    """Requests that together answer every range of `ranges`, each range by exactly one of them.

    Ranges of an object that overlap or lie at most `gap_bytes_max` apart are read together, while the request stays
    within `read_bytes_max`; a single range above that is read alone, whole. Objects come in the order in which they are
    first named, the reads of one object by position.
    """
    by_key: dict[str, list[int]] = {}
    for index, byte_range in enumerate(ranges):
        by_key.setdefault(byte_range.key, []).append(index)
    planned: list[PlannedRead] = []
    for key, indexes in by_key.items():
        indexes.sort(key=lambda index: (ranges[index].byte_first, ranges[index].byte_count))
        run: list[int] = []
        run_first = run_end = 0
        for index in indexes:
            byte_first = ranges[index].byte_first
            byte_end = byte_first + ranges[index].byte_count
            joined_end = max(run_end, byte_end)
            if run and byte_first - run_end <= gap_bytes_max and joined_end - run_first <= read_bytes_max:
                run.append(index)
                run_end = joined_end
                continue
            if run:
                planned.append(_read(key, run_first, run_end, run, ranges))
            run, run_first, run_end = [index], byte_first, byte_end
        planned.append(_read(key, run_first, run_end, run, ranges))
    return planned


def slice_read(planned: PlannedRead, payload: bytes) -> list[tuple[int, memoryview]]:
    """The ranges that `payload`, the answer to `planned`, holds: (index of the range, its bytes), uncopied."""
    assert len(payload) == planned.read.byte_count, "a read answers exactly what was asked"
    view = memoryview(payload)
    return [
        (piece.range_index, view[piece.byte_first : piece.byte_first + piece.byte_count]) for piece in planned.pieces
    ]


def _read(key: str, run_first: int, run_end: int, run: Sequence[int], ranges: Sequence[ByteRange]) -> PlannedRead:
    return PlannedRead(
        read=ByteRange(key=key, byte_first=run_first, byte_count=run_end - run_first),
        pieces=tuple(
            Piece(
                range_index=index, byte_first=ranges[index].byte_first - run_first, byte_count=ranges[index].byte_count
            )
            for index in run
        ),
    )
