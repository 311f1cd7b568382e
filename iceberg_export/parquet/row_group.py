"""Rows of one partition that become a large row group, and where its chunks begin.

A scan is quicker through large row groups, and a consumer asks for few rows: so a row group is large, and its pages can
be read without the others (`iceberg_export.parquet.pages`). Its chunks are whole pages. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iceberg_export.rows.columns import RecordRows
from protocol.limits import (
    PAGE_BYTES_MAX,
    PAGE_BYTES_TARGET,
    PAGE_ROWS_MIN,
    ROW_GROUP_BYTES_TARGET,
)
from protocol.types import PartitionIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupSizes:
    """How large the parts of a file become, in bytes of keys, values and headers."""

    group_bytes_max: int = 0
    """A row group of one partition is written once it has as much. 0: rows that are passed together are a row group."""
    chunk_bytes_target: int = ROW_GROUP_BYTES_TARGET
    page_bytes_target: int = PAGE_BYTES_TARGET
    """A page has so many rows as take this in the file's first row group."""
    page_bytes_max: int = PAGE_BYTES_MAX
    """A row group ends within a page that has as much."""
    page_rows_min: int = PAGE_ROWS_MIN

    def page_rows(self, rows: RecordRows) -> int:
        """How many rows a page of a file has whose first rows are these."""
        row_bytes = max(int(rows.byte_ends()[-1]) / len(rows), 1.0)
        return max(round(self.page_bytes_target / row_bytes), self.page_rows_min)


SMALL_ROW_GROUPS = RowGroupSizes()


class PendingRowGroup:
    """Rows that wait for more of their partition. `page_rows`: the rows of each page of the file."""

    def __init__(self, sizes: RowGroupSizes, page_rows: int, rows_max: int) -> None:
        self._sizes = sizes
        self._page_rows = page_rows
        self._rows_max = rows_max
        self.parts: list[RecordRows] = []
        self._row_count = self._byte_count = self._page_bytes = 0

    def takes(self, rows: RecordRows) -> bool:
        """Whether rows can be added: all of the same partition as those that wait, and within the limit of rows."""
        partition = rows.partition[0]
        if partition != rows.partition[-1] or self._row_count + len(rows) > self._rows_max:
            return False
        return not self.parts or partition == self.parts[0].partition[0]

    def add(self, rows: RecordRows) -> None:
        """Add rows that it takes."""
        byte_ends = rows.byte_ends()
        end = self._row_count + len(rows)
        rows_of_last_page = end % self._page_rows
        if rows_of_last_page < len(rows):  # its first row is among these
            before = int(byte_ends[-1 - rows_of_last_page])
            self._page_bytes = int(byte_ends[-1]) - before
        else:
            self._page_bytes += int(byte_ends[-1])
        self.parts.append(rows)
        self._row_count, self._byte_count = end, self._byte_count + int(byte_ends[-1])

    @property
    def is_full(self) -> bool:
        """Whether it is to be written: it has its size, or its last page is large before it has its rows."""
        return self._byte_count >= self._sizes.group_bytes_max or self._page_bytes >= self._sizes.page_bytes_max

    @property
    def partition(self) -> PartitionIndex:
        return PartitionIndex(int(self.parts[0].partition[0]))

    def chunk_ends(self) -> list[int]:
        """The rows at which its chunks end: pages until the next one would make a chunk too large."""
        if not self._sizes.group_bytes_max:
            return [self._row_count]
        bytes_max = self._sizes.chunk_bytes_target + self._sizes.page_bytes_target
        byte_ends = _joined_ends(self.parts)
        ends: list[int] = []
        first_bytes = 0
        for page_first in range(self._page_rows, self._row_count, self._page_rows):
            page_end = min(page_first + self._page_rows, self._row_count)
            if int(byte_ends[page_end - 1]) - first_bytes > bytes_max:
                ends.append(page_first)
                first_bytes = int(byte_ends[page_first - 1])
        return [*ends, self._row_count]


def _joined_ends(parts: Sequence[RecordRows]) -> NDArray[np.int64]:
    ends: list[NDArray[np.int64]] = []
    before = 0
    for part in parts:
        ends.append(part.byte_ends() + before)
        before = int(ends[-1][-1])
    return np.concatenate(ends)
