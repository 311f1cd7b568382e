"""Avro object container files: rows to bytes, and back.

Rule: the same rows under the same key give the same bytes. The only module that reads Avro which comes from the bucket
(safety rule S20): fastavro raises what it likes of damaged bytes, of its own, of zlib and of Python, so all of it is
`Undecodable` here.

Specification: Apache Avro's specification, "Object Container Files".
"""

import hashlib
import io
from collections.abc import Mapping
from typing import Any

from fastavro import reader, writer
from fastavro.types import Schema

from protocol.decoding import Undecodable

CODEC = "deflate"
"""Iceberg's default, there called gzip."""


def encode_rows(schema: Schema, rows: list[dict[str, Any]], key: str, header: Mapping[str, str]) -> bytes:
    """The file that an object `key` holds."""
    sink = io.BytesIO()
    # What parts the blocks is random by custom, so as not to be in the data; a key's digest does as well.
    marker = hashlib.sha256(key.encode()).digest()[:16]
    writer(sink, schema, rows, codec=CODEC, metadata=dict(header), sync_marker=marker)
    return sink.getvalue()


def decode_rows(data: bytes) -> tuple[Mapping[str, str], list[Any]]:
    """The header and the rows of a file, by the schema that it holds itself. Raises `Undecodable`."""
    try:
        found = reader(io.BytesIO(data))
        return dict(found.metadata), list(found)
    except Exception as error:
        raise Undecodable(f"it cannot be read as Avro, it is damaged: {error!r}") from error
