"""Readers of schemas that come as data, with all that they refer to: from the registry, or with a job's plan.

Rule: pure. A schema that cannot be used is the reason why, in words: its records get it as their error.
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
"""What decodes records of a schema, one of each of its messages where it has several; or why nothing does."""


def make_ready(schema: SchemaData) -> ValueReader | ProtobufFiles:
    """CPU work for a thread. Raises `SchemaUnusable`, and whatever a format's library raises."""
    match schema.kind:
        case "AVRO":
            return AvroReader(schema.text, [text for _, text in schema.references])
        case "JSON":
            return JsonReader(schema.text, dict(schema.references))
        case "PROTOBUF":
            return ProtobufFiles(list(schema.files), schema.own)


def readers(ready: Mapping[int, Ready]) -> Callable[[WriterSchema], ValueReader]:
    """Finds the reader of a record's writer. `ready`: by schema ids."""

    def reader_of(writer: WriterSchema) -> ValueReader:
        found = ready[writer.schema_id]
        if isinstance(found, str):
            raise SchemaUnusable(found)
        return found.reader(writer.indexes) if isinstance(found, ProtobufFiles) else found

    return reader_of
