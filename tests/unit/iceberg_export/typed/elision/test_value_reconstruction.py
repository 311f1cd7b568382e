"""A file that leaves values out gives them back, or says why it cannot; it never gives null in their place."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.parquet.arrow_footer import row_group_locations
from iceberg_export.parquet.arrow_reader import read_rows
from iceberg_export.parquet.reader import check_place, parse_footer
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.rows.schema import FILE_METADATA_KEY, PLANS_METADATA_KEY
from tests.support.lake.typed_records import framed, record
from tests.support.lake.value_elision import LeftOutFile, made_file

SCHEMA = record("R", ("a", "long"), ("e", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}), ("s", "string"))
VALUES = [framed(5, b"\x02\x02\x02s"), None, b"plain", framed(5, b"\x80\x01\x00\x00")]


@pytest.fixture
def file() -> LeftOutFile:
    return made_file(VALUES, {5: SCHEMA})


def changed(file: LeftOutFile, **columns: Any) -> bytes:  # noqa: ANN401
    """The file with other values in these columns; without those that are None."""
    table = file.table().replace_schema_metadata(None)
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.remove_column(place)
        if values is not None:
            table = table.add_column(place, name, pa.array(values))
    sink = BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {name: file.footer.metadata[name] for name in (FILE_METADATA_KEY, PLANS_METADATA_KEY)}
        )
    return sink.getvalue()


def read(data: bytes) -> list[bytes | None]:
    footer = parse_footer(data)
    place = footer.row_groups[0]
    rows = read_rows(footer, 0, data[place.byte_first : place.byte_first + place.byte_count])
    return [rows.value.row(row) for row in range(len(rows))]


def test_values_come_back(file: LeftOutFile) -> None:
    assert read(file.data) == VALUES
    assert read(changed(file)) == VALUES
    assert read(changed(file, value_s=["t", None, None, ""]))[0] == framed(5, b"\x02\x02\x02t")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"value_a": [1, None, None, 1], "value_s": [None] * 4}, "2 left-out values of schema 5 cannot be given back"),
        ({"value_e": ["Z", None, None, "X"]}, "1 left-out values of schema 5 cannot be given back"),
        ({"value_a": [None, None, None, 1]}, "1 left-out values of schema 5 cannot be given back"),
        ({"value_a": ["1", None, None, "2"]}, "the column value_a has the type string, which cannot be a LONG"),
        ({"value_s": [1, None, None, 2]}, "the column value_s has the type int64, which cannot be a BYTES"),
        ({"value_s": None}, "columns to decode them from are missing: .'value_s'."),
        ({"kept_value": None}, "columns to decode them from are missing: .'kept_value'."),
        ({"schema_id": None}, "columns to decode them from are missing: .'schema_id'."),
        ({"schema_id": [b"5", None, None, b"5"]}, "the ids of left-out values are 4 binary for 4 rows"),
        ({"schema_id": pa.array([6, None, None, 5], pa.int32())}, "values of schema 6 are left out"),
        ({"schema_id": pa.array([5, None, 5, 5], pa.int32())}, "a value is left out, but the file has its bytes"),
    ],
)
def test_what_cannot_be_given_back_is_an_error(file: LeftOutFile, columns: dict[str, Any], told: str) -> None:
    with pytest.raises(FileUnreadable, match=told):
        read(changed(file, **columns))


def test_a_file_of_a_later_program_is_refused(file: LeftOutFile) -> None:
    for old, new, told in (
        (b'{"version":2', b'{"version":4', "format 4, this program reads formats up to 3"),
        (b'{"version":2', b'{"versiom":2', "does not name the file.s format"),
        (b'{"version":2', b'["version":2', "does not name the file.s format"),
        (b'}],"version":1}', b'}],"version":2}', "plans of version 2"),
        (b'"op":', b'"oq":', "upgrade this program"),
    ):
        assert file.data.count(old) >= 1
        with pytest.raises(FileUnreadable, match=told):
            parse_footer(file.data.replace(old, new))


def test_who_does_not_know_of_it_finds_neither_the_row_group_nor_the_column(file: LeftOutFile) -> None:
    """What a program does that looks for the raw columns alone, by their names."""
    as_before = replace(
        file.footer, row_groups=row_group_locations(file.footer.parsed, is_whole=False), value_decoder=None
    )
    (_, (chunk, *_)), *_ = file.file.partitions
    check_place(file.footer, chunk)
    with pytest.raises(FileUnreadable, match="the index says"):
        check_place(as_before, chunk)
    assert "value" not in file.table().column_names


def test_a_table_finds_the_values_that_were_kept_by_their_id(file: LeftOutFile) -> None:
    ids = {
        field.name: int(field.metadata[b"PARQUET:field_id"])
        for field in pq.ParquetFile(BytesIO(file.data)).schema_arrow
    }
    assert (ids["kept_value"], ids["error"], ids["schema_id"]) == (6, 11, 12)
