"""Writes Parquet files through pyarrow: rows of records in, a file with the counts of its columns in its footer out.

Encoding (measured in benchmarks/micro/parquet.py): zstd level 1, dictionaries only where values repeat, delta packing
for offsets and timestamps, page index, one bloom filter on the key.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_export.parquet.arrow_counts import ColumnCounter, counted_columns
from iceberg_export.parquet.arrow_footer import column_chunk_bounds, row_group_locations
from iceberg_export.parquet.arrow_rows import Arrow, arrow_schema, header_keys_field, to_arrow
from iceberg_export.rows import schema
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.footer import RowGroupLocation
from iceberg_export.rows.header_keys import exact_keys, is_text
from iceberg_export.tables import column_counts
from iceberg_export.tables.column_counts import ColumnCounts

if TYPE_CHECKING:
    from iceberg_export.typed.file_columns import FileColumns  # readers of files do not need its imports

BLOOM_VALUES_MIN, BLOOM_VALUES_MAX = 64, 1 << 17
BLOOM_FALSE_POSITIVES = 0.05
ZSTD_LEVEL = 1
PAGE_BYTES_UNBOUNDED = 1 << 30
"""Pages end by rows alone, so that all columns are cut at the same ones."""


class HeaderKeysFound(Exception):
    """A row group has header keys that are not UTF-8, but the file was begun without a column for their bytes.

    The caller writes the file again from its start, with `has_header_keys`.
    """


class FileWriter:
    """Writes one Parquet file into `sink`, a row group at a time. CPU work: call it in a thread; pyarrow frees the GIL.

    `sink` stays open and belongs to the caller.
    """

    def __init__(
        self,
        sink: IO[bytes],
        typed: "FileColumns | None" = None,
        *,
        has_header_keys: bool = False,
        page_rows: int = 0,
    ) -> None:
        """`typed`: columns after the raw ones. `has_header_keys`: keep header keys as bytes, whatever the first row
        group has. `page_rows`: the rows of each page of all columns; 0: as pyarrow cuts them."""
        self.has_header_keys = has_header_keys
        """True where the file keeps header keys as bytes; final once it has a row group."""
        self._sink = sink
        self._typed = typed
        self._writer: Arrow = None
        self._counter = ColumnCounter()
        self._counts: ColumnCounts | None = None
        self._footer: list[Arrow] = []
        self._page_rows = page_rows

    def write_row_group(self, parts: Sequence[RecordRows]) -> None:
        """Append the rows of all parts as one row group. Raises `HeaderKeysFound`."""
        if not self.has_header_keys and not all(map(_has_text_keys, parts)):
            # The schema of a Parquet file is fixed with its first row group.
            if self._writer is not None:
                raise HeaderKeysFound
            self.has_header_keys = True
        batches = [self._batch(rows) for rows in parts]
        if self._writer is None:
            self._writer = self._opened(batches[0].schema, batches[0])
        self._writer.write_table(pa.Table.from_batches(batches), row_group_size=sum(map(len, parts)))
        for rows, batch in zip(parts, batches, strict=True):
            self._counter.add(rows, batch)

    def _batch(self, rows: RecordRows) -> Arrow:
        batch = to_arrow(rows)
        if self.has_header_keys:
            field = header_keys_field()
            batch = batch.append_column(field, exact_keys(rows, field.type))
        return batch if self._typed is None else self._typed.batch(batch, rows)

    def counts(self) -> ColumnCounts:
        """The counts of all columns of the closed file."""
        assert self._counts is not None, "the file is closed"
        return self._counts

    def close(self, metadata: Mapping[str, str]) -> tuple[RowGroupLocation, ...]:
        """Finish the file with `metadata` in its footer. Returns the locations of its row groups."""
        if self._writer is None:
            self._writer = self._opened(self._schema(), None)
        self._counts = self._counter.counts()
        typed = {} if self._typed is None else self._typed.metadata()
        counted = {schema.COUNTS_METADATA_KEY: column_counts.encode(self._counts)}
        self._writer.add_key_value_metadata({**metadata, **typed, **counted})
        self._writer.close()
        return row_group_locations(self._footer[0], is_whole=self._typed is not None and self._typed.plans is not None)

    def abandon(self) -> None:
        """Discard an unfinished file. To be called before the sink is closed, because pyarrow writes to it here."""
        if self._writer is not None:
            self._writer.close()

    def chunk_bounds(self) -> Iterator[int]:
        """The first and the end byte of each column chunk of the closed file. Some positions come twice."""
        for index in range(self._footer[0].num_row_groups):
            group = self._footer[0].row_group(index)
            for number in range(group.num_columns):
                yield from column_chunk_bounds(group.column(number))

    def _opened(self, file_schema: Arrow, first: Arrow | None) -> Arrow:
        if self._typed is not None:
            raw_count = len(schema.COLUMNS) + self.has_header_keys
            self._counter = ColumnCounter(counted_columns(file_schema, raw_count))
        return _open_writer(self._sink, file_schema, first, self._footer, self._typed, self._page_rows)

    def _schema(self) -> Arrow:
        """The schema of a file without rows."""
        raw = arrow_schema().append(header_keys_field()) if self.has_header_keys else arrow_schema()
        return raw if self._typed is None else self._typed.schema(raw)


def _has_text_keys(rows: RecordRows) -> bool:
    return is_text(rows.header_key.part(int(rows.header_ends[0]), int(rows.header_ends[-1])))


def _open_writer(
    sink: IO[bytes],
    file_schema: Arrow,
    first: Arrow | None,
    footer: list[Arrow],
    typed: "FileColumns | None",
    page_rows: int,
) -> Arrow:
    with_statistics = [] if typed is None else typed.with_statistics()
    distinct = _distinct_keys(first)
    dictionaries = set(schema.DICTIONARY_COLUMNS)
    # One that overflows ends a page where no other column's page ends, and a reader of pages needs all of it.
    if page_rows and first is not None and distinct * 2 > len(first):
        dictionaries.remove(schema.KEY)
    pages = {"max_rows_per_page": page_rows, "data_page_size": PAGE_BYTES_UNBOUNDED} if page_rows else {}
    return pq.ParquetWriter(
        sink,
        file_schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=sorted(dictionaries),
        column_encoding=dict.fromkeys(schema.DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
        write_statistics=[*schema.STATISTICS_COLUMNS, *with_statistics],
        write_page_index=True,
        write_page_checksum=True,  # for other engines; Penstock checks the file's own CRC-32Cs (safety rule S20)
        bloom_filter_options=_bloom_filter(distinct),
        **pages,
        sorting_columns=[
            pq.SortingColumn(schema.COLUMNS.index(name), descending=False) for name in schema.SORT_COLUMNS
        ],
        store_schema=False,
        store_decimal_as_integer=True,  # as Iceberg's specification requires for decimals of few digits
        metadata_collector=footer,
    )


def _distinct_keys(first: Arrow | None) -> int:
    """How many keys the first rows have; 0 without keys."""
    if first is None:
        return 0
    keys = first.column(schema.COLUMNS.index(schema.KEY))
    return 0 if keys.null_count == len(keys) else int(pc.count_distinct(keys).as_py())


def _bloom_filter(distinct: int) -> dict[str, dict[str, float]] | None:
    """The options of the bloom filter on the key, sized by the keys of the first rows; None where these have none."""
    if not distinct:
        return None
    values = min(max(distinct, BLOOM_VALUES_MIN), BLOOM_VALUES_MAX)
    return {schema.KEY: {"ndv": values, "fpp": BLOOM_FALSE_POSITIVES}}
