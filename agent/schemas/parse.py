"""Parses schemas of all formats.

Rule: a format's module is imported with its first schema, so that an agent without schemas does not load protoc,
jsonschema and their dependencies.
"""

from collections.abc import Sequence

from agent.schemas.parsed import NamedText, Parsed
from coordinator.commands.registry import SchemaType


def parse(schema_type: SchemaType, text: str, references: Sequence[NamedText] = ()) -> Parsed:
    """The parsed schema. CPU work: the caller runs it in a thread.

    `references`: every schema that the text refers to, directly or not, each after its own references.
    Raises `InvalidSchema`.
    """
    match schema_type:
        case SchemaType.AVRO:
            from agent.schemas.avro import parse_avro

            return parse_avro(text, references)
        case SchemaType.JSON:
            from agent.schemas.json_schema import parse_json_schema

            return parse_json_schema(text, references)
        case SchemaType.PROTOBUF:
            from agent.schemas.protobuf import parse_protobuf

            return parse_protobuf(text, references)
