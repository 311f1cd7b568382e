"""A table of a damaged folder as Spark's tasks read it, without Spark: the right rows, or an error of the store.

Rule: the tail manifest, which has a checksum, says how many rows there are to be.
"""

from collections.abc import Sequence
from pathlib import Path

from iceberg_export.spark.bounds import LossReporter, plan_ranges, resolve_batch
from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import parse_options
from iceberg_export.spark.planning import OffsetRange, Piece, divide
from iceberg_export.spark.rows import Selection, read_split
from protocol.types import PartitionIndex
from storage.object_store import StoreError
from tests.damage import world


def fault_of_table(data: Path, topic: str) -> tuple[bool, str]:
    """Whether a reader of a topic's table is refused, and what is wrong: other rows than there are, or what is no error
    of the store; "" where nothing is."""
    try:
        rows, end = _read(data, topic)
    except StoreError:
        return True, ""
    except Exception as error:  # any other end of a reader is what the sweep looks for
        return False, f"a reader of the table of {topic} ends with {error!r}"
    if rows == [(offset, *world.expected(topic, offset)) for offset in range(end)]:
        return False, ""
    return False, f"a reader of the table of {topic} gets {len(rows)} rows of {end}, or wrong ones, without an error"


def _read(data: Path, topic: str) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """The rows of a batch query as (offset, key, value), and where they are to end."""
    url = f"file://{data / 'store'}"
    options = parse_options({"path": url, "subscribe": topic}, {}, is_stream=False)
    lake, losses = SparkLake(open_bucket(url, {})), LossReporter(is_fatal=True)
    ranges = resolve_batch(lake, options, losses)
    found = lake.newest.topic(topic) if lake.newest is not None else None
    partition = None if found is None else found.partition(PartitionIndex(0))

    def plan_again(ranges: Sequence[OffsetRange]) -> list[Piece]:
        return plan_ranges(lake, ranges, losses)

    splits = divide(plan_ranges(lake, ranges, losses, manifest=lake.newest), 2, is_count_exact=True)
    rows = [
        (row["offset"], row["key"], row["value"])
        for split in splits
        for batch in read_split(lake.bucket, split, Selection(columns=options.columns), plan_again)
        for row in batch.to_pylist()
    ]
    return sorted(rows), 0 if partition is None else lake.readable(partition).end
