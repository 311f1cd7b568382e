"""The rows of a split as Arrow record batches, with the Kafka source's columns.

Rule: what is read of a split is known at every moment, so that what an object no longer holds is planned again from a
newer manifest, and no row comes twice or is missing. Nothing here knows Spark.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice

from iceberg_export.rows import schema
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.columns import Arrow, Wanted, joined, to_spark
from iceberg_export.spark.planning import FilePiece, OffsetRange, Piece, Split
from iceberg_export.spark.row_groups import begin_end, choose_rows, read_footer_of, read_groups, wanted_groups
from iceberg_export.spark.tail_rows import read_tail
from protocol.limits import SPARK_FILES_AHEAD_MAX, SPARK_MISSES_MAX
from protocol.types import Offset
from storage.object_store import ObjectDamaged, ObjectMissing

__all__ = ["PlanAgain", "Wanted", "read_split"]

REMEDY_DAMAGED = 'docs/operations/damage.md, "A damaged file"'

PlanAgain = Callable[[Sequence[OffsetRange]], Sequence[Piece]]
"""Where the rows of these ranges lie by now."""


def read_split(bucket: Bucket, split: Split, wanted: Wanted, plan_again: PlanAgain) -> Iterator[Arrow]:
    """The wanted rows of a split. Raises `StoreError`, and what `plan_again` does.

    Spark tells of an error the message alone, behind the stack: so of damage it says where to read on.
    """
    try:
        yield from joined(_read_pieces(bucket, split, wanted, plan_again))
    except ObjectDamaged as error:
        raise ObjectDamaged(f"{error}: {REMEDY_DAMAGED}") from error


def _read_pieces(bucket: Bucket, split: Split, wanted: Wanted, plan_again: PlanAgain) -> Iterator[Arrow]:
    pending = deque(split.pieces)
    ahead = _FilesAhead(bucket)
    misses = 0
    while pending:
        try:
            for rest, batch in _read_piece(bucket, pending[0], wanted, ahead.begin(pending)):
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
    """The ends of files on their way: small files, which are all end, would else be waited for one after another."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._begun: dict[str, Future[bytes]] = {}

    def begin(self, pending: Sequence[Piece]) -> "Future[bytes] | None":
        """That of the first piece; None for one that is no file. Those behind it are on their way then, too."""
        for piece in islice(pending, SPARK_FILES_AHEAD_MAX):
            if isinstance(piece, FilePiece) and piece.key not in self._begun:
                self._begun[piece.key] = begin_end(self._bucket, piece)
        first = pending[0]
        return self._begun.pop(first.key) if isinstance(first, FilePiece) else None


def _read_piece(
    bucket: Bucket, piece: Piece, wanted: Wanted, end: "Future[bytes] | None"
) -> Iterator[tuple[Piece | None, Arrow | None]]:
    """Its rows bit by bit, each with what is left behind it: None once, at the end."""
    if isinstance(piece, FilePiece):
        assert end is not None, "a file's end is on its way"
        return _read_file(bucket, piece, wanted, end)
    return read_tail(bucket, piece, wanted)


def _read_file(
    bucket: Bucket, piece: FilePiece, wanted: Wanted, end: "Future[bytes]"
) -> Iterator[tuple[Piece | None, Arrow | None]]:
    known = end.result()
    footer = read_footer_of(bucket, piece, known)
    groups = wanted_groups(footer, piece.ranges, wanted.since_us)
    # A row group of which no column is wanted has rows all the same.
    columns = wanted.file_columns or (schema.OFFSET,)
    topic = piece.ranges[0].topic
    for group, table in read_groups(bucket, piece, footer, groups, columns=columns, known=known):
        found = choose_rows(group, table, piece.ranges, wanted.since_us, columns)
        left = _after(piece, found.partition_last, found.offset_last)
        rows = found.table.combine_chunks()
        for batch in rows.to_batches():
            # Of several batches the last one alone may say how far it goes; a table of one chunk is one batch.
            assert batch.num_rows == rows.num_rows, "combined chunks are one batch"
            yield left or replace(piece, ranges=()), to_spark(batch, [(topic, batch.num_rows)], wanted.columns)
    yield None, None


def _after(piece: FilePiece, partition: int, offset: int) -> FilePiece | None:
    """What of the piece lies behind a row; None where nothing does."""
    ranges = tuple(
        replace(each, first=max(each.first, Offset(offset + 1))) if each.partition == partition else each
        for each in piece.ranges
        if each.partition > partition or (each.partition == partition and each.end > offset + 1)
    )
    return replace(piece, ranges=ranges) if ranges else None
