"""A schema as data with its references: from the registry, or with the plan of a Spark job.

No heavy imports: an agent that plans does not decode records.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaData:
    """A schema.

    `references`: the name and text of each referenced schema. `files`, `own`: the descriptors of a Protobuf schema,
    which has no text here.
    """

    kind: Literal["AVRO", "JSON", "PROTOBUF"]
    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    files: tuple[bytes, ...] = ()
    own: bytes = b""
