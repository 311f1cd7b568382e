"""Parquet files as other readers see them."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_export.parquet.arrow_writer import FileWriter
from iceberg_export.rows.schema import FieldId
from tests.support.lake.parquet_files import ROWS, file_of


class TestWhatOtherReadersSee:
    def test_columns_are_flat_typed_and_carry_field_ids(self) -> None:
        data, _ = file_of(ROWS)
        schema = pq.ParquetFile(io.BytesIO(data)).schema_arrow
        assert schema.names == ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
        assert [str(field.type) for field in schema] == [
            "int32",
            "int64",
            "timestamp[us, tz=UTC]",
            "int32",
            "binary",
            "binary",
            "list<element: struct<key: string not null, value: binary> not null>",
        ]
        assert [int(field.metadata[b"PARQUET:field_id"]) for field in schema] == [1, 2, 3, 4, 5, 6, 7]
        assert [field.nullable for field in schema] == [False, False, False, False, True, True, False]
        element = schema.field("headers").type.value_field
        ids = [element, element.type.field("key"), element.type.field("value")]
        assert [int(field.metadata[b"PARQUET:field_id"]) for field in ids] == [8, 9, 10]

    def test_values_are_the_records(self) -> None:
        data, _ = file_of(ROWS)
        table = pq.read_table(io.BytesIO(data))
        assert table.column("key").to_pylist() == [None, b"", b"k"]
        assert table.column("value").to_pylist() == [b"v", None, b""]
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == [-1000, 0, 9_223_372_036_854_774_000]
        headers = table.column("headers").chunk(0)
        assert headers.offsets.to_pylist() == [0, 0, 2, 3]
        assert headers.values.field("key").cast(pa.binary()).to_pylist() == ["ö".encode(), b"", b"trace"]
        assert headers.values.field("value").to_pylist() == [None, b"", b"\x00"]

    def test_encodings_are_those_that_were_measured(self) -> None:
        data, _ = file_of(ROWS)
        group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
        columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
        assert {column.compression for column in columns.values()} == {"ZSTD"}
        with_dictionary = {name for name, column in columns.items() if column.dictionary_page_offset is not None}
        assert with_dictionary == {"partition", "timestamp_type", "key", "headers.list.element.key"}
        assert "DELTA_BINARY_PACKED" in columns["offset"].encodings
        assert "DELTA_BINARY_PACKED" in columns["timestamp"].encodings
        assert {name for name, column in columns.items() if column.is_stats_set} == {"partition", "offset", "timestamp"}
        assert all(column.has_offset_index for column in columns.values())
        assert [sorting.column_index for sorting in group.sorting_columns] == [0, 1]

    def test_a_file_without_rows_can_be_read(self) -> None:
        data, places = file_of()
        assert places == ()
        assert pq.read_table(io.BytesIO(data)).num_rows == 0

    def test_only_the_headers_of_a_part_are_counted(self) -> None:
        writer = FileWriter(io.BytesIO())
        writer.write_row_group([ROWS.part(2, 3)])
        writer.close({})
        counts = {each.field_id: (each.values, each.nulls) for each in writer.counts()}
        assert counts[FieldId.HEADER_VALUE] == (1, 0)
        assert (counts[FieldId.KEY], counts[FieldId.VALUE], counts[FieldId.HEADERS]) == ((1, 0), (1, 0), (1, 0))
