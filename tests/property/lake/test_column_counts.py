"""The counts that a manifest has of a file are those of a recount of the file as others read it."""

import io
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.parquet.archive_file import ArchiveFile, write_whole_file
from iceberg_export.parquet.arrow_footer import describe_file, read_footer
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.rows.schema import HEADER_KEYS
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts
from iceberg_export.typed.file_columns import FileColumns
from protocol.types import TopicId
from tests.support.lake.typed_records import avro_bytes, framed, record
from tests.support.lake.value_elision import planned_for, source_chunk
from tests.support.records.plain_records import Record, make_batch

SCHEMA = record(
    "R",
    ("i", ["null", "int"]),
    ("f", ["null", "double"]),
    ("s", ["null", record("S", ("x", ["null", "float"]), ("t", ["null", "string"]))]),
    ("l", ["null", {"type": "array", "items": ["null", "float"]}]),
    ("m", ["null", {"type": "map", "values": ["null", "long"]}]),
)
FLOATS = st.none() | st.sampled_from([0.5, float("nan")])
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(0, 9),
        "f": FLOATS,
        "s": st.none() | st.fixed_dictionaries({"x": FLOATS, "t": st.none() | st.text(max_size=3)}),
        "l": st.none() | st.lists(FLOATS, max_size=3),
        "m": st.none() | st.dictionaries(st.text(max_size=2), st.none() | st.integers(0, 9), max_size=3),
    }
)
Headers = tuple[tuple[bytes, bytes | None], ...]
HEADER_KEYS_DRAWN = st.sampled_from([b"", b"k", b"\xff"])
HEADERS = st.lists(st.tuples(HEADER_KEYS_DRAWN, st.none() | st.binary(max_size=2)), max_size=3).map(tuple)
VALUES = st.none() | st.just(b"no frame") | ROWS.map(lambda row: framed(1, avro_bytes(SCHEMA, row)))


def recounted(field: pa.Field, rows: list[Any]) -> list[ColumnCount]:
    """The counts of a column's Python values, and of what is inside it."""
    kind: Any = field.type
    nans = sum(row != row for row in rows) if pa.types.is_floating(kind) else NOT_COUNTED
    metadata = field.metadata or {}
    field_id = int(metadata[b"PARQUET:field_id"])
    found = [ColumnCount(field_id, len(rows), rows.count(None), nans)]
    if pa.types.is_struct(kind):
        for inner in kind:
            found += recounted(inner, [None if row is None else row[inner.name] for row in rows])
    elif pa.types.is_map(kind):
        pairs = [pair for row in rows if row is not None for pair in row]
        found += recounted(kind.key_field, [key for key, _ in pairs])
        found += recounted(kind.item_field, [value for _, value in pairs])
    elif pa.types.is_list(kind):
        found += recounted(kind.value_field, [each for row in rows if row is not None for each in row])
    return found


@given(st.lists(VALUES, min_size=1, max_size=8), st.sampled_from([None, False, True]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_the_file(
    values: list[bytes | None], leaves_out: bool | None, has_small_groups: bool
) -> None:
    """`leaves_out`: None for a file without typed columns."""
    chunk = source_chunk(values)
    typed = None if leaves_out is None else planned_for(chunk, {1: SCHEMA}, leaves_out=leaves_out)
    check(chunk, typed, 1 if has_small_groups else 1 << 20)


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=3), HEADERS), min_size=1),
    st.booleans(),
    st.sampled_from([1, 30, 1 << 20]),
)
@settings(max_examples=60, deadline=None)
def test_keys_values_and_headers_are_counted(
    rows: list[tuple[bytes | None, bytes | None, Headers]], is_typed: bool, row_group_bytes: int
) -> None:
    records = [
        Record(offset=offset, timestamp=0, key=key, value=value, headers=headers)
        for offset, (key, value, headers) in enumerate(rows)
    ]
    chunk = source_chunk([None] * len(rows))._replace(records=make_batch(records))
    check(chunk, planned_for(chunk, {1: SCHEMA}, leaves_out=False) if is_typed else None, row_group_bytes)


def check(chunk: SourceChunk, typed: FileColumns | None, row_group_bytes: int) -> None:
    """A file of the chunk says of its columns what others count in it."""

    def write(*, has_header_keys: bool) -> ArchiveFile:
        with ArchiveWriter(
            topic_id=TopicId(bytes(16)),
            row_group_bytes_target=row_group_bytes,
            typed=typed,
            has_header_keys=has_header_keys,
        ) as writer:
            writer.add(chunk)
            return writer.finish()

    made = write_whole_file(write)
    data = b"".join(made.parts)
    table = pq.read_table(io.BytesIO(data))
    expected = [
        count
        for field in table.schema
        if field.name != HEADER_KEYS
        for count in recounted(field, table.column(field.name).to_pylist())
    ]
    file = made.data_file("k")
    assert file.counts == ColumnCounts.of(expected)
    assert describe_file("k", len(data), read_footer(data)).counts == file.counts
    assert reduce(lambda total, each: total + each.values, file.counts, 0) > 0
