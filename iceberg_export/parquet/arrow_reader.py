"""Reads rows of Parquet files through pyarrow: the bytes of a row group in, its records out.

Values that a file leaves out are decoded from its typed columns, and header keys that are not UTF-8 come from a column
of their own.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_export.parquet.arrow_rows import (
    Arrow,
    arrow_schema,
    ends_of,
    from_binary,
    numbers_of,
    one_array,
    to_binary,
)
from iceberg_export.parquet.file_window import FileWindow
from iceberg_export.parquet.pages import PageRead, Span, pages_of
from iceberg_export.rows import schema
from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.footer import FileUnreadable, Footer, damage_contained
from iceberg_export.rows.header_keys import restored_keys, with_text
from storage.object_store import Buffer


def read_rows(footer: Footer, row_group: int, data: Buffer) -> RecordRows:
    """All rows of a row group. CPU work: call it in a thread; pyarrow frees the GIL.

    `data`: the row group's bytes, from its `RowGroupLocation.byte_first`. Raises `FileUnreadable`.
    """
    location = footer.row_groups[row_group]
    with damage_contained(f"row group {row_group}"):
        if footer.checksums is not None:  # before pyarrow sees the bytes (safety rule S20)
            footer.checksums.check(location.byte_first, data)
        window = FileWindow(data, location.byte_first, location.byte_first + location.byte_count)
        file = pq.ParquetFile(pa.PythonFile(window, mode="r"), metadata=footer.parsed, pre_buffer=True)
        return _rows(footer, file, row_group, location.row_count)


def pages_for(footer: Footer, row_group: int, row_first: int, row_count: int) -> PageRead | None:
    """The pages that are exactly these rows; None where the row group has to be read whole. See `pages_of`."""
    return pages_of(footer, row_group, row_first, row_count, _columns(footer)) if footer.page_rows else None


def read_pages(footer: Footer, pages: PageRead, read: Callable[[Span], Buffer]) -> RecordRows:
    """All rows of some pages of a row group. CPU work, as `read_rows`.

    `read`: returns bytes of the file. Raises `FileUnreadable`.
    """
    with damage_contained(f"pages {pages.pages.start} to {pages.pages.stop} of row group {pages.row_group}"):
        data = pages.file(footer, read)
        return _rows(footer, pq.ParquetFile(pa.BufferReader(pa.py_buffer(data))), 0, pages.row_count)


def _rows(footer: Footer, file: Arrow, row_group: int, row_count: int) -> RecordRows:
    table = file.read_row_group(row_group, columns=_columns(footer), use_threads=False).combine_chunks()
    rows = _from_arrow(footer, table)
    # Compiled kernels index these arrays without bounds checks.
    rows.check_lengths(row_count)
    return rows


def _columns(footer: Footer) -> list[str]:
    """The columns of a file that its records are made of."""
    columns = columns_in_file(footer, schema.COLUMNS)
    return [*columns, schema.HEADER_KEYS] if footer.has_header_keys else columns


def columns_in_file(footer: Footer, columns: Sequence[str]) -> list[str]:
    """The file's columns to read for these raw columns: those that left-out values are decoded from, too."""
    if footer.value_decoder is None or schema.VALUE not in columns:
        return list(columns)
    others = (name for name in columns if name != schema.VALUE)
    return [*others, schema.KEPT_VALUE, schema.SCHEMA_ID, *footer.value_decoder.columns]


def with_values(footer: Footer, table: Arrow, columns: Sequence[str]) -> Arrow:
    """These raw columns of a table that was read with the columns of `columns_in_file`. All header keys are UTF-8.

    Raises `FileUnreadable`.
    """
    if schema.HEADERS in columns and not footer.has_header_keys:
        with damage_contained("its headers"):
            index = table.schema.get_field_index(schema.HEADERS)
            headers = [with_text(each) for each in table.column(index).chunks]
            kind = table.field(index).type
            table = table.set_column(index, table.field(index), pa.chunked_array(headers, kind))
    if footer.value_decoder is None or schema.VALUE not in columns:
        return table
    with damage_contained("its left-out values"):
        values = to_binary(_values(footer, table), pa.binary())
        others = table.drop_columns([schema.KEPT_VALUE, schema.SCHEMA_ID, *footer.value_decoder.columns])
        return others.append_column(arrow_schema().field(schema.VALUE), values)


def _values(footer: Footer, table: Arrow) -> BinaryColumn:
    """All values, those that the file leaves out decoded from its typed columns."""
    if footer.value_decoder is None:
        return from_binary(one_array(table.column(schema.VALUE)))
    missing = {schema.KEPT_VALUE, schema.SCHEMA_ID, *footer.value_decoder.columns} - set(table.column_names)
    if missing:
        raise FileUnreadable(f"values are left out, but the columns to decode them from are missing: {sorted(missing)}")
    arrays = {name: one_array(table.column(name)) for name in footer.value_decoder.columns}
    kept_values = from_binary(one_array(table.column(schema.KEPT_VALUE)))
    return footer.value_decoder.decode(kept_values, one_array(table.column(schema.SCHEMA_ID)), arrays)


def _from_arrow(footer: Footer, table: Arrow) -> RecordRows:
    columns = [one_array(table.column(name)) for name in schema.COLUMNS if name != schema.VALUE]
    partition, offset, timestamp, timestamp_type, key, headers = columns
    elements = headers.values
    header_key = elements.field(0)
    if footer.has_header_keys:
        header_key = restored_keys(header_key, ends_of(headers), one_array(table.column(schema.HEADER_KEYS)))
    return RecordRows(
        partition=numbers_of(partition),
        offset=numbers_of(offset),
        timestamp_ms=numbers_of(timestamp.view(pa.int64())) // schema.MICROSECONDS_PER_MILLISECOND,
        timestamp_type=numbers_of(timestamp_type),
        key=from_binary(key),
        value=_values(footer, table),
        header_ends=ends_of(headers),
        header_key=from_binary(header_key),
        header_value=from_binary(elements.field(1)),
    )
