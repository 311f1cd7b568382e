"""Records as serializers write them, and columns as the archive decodes them, for tests."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import numpy as np

from agent.schemas.parsed import NamedText
from agent.schemas.protobuf import parse_protobuf
from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.typed.avro_shapes import AvroReader
from iceberg_export.typed.columns import Column, TypedColumns
from iceberg_export.typed.decode import DecodedColumns, ValueReader, ValueReaders, decode_column
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.protobuf_shapes import ProtobufFiles
from iceberg_export.typed.shapes import Shape, Untyped
from iceberg_export.typed.union import merge_value

NOTHING = TypedColumns(version=0, field_id_next=100)


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """The values as the archive has them."""
    ends = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(each or b"") for each in values], out=ends[1:])
    is_null = np.array([each is None for each in values], dtype=np.bool_)
    data = np.frombuffer(b"".join(each or b"" for each in values), dtype=np.uint8)
    return BinaryColumn(ends=ends, data=data, is_null=is_null if is_null.any() else None)


def framed(schema_id: int, data: bytes) -> bytes:
    """A record as serializers send it."""
    return b"\0" + schema_id.to_bytes(4, "big") + data


def record(name: str, *fields: tuple[str, object], **more: object) -> dict[str, Any]:
    """An Avro record's schema."""
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields], **more}


def avro_reader(schema: object) -> AvroReader:
    return AvroReader(json.dumps(schema))


def avro_bytes(schema: Untyped, value: object) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


def protobuf_files(text: str, **references: str) -> ProtobufFiles:
    """A schema of Protobuf as the registry has it."""
    parsed = parse_protobuf(text, [NamedText(name=f"{name}.proto", text=each) for name, each in references.items()])
    return ProtobufFiles([each.SerializeToString() for each in parsed.files.values()], parsed.file.SerializeToString())


def merged(*shapes: Shape) -> TypedColumns:
    """The columns after values of these shapes, in this order."""
    columns = NOTHING
    for shape in shapes:
        columns = merge_value(columns, shape)
    return columns


def decoded(
    columns: Sequence[Column], readers: Mapping[WriterSchema, ValueReader | str], values: Sequence[bytes | None]
) -> DecodedColumns:
    with_indexes = frozenset(each.schema_id for each in readers if each.indexes)
    return decode_column(binary_column(values), columns, ValueReaders(by_writer=readers, with_indexes=with_indexes))


def rows_of(columns: Sequence[Column], made: DecodedColumns) -> list[dict[str, Any]]:
    """The decoded rows, without what is null."""
    found: list[dict[str, Any]] = [{} for _ in made.errors]
    for column, array in zip(columns, made.arrays, strict=True):
        for row, value in zip(found, array.to_pylist(), strict=True):
            if value is not None:
                row[column.name] = value
    for row, error in zip(found, made.errors, strict=True):
        if error is not None:
            row["error"] = error
    return found


def decoded_rows(
    columns: Sequence[Column], readers: Mapping[WriterSchema, ValueReader | str], values: Sequence[bytes | None]
) -> list[dict[str, Any]]:
    return rows_of(columns, decoded(columns, readers, values))
