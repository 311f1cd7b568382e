"""Makes readers of schemas that come as data with their references: from the registry, or with a job's plan. Pure.

An unusable schema is represented by the reason as text, which becomes the error of its records.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from iceberg_export.typed.avro_shapes import AvroReader
from iceberg_export.typed.decode import ValueReader
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.json_shapes import JsonReader
from iceberg_export.typed.protobuf_shapes import ProtobufFiles
from iceberg_export.typed.schema_data import SchemaData
from iceberg_export.typed.shapes import SchemaUnusable

Ready: TypeAlias = ValueReader | ProtobufFiles | str
"""The reader of a schema's records, or of Protobuf the files with the readers of all messages; else the reason why
there is none."""


def make_ready(schema: SchemaData) -> ValueReader | ProtobufFiles:
    """The reader of a schema. CPU work for a thread. Raises `SchemaUnusable`, and any exception of a library."""
    match schema.kind:
        case "AVRO":
            return AvroReader(schema.text, [text for _, text in schema.references])
        case "JSON":
            return JsonReader(schema.text, dict(schema.references))
        case "PROTOBUF":
            return ProtobufFiles(list(schema.files), schema.own)


def readers(ready: Mapping[int, Ready]) -> Callable[[WriterSchema], ValueReader]:
    """A function that returns the reader of a writer's records. `ready`: by schema id."""

    def reader_of(writer: WriterSchema) -> ValueReader:
        schema = ready[writer.schema_id]
        if isinstance(schema, str):
            raise SchemaUnusable(schema)
        return schema.reader(writer.indexes) if isinstance(schema, ProtobufFiles) else schema

    return reader_of
