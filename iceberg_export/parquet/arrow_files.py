"""Reads and writes Parquet files through pyarrow.

pyarrow 26 has no type annotations, so its objects stay in this module, except those for Spark. The parameters and
results are the arrays of `columns`. The import takes a fifth of a second, so modules that the agent needs at its start
import this one where they use it.

Encoding (measured in benchmarks/micro/parquet.py): zstd level 1, dictionaries only where values repeat, delta packing
for offsets and timestamps, page index, one bloom filter on the key.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iceberg_export.parquet.arrow_counts import ColumnCounter, counted_columns
from iceberg_export.parquet.file_window import FileWindow
from iceberg_export.rows import schema
from iceberg_export.rows.checksums import FileChecksums, check_key, checked_footer
from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, Footer, RowGroupLocation, damage_contained
from iceberg_export.rows.footer_text import read_footer_text
from iceberg_export.rows.header_keys import exact_keys, is_text, keys_field, restored_keys, text_of, with_text
from iceberg_export.rows.schema import FieldId
from iceberg_export.rows.thrift_footer import check_footer
from iceberg_export.tables import column_counts
from iceberg_export.tables.column_counts import ColumnCount, ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from storage.object_store import Buffer

if TYPE_CHECKING:
    from iceberg_export.typed.file_columns import FileColumns  # readers of files do not need its imports
    from iceberg_export.typed.value_decoder import PlannedValueDecoder

BLOOM_VALUES_MIN, BLOOM_VALUES_MAX = 64, 1 << 17
BLOOM_FALSE_POSITIVES = 0.05
ZSTD_LEVEL = 1
_NEVER_NULL = (FieldId.PARTITION, FieldId.OFFSET, FieldId.TIMESTAMP, FieldId.TIMESTAMP_TYPE)
"""The columns that count as never null in a file from before counts were in the footer; `count_filling` knows them."""
_COUNTED_ROWS = frozenset({*_NEVER_NULL, FieldId.KEY, FieldId.VALUE, FieldId.HEADERS})

Arrow: TypeAlias = Any
"""A pyarrow object."""


def _field(name: str, kind: Arrow, field_id: FieldId, *, nullable: bool = False) -> Arrow:
    return pa.field(name, kind, nullable=nullable, metadata={b"PARQUET:field_id": str(int(field_id)).encode()})


@cache
def arrow_schema() -> Arrow:
    """The schema of every file, with Iceberg's field ids."""
    header = pa.struct(
        [
            _field("key", pa.string(), FieldId.HEADER_KEY),
            _field("value", pa.binary(), FieldId.HEADER_VALUE, nullable=True),
        ]
    )
    return pa.schema(
        [
            _field(schema.PARTITION, pa.int32(), FieldId.PARTITION),
            _field(schema.OFFSET, pa.int64(), FieldId.OFFSET),
            _field(schema.TIMESTAMP, pa.timestamp("us", tz="UTC"), FieldId.TIMESTAMP),
            _field(schema.TIMESTAMP_TYPE, pa.int32(), FieldId.TIMESTAMP_TYPE),
            _field(schema.KEY, pa.binary(), FieldId.KEY, nullable=True),
            _field(schema.VALUE, pa.binary(), FieldId.VALUE, nullable=True),
            _field(schema.HEADERS, pa.list_(_field("element", header, FieldId.HEADERS_ELEMENT)), FieldId.HEADERS),
        ]
    )


def header_keys_field() -> Arrow:
    """The field of the column that keeps header keys as bytes."""
    return keys_field(schema.HEADER_KEYS, schema.HEADER_KEYS_FIELD_ID, schema.HEADER_KEYS_ELEMENT_FIELD_ID)


class HeaderKeysFound(Exception):
    """A row group has header keys that are not UTF-8, but the file was begun without a column for their bytes.

    The caller writes the file again from its start, with `has_header_keys`.
    """


class FileWriter:
    """Writes one Parquet file into `sink`, a row group at a time. CPU work: call it in a thread; pyarrow frees the GIL.

    `sink` stays open and belongs to the caller.
    """

    def __init__(self, sink: IO[bytes], typed: "FileColumns | None" = None, *, has_header_keys: bool = False) -> None:
        """`typed`: columns after the raw ones. `has_header_keys`: keep header keys as bytes, whatever the first row
        group has."""
        self.has_header_keys = has_header_keys
        """True where the file keeps header keys as bytes; final once it has a row group."""
        self._sink = sink
        self._typed = typed
        self._writer: Arrow = None
        self._counter = ColumnCounter()
        self._counts: ColumnCounts | None = None
        self._footer: list[Arrow] = []

    def write_row_group(self, rows: RecordRows) -> None:
        """Append the rows as one row group. Raises `HeaderKeysFound`."""
        if not self.has_header_keys and not _has_text_keys(rows):
            # The schema of a Parquet file is fixed with its first row group.
            if self._writer is not None:
                raise HeaderKeysFound
            self.has_header_keys = True
        batch = to_arrow(rows)
        if self.has_header_keys:
            field = header_keys_field()
            batch = batch.append_column(field, exact_keys(rows, field.type))
        if self._typed is not None:
            batch = self._typed.batch(batch, rows)
        if self._writer is None:
            self._writer = self._opened(batch.schema, batch)
        self._writer.write_batch(batch, row_group_size=len(rows))
        self._counter.add(rows, batch)

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
        return _places(self._footer[0], is_whole=self._typed is not None and self._typed.plans is not None)

    def abandon(self) -> None:
        """Discard an unfinished file. To be called before the sink is closed, because pyarrow writes to it here."""
        if self._writer is not None:
            self._writer.close()

    def chunk_bounds(self) -> Iterator[int]:
        """The first and the end byte of each column chunk of the closed file. Some positions come twice."""
        for index in range(self._footer[0].num_row_groups):
            group = self._footer[0].row_group(index)
            for number in range(group.num_columns):
                yield from _bounds_of(group.column(number))

    def _opened(self, file_schema: Arrow, first: Arrow | None) -> Arrow:
        if self._typed is not None:
            raw_count = len(schema.COLUMNS) + self.has_header_keys
            self._counter = ColumnCounter(counted_columns(file_schema, raw_count))
        return _open_writer(self._sink, file_schema, first, self._footer, self._typed)

    def _schema(self) -> Arrow:
        """The schema of a file without rows."""
        raw = arrow_schema().append(header_keys_field()) if self.has_header_keys else arrow_schema()
        return raw if self._typed is None else self._typed.schema(raw)


def _has_text_keys(rows: RecordRows) -> bool:
    return is_text(rows.header_key.part(int(rows.header_ends[0]), int(rows.header_ends[-1])))


def _open_writer(
    sink: IO[bytes], file_schema: Arrow, first: Arrow | None, footer: list[Arrow], typed: "FileColumns | None"
) -> Arrow:
    with_statistics = [] if typed is None else typed.with_statistics()
    return pq.ParquetWriter(
        sink,
        file_schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=list(schema.DICTIONARY_COLUMNS),
        column_encoding=dict.fromkeys(schema.DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
        write_statistics=[*schema.STATISTICS_COLUMNS, *with_statistics],
        write_page_index=True,
        write_page_checksum=True,  # for other engines; Penstock checks the file's own CRC-32Cs (safety rule S20)
        bloom_filter_options=_bloom_filter(first),
        sorting_columns=[
            pq.SortingColumn(schema.COLUMNS.index(name), descending=False) for name in schema.SORT_COLUMNS
        ],
        store_schema=False,
        store_decimal_as_integer=True,  # as Iceberg's specification requires for decimals of few digits
        metadata_collector=footer,
    )


def _bloom_filter(first: Arrow | None) -> dict[str, dict[str, float]] | None:
    """The options of the bloom filter on the key, sized by the first row group; None where that has no keys."""
    if first is None:
        return None
    keys = first.column(schema.COLUMNS.index(schema.KEY))
    if keys.null_count == len(keys):
        return None
    distinct = int(pc.count_distinct(keys).as_py())
    values = min(max(distinct, BLOOM_VALUES_MIN), BLOOM_VALUES_MAX)
    return {schema.KEY: {"ndv": values, "fpp": BLOOM_FALSE_POSITIVES}}


def to_arrow(rows: RecordRows) -> Arrow:
    """The rows as an Arrow record batch with the table's raw columns, over the same memory where possible."""
    table = arrow_schema()
    header_fields = table.field(schema.HEADERS).type.value_type
    headers = pa.StructArray.from_arrays(
        [text_of(rows.header_key), _to_binary(rows.header_value, pa.binary())],
        fields=list(header_fields),
    )
    micros = rows.timestamp_ms * schema.MICROSECONDS_PER_MILLISECOND
    count = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rows.partition),
            pa.array(rows.offset),
            pa.array(micros).view(table.field(schema.TIMESTAMP).type),
            pa.array(rows.timestamp_type),
            _to_binary(rows.key, pa.binary()),
            _to_binary(rows.value, pa.binary()),
            pa.Array.from_buffers(
                table.field(schema.HEADERS).type, count, [None, pa.py_buffer(rows.header_ends)], children=[headers]
            ),
        ],
        schema=table,
    )


def _to_binary(column: BinaryColumn, kind: Arrow) -> Arrow:
    validity = None
    if column.is_null is not None:
        validity = pa.py_buffer(np.packbits(~column.is_null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)])


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
        return _footer(pq.read_metadata(pa.BufferReader(pa.py_buffer(footer))), checksums)


def _footer(file_metadata: Arrow, checksums: FileChecksums | None) -> Footer:
    pairs: Mapping[bytes, bytes] = file_metadata.metadata or {}
    metadata = {key.decode(): value.decode() for key, value in pairs.items()}
    version = _checked_version(metadata)
    decoder = _value_decoder(metadata)
    return Footer(
        row_groups=_places(file_metadata, is_whole=decoder is not None),
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
    from iceberg_export.typed.value_decoder import value_decoder  # imports a kernel, which other files do not need

    try:
        return value_decoder(text)
    except ValueError as error:
        raise FileUnreadable(
            f"the plans in the footer, by which left-out values are decoded, cannot be read: upgrade this program: "
            f"{error}"
        ) from error


def _places(file_metadata: Arrow, *, is_whole: bool) -> tuple[RowGroupLocation, ...]:
    groups = (file_metadata.row_group(index) for index in range(file_metadata.num_row_groups))
    return tuple(_place(group, is_whole=is_whole) for group in groups)


def _place(row_group: Arrow, *, is_whole: bool) -> RowGroupLocation:
    """The byte range of the raw columns, which come before the typed ones, and the count of rows.

    `is_whole`: the range includes the typed columns, because values are decoded from them. An older program, which does
    not know left-out values, computes another range than the index names, so it rejects the file.
    """
    every = (row_group.column(index) for index in range(row_group.num_columns))
    columns = [each for each in every if is_whole or each.path_in_schema.partition(".")[0] in schema.KAFKA_COLUMNS]
    bounds = [_bounds_of(column) for column in columns]
    byte_first = min(first for first, _ in bounds)
    byte_end = max(end for _, end in bounds)
    return RowGroupLocation(byte_first=byte_first, byte_count=byte_end - byte_first, row_count=row_group.num_rows)


def _bounds_of(column: Arrow) -> tuple[int, int]:
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
        columns = columns_in_file(footer, schema.COLUMNS)
        if footer.has_header_keys:
            columns.append(schema.HEADER_KEYS)
        table = file.read_row_group(row_group, columns=columns, use_threads=False)
        table = table.combine_chunks()
        rows = _from_arrow(footer, table)
        # Compiled kernels index these arrays without bounds checks.
        rows.check_lengths(location.row_count)
    return rows


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
        values = _to_binary(_values(footer, table), pa.binary())
        others = table.drop_columns([schema.KEPT_VALUE, schema.SCHEMA_ID, *footer.value_decoder.columns])
        return others.append_column(arrow_schema().field(schema.VALUE), values)


def _values(footer: Footer, table: Arrow) -> BinaryColumn:
    """All values, those that the file leaves out decoded from its typed columns."""
    if footer.value_decoder is None:
        return _from_binary(_one_array(table.column(schema.VALUE)))
    missing = {schema.KEPT_VALUE, schema.SCHEMA_ID, *footer.value_decoder.columns} - set(table.column_names)
    if missing:
        raise FileUnreadable(f"values are left out, but the columns to decode them from are missing: {sorted(missing)}")
    arrays = {name: _one_array(table.column(name)) for name in footer.value_decoder.columns}
    kept_values = _from_binary(_one_array(table.column(schema.KEPT_VALUE)))
    return footer.value_decoder.decode(kept_values, _one_array(table.column(schema.SCHEMA_ID)), arrays)


def _from_arrow(footer: Footer, table: Arrow) -> RecordRows:
    columns = [_one_array(table.column(name)) for name in schema.COLUMNS if name != schema.VALUE]
    partition, offset, timestamp, timestamp_type, key, headers = columns
    elements = headers.values
    header_key = elements.field(0)
    if footer.has_header_keys:
        header_key = restored_keys(header_key, _ends(headers), _one_array(table.column(schema.HEADER_KEYS)))
    return RecordRows(
        partition=_numbers(partition),
        offset=_numbers(offset),
        timestamp_ms=_numbers(timestamp.view(pa.int64())) // schema.MICROSECONDS_PER_MILLISECOND,
        timestamp_type=_numbers(timestamp_type),
        key=_from_binary(key),
        value=_values(footer, table),
        header_ends=_ends(headers),
        header_key=_from_binary(header_key),
        header_value=_from_binary(elements.field(1)),
    )


def _one_array(chunked: Arrow) -> Arrow:
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], type=chunked.type)


def _numbers(array: Arrow) -> NDArray[Arrow]:
    numbers: NDArray[Arrow] = array.to_numpy(zero_copy_only=True)
    return numbers


def _ends(array: Arrow) -> NDArray[np.int32]:
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def _from_binary(array: Arrow) -> BinaryColumn:
    validity, _, data = array.buffers()
    is_null = None
    if validity is not None and array.null_count:
        bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
        is_null = ~bits[array.offset : array.offset + len(array)].view(np.bool_)
    empty = np.zeros(0, dtype=np.uint8)
    return BinaryColumn(
        ends=_ends(array),
        data=empty if data is None else np.frombuffer(data, dtype=np.uint8),
        is_null=is_null,
    )
