"""A data file as its table's manifest lists it. No heavy imports.

Bounds are exact: the lowest and the highest value of the file's rows. Engines may answer `min` and `max` from them.
"""

from dataclasses import dataclass

from iceberg_export.tables.column_counts import ColumnCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds:
    """The lowest and the highest value of each column among a file's rows, both inclusive."""

    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_us_min: int
    timestamp_us_max: int

    def with_also(self, other: "RowBounds") -> "RowBounds":
        """The bounds of the rows of both."""
        return RowBounds(
            partition_min=min(self.partition_min, other.partition_min),
            partition_max=max(self.partition_max, other.partition_max),
            offset_min=min(self.offset_min, other.offset_min),
            offset_max=max(self.offset_max, other.offset_max),
            timestamp_us_min=min(self.timestamp_us_min, other.timestamp_us_min),
            timestamp_us_max=max(self.timestamp_us_max, other.timestamp_us_max),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file of a table.

    `bounds`: None where the file has no rows, for example because all its records were aborted.
    `counts`: those of its columns; a file from before all columns were counted has some of them.
    `split_offsets`: the first byte of each row group, ascending: the positions where engines may divide the file.
    """

    key: str
    object_bytes: int
    record_count: int
    bounds: RowBounds | None
    counts: ColumnCounts
    split_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of a snapshot. `sequence_number`: of the commit that added it; 1 for the table's first commit."""

    file: DataFile
    sequence_number: int
