"""The parser of schemas in any format: it calls the parser of the text's own format.

Rule: a format's module is imported when the first schema of it is parsed, so that an agent that serves no schemas does
not load protoc, jsonschema and what they need.
"""

from collections.abc import Sequence

from agent.schemas.parsed import NamedText, Parsed
from coordinator.commands.registry import SchemaType


def parse(schema_type: SchemaType, text: str, references: Sequence[NamedText] = ()) -> Parsed:
    """The schema of a text. Parsing is CPU work: the caller runs it in a thread.

    `references`: every schema that the text needs, directly or not, each after those that it needs itself.
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
