"""Parquet files as other readers see them, and single row groups read back out of ranges of bytes."""

import io
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.parquet.arrow_files import FileWriter, read_footer, read_rows
from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.footer import FileUnreadable, RowGroupLocation, footer_bytes
from iceberg_export.rows.schema import FILE_FORMAT_VERSION_HEADER_KEYS, FILE_METADATA_KEY, FieldId
from storage.object_store import StoreError


def binary(values: Sequence[bytes | None]) -> BinaryColumn:
    is_null = np.array([value is None for value in values], dtype=np.bool_)
    return BinaryColumn(
        ends=np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int32),
        data=np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8),
        is_null=is_null if is_null.any() else None,
    )


def listed(column: BinaryColumn) -> list[bytes | None]:
    return [column.row(index) for index in range(len(column))]


ROWS = RecordRows(
    partition=np.array([0, 0, 3], dtype=np.int32),
    offset=np.array([7, 9, 0], dtype=np.int64),
    timestamp_ms=np.array([-1, 0, 9_223_372_036_854_774], dtype=np.int64),
    timestamp_type=np.array([0, 0, 1], dtype=np.int32),
    key=binary([None, b"", b"k"]),
    value=binary([b"v", None, b""]),
    header_ends=np.array([0, 0, 2, 3], dtype=np.int32),
    header_key=binary(["ö".encode(), b"", b"trace"]),
    header_value=binary([None, b"", b"\x00"]),
)


def file_of(
    *row_groups: RecordRows, metadata: Mapping[str, str] = MappingProxyType({"who": "penstock"})
) -> tuple[bytes, tuple[RowGroupLocation, ...]]:
    sink = io.BytesIO()
    writer = FileWriter(sink)
    for rows in row_groups:
        writer.write_row_group(rows)
    places = writer.close(metadata)
    assert not sink.closed
    return sink.getvalue(), places


def piece(data: bytes, place: RowGroupLocation) -> bytes:
    return data[place.byte_first : place.byte_first + place.byte_count]


def assert_same(read: RecordRows, written: RecordRows) -> None:
    for name in ("partition", "offset", "timestamp_ms", "timestamp_type", "header_ends"):
        assert getattr(read, name).tolist() == getattr(written, name).tolist(), name
    for name in ("key", "value", "header_key", "header_value"):
        assert listed(getattr(read, name)) == listed(getattr(written, name)), name


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


class TestReadingRowGroups:
    def test_each_row_group_comes_back_from_its_own_bytes(self) -> None:
        other = ROWS.part(1, 2)
        data, places = file_of(ROWS, other, ROWS)
        footer = read_footer(data[-footer_bytes(data[-8:]) :])
        assert footer.row_groups == places
        assert footer.metadata["who"] == "penstock"
        assert [place.row_count for place in places] == [3, 1, 3]
        assert_same(read_rows(footer, 0, piece(data, places[0])), ROWS)
        assert_same(read_rows(footer, 2, piece(data, places[2])), ROWS)
        alone = read_rows(footer, 1, piece(data, places[1]))
        assert (alone.offset.tolist(), listed(alone.key), listed(alone.header_key)) == ([9], [b""], ["ö".encode(), b""])

    def test_a_part_of_the_rows_keeps_their_headers(self) -> None:
        part = ROWS.part(1, 3)
        assert len(part) == 2
        assert (listed(part.key), listed(part.value)) == ([b"", b"k"], [None, b""])
        assert part.header_ends.tolist() == [0, 2, 3]

    def test_only_the_headers_of_a_part_are_counted(self) -> None:
        writer = FileWriter(io.BytesIO())
        writer.write_row_group(ROWS.part(2, 3))
        writer.close({})
        counts = {each.field_id: (each.values, each.nulls) for each in writer.counts()}
        assert counts[FieldId.HEADER_VALUE] == (1, 0)
        assert (counts[FieldId.KEY], counts[FieldId.VALUE], counts[FieldId.HEADERS]) == ((1, 0), (1, 0), (1, 0))

    def test_rows_without_any_null_have_no_bitmap(self) -> None:
        rows = RecordRows(
            partition=np.zeros(1, dtype=np.int32),
            offset=np.zeros(1, dtype=np.int64),
            timestamp_ms=np.zeros(1, dtype=np.int64),
            timestamp_type=np.zeros(1, dtype=np.int32),
            key=binary([b"a"]),
            value=binary([b"b"]),
            header_ends=np.zeros(2, dtype=np.int32),
            header_key=binary([]),
            header_value=binary([]),
        )
        data, places = file_of(rows)
        read = read_rows(read_footer(data), 0, piece(data, places[0]))
        assert read.key.is_null is None
        assert_same(read, rows)

    def test_a_file_whose_format_has_header_keys_as_bytes_must_have_their_column(self) -> None:
        said = {FILE_METADATA_KEY: json.dumps({"version": FILE_FORMAT_VERSION_HEADER_KEYS})}
        data, places = file_of(ROWS, metadata=said)
        footer = read_footer(data)
        assert footer.has_header_keys
        with pytest.raises(FileUnreadable, match="header_keys"):
            read_rows(footer, 0, piece(data, places[0]))

    @pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PAR2"])
    def test_an_end_that_is_not_parquet_is_refused(self, tail: bytes) -> None:
        with pytest.raises(FileUnreadable):
            footer_bytes(tail)

    def test_a_footer_of_rubbish_is_refused(self) -> None:
        with pytest.raises(FileUnreadable):
            read_footer(b"rubbish!" + (8).to_bytes(4, "little") + b"PAR1")

    def test_damaged_or_missing_bytes_are_refused(self) -> None:
        data, places = file_of(ROWS)
        footer = read_footer(data)
        with pytest.raises(FileUnreadable):
            read_rows(footer, 0, piece(data, places[0])[:-1])
        with pytest.raises(FileUnreadable):
            read_rows(footer, 0, bytes(places[0].byte_count))

    def test_who_reads_from_a_store_needs_to_know_one_family_of_errors(self) -> None:
        assert issubclass(FileUnreadable, StoreError)
