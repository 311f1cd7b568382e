"""The tail of a one-partition topic, read out of the bucket alone, as a Spark task reads it.

The path is the product's: `spark.planning.plan_pieces` plans, `spark.tail_rows.read_tail` reads.
"""

from collections.abc import Iterator, Mapping, Sequence

from iceberg_export.spark.bucket import Bucket, open_store
from iceberg_export.spark.columns import TIME_US_FIRST, Selection
from iceberg_export.spark.coverage import AnsweredSpan
from iceberg_export.spark.planning import OffsetRange, TailPiece, plan_pieces
from iceberg_export.spark.tail_rows import read_tail
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tail.manifest import TailTopic
from protocol.types import Offset, PartitionIndex

Row = tuple[int, int, bytes | None]
"""Offset, timestamp in milliseconds, value."""


class NoTables:
    """Implements `iceberg_export.spark.planning.Tables` for reads of the tail alone, which ask for no file."""

    def files(self, topics: Sequence[TailTopic]) -> Sequence[Sequence[DataFile]]:
        raise AssertionError("a read of the tail asks for no file")

    def spans(self, files: Sequence[DataFile]) -> Sequence[Sequence[AnsweredSpan]]:
        raise AssertionError("a read of the tail asks for no file")

    def footer_spans(self, topic: TailTopic, files: Sequence[DataFile]) -> Sequence[Sequence[AnsweredSpan]]:
        raise AssertionError("a read of the tail asks for no file")

    def manifests_of(self, topic: TailTopic, files: Sequence[DataFile]) -> str:
        raise AssertionError("a read of the tail asks for no file")


def fresh_bucket(url: str, environment: Mapping[str, str]) -> Bucket:
    """A client that shares nothing with the process's others, as one in a new process."""
    return Bucket(open_store(url, environment))


def tail_piece(topic: TailTopic, offset_first: int, offset_end: int, partition: int = 0) -> TailPiece:
    """The piece of a plan for `[offset_first, offset_end)`, which the manifest has to name."""
    asked = OffsetRange(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=PartitionIndex(partition),
        first=Offset(offset_first),
        end=Offset(offset_end),
    )
    pieces = plan_pieces([(topic, [asked])], tables=NoTables(), since_us=TIME_US_FIRST)
    parts = [part for piece in pieces if isinstance(piece, TailPiece) for part in piece.parts]
    return TailPiece(parts=tuple(parts))


def whole_tail(topic: TailTopic, offset_first: int | None = None) -> TailPiece:
    """The piece for all that the manifest names of partition 0, or for its end from `offset_first` on."""
    partition = topic.partitions[0]
    first = partition.archived_end if offset_first is None else offset_first
    return tail_piece(topic, first, partition.readable_end)


def tail_batches(bucket: Bucket, piece: TailPiece) -> Iterator[list[Row]]:
    """The rows, batch by batch. Raises `StoreError`: `ObjectMissing` once an object was archived and deleted."""
    selection = Selection(columns=("offset", "timestamp", "value"))
    for _, batch in read_tail(bucket, piece, selection):
        if batch is not None:
            offsets, times, values = (batch.column(name) for name in selection.columns)
            yield list(
                zip(
                    offsets.to_pylist(),
                    [us // 1000 for us in times.cast("int64").to_pylist()],
                    values.to_pylist(),
                    strict=True,
                )
            )


def tail_rows(bucket: Bucket, piece: TailPiece) -> list[Row]:
    """All rows of the piece. Raises as `tail_batches`."""
    return [row for rows in tail_batches(bucket, piece) for row in rows]
