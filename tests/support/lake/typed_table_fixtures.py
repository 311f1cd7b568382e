"""A table on disk whose files have typed columns of every type, through changes of their schemas."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from iceberg_export.parquet.source_chunks import SourceChunk, decode_chunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.tables.columns import ColumnsChange
from iceberg_export.tables.commit import Change
from iceberg_export.typed.avro_shapes import AvroReader
from iceberg_export.typed.columns import TypedColumns
from iceberg_export.typed.file_columns import plan_columns
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.scan import Sides, writers_of
from iceberg_export.typed.shapes import SchemaUnusable
from protocol.types import NO_TIMESTAMP, ObjectNumber, Offset, PartitionIndex
from storage.refs import parquet_key
from tests.support.lake.table_fixtures import NAME, SESSION, TOPIC, MadeTable
from tests.support.lake.typed_records import avro_bytes, avro_reader, framed, record
from tests.support.records.plain_records import Record, make_batch


def logical(kind: object, logical_type: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": logical_type, **more}


def decimal(precision: int) -> dict[str, object]:
    return logical("bytes", "decimal", precision=precision, scale=2)


FIRST = record(
    "R",
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "long"),
    ("float", "float"),
    ("double", "double"),
    ("small", decimal(5)),
    ("middle", decimal(12)),
    ("large", decimal(38)),
    ("date", logical("int", "date")),
    ("time", logical("long", "time-micros")),
    ("timestamp", logical("long", "local-timestamp-micros")),
    ("timestamptz", logical("long", "timestamp-millis")),
    ("string", "string"),
    ("uuid", logical("string", "uuid")),
    ("bytes", "bytes"),
    ("struct", ["null", record("S", ("x", "int"), ("y", {"type": "array", "items": "string"}))]),
    ("list", {"type": "array", "items": ["null", "long"]}),
    ("map", {"type": "map", "values": "double"}),
    ("any", ["int", "string"]),
)
FIRST_VALUES: dict[str, Any] = {
    "boolean": True,
    "int": -5,
    "long": 1 << 40,
    "float": 0.5,
    "double": 0.1,
    "small": Decimal("123.45"),
    "middle": Decimal("-1234567890.12"),
    "large": Decimal("1234567890123456789012345678.90"),
    "date": date(1969, 7, 20),
    "time": time(23, 59, 59, 999_999),
    "timestamp": datetime(2024, 5, 6, 7, 8, 9, 10),  # noqa: DTZ001  # a local one has no zone
    "timestamptz": datetime(2024, 5, 6, 7, 8, 9, 10_000, tzinfo=UTC),
    "string": "größer",
    "uuid": UUID(int=5),
    "bytes": b"\0\xff",
    "struct": {"x": 1, "y": ["a", "b"]},
    "list": [1, None, 3],
    "map": {"k": 2.5},
    "any": "x",
}
SECOND = record(
    "R",
    ("int", "long"),
    ("float", "double"),
    ("small", decimal(9)),
    ("middle", decimal(30)),
    ("text", "string"),
    ("struct", record("S", ("x", "long"), ("z", "boolean"))),
    ("date", "string"),
)
SECOND["fields"][4]["aliases"] = ["string"]
SECOND_VALUES: dict[str, Any] = {
    "int": 1 << 35,
    "float": 0.1,
    "small": Decimal("1234567.89"),
    "middle": Decimal("1234567890123456789.01"),
    "text": "renamed",
    "struct": {"x": 1 << 35, "z": True},
    "date": "today",
}
BOTH = [
    {**{name: value for name, value in FIRST_VALUES.items() if name not in ("string", "any", "struct", "map")}}
    | {
        "text": "größer",
        "any": '"x"',
        "time": 86_399_999_999,
        "struct": {"x": 1, "y": ["a", "b"], "z": None},
        "map": [("k", 2.5)],
    },
    {name: value for name, value in SECOND_VALUES.items() if name not in ("date", "struct")}
    | {"date_2": "today", "struct": {"x": 1 << 35, "y": None, "z": True}},
    {"error": "value: schema 9: it is not registered"},
]
"""All rows without what is null, as they are by the table's last schema; without the prefix of values' columns."""


class TypedTable(MadeTable):
    """Each file has one value of one schema."""

    columns: TypedColumns | None = None
    count = 0

    async def add(
        self, schema: dict[str, Any] | None, value: dict[str, Any] | None, *, leaves_out: bool = False
    ) -> None:
        """Commit a file with one record; without a schema that of one that is not registered."""
        number = self.count
        self.count += 1
        readers: dict[int, AvroReader] = {} if schema is None else {1: avro_reader(schema)}
        data = framed(9, b"") if schema is None else framed(1, avro_bytes(schema, value))
        chunk = SourceChunk(
            partition=PartitionIndex(0),
            offset_first=Offset(number),
            offset_end=Offset(number + 1),
            append_time_ms=NO_TIMESTAMP,
            records=make_batch([Record(offset=number, timestamp=1_000, value=data)]),
        )

        def reader_of(writer: WriterSchema) -> AvroReader:
            if writer.schema_id not in readers:
                raise SchemaUnusable("it is not registered")
            return readers[writer.schema_id]

        seen = writers_of(decode_chunk(chunk), Sides.VALUE, frozenset())
        planned = plan_columns(self.columns, seen, Sides.VALUE, reader_of, frozenset(), leaves_out=leaves_out)
        with ArchiveWriter(topic_id=TOPIC, typed=planned) as writer:
            writer.add(chunk)
            file = writer.finish()
        key = parquet_key(NAME, TOPIC, SESSION, ObjectNumber(number))
        await self.store.put(key, file.parts)
        change = ColumnsChange(before=self.columns, after=planned.columns)
        self.apply(await self.prepare(Change(added=(file.data_file(key),), columns=change)))
        self.columns = planned.columns


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """A row's typed columns, as `BOTH` has them."""
    typed = {name.removeprefix("value_"): each for name, each in row.items() if name.startswith(("value_", "error"))}
    return {name: value for name, value in typed.items() if value is not None}
