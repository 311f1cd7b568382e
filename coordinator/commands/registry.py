"""Ledger commands about schemas, and the outcomes of applying them.

Rule: whether a schema can be read, and whether it goes with earlier versions, was judged by the agent that proposed it:
applying an entry parses nothing, so versions of this program may parse in different ways (safety rule S3). The command
names what it was judged against, and is rejected where that changed meanwhile. Everything else is judged at apply.
Source of the words and codes: Confluent Schema Registry API 8, `io.confluent.kafka.schemaregistry.rest.exceptions`.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated

from msgspec import Meta

from coordinator.commands.field_types import Natural
from coordinator.commands.forms import WireStruct

EVERY_SUBJECT = ""
"""Under this name stands what holds for subjects that have no setting of their own."""
CONTENT_DIGEST_BYTES = 16
RegistryId = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
"""The id of a schema, or the number of a subject's version."""


class SchemaType(IntEnum):
    AVRO = 0
    JSON = 1
    PROTOBUF = 2


class Compatibility(IntEnum):
    """Which earlier versions a new one has to go with, and who reads whose records."""

    NONE = 0
    BACKWARD = 1
    BACKWARD_TRANSITIVE = 2
    FORWARD = 3
    FORWARD_TRANSITIVE = 4
    FULL = 5
    FULL_TRANSITIVE = 6


class RegistryMode(IntEnum):
    """The changes that a subject allows."""

    READWRITE = 0
    READONLY = 1
    IMPORT = 2


class RegistryError(Enum):
    """The reason for a rejected command; the values are the error codes in the API's answers."""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    INVALID_SCHEMA = 42201
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    CHANGED_MEANWHILE = 0
    """Never answered to a client: the agent that proposed the command checks the schema again."""


class SchemaReference(WireStruct, frozen=True, kw_only=True):
    """Another schema that one needs to be read: how its text calls it, and where it is registered."""

    name: str
    subject: str
    version: RegistryId


class SchemaContent(WireStruct, frozen=True, kw_only=True):
    """A schema as it was registered. Equal contents have one id, under however many subjects."""

    schema_type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()

    @property
    def digest(self) -> bytes:
        """16 bytes that no other content has: BLAKE2b of type, text and references."""
        known = hashlib.blake2b(digest_size=CONTENT_DIGEST_BYTES)
        parts = [str(int(self.schema_type)), self.text]
        for reference in self.references:
            parts += [reference.name, reference.subject, str(reference.version)]
        for part in parts:
            encoded = part.encode()
            known.update(len(encoded).to_bytes(8, "little"))
            known.update(encoded)
        return known.digest()


class RegisterSchema(WireStruct, frozen=True, kw_only=True, tag=60):
    """Give a schema its id, and a subject its next version."""

    subject: str
    content: SchemaContent
    checked_at: Natural
    """`Registry.changed_at` of the subject whose versions the schema was compared with."""
    checked_as: Compatibility
    """The compatibility that it was checked for."""
    schema_id: RegistryId | None = None
    """In IMPORT mode: the id that it had elsewhere."""
    version: RegistryId | None = None
    """In IMPORT mode: the version that it was elsewhere."""


class DeleteVersions(WireStruct, frozen=True, kw_only=True, tag=61):
    """Delete one version of a subject, or all (None). What is deleted at first may still be read by those who know it;
    what was deleted before is forgotten when it is deleted permanently."""

    subject: str
    version: RegistryId | None
    is_permanent: bool


class SetCompatibility(WireStruct, frozen=True, kw_only=True, tag=62):
    """Set what new versions of a subject have to go with, or remove the subject's own setting (None)."""

    subject: str
    compatibility: Compatibility | None


class SetMode(WireStruct, frozen=True, kw_only=True, tag=63):
    """Set what may be done to a subject, or remove the subject's own setting (None)."""

    subject: str
    mode: RegistryMode | None
    is_forced: bool
    """Whether IMPORT may be set where there are versions already."""


RegistryCommand = RegisterSchema | DeleteVersions | SetCompatibility | SetMode


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistered:
    """The schema is, or was before, this version of the subject."""

    schema_id: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsDeleted:
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRejected:
    """The command changed nothing."""

    error: RegistryError
    reason: str


RegistryOutcome = SchemaRegistered | VersionsDeleted | RegistryRejected
