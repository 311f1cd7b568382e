"""The typed columns of one file: planned of what was seen, and filled for each row group."""

import pyarrow as pa
import pytest

from iceberg_export.parquet.arrow_rows import arrow_schema
from iceberg_export.parquet.source_chunks import SourceChunk, decode_chunk
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.kafka_rows import gather_rows
from iceberg_export.typed.columns import NO_COLUMNS, TypedColumns, decode
from iceberg_export.typed.decode import ValueReader
from iceberg_export.typed.file_columns import FileColumns, plan_columns
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.scan import Sides, WriterSchemas
from iceberg_export.typed.shapes import SchemaUnusable
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex
from tests.support.lake.typed_records import avro_bytes, avro_reader, framed, record
from tests.support.records.plain_records import Record, make_batch

ORDER, LATER = record("R", ("a", "int")), record("R", ("a", "string"))
READERS: dict[int, ValueReader] = {1: avro_reader(ORDER), 2: avro_reader(LATER), 3: avro_reader("string")}


def reader_of(writer: WriterSchema) -> ValueReader:
    if writer.schema_id not in READERS:
        raise SchemaUnusable("it is not registered")
    return READERS[writer.schema_id]


def planned(
    *ids: int, key: int | None = None, before: TypedColumns | None = None, sides: Sides = Sides.BOTH
) -> FileColumns:
    keys = frozenset[WriterSchema]() if key is None else frozenset({WriterSchema(schema_id=key)})
    seen = WriterSchemas(key=keys, value=frozenset(WriterSchema(schema_id=each) for each in ids))
    return plan_columns(before, seen, sides, reader_of, frozenset())


def rows(*pairs: tuple[bytes | None, bytes | None]) -> RecordRows:
    chunk = SourceChunk(
        partition=PartitionIndex(0),
        offset_first=Offset(0),
        offset_end=Offset(len(pairs)),
        append_time_ms=NO_TIMESTAMP,
        records=make_batch([Record(offset=n, timestamp=1, key=k, value=v) for n, (k, v) in enumerate(pairs)]),
    )
    return gather_rows(list(decode_chunk(chunk)))


def filled(columns: FileColumns, these: RecordRows) -> list[dict[str, object]]:
    raw = pa.RecordBatch.from_arrays([pa.array([0] * len(these))], names=["raw"])
    return [
        {k: v for k, v in row.items() if v is not None and k != "raw"} for row in columns.batch(raw, these).to_pylist()
    ]


def test_schemas_are_taken_in_the_order_of_their_ids() -> None:
    for ids in ((1, 2), (2, 1)):
        columns = planned(*ids).columns
        assert [(each.name, each.field_id) for each in columns.columns] == [("value_a", 100), ("value_a_2", 101)]
    later = planned(1, before=planned(2).columns)
    assert [(each.name, each.field_id) for each in later.columns.columns] == [("value_a", 100), ("value_a_2", 101)]
    assert later.before == planned(2).columns
    assert planned(2, 1, before=later.columns).columns is later.columns
    assert planned().columns is NO_COLUMNS


def test_errors_of_both_sides_are_reported() -> None:
    columns = planned(1, 9, key=3)
    key, value = framed(3, b"\x02k"), framed(1, avro_bytes(ORDER, {"a": 5}))
    told = "it does not begin with a byte 0 and the id of a schema"
    assert filled(columns, rows((key, value), (b"x", b"y"), (None, framed(9, b"")), (key, None))) == [
        {"key_content": "k", "value_a": 5},
        {"error": f"key: {told}; value: {told}"},
        {"error": "value: schema 9: it is not registered"},
        {"key_content": "k"},
    ]


@pytest.mark.parametrize(("sides", "wanted"), [(Sides.KEY, {"key_content": "k"}), (Sides.VALUE, {"value_a": 5})])
def test_columns_of_a_side_that_is_wanted_no_more_stay_and_are_null(sides: Sides, wanted: dict[str, object]) -> None:
    columns = planned(1, key=3, before=planned(1, key=3).columns, sides=sides)
    pair = framed(3, b"\x02k"), framed(1, avro_bytes(ORDER, {"a": 5}))
    assert filled(columns, rows(pair)) == [wanted]


def test_a_file_says_what_its_columns_are() -> None:
    columns = planned(1, key=3)
    assert decode(columns.metadata()["penstock.typed-columns"]) == columns.columns
    names = columns.schema(arrow_schema()).names
    assert names == [*arrow_schema().names, "error", "key_content", "value_a"]
    assert columns.with_statistics() == ["key_content", "value_a"]
