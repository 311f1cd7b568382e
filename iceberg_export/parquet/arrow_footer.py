"""Footers of Parquet files through pyarrow: checked before it sees a byte, then read and described for manifests.

In: the end of a file. Out: its `Footer` with the locations of its row groups, or the `DataFile` that a manifest lists.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_export.parquet.arrow_rows import Arrow
from iceberg_export.rows import schema
from iceberg_export.rows.checksums import FileChecksums, check_key, checked_footer
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, Footer, RowGroupLocation, damage_contained
from iceberg_export.rows.footer_text import read_footer_text
from iceberg_export.rows.schema import FieldId
from iceberg_export.rows.thrift import raw_field
from iceberg_export.rows.thrift_footer import check_footer
from iceberg_export.tables import column_counts
from iceberg_export.tables.column_counts import ColumnCount, ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from storage.object_store import Buffer

if TYPE_CHECKING:
    from iceberg_export.typed.elision.value_decoder import PlannedValueDecoder

_SCHEMA: Final = 2
"""The field of FileMetaData with the schema's elements."""
_NEVER_NULL = (FieldId.PARTITION, FieldId.OFFSET, FieldId.TIMESTAMP, FieldId.TIMESTAMP_TYPE)
"""The columns that count as never null in a file from before counts were in the footer; `count_filling` knows them."""
_COUNTED_ROWS = frozenset({*_NEVER_NULL, FieldId.KEY, FieldId.VALUE, FieldId.HEADERS})


def read_footer(tail: Buffer, *, key: str | None = None, file_bytes: int | None = None) -> Footer:
    """The footer at the end of a file.

    `tail`: the end of the file, at least `checksums.tail_bytes`. `key`: the object that was read; a file that was
    written for another key is rejected. `file_bytes`: the size of the file. Raises `FileUnreadable`.
    """
    with damage_contained("the footer"):
        # Checksums are compared before pyarrow sees any byte: damaged bytes can end the process in native code (safety
        # rule S20). A file without checksums is parsed by `thrift_footer` first, for the same reason.
        footer, checksums = checked_footer(tail, file_bytes)
        if checksums is None:
            check_footer(footer[:-FOOTER_TAIL_BYTES], file_bytes)
        elif key is not None:
            check_key(checksums, key)
        parsed = _footer(pq.read_metadata(pa.BufferReader(pa.py_buffer(footer))), checksums)
        page_rows = _page_rows(parsed)
        if not page_rows:
            return parsed
        return replace(parsed, page_rows=page_rows, schema=raw_field(bytes(footer[:-FOOTER_TAIL_BYTES]), _SCHEMA))


def _page_rows(footer: Footer) -> int:
    """The rows of each page, for files with checksums alone: without them nothing says where a page ends."""
    text = footer.metadata.get(schema.PAGE_ROWS_METADATA_KEY)
    if text is None or footer.checksums is None:
        return 0
    page_rows = int(text)
    if page_rows <= 0:
        raise FileUnreadable(f"the footer says that pages have {page_rows} rows")
    return page_rows


def _footer(file_metadata: Arrow, checksums: FileChecksums | None) -> Footer:
    pairs: Mapping[bytes, bytes] = file_metadata.metadata or {}
    metadata = {key.decode(): value.decode() for key, value in pairs.items()}
    version = _checked_version(metadata)
    decoder = _value_decoder(metadata)
    return Footer(
        row_groups=row_group_locations(file_metadata, is_whole=decoder is not None),
        metadata=metadata,
        parsed=file_metadata,
        value_decoder=decoder,
        has_header_keys=version >= schema.FILE_FORMAT_VERSION_HEADER_KEYS,
        checksums=checksums,
    )


def _checked_version(metadata: Mapping[str, str]) -> int:
    """The version of the file's format. Raises `FileUnreadable` for a newer one, whose columns may differ."""
    footer_text = metadata.get(schema.FILE_METADATA_KEY)
    version = schema.FILE_FORMAT_VERSION if footer_text is None else read_footer_text(footer_text).version
    if version > schema.FILE_FORMAT_VERSION_NEWEST:
        raise FileUnreadable(
            f"the file has format {version}, this program reads formats up to {schema.FILE_FORMAT_VERSION_NEWEST}: "
            "upgrade it"
        )
    return version


def _value_decoder(metadata: Mapping[str, str]) -> "PlannedValueDecoder | None":
    text = metadata.get(schema.PLANS_METADATA_KEY)
    if text is None:
        return None
    from iceberg_export.typed.elision.value_decoder import (
        value_decoder,  # imports a kernel, which other files do not need
    )

    try:
        return value_decoder(text)
    except ValueError as error:
        raise FileUnreadable(
            f"the plans in the footer, by which left-out values are decoded, cannot be read: upgrade this program: "
            f"{error}"
        ) from error


def row_group_locations(file_metadata: Arrow, *, is_whole: bool) -> tuple[RowGroupLocation, ...]:
    """The locations of a file's row groups. `is_whole`: see `_location`."""
    groups = (file_metadata.row_group(index) for index in range(file_metadata.num_row_groups))
    return tuple(_location(group, is_whole=is_whole) for group in groups)


def _location(row_group: Arrow, *, is_whole: bool) -> RowGroupLocation:
    """The byte range of the raw columns, which come before the typed ones, and the count of rows.

    `is_whole`: the range includes the typed columns, because values are decoded from them. An older program, which does
    not know left-out values, computes another range than the index names, so it rejects the file.
    """
    every = (row_group.column(index) for index in range(row_group.num_columns))
    columns = [each for each in every if is_whole or each.path_in_schema.partition(".")[0] in schema.KAFKA_COLUMNS]
    bounds = [column_chunk_bounds(column) for column in columns]
    byte_first = min(first for first, _ in bounds)
    byte_end = max(end for _, end in bounds)
    return RowGroupLocation(byte_first=byte_first, byte_count=byte_end - byte_first, row_count=row_group.num_rows)


def column_chunk_bounds(column: Arrow) -> tuple[int, int]:
    """The first and the end byte of a column chunk."""
    first = column.data_page_offset if column.dictionary_page_offset is None else column.dictionary_page_offset
    return int(first), int(first + column.total_compressed_size)


def describe_file(key: str, object_bytes: int, footer: Footer) -> DataFile:
    """The file under `key` as its table's manifest lists it, by its footer. Raises `FileUnreadable`."""
    with damage_contained("the footer"):
        return _describe(key, object_bytes, footer)


def _describe(key: str, object_bytes: int, footer: Footer) -> DataFile:
    parsed: Arrow = footer.parsed
    groups = [parsed.row_group(index) for index in range(parsed.num_row_groups)]
    bounds: RowBounds | None = None
    if groups:
        (partition, offset, timestamp) = (_extremes(groups, name) for name in schema.STATISTICS_COLUMNS)
        bounds = RowBounds(
            partition_min=partition[0],
            partition_max=partition[1],
            offset_min=offset[0],
            offset_max=offset[1],
            timestamp_us_min=timestamp[0],
            timestamp_us_max=timestamp[1],
        )
    return DataFile(
        key=key,
        object_bytes=object_bytes,
        record_count=parsed.num_rows,
        bounds=bounds,
        counts=_counts(footer, parsed.num_rows),
        split_offsets=tuple(place.byte_first for place in footer.row_groups),
    )


def _counts(footer: Footer, row_count: int) -> ColumnCounts:
    """The footer's counts of columns. In a file from before counts, those that follow from its schema."""
    text = footer.metadata.get(schema.COUNTS_METADATA_KEY)
    if text is None:
        return ColumnCounts.of(ColumnCount(field_id, row_count, 0) for field_id in _NEVER_NULL)
    try:
        counts = column_counts.decode(text)
    except ValueError as error:
        raise FileUnreadable(f"the footer's counts of columns cannot be read: {error}") from error
    # A wrong count would make engines skip the file (safety rule S20).
    if [each.values for each in counts if each.field_id in _COUNTED_ROWS] != [row_count] * len(_COUNTED_ROWS):
        raise FileUnreadable(f"the file has {row_count} rows, but the counts in its footer are of another number")
    return counts


def _extremes(groups: Sequence[Arrow], name: str) -> tuple[int, int]:
    """The lowest and the highest value of a column that has statistics."""
    statistics = [group.column(schema.COLUMNS.index(name)).statistics for group in groups]
    return min(int(each.min_raw) for each in statistics), max(int(each.max_raw) for each in statistics)
