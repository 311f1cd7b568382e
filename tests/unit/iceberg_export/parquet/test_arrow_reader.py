"""Single row groups read back out of ranges of bytes."""

import json

import numpy as np
import pytest

from iceberg_export.parquet.arrow_footer import read_footer
from iceberg_export.parquet.arrow_reader import read_rows
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.footer import FileUnreadable, footer_bytes
from iceberg_export.rows.schema import FILE_FORMAT_VERSION_HEADER_KEYS, FILE_METADATA_KEY
from tests.support.lake.parquet_files import ROWS, binary, file_of, listed, piece


def assert_same(read: RecordRows, written: RecordRows) -> None:
    for name in ("partition", "offset", "timestamp_ms", "timestamp_type", "header_ends"):
        assert getattr(read, name).tolist() == getattr(written, name).tolist(), name
    for name in ("key", "value", "header_key", "header_value"):
        assert listed(getattr(read, name)) == listed(getattr(written, name)), name


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

    def test_damaged_or_missing_bytes_are_refused(self) -> None:
        data, places = file_of(ROWS)
        footer = read_footer(data)
        with pytest.raises(FileUnreadable):
            read_rows(footer, 0, piece(data, places[0])[:-1])
        with pytest.raises(FileUnreadable):
            read_rows(footer, 0, bytes(places[0].byte_count))
