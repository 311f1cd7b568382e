"""A schema as data, with all that it refers to: from the registry, or with the plan of a Spark job.

Rule: imports nothing heavy, for whoever plans does not decode.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaData:
    """A schema. `references`: name and text of what it refers to. `files`, `own`: Protobuf's descriptors, in whose
    place there is no text."""

    kind: Literal["AVRO", "JSON", "PROTOBUF"]
    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    files: tuple[bytes, ...] = ()
    own: bytes = b""
