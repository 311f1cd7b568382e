"""Reads the rows of a split as Arrow record batches, with the Kafka source's columns.

The unread part of the split is known after each batch. Where an object was deleted meanwhile, that part is planned
again from a newer manifest, so no row comes twice or is missing. Nothing here knows Spark.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice

from iceberg_export.rows import schema
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.columns import Arrow, Selection, joined, to_spark
from iceberg_export.spark.planning import FilePiece, OffsetRange, Piece, Split
from iceberg_export.spark.row_groups import begin_end, choose_rows, read_footer_of, read_groups, selected_groups
from iceberg_export.spark.tail_rows import read_tail
from protocol.limits import SPARK_FILES_AHEAD_MAX, SPARK_MISSES_MAX
from protocol.types import Offset
from storage.object_store import ObjectDamaged, ObjectMissing

__all__ = ["PlanAgain", "Selection", "read_split"]

REMEDY_DAMAGED = 'docs/operations/damage.md, "A damaged file"'

PlanAgain = Callable[[Sequence[OffsetRange]], Sequence[Piece]]
"""Returns the pieces with the rows of these ranges, by a newer manifest."""


def read_split(bucket: Bucket, split: Split, selection: Selection, plan_again: PlanAgain) -> Iterator[Arrow]:
    """The selected rows of a split. Raises `StoreError`, and the errors of `plan_again`.

    Spark shows only the message of an error, so the message of a damaged object names the section of the runbook.
    """
    try:
        yield from joined(_read_pieces(bucket, split, selection, plan_again))
    except ObjectDamaged as error:
        raise ObjectDamaged(f"{error}: {REMEDY_DAMAGED}") from error


def _read_pieces(bucket: Bucket, split: Split, selection: Selection, plan_again: PlanAgain) -> Iterator[Arrow]:
    pending = deque(split.pieces)
    ahead = _FilesAhead(bucket)
    misses = 0
    while pending:
        try:
            for rest, batch in _read_piece(bucket, pending[0], selection, ahead.begin(pending)):
                if rest is None:
                    pending.popleft()
                else:
                    pending[0] = rest
                if batch is not None and batch.num_rows:
                    yield batch
        except ObjectMissing:
            misses += 1
            if misses > SPARK_MISSES_MAX:
                raise
            pending = deque(plan_again([each for piece in pending for each in piece.ranges]))
            ahead = _FilesAhead(bucket)


class _FilesAhead:
    """Requests for the ends of the next files, in flight together: small files are one such request each."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._begun: dict[str, Future[bytes]] = {}

    def begin(self, pending: Sequence[Piece]) -> "Future[bytes] | None":
        """Begin the requests of the next files; returns that of the first piece, None where it is no file."""
        for piece in islice(pending, SPARK_FILES_AHEAD_MAX):
            if isinstance(piece, FilePiece) and piece.key not in self._begun:
                self._begun[piece.key] = begin_end(self._bucket, piece)
        first = pending[0]
        return self._begun.pop(first.key) if isinstance(first, FilePiece) else None


def _read_piece(
    bucket: Bucket, piece: Piece, selection: Selection, end: "Future[bytes] | None"
) -> Iterator[tuple[Piece | None, Arrow | None]]:
    """The rows of the piece in batches, each with the part of the piece after it; (None, None) at the end."""
    if isinstance(piece, FilePiece):
        assert end is not None, "a file's end is requested before"
        return _read_file(bucket, piece, selection, end)
    return read_tail(bucket, piece, selection)


def _read_file(
    bucket: Bucket, piece: FilePiece, selection: Selection, end: "Future[bytes]"
) -> Iterator[tuple[Piece | None, Arrow | None]]:
    tail = end.result()
    footer = read_footer_of(bucket, piece, tail)
    groups = selected_groups(footer, piece.ranges, selection.since_us)
    # A query of the topic's name alone needs no column of the file, but its count of rows.
    columns = selection.file_columns or (schema.OFFSET,)
    topic = piece.ranges[0].topic
    for group, table in read_groups(bucket, piece, footer, groups, columns=columns, tail=tail):
        chosen = choose_rows(group, table, piece.ranges, selection.since_us, columns)
        rest = _after(piece, chosen.partition_last, chosen.offset_last)
        rows = chosen.table.combine_chunks()
        for batch in rows.to_batches():
            # `rest` is the part after the whole table, so there must be one batch only. A table of one chunk is one.
            assert batch.num_rows == rows.num_rows, "combined chunks are one batch"
            yield rest or replace(piece, ranges=()), to_spark(batch, [(topic, batch.num_rows)], selection.columns)
    yield None, None


def _after(piece: FilePiece, partition: int, offset: int) -> FilePiece | None:
    """The part of the piece after a row; None where there is none."""
    ranges = tuple(
        replace(each, first=max(each.first, Offset(offset + 1))) if each.partition == partition else each
        for each in piece.ranges
        if each.partition > partition or (each.partition == partition and each.end > offset + 1)
    )
    return replace(piece, ranges=ranges) if ranges else None
